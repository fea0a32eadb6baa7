"""Divide the memory limit of an ingestion between processes, and check that it suffices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blocks.errors import RequestError
from blocks.plurals import count_of

ONE_WORKER = 48 << 20  # memory of a worker besides its names and its block
NAME_BYTES = 280  # memory for each name in the main process besides its letters: dictionary, string, order, counts
_TEMPLATE = (
    144 << 20
)  # size in bytes of the main process and of memory shared by workers: interpreter, libraries, kernels
_COMPILED = 90 << 20  # size once kernels are compiled: measured 72 to 85 MiB before any name is read
_WORKER_NAME_BYTES = 170  # memory for each name in a worker besides its letters, as workers estimate it


class MemoryBudget(NamedTuple):
    """Memory of all processes.

    memory: bytes, None for a quarter of the available memory.
    workers: number of processes besides the main process.
    beside: bytes that the main process needs for reading some kinds of inputs.
    """

    memory: int | None
    workers: int
    beside: int = 0

    @property
    def total(self) -> int:
        """Return the memory of all processes in bytes."""
        from blocks.memory import available_memory

        return available_memory() // 4 if self.memory is None else self.memory

    @property
    def each_worker(self) -> int:
        """Return the memory of a worker in bytes for documents, apart from names and blocks."""
        return (self.total - self.beside - _TEMPLATE) // self.workers - ONE_WORKER

    def names_bytes(self, block_bytes: int) -> int:
        """Return the memory in bytes for the names (words, users, items) or column counts of a worker while it reads.

        block_bytes: size of the block or run that each worker writes later, when it no longer has names.
        Raises RequestError if these blocks and some hundred thousand names do not fit.
        """
        needed = self.beside + _TEMPLATE + self.workers * (ONE_WORKER + (1 << 20) + block_bytes) + (3 << 20)
        if needed > self.total:
            raise self._too_little(needed)
        # Workers have freed their names by the time the main process merges them.
        return (self.total - self.beside - _COMPILED) // self.workers - ONE_WORKER

    def require_names(self, block_bytes: int, *names: Sequence[str]) -> None:
        """Raise RequestError, stating the required limit, if the names that were read do not fit besides the blocks.

        block_bytes: see `names_bytes`.
        names: distinct names of all workers.
        """
        count, letters = sum(map(len, names)), sum(len(name) for several in names for name in several)
        each = _WORKER_NAME_BYTES * count + letters  # a worker may read all names
        self.require_room(block_bytes, NAME_BYTES * count + letters, self.workers * each)

    def require_room(self, block_bytes: int, main_bytes: int, reading_bytes: int = 0) -> None:
        """Raise RequestError, stating the required limit, if writing needs more memory.

        block_bytes: see `names_bytes`.
        main_bytes: memory of the main process while writing.
        reading_bytes: memory of all workers while reading, for the message.
        """
        base, writing = self.beside + _COMPILED + self.workers * ONE_WORKER, self.workers * block_bytes + main_bytes
        if base + writing > self.total:
            raise self._too_little(base + max(writing, reading_bytes))

    def _too_little(self, needed: int) -> RequestError:
        return RequestError(
            f"--memory {self.total >> 20}MiB is too small for {count_of(self.workers, 'worker')}: it must be at least "
            f"{-(-needed >> 20)}MiB",
            f"Increase --memory{', or reduce --workers' if self.workers > 1 else ''}.",
        )
