"""Named arrays shared by processes, by default in anonymous memory, which leaves nothing behind."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple

import numpy as np

from blocks.errors import WorkFailed
from ooc.workers.madvise import MappedFile

_ALIGN = 4096
_SHM = "/dev/shm"


class ArraySpec(NamedTuple):
    """Shape and dtype of an array that the engine allocates.

    per: what the first axis counts, "row" (or document) or "column" (or word); "" for anything else. `update` may only
        change arrays with a value of `per`, and only in phases of that order.
    """

    shape: tuple[int, ...]
    dtype: str | np.dtype[Any]
    per: Literal["", "row", "column"] = ""

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def zeros(self) -> np.ndarray:
        """Return an array of zeros in private memory of this process."""
        return np.zeros(self.shape, self.dtype)


class SharedArrays(Mapping[str, np.ndarray]):
    """Arrays shared by a process and the workers that inherit `descriptor`, initially zero.

    With a descriptor, attach to existing arrays, or to a file of `total_bytes(specs)` zeros. Without one, allocate the
    arrays with all their pages, so that a lack of memory is an error here rather than a signal later.

    later: whether to postpone the allocation until `allocate` is called.
    """

    def __init__(self, specs: Mapping[str, ArraySpec], descriptor: int | None = None, *, later: bool = False) -> None:
        self._size = size = total_bytes(specs)
        self._remedy = ""
        if descriptor is None:
            descriptor, self._remedy = _nameless_file(size)
        self.descriptor = descriptor
        if self._remedy:
            try:
                self._have_size() if later else self.allocate()
            except WorkFailed:
                os.close(descriptor)
                raise
        whole = MappedFile(self.descriptor, size)
        whole.descriptor = self.descriptor
        self._arrays: dict[str, np.ndarray] = {}
        offset = 0
        for name, spec in specs.items():
            size = math.prod(spec.shape)
            flat = np.frombuffer(whole, spec.dtype, size, offset) if size else np.empty(0, spec.dtype)
            self._arrays[name] = flat.reshape(spec.shape)
            offset += _aligned(spec.bytes)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def allocate(self) -> None:
        """Allocate memory, or disk space, for every page.

        Raises WorkFailed or OSError if there is too little.
        """
        with self._errors():
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.descriptor, 0, self._size)
            else:
                os.ftruncate(self.descriptor, self._size)

    def _have_size(self) -> None:
        with self._errors():
            os.ftruncate(self.descriptor, self._size)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise WorkFailed with the remedy if an allocation of memory fails."""
        try:
            yield
        except OSError as error:
            if not self._remedy:
                raise
            raise WorkFailed(
                f"could not allocate {self._size / 1e6:.0f} MB of shared memory: {os.strerror(error.errno or 0)}",
                self._remedy,
            ) from error

    def free(self) -> None:
        """Release the memory of the arrays for all processes; afterwards the arrays are zero."""
        os.ftruncate(self.descriptor, 0)
        os.ftruncate(self.descriptor, self._size)

    def close(self) -> None:
        """Unmap the memory; it is freed when the last process unmaps it."""
        self._arrays.clear()
        os.close(self.descriptor)


def total_bytes(specs: Mapping[str, ArraySpec]) -> int:
    """Return the total size in bytes of the arrays, each on pages of its own; at least one page."""
    return max(sum(_aligned(spec.bytes) for spec in specs.values()), _ALIGN)


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _nameless_file(size: int) -> tuple[int, str]:
    """Return a file descriptor of anonymous memory, and the remedy if there is too little memory.

    If the system denies memfd_create, this is a deleted file in /dev/shm if there is enough space, otherwise in the
    directory for temporary files.
    """
    with suppress(AttributeError, OSError):  # not Linux, or not allowed in a container
        return os.memfd_create("ooc"), "Reduce --memory, so that the state is streamed from disk."
    remedy = f"Allow memfd_create, or make {_SHM} larger and writable: docker run --shm-size 2g"
    try:
        roomy = os.access(_SHM, os.W_OK | os.X_OK) and shutil.disk_usage(_SHM).free >= size
        with tempfile.TemporaryFile(dir=_SHM if roomy else None) as file:
            return os.dup(file.fileno()), remedy
    except OSError as error:
        raise WorkFailed(f"processes cannot share memory: {error.strerror}", remedy) from error
