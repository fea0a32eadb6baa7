"""What a model is to the dynamic engine: schedule / update / aggregate over the columns of a design matrix.

Names and meanings are those of `ooc.program` where both engines do the same. A parameter belongs to a column that is
held (see `ooc.dynamic.held_columns`), or to `group` of these, and goes by its place among these. The rows' own state,
as a residual, lies in shared arrays of which a worker reads and writes the rows of its bands.
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

    parameters: int64 (c,), in order of priority. columns: all that are held. bands: the first, and the one after the
    last, of this worker. sums: float64 (c, B, *`sums_shape`), over the rows of each band. changes: float64 (c,
    *`change_shape`), what `aggregate` found, for `apply`. priorities: float64 (c,), for `aggregate` to fill.
    """

    parameters: np.ndarray
    columns: HeldSparse | HeldDense
    bands: tuple[int, int]
    sums: np.ndarray
    changes: np.ndarray
    priorities: np.ndarray
    shared: Arrays


class Survey(NamedTuple):
    """Some parameters, int64 (c,), between rounds. priorities: float64 (c,), to be filled. See Wave."""

    parameters: np.ndarray
    columns: HeldSparse | HeldDense
    priorities: np.ndarray
    shared: Arrays


class Scan(NamedTuple):
    """The columns of a block, from number `first` of the design on."""

    first: int
    block: SparseBlock | DenseBlock
    shared: Arrays


class RoundProgram:
    """A program of the dynamic engine but for what is its own: the low level, on waves of parameters.

    Users write a `ooc.dynamic.program.DynamicProgram`. A subclass gives `shared_arrays`, `update`, `aggregate` and
    `apply`. It is built alike in the coordinator and in the process that the workers are forked from. most: columns
    that may be held at a time, None for all.
    """

    group = 1  # columns of a parameter, one after the other
    sums_shape: tuple[int, ...] = (1,)  # numbers that `update` finds for each parameter and band
    change_shape: tuple[int, ...] = ()  # of what `aggregate` finds for each parameter
    nearness: str | None = None  # shared array, float64 (most,): the larger, the nearer a parameter that stays where it
    # is was to an update worth something when it was last looked at; None if that is not known

    def __init__(self, design: Design, most: int | None = None) -> None:
        self.design, self.most = design, most or design.columns

    def shared_arrays(self) -> dict[str, ArraySpec]:
        """Arrays of parameters (most,) and of rows, and whatever else workers read."""
        raise NotImplementedError

    def primary_arrays(self) -> Sequence[str]:
        """Those of them that a commit keeps, besides the priorities."""
        return tuple(self.shared_arrays())

    def followers(self) -> Sequence[str]:
        """Those of rows that `apply` changes."""
        return ()

    def surveyed(self) -> Sequence[str]:
        """Those of parameters that `survey` fills, besides priorities."""
        return [self.nearness] if self.nearness else []

    def hold(self, columns: np.ndarray, shared: Arrays) -> None:
        """In the coordinator: set what is known of columns, int64 (m,) of the design, that are held from now on."""

    def start(self, wave: Wave) -> None:
        """In each worker, for its bands, before the first round: what follows from the first values of all parameters.
        `wave.sums`, `changes` and `priorities` are empty."""

    def schedule(self, turn: Turn) -> np.ndarray:
        """Candidates for a round, int64; the engine drops what depends on one before it, and orders by priority."""
        return SCHEDULES[turn.rule.schedule](turn)

    def update(self, wave: Wave) -> int:
        """In each worker: fill `wave.sums` for its bands. Returns how many samples, values other than zero, it read."""
        raise NotImplementedError

    def aggregate(self, wave: Wave) -> None:
        """In the worker of the scheduler: add up the sums in the order of the bands, change the parameters, fill
        `wave.changes` and `wave.priorities`. Other parameters may not be read."""
        raise NotImplementedError

    def apply(self, wave: Wave) -> None:
        """In each worker: let the rows of its bands follow the changes."""
        raise NotImplementedError

    def survey(self, survey: Survey) -> int:
        """In a worker, between rounds: fill `survey.priorities` by the present state. Returns how many samples it
        read. Default: all the same."""
        survey.priorities[:] = 1.0
        return 0

    def scan(self, scan: Scan) -> Any:
        """In a worker, between rounds: read a block. The answer goes to who asked for the scan."""
        raise NotImplementedError
