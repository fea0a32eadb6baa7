"""Slices of the model that rotate around the ring, as one rank holds them: stored, in transit, or in a generation.

A slice rests at the rank that stores it between two trips.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from blocks.arrays import ArrayPieces
from blocks.stored_dataset import StoredDataset
from ooc.program import Phase, StaticProgram
from ooc.ring.packet_slots import SLOTS, PacketSlots
from ooc.ring.packet_store import PacketStore
from ooc.ring.ring import Ring
from ooc.ring.rotation import RotationPass
from ooc.ring.rotation_schedule import SliceVisit, resting_slices, rotation_schedule
from ooc.state.generations import TrainingCursor
from ooc.state.unit_passes import ThreadWaker, UnitPass
from ooc.workers.shared_arrays import ArraySpec
from ooc.workers.worker import packet_sizes

# Arrays of a generation: uint8, the concatenated packets of the slices that rest at this rank; int64, their sizes.
RESTING, SIZES = "resting", "resting_sizes"


class RotatingSlices:
    """Model slices that are passed around the ring of machines.

    directory: directory of the files that store slices between rotations. in_generations: whether checkpoints contain
        the slices; otherwise, the program rebuilds them when a run is resumed.
    """

    def __init__(self, dataset: StoredDataset, program: StaticProgram, ring: Ring, directory: Path) -> None:
        self._program, self._ring, self._directory = program, ring, directory
        self._count = dataset.slice_count
        self._rooms = packet_sizes(dataset, program)
        self._shelf: PacketStore | None = None
        self._following: PacketStore | None = None  # filled during a trip
        self.in_generations = any(phase.travels for phase in program.initial)
        directory.mkdir(exist_ok=True)

    def specs(self) -> dict[str, ArraySpec]:
        """Return the specs of the shared arrays in which workers update slices."""
        return PacketSlots.specs(self._rooms, SLOTS)

    def attach(self, shared: Mapping[str, np.ndarray]) -> None:
        """Attach to the shared arrays that `specs` declares."""
        self._slots = PacketSlots(self._rooms, SLOTS, shared)

    def trips(self, cursor: TrainingCursor) -> int:
        """Return the number of completed trips of the slices around the ring."""
        changing = [phase.travels == "changed" for phase in self._program.phases]
        return cursor.iteration * sum(changing) + sum(changing[: cursor.phase])

    def resting(self, cursor: TrainingCursor) -> range:
        """Return the slices that rest at this rank."""
        return resting_slices(self._count, self._ring.ranks, self._ring.rank, self.trips(cursor))

    def rank_of_first(self, cursor: TrainingCursor) -> int:
        """Return the rank at which slice 0 rests."""
        return -self.trips(cursor) % self._ring.ranks

    def open(
        self, phase: Phase, cursor: TrainingCursor, cells: Callable[[Sequence[int], ThreadWaker], UnitPass]
    ) -> UnitPass:
        """Return the pass over the slices of a phase, in order of arrival.

        cells: see RotationPass.
        """
        self._following = PacketStore(self._directory) if phase.travels in ("made", "changed") else None
        source = None if phase.travels == "made" else self._shelf
        return RotationPass(self._stops(phase, cursor), cells, self._slots, self._ring, source, self._following)

    def _stops(self, phase: Phase, cursor: TrainingCursor) -> list[SliceVisit]:
        if phase.travels == "looked at":
            return [SliceVisit(slice_, own=True, last=True) for slice_ in self.resting(cursor)]
        trips = self.trips(cursor) - (phase.travels == "made")
        return rotation_schedule(self._count, self._ring.ranks, self._ring.rank, trips)

    def arrived(self) -> None:
        """Record that the slices of a phase have completed their trip."""
        if self._following:
            if self._shelf:
                self._shelf.close()
            self._shelf, self._following = self._following, None

    def to_commit(self, cursor: TrainingCursor) -> dict[str, np.ndarray | ArrayPieces]:
        """Return the arrays of a generation that hold the slices stored on this rank."""
        if not self.in_generations:
            return {}
        assert self._shelf
        slices = self.resting(cursor)
        sizes = self._shelf.sizes(slices)
        return {SIZES: sizes, RESTING: ArrayPieces("uint8", int(sizes.sum()), self._shelf.packets(slices))}

    def restore(self, committed: dict[str, np.ndarray], cursor: TrainingCursor) -> None:
        """Restore the slices stored on this rank from a committed generation."""
        sizes, packets = committed[SIZES].tolist(), committed[RESTING]
        self._shelf, ends = PacketStore(self._directory), np.cumsum(sizes).tolist()
        for slice_, size, end in zip(self.resting(cursor), sizes, ends, strict=True):
            self._shelf.put(slice_, memoryview(packets[end - size : end].data))

    def close(self) -> None:
        with ExitStack() as stack:
            for shelf in (self._shelf, self._following):
                if shelf:
                    stack.callback(shelf.close)
