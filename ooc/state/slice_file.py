"""Arrays that are kept by slices, in a file: the engine's answer where memory does not hold a model.

Workers map the file and use the arrays as if they were in memory. Pages that were only read can be dropped by the
kernel at any time; those that were changed count as memory until they are written, so the engine has them written
whenever the workers leave a slice. Nothing in the file has to outlive its use: it is derived, or a generation has it.
After a kill, whoever locks the run next removes the file.
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

SLICES = "slices"  # directory of the file, in a run


class SliceFile:
    """A file in a directory of its own that holds arrays, all zero at first.

    Attributes: `arrays`, to which others can attach. Raises WorkFailed, with nothing left behind, if the disk is full.
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
        """Begin to write what was changed, in the background, once all that was changed before is written.

        So what is not written is never more than what was changed since the last call and the one before it.
        """
        if self._writing:
            with disk_errors(self._path):
                self._writing.result()
        self._writing = self._writer.submit(os.fdatasync, self.arrays.descriptor)

    def fill(self, name: str, numbers: np.ndarray, most: int) -> None:
        """Set an array to `numbers`, (n,), so many at a time as may be changed and not written."""
        array = self.arrays[name].reshape(-1)
        for first in range(0, array.size, most):
            array[first : first + most] = numbers[first : first + most]
            self.write_back()

    def close(self) -> None:
        """Remove the file."""
        self._writer.shutdown()
        self.arrays.close()
        shutil.rmtree(self._path.parent)
