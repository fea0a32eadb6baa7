"""Slices of the model as they travel: packets, and the shared memory in which a few of them are worked on.

A packet is how many bytes each part of the slice takes, int64 (P,), and these bytes, part after part. A slot has room
for a packet that has arrived, and for what each part becomes, as large as it can get. A worker reads the one and writes
the other; when all parts are done they are put together again where the packet arrived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from blocks.errors import WorkFailed
from ooc.workers.shared_arrays import ArraySpec

SLOTS = 4  # of a rank
_NUMBER = 8  # bytes


class Passage(NamedTuple):
    """A part of a travelling slice as a worker gets it.

    arrived: uint8 (n,), its bytes; none if nobody has made any yet. leaving: uint8 (m,), room for what it becomes.
    left: int64 (1,), to be set to how many bytes that are.
    """

    arrived: np.ndarray
    leaving: np.ndarray
    left: np.ndarray


class Slots:
    """Room for some travelling slices in shared memory.

    rooms: for each slice, int64 (P,), the bytes that each of its parts takes at most. arrays: those of `specs`.
    """

    def __init__(self, rooms: Sequence[np.ndarray], count: int, arrays: Mapping[str, np.ndarray]) -> None:
        self._bounds = [np.concatenate(([0], np.cumsum(room))) for room in rooms]
        self._slots = [[arrays[name] for name in _names(slot)] for slot in range(count)]

    @staticmethod
    def specs(rooms: Sequence[np.ndarray], count: int) -> dict[str, ArraySpec]:
        parts = max((room.size for room in rooms), default=0)
        most = max((int(room.sum()) for room in rooms), default=0)
        one = (ArraySpec((_NUMBER * parts + most,), "uint8"), ArraySpec((most,), "uint8"), ArraySpec((parts,), "int64"))
        return {name: spec for slot in range(count) for name, spec in zip(_names(slot), one, strict=True)}

    def arrived(self, slot: int) -> memoryview:
        """Where a packet is read to."""
        return memoryview(self._slots[slot][0].data)

    def check(self, slot: int, slice_: int, size: int) -> None:
        """Raise WorkFailed unless the packet of so many bytes that has been read is one of a slice."""
        parts, packet = self._bounds[slice_].size - 1, self._slots[slot][0]
        if size == 0:
            packet[: _NUMBER * parts] = 0
            return
        lengths = packet[: _NUMBER * parts].view(np.int64)
        room = np.diff(self._bounds[slice_])
        if (
            size < _NUMBER * parts
            or ((lengths < 0) | (lengths > room)).any()
            or _NUMBER * parts + lengths.sum() != size
        ):
            raise WorkFailed(f"slice {slice_} arrived damaged: its {size:,} bytes do not match its {parts} parts")

    def passage(self, slot: int, slice_: int, part: int) -> Passage:
        """A part of the slice in a slot."""
        packet, leaving, left = self._slots[slot]
        bounds = self._bounds[slice_]
        parts = bounds.size - 1
        lengths = packet[: _NUMBER * parts].view(np.int64)
        begin = _NUMBER * parts + int(lengths[:part].sum())
        arrived = packet[begin : begin + int(lengths[part])]
        return Passage(arrived, leaving[bounds[part] : bounds[part + 1]], left[part : part + 1])

    def packet(self, slot: int, slice_: int) -> memoryview:
        """The packet as it arrived."""
        packet, parts = self._slots[slot][0], self._bounds[slice_].size - 1
        size = _NUMBER * parts + int(packet[: _NUMBER * parts].view(np.int64).sum())
        return memoryview(packet[:size].data)

    def close(self, slot: int, slice_: int) -> memoryview:
        """Put together what the parts became; returns the packet, where the one that arrived was."""
        packet, leaving, left = self._slots[slot]
        bounds = self._bounds[slice_]
        parts = bounds.size - 1
        packet[: _NUMBER * parts].view(np.int64)[:] = left[:parts]
        at = _NUMBER * parts
        for part, size in enumerate(left[:parts].tolist()):
            packet[at : at + size] = leaving[bounds[part] : bounds[part] + size]
            at += size
        return memoryview(packet[:at].data)


def _names(slot: int) -> tuple[str, str, str]:
    return f"packet{slot}", f"leaving{slot}", f"left{slot}"
