"""Gather and broadcast long messages over a ring, in pieces."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from blocks.errors import OocError, RequestError, WorkFailed
from blocks.memory import available_memory
from ooc.ring.ring import Ring

_COUNT = struct.Struct("<q")  # number of arrays
_HEADER = struct.Struct("<cq")  # for each array: the character code of its dtype, and its number of elements
_PIECE = 1 << 20  # bytes
_MOST_UNCHECKED = 1 << 26  # size in bytes of a message for which any machine has enough memory
_MORE, _LAST, _DONE = range(3)  # a piece of a message, the last piece of a message, or the end of all messages


def gather_values(ring: Ring, value: Any) -> list[Any]:
    """Return the JSON values of all ranks, in rank order."""
    return [json.loads(each) for each in ring.all_gather(json.dumps(value).encode())]


def from_rank_0(ring: Ring | None, make: Callable[[], Any]) -> Any:
    """Return a JSON value that rank 0 makes, on all ranks.

    Raises its OocError on all ranks.

    make: function that returns the value, called on rank 0 alone; without a ring, its value is returned as it is.
    """
    if ring is None:
        return make()
    told: Any = None
    if ring.rank == 0:
        try:
            told = {"value": make()}
        except OocError as error:
            told = {"error": [error.what, error.remedy]}
    told = json.loads(MessageRelay(ring).spread(json.dumps(told).encode()))
    if "error" in told:
        raise RequestError(*told["error"])
    return told["value"]


def collect_messages(ring: Ring, own_messages: Iterable[bytes], order: Sequence[int]) -> Iterator[bytes]:
    """Yield the messages of all ranks on rank 0, rank by rank in the given order; yields nothing on other ranks.

    All ranks must call this function and iterate to the end.

    own_messages: messages of this rank.
    """
    for rank in order:
        if ring.rank == rank:
            if rank == 0:
                yield from own_messages
                continue
            for message in own_messages:
                _send(ring, message)
            ring.send(_DONE, memoryview(b""))
        elif rank != 0 and (ring.rank == 0 or ring.rank > rank):
            yield from _hear(ring, last=0, listens=ring.rank == 0)


class MessageRelay:
    """Exchange of long messages over a ring, for `blocks.shards.joint_ingestion.IngestionPeers`."""

    def __init__(self, ring: Ring) -> None:
        self._ring, self.rank, self.ranks = ring, ring.rank, ring.ranks

    def gather(self, message: bytes) -> Iterator[bytes]:
        return collect_messages(self._ring, [message], range(self.ranks))

    def spread(self, message: bytes) -> bytes:
        if self.rank > 0:
            (message,) = _hear(self._ring, last=self.ranks - 1, listens=True)
        elif self.ranks > 1:
            _send(self._ring, message)
            self._ring.send(_DONE, memoryview(b""))
        return message

    def exchange(self, message: bytes) -> list[bytes]:
        """Return the message of each rank, in rank order, on all ranks."""
        return [self.spread(each) for each in list(self.gather(message)) or [b""] * self.ranks]

    def wait(self) -> None:
        self._ring.barrier()


def _send(ring: Ring, message: bytes) -> None:
    whole = memoryview(message)
    last = max(len(whole) - 1, 0) // _PIECE
    for piece in range(last + 1):
        ring.send(_LAST if piece == last else _MORE, whole[piece * _PIECE : (piece + 1) * _PIECE])


def _hear(ring: Ring, last: int, *, listens: bool) -> Iterator[bytes]:
    """Forward the messages of the previous rank up to the rank `last`; yield them if this rank listens."""
    room, message = memoryview(bytearray(_PIECE)), bytearray()
    while True:
        kind, size = ring.receive(room)
        if ring.rank != last:
            ring.send(kind, room[:size])
        if listens and kind != _DONE:
            message += room[:size]
            if len(message) > _MOST_UNCHECKED and len(message) > available_memory() // 2:
                raise WorkFailed(
                    f"a message from another rank is larger than {len(message) / 1e6:,.0f} MB, half of the free memory",
                    "Use machines with more memory, or fewer ranks per machine.",
                )
            if kind == _LAST:
                yield bytes(message)
                message.clear()
        if kind == _DONE:
            return


def pack_arrays(arrays: Sequence[np.ndarray]) -> bytes:
    """Pack one-dimensional arrays of numbers into one message."""
    headers = (_HEADER.pack(array.dtype.char.encode(), array.size) for array in arrays)
    return b"".join(chain([_COUNT.pack(len(arrays))], headers, (array.tobytes() for array in arrays)))


def unpack_arrays(message: bytes) -> tuple[np.ndarray, ...]:
    (count,) = _COUNT.unpack_from(message)
    at = _COUNT.size + count * _HEADER.size
    arrays = []
    for kind, size in _HEADER.iter_unpack(message[_COUNT.size : at]):
        arrays.append(np.frombuffer(message, kind.decode(), size, at))
        at += arrays[-1].nbytes
    return tuple(arrays)
