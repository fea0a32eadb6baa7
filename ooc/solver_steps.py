"""Base class for training loops whose state is a few arrays in one process: generations, commits, and the cost of
iterations.

On a ring, all ranks have the same state, and each rank commits it to its own run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from blocks.errors import OocError
from blocks.memory import MemoryMeter
from blocks.stored_dataset import StoredDataset
from ooc.program import LocalState
from ooc.ring.generations import fall_back_together
from ooc.ring.message_relay import gather_values
from ooc.ring.ring import LocalRing, Ring
from ooc.runs.run import Run
from ooc.state.cell_layout import CellLayout
from ooc.state.generations import StateGenerations, TrainingCursor, remove_uncommitted
from ooc.training_loop import CheckpointSchedule, rewind_metrics


class TrainingSolver(Protocol):
    """Protocol of solvers that hold and change the state of a run. bytes_read, samples: bytes read and samples
    processed by this process so far. solved: number of iterations done.
    """

    @property
    def pids(self) -> list[int]: ...

    @property
    def bytes_read(self) -> int: ...

    @property
    def samples(self) -> int: ...

    @property
    def solved(self) -> int: ...

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the state to commit, as one-dimensional arrays."""
        ...

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set the state from arrays that `arrays` returned."""
        ...

    def close(self) -> None:
        """Release threads and workers."""
        ...


class SolverTrainingSteps:
    """Base class of `ooc.training_loop.TrainingSteps`: generations, the cursor, and the cost of iterations.

    A subclass has `total` and `unit`, and defines `done`, `position`, `begin`, `step` and `finish`.
    """

    may_stop = True  # stopping loses nothing, as the state is committed first

    def __init__(self, run: Run, dataset: StoredDataset, ring: Ring | None) -> None:
        self._run, self._dataset = run, dataset
        layout = CellLayout(dataset.cells, LocalState("uint8", 0))
        self._generations = StateGenerations.to_write(run.scratch / "state", dataset, layout)
        self._ring: Ring = ring or LocalRing()
        self._sent, self._held = self._ring.bytes_summed, MemoryMeter()
        self.cursor, self._start = TrainingCursor(), TrainingCursor()

    def _go_on_with(self, solver: TrainingSolver) -> None:
        """Set the solver that runs the steps, and restore the newest generation that is intact on all ranks, if any."""
        self._solving = solver
        self._clock = time.monotonic()  # started once the kernels are compiled
        self._goes_on = self._restore()
        self._told = rewind_metrics(
            self._run,
            self.cursor.iteration,
            {"iteration": 0, "elapsed_s": 0.0, "samples_processed": 0, "bytes_read": 0},
        )
        for warning in self._generations.warnings:
            self._run.log(warning)

    def gather(self, value: Any) -> list[Any]:
        return gather_values(self._ring, value)

    def is_due(self, checkpoints: CheckpointSchedule) -> bool:
        return checkpoints.due

    def _restore(self) -> bool:
        """Restore the newest generation that is intact on all ranks; returns whether there is one."""
        if not fall_back_together(self._generations, self.gather):
            return False
        damage = None
        try:
            self._generations.check()
            with self._generations.restoring():
                self._solving.restore(self._generations.arrays())
                if self._solving.solved != self._generations.cursor.iteration:
                    raise ValueError(f"{self._solving.solved} solutions, but not after as many iterations")
        except OocError as error:
            damage = error
        damaged = any(self.gather(damage is not None))
        if damage:
            self._generations.fall_back(damage)
        if damaged:
            return self._restore()
        self.cursor, self._start = self._generations.cursor, self._generations.cursor
        return True

    def _spend(self) -> None:
        """Update the cursor: add the time since the last call, and set the bytes read, samples and bytes sent."""
        cursor, start, before = self.cursor, self._start, self._clock
        self._clock = time.monotonic()
        cursor.elapsed_s += self._clock - before
        cursor.bytes_read = start.bytes_read + self._solving.bytes_read
        cursor.samples_processed = start.samples_processed + self._solving.samples
        cursor.bytes_sent = start.bytes_sent + self._ring.bytes_summed - self._sent

    def commit(self) -> None:
        self._ring.barrier()  # all ranks have the previous generation, so no rank drops the last one in common
        self._spend()
        self._run.sync_metrics()
        cells = self._generations.create()
        try:
            self._generations.commit(cells, self._solving.arrays(), self.cursor)
        finally:
            cells.close()

    def _line(self, found: Mapping[str, Any], budget: int) -> dict[str, Any]:
        """Return a line of the metrics: the entries of `found`, and the cost over all ranks."""
        of_ranks = np.array(self.gather(self._spent())).T
        samples, lately, bytes_read, bytes_sent = of_ranks[:4].sum(axis=1)
        elapsed, seconds, memory_bytes = of_ranks[4:].max(axis=1)
        return {
            "iteration": self.cursor.iteration,
            "elapsed_s": round(elapsed, 6),
            self._dataset.rate: round(lately / seconds),
            **found,
            "samples_processed": int(samples),
            "memory_bytes": int(memory_bytes),
            "budget_bytes": budget,
            "bytes_read": int(bytes_read),
            "bytes_written": 0,
            "bytes_sent": int(bytes_sent),
        }

    def _spent(self) -> list[float]:
        """Return the work of this rank: total samples, samples of this process, bytes read, bytes sent, total seconds,
        seconds of this process, and bytes of memory.
        """
        cursor, start = self.cursor, self._start
        return [
            cursor.samples_processed,
            cursor.samples_processed - start.samples_processed,
            cursor.bytes_read,
            cursor.bytes_sent,
            cursor.elapsed_s,
            cursor.elapsed_s - start.elapsed_s,
            self._held(self._solving.pids),
        ]

    def close(self) -> None:
        """Release threads and workers."""
        self._solving.close()
        remove_uncommitted(self._generations.directory)
