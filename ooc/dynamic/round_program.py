"""Interface between a model and the dynamic engine: schedule, update, aggregate and apply over columns of a design.

Names and meanings are those of `ooc.program` where both engines do the same. A parameter belongs to one column that is
held (see `ooc.dynamic.held_columns`) or to `group` consecutive ones, and is numbered by its position among them. State
per row, such as a residual, is in shared arrays; each worker reads and writes the rows of its bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from blocks.design.design import DenseBlock, Design, SparseBlock
from ooc.dynamic.held_columns import HeldDense, HeldSparse
from ooc.dynamic.schedules import SCHEDULES, Turn
from ooc.program import Arrays
from ooc.workers.shared_arrays import ArraySpec


class Wave(NamedTuple):
    """Some parameters of a round.

    parameters: int64 (c,), in order of priority. columns: all columns held. bands: this worker's first band and the
    band after its last. sums: float64 (c, B, *`sums_shape`), over the rows of each band. changes: float64 (c,
    *`change_shape`), set by `aggregate` and read by `apply`. priorities: float64 (c,), set by `aggregate`.
    """

    parameters: np.ndarray
    columns: HeldSparse | HeldDense
    bands: tuple[int, int]
    sums: np.ndarray
    changes: np.ndarray
    priorities: np.ndarray
    shared: Arrays


class Survey(NamedTuple):
    """Parameters to survey between rounds, int64 (c,). priorities: float64 (c,), to be filled. See Wave."""

    parameters: np.ndarray
    columns: HeldSparse | HeldDense
    priorities: np.ndarray
    shared: Arrays


class Scan(NamedTuple):
    """Columns of a block to scan. first: number of the block's first column in the design."""

    first: int
    block: SparseBlock | DenseBlock
    shared: Arrays


class RoundProgram:
    """Base class of low-level programs of the dynamic engine, which work on waves of parameters.

    Users write a `ooc.dynamic.program.DynamicProgram` instead. A subclass defines `shared_arrays`, `update`,
    `aggregate` and `apply`. The coordinator and the process that the workers are forked from build equal instances.
    most: largest number of columns held at a time, None for all.
    """

    group = 1  # consecutive columns of a parameter
    sums_shape: tuple[int, ...] = (1,)  # shape of the numbers that `update` computes for each parameter and band
    change_shape: tuple[int, ...] = ()  # shape of the change that `aggregate` computes for each parameter
    nearness: str | None = None  # name of a shared array, float64 (most,), or None: the larger a value, the nearer
    # was the parameter to a nonzero update when it was last updated or surveyed

    def __init__(self, design: Design, most: int | None = None) -> None:
        self.design, self.most = design, most or design.columns

    def shared_arrays(self) -> dict[str, ArraySpec]:
        """Return the specs of the arrays of parameters (most,), of rows, and of whatever else workers read."""
        raise NotImplementedError

    def primary_arrays(self) -> Sequence[str]:
        """Return the names of the shared arrays that a commit keeps, besides the priorities."""
        return tuple(self.shared_arrays())

    def followers(self) -> Sequence[str]:
        """Return the names of the row arrays that `apply` changes."""
        return ()

    def surveyed(self) -> Sequence[str]:
        """Return the names of the parameter arrays that `survey` fills, besides the priorities."""
        return [self.nearness] if self.nearness else []

    def hold(self, columns: np.ndarray, shared: Arrays) -> None:
        """Set data of the columns, int64 (m,), that are held from now on; called in the coordinator."""

    def start(self, wave: Wave) -> None:
        """Compute row state from the initial values of all parameters.

        Called in each worker, for its bands, before the first round. `wave.sums`, `wave.changes` and `wave.priorities`
        are empty.
        """

    def schedule(self, turn: Turn) -> np.ndarray:
        """Return candidates for a round, int64.

        The engine drops candidates that depend on an earlier one, and sorts the rest by priority.
        """
        return SCHEDULES[turn.rule.schedule](turn)

    def update(self, wave: Wave) -> int:
        """Fill `wave.sums` for the bands of this worker; returns the number of nonzero values read."""
        raise NotImplementedError

    def aggregate(self, wave: Wave) -> None:
        """Add up the sums in the order of the bands, and change the parameters; called in the scheduler's worker.

        Fills `wave.changes` and `wave.priorities`. Other parameters must not be read.
        """
        raise NotImplementedError

    def apply(self, wave: Wave) -> None:
        """Update the rows of this worker's bands by the changes of the parameters; called in each worker."""
        raise NotImplementedError

    def survey(self, survey: Survey) -> int:
        """Fill `survey.priorities` from the current state, by default with equal priorities.

        Called in a worker between rounds. Returns the number of values read.
        """
        survey.priorities[:] = 1.0
        return 0

    def scan(self, scan: Scan) -> Any:
        """Read a block in a worker between rounds; `DynamicEngine.scan` yields the returned value."""
        raise NotImplementedError
