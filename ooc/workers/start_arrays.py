"""Arrays that are freed, and arrays that are allocated, when the initial phases of training are over."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from blocks.files import disk_errors
from ooc.workers.shared_arrays import ArraySpec, SharedArrays, total_bytes

Specs = Mapping[str, ArraySpec]


class StartArrays(Mapping[str, np.ndarray]):
    """Arrays used only by the phases of `initial`, and arrays used only after these phases; all initially zero.

    Parameters
    ----------
    start, filed : mapping of ArraySpec
        Specs of the arrays for the initial phases, in memory and in a file.
    later : mapping of ArraySpec
        Specs of the arrays that the initial phases do not use.
    directory : Path
        Directory of the file. The file has no name, so a killed process leaves nothing behind.
    """

    def __init__(self, start: Specs, filed: Specs, later: Specs, directory: Path) -> None:
        self._directory = directory
        self.known: list[tuple[dict[str, ArraySpec], int]] = []
        with ExitStack() as stack:
            groups = []
            for specs in (start, filed, later):
                descriptor = _nameless_file(directory, total_bytes(specs)) if specs is filed and filed else None
                groups.append(stack.enter_context(closing(SharedArrays(specs, descriptor, later=True))))
                self.known.append((dict(specs), groups[-1].descriptor))
            self._start, self._filed, self._later = groups
            self._closing = stack.pop_all()
        self._arrays = {name: array for group in groups for name, array in group.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def begin(self) -> None:
        """Allocate the arrays for the initial phases.

        Raises WorkFailed if there is too little memory or disk space.
        """
        self._start.allocate()
        with disk_errors(self._directory):
            self._filed.allocate()

    def end(self) -> None:
        """Free the arrays of the initial phases, and allocate the later arrays.

        Raises WorkFailed if there is too little memory.
        """
        self._start.free()
        self._filed.free()
        self._later.allocate()

    def close(self) -> None:
        """Free all arrays."""
        self._arrays.clear()
        self._closing.close()


def _nameless_file(directory: Path, size: int) -> int:
    with disk_errors(directory), tempfile.TemporaryFile(dir=directory) as file:
        file.truncate(size)
        return os.dup(file.fileno())
