"""Numbers that are written to a file as they arrive, and then read as an array."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from blocks.files import disk_errors


class NumberSpool:
    """Stores numbers of one dtype in an anonymous file in `directory`. Use as a context manager."""

    def __init__(self, directory: Path, dtype: str) -> None:
        self._directory, self._dtype = directory, np.dtype(dtype)
        with disk_errors(directory):
            self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115, closed by `__exit__`

    def __enter__(self) -> NumberSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, numbers: np.ndarray) -> None:
        with disk_errors(self._directory):
            self._file.write(np.ascontiguousarray(numbers, self._dtype).data)

    def mapped(self, *shape: int) -> np.ndarray:
        """Return all added numbers as a mapped array, valid after closing.

        Raises WorkFailed if the disk is full.
        """
        with disk_errors(self._directory):
            self._file.flush()
            os.fdatasync(self._file.fileno())  # dirty pages would count as memory
        size = os.fstat(self._file.fileno()).st_size // self._dtype.itemsize
        flat: np.ndarray[Any, Any] = np.memmap(self._file, self._dtype, "r") if size else np.empty(0, self._dtype)
        return np.asarray(flat).reshape(shape)
