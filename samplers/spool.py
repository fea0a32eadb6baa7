"""What comes in pieces and is wanted in another order, kept on disk meanwhile."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from blocks.files import disk_errors

_LINES = 1 << 13  # put in order at a time


class Spool:
    """Numbers of one type in a file without a name. directory: where it is. Use as a context manager."""

    def __init__(self, directory: Path, dtype: str) -> None:
        self._directory, self._dtype = directory, np.dtype(dtype)
        with disk_errors(directory):
            self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115, closed by `__exit__`

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, numbers: np.ndarray) -> None:
        with disk_errors(self._directory):
            self._file.write(np.ascontiguousarray(numbers, self._dtype).data)

    def mapped(self, *shape: int) -> np.ndarray:
        """All that was added; it stays when the spool is closed. Raises WorkFailed if the disk is full."""
        with disk_errors(self._directory):
            self._file.flush()
            os.fdatasync(self._file.fileno())  # pages that are not written yet would count as memory
        size = os.fstat(self._file.fileno()).st_size // self._dtype.itemsize
        flat: np.ndarray[Any, Any] = np.memmap(self._file, self._dtype, "r") if size else np.empty(0, self._dtype)
        return np.asarray(flat).reshape(shape)


def lines_in_order(text: np.ndarray, order: np.ndarray) -> Iterator[bytes]:
    """Lines of a text, uint8 (n,), some at a time: first that whose number `order`, int64, has first."""
    ends = np.concatenate(list(_ends(text)))
    starts = np.concatenate(([0], ends[:-1]))
    for first in range(0, order.size, _LINES):
        some = order[first : first + _LINES]
        lengths = ends[some] - starts[some]
        before = np.cumsum(lengths) - lengths
        yield text[np.repeat(starts[some] - before, lengths) + np.arange(lengths.sum())].tobytes()


def _ends(text: np.ndarray, step: int = 1 << 24) -> Iterator[np.ndarray]:
    """Where the lines of a text end, the byte after each, a run of the text at a time."""
    yield np.empty(0, np.int64)
    for first in range(0, text.size, step):
        yield np.flatnonzero(text[first : first + step] == ord("\n")) + first + 1
