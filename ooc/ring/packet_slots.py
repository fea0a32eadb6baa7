"""Slices in transit as packets, and the shared memory slots in which workers update them.

A packet consists of the size in bytes of each part of the slice, int64 (P,), and the bytes of the parts. A slot has
room for a received packet and for the largest possible result of each part. Workers read the parts of the packet and
write the results; when all parts are done, the results are packed over the received packet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from blocks.errors import WorkFailed
from ooc.workers.shared_arrays import ArraySpec

SLOTS = 4  # per rank
_NUMBER = 8  # bytes of a part's size in a packet


class PartInTransit(NamedTuple):
    """A part of a slice in transit, as handed to a worker.

    arrived: uint8 (n,), the received bytes; empty if the part does not exist yet.
    leaving: uint8 (m,), buffer for the result.
    left: int64 (1,), which the worker sets to the number of bytes of the result.
    """

    arrived: np.ndarray
    leaving: np.ndarray
    left: np.ndarray


class PacketSlots:
    """Shared memory slots for several slices in transit.

    rooms: for each slice, int64 (P,), the maximum size of each part in bytes.
    arrays: the shared arrays that `specs` declares.
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
        """Return the memory of a slot into which a packet is received."""
        return memoryview(self._slots[slot][0].data)

    def check(self, slot: int, slice_: int, size: int) -> None:
        """Raise WorkFailed unless the `size` bytes received in a slot are a valid packet of a slice."""
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

    def passage(self, slot: int, slice_: int, part: int) -> PartInTransit:
        """Return a part of the slice in a slot."""
        packet, leaving, left = self._slots[slot]
        bounds = self._bounds[slice_]
        parts = bounds.size - 1
        lengths = packet[: _NUMBER * parts].view(np.int64)
        begin = _NUMBER * parts + int(lengths[:part].sum())
        arrived = packet[begin : begin + int(lengths[part])]
        return PartInTransit(arrived, leaving[bounds[part] : bounds[part + 1]], left[part : part + 1])

    def packet(self, slot: int, slice_: int) -> memoryview:
        """Return the packet as it was received."""
        packet, parts = self._slots[slot][0], self._bounds[slice_].size - 1
        size = _NUMBER * parts + int(packet[: _NUMBER * parts].view(np.int64).sum())
        return memoryview(packet[:size].data)

    def close(self, slot: int, slice_: int) -> memoryview:
        """Pack the results of the parts over the received packet, and return the new packet."""
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
