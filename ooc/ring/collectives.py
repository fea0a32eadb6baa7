"""All-reduce, all-gather and barrier on a ring on which each rank can only send frames, in order, to the next rank.

An array is reduced in chunks. The partial sums go from rank 0 to the last rank, and each rank adds its own values, so
sums are always accumulated in rank order; then the result goes round to all ranks. Several chunks are in flight at a
time. Only rank 0 starts chunks, so the number of chunks in flight bounds how many can wait at any rank, even a slow
one.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import NoReturn

import numpy as np

from blocks.errors import WorkFailed

CHUNK = 1 << 17  # bytes of a frame without its header
_LEAST_WINDOW = 8  # chunks in flight
MOST_REDUCED = 1 << 34  # bytes per array
MOST_GATHERED = 1 << 20  # bytes per rank
# Index of the collective call, size of the whole array in bytes, its dtype, and whether the chunk is fully summed.
_HEADER = struct.Struct("<QQc?")
FRAME_BYTES = _HEADER.size + CHUNK


def window(ranks: int) -> int:
    """Return the number of chunks in flight that keeps all ranks busy: one per hop round the ring, and one more."""
    return max(_LEAST_WINDOW, 2 * ranks)


def waiting_frames(ranks: int) -> int:
    """Return the maximum number of frames that can wait at a rank: one window of partial sums and one of results, for
    each of two calls."""
    return 4 * window(ranks)


class Collectives(ABC):
    """Collective operations for transports that implement `_pass_on`, `_from_previous` and `_blame`."""

    rank: int
    ranks: int

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.previous, self.next = (rank - 1) % ranks, (rank + 1) % ranks
        self._calls, self._window = 0, window(ranks)
        self.bytes_summed = 0

    @abstractmethod
    def _pass_on(self, frame: bytes) -> None:
        """Send a frame of at most FRAME_BYTES to the next rank without blocking."""

    @abstractmethod
    def _from_previous(self) -> bytes:
        """Wait for the next frame from the previous rank."""

    @abstractmethod
    def _blame(self, rank: int, reason: str) -> NoReturn:
        """Fail the ring because of a rank, and raise this failure, or an earlier one if there is one."""

    def all_reduce(self, array: np.ndarray) -> None:
        """Implement `ring.Ring.all_reduce`."""
        flat = _flat(array)
        self._calls += 1
        step = CHUNK // flat.itemsize
        chunks = [flat[at : at + step] for at in range(0, flat.size, step)]
        begun = ended = 0
        while ended < len(chunks):
            while self.rank == 0 and begun < min(len(chunks), ended + self._window):
                self._pass_chunk(flat, chunks[begun], False)
                begun += 1
            summed, values = self._next_chunk(flat)
            mine = chunks[ended if summed else begun]
            if values.size != mine.size:
                self._blame(self.previous, "sent a partial sum of the wrong size")
            if summed:
                mine[:] = values
            else:
                np.add(values, mine, out=mine)
                begun += 1
            whole = summed or self.next == 0
            ended += whole
            if not (summed and self.next == self.ranks - 1):
                self._pass_chunk(flat, mine, whole)

    def _pass_chunk(self, flat: np.ndarray, chunk: np.ndarray, summed: bool) -> None:
        header = _HEADER.pack(self._calls, flat.nbytes, flat.dtype.char.encode(), summed)
        self._pass_on(header + chunk.tobytes())
        self.bytes_summed += chunk.nbytes

    def _next_chunk(self, flat: np.ndarray) -> tuple[bool, np.ndarray]:
        """Return whether the next chunk of an array is fully summed, and its values."""
        frame = self._from_previous()
        try:
            call, size, kind, summed = _HEADER.unpack_from(frame)
            values = np.frombuffer(frame, flat.dtype, offset=_HEADER.size)
        except (struct.error, ValueError):
            self._blame(self.previous, "sent an invalid partial sum")
        if (call, size, kind) != (self._calls, flat.nbytes, flat.dtype.char.encode()):
            theirs = f"sums {size} bytes of type {kind.decode(errors='replace')} in its call {call}"
            mine = f"{flat.nbytes} bytes of type {flat.dtype.char} in its call {self._calls}"
            self._blame(self.previous, f"{theirs}, while rank {self.rank} sums {mine}")
        return summed, values

    def all_gather(self, data: bytes) -> list[bytes]:
        """Implement `ring.Ring.all_gather` as a sum: each rank adds zeros in place of the other ranks' bytes."""
        sizes = np.zeros(self.ranks, np.int64)
        sizes[self.rank] = len(data)
        self.all_reduce(sizes)
        for rank, size in enumerate(sizes):
            if not 0 <= size <= MOST_GATHERED:
                raise WorkFailed(f"rank {rank} sent {size} bytes to an all-gather; the maximum is {MOST_GATHERED}")
        words = [np.zeros(-(-size // 8), np.int64) for size in sizes]
        words[self.rank].view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
        whole = np.concatenate(words)
        self.all_reduce(whole)
        ends = np.cumsum([piece.nbytes for piece in words])
        gathered = whole.view(np.uint8)
        begins = [end - piece.nbytes for piece, end in zip(words, ends, strict=True)]
        return [gathered[begin : begin + size].tobytes() for begin, size in zip(begins, sizes, strict=True)]

    def barrier(self) -> None:
        """Implement `ring.Ring.barrier` as a sum whose result is not used."""
        self.all_reduce(np.zeros(1, np.int64))


def _flat(array: np.ndarray) -> np.ndarray:
    """Return a one-dimensional view of an array.

    Raises WorkFailed if the array cannot be summed.
    """
    if array.dtype not in (np.int64, np.float64) or not array.flags.c_contiguous or array.nbytes > MOST_REDUCED:
        raise WorkFailed(
            f"cannot sum an array of shape {array.shape} and dtype {array.dtype} over the ring",
            f"Pass a contiguous int64 or float64 array of at most {MOST_REDUCED} bytes.",
        )
    return array.reshape(-1)
