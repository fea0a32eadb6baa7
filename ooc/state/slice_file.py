"""Sliced arrays in a memory-mapped file, for models that do not fit in memory.

Workers use the arrays as if they were in memory. The kernel can drop clean pages at any time; changed pages count as
memory until they are written, so the engine writes them whenever the workers leave a slice. The contents need not
survive, as they are either derived or stored in a generation. After a kill, the next process that locks the run removes
the file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from blocks.files import allocate, disk_errors
from ooc.workers.shared_arrays import ArraySpec, SharedArrays, total_bytes

SLICES = "slices"  # name of the file's directory in a run


class SliceFile:
    """A file, in its own directory, with arrays that are initially zero. Attributes: `arrays`, to which other processes
    can attach.

    Raises WorkFailed and leaves nothing behind if the disk is full.
    """

    def __init__(self, directory: Path, specs: Mapping[str, ArraySpec]) -> None:
        self._path = directory / "arrays"
        try:
            with disk_errors(directory):
                directory.mkdir(exist_ok=True)
            allocate(self._path, total_bytes(specs))
            with disk_errors(self._path):
                self.arrays = SharedArrays(specs, os.open(self._path, os.O_RDWR))
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._writer = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def write_back(self) -> None:
        """Start writing changed pages in the background, after the previous write has finished.

        Thus only changes made since the second to last call can be unwritten.
        """
        if self._writing:
            with disk_errors(self._path):
                self._writing.result()
        self._writing = self._writer.submit(os.fdatasync, self.arrays.descriptor)

    def fill(self, name: str, numbers: np.ndarray, most: int) -> None:
        """Set an array to `numbers`, (n,), at most `most` numbers at a time, so that few changed pages are
        unwritten."""
        array = self.arrays[name].reshape(-1)
        for first in range(0, array.size, most):
            array[first : first + most] = numbers[first : first + most]
            self.write_back()

    def close(self) -> None:
        """Remove the file."""
        self._writer.shutdown()
        self.arrays.close()
        shutil.rmtree(self._path.parent)
