"""Slices in transit as packets, and the shared memory slots in which they are worked on.

A packet is the number of bytes of each part of the slice, int64 (P,), followed by the parts' bytes. A slot has room for
an arrived packet, and for the largest result of each part. A worker reads the former and writes the latter; when all
parts are done they are packed where the packet arrived.
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
    """One part of a slice in transit, as a worker gets it.

    arrived: uint8 (n,), its bytes; empty if the part does not exist yet. leaving: uint8 (m,), room for the result.
    left: int64 (1,), to be set to the number of bytes of the result.
    """

    arrived: np.ndarray
    leaving: np.ndarray
    left: np.ndarray


class PacketSlots:
    """Shared memory slots for several slices in transit.

    rooms: for each slice int64 (P,), the largest number of bytes of each part. arrays: made by `specs`.
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
        """Return the memory into which a packet is read."""
        return memoryview(self._slots[slot][0].data)

    def check(self, slot: int, slice_: int, size: int) -> None:
        """Raise WorkFailed unless the packet of `size` bytes in a slot is a valid packet of a slice."""
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
        """Return a part of the slice in a slot."""
        packet, leaving, left = self._slots[slot]
        bounds = self._bounds[slice_]
        parts = bounds.size - 1
        lengths = packet[: _NUMBER * parts].view(np.int64)
        begin = _NUMBER * parts + int(lengths[:part].sum())
        arrived = packet[begin : begin + int(lengths[part])]
        return Passage(arrived, leaving[bounds[part] : bounds[part + 1]], left[part : part + 1])

    def packet(self, slot: int, slice_: int) -> memoryview:
        """Return the packet as it arrived."""
        packet, parts = self._slots[slot][0], self._bounds[slice_].size - 1
        size = _NUMBER * parts + int(packet[: _NUMBER * parts].view(np.int64).sum())
        return memoryview(packet[:size].data)

    def close(self, slot: int, slice_: int) -> memoryview:
        """Pack the results of the parts where the packet arrived, and return the new packet."""
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
