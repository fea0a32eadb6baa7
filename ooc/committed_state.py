"""Restore the newest generation that is intact on all ranks, and commit the current state as the newest generation."""

from __future__ import annotations

import numpy as np

from blocks.arrays import ArrayPieces
from blocks.errors import OocError, WorkFailed
from ooc.ring.generations import fall_back_together
from ooc.ring.ranks import RankCollectives
from ooc.ring.rotating_slices import RESTING, SIZES, RotatingSlices
from ooc.ring.stale_allreduce import PENDING, StaleAllreduce
from ooc.state.cell_file import CellFile
from ooc.state.generations import StateGenerations, TrainingCursor
from ooc.workers.engine_arrays import EngineArrays


class CommittedState:
    """The generations of one rank, copied to and from the engine's arrays, rotation and totals."""

    def __init__(
        self,
        generations: StateGenerations,
        arrays: EngineArrays,
        ranks: RankCollectives,
        rotation: RotatingSlices | None,
        totals: StaleAllreduce | None,
    ) -> None:
        self._generations, self._arrays, self._ranks = generations, arrays, ranks
        self._rotation, self._totals = rotation, totals
        self._beside: dict[str, np.ndarray] = {}  # arrays of the restored generation that belong to the ring

    def restore(self) -> TrainingCursor:
        """Restore the newest generation that is intact on all ranks; returns its cursor."""
        while True:
            fall_back_together(self._generations, self._ranks.gather)
            error = self._restore_own()
            if not any(self._ranks.gather(error is not None)):
                break
            if error:
                self._generations.fall_back(error)
        cursor = self._generations.cursor
        with self._generations.restoring():
            if self._totals:
                self._totals.restore(self._beside)
            if self._rotation and self._rotation.in_generations:
                self._rotation.restore(self._beside, cursor)
        return cursor

    def _restore_own(self) -> OocError | None:
        """Restore the newest generation of this rank; returns the error if it is damaged, otherwise None."""
        try:
            if self._arrays.resident:
                self._arrays.resident.load(self._generations)
            else:
                self._generations.check()
            with self._generations.restoring():
                self._fill(self._generations.arrays())
        except OocError as error:
            return error
        return None

    def _fill(self, committed: dict[str, np.ndarray]) -> None:
        """Set the program's arrays to the one-dimensional arrays of a generation; keep its other arrays for the
        ring."""
        self._beside = {name: committed.pop(name) for name in self._kept_for_ring()}
        self._arrays.fill(committed, self._generations.directory)
        if self._generations.cursor.phase >= self._arrays.phases:
            raise WorkFailed(f"{self._generations.directory} is damaged: it names an unknown phase")

    def _kept_for_ring(self) -> tuple[str, ...]:
        """Return the names of the arrays of a generation that belong to the ring rather than the program."""
        slices = (SIZES, RESTING) if self._rotation and self._rotation.in_generations else ()
        return (PENDING, *slices) if self._totals else slices

    def publish(self, cells: CellFile, cursor: TrainingCursor) -> None:
        """Commit the current state as the newest generation.

        cells: local state, already written.
        """
        arrays: dict[str, np.ndarray | ArrayPieces] = {**self._arrays.primary()}
        if self._totals:
            arrays |= self._totals.to_commit()
        if self._rotation:
            arrays |= self._rotation.to_commit(cursor)
        self._generations.commit(cells, arrays, cursor)
