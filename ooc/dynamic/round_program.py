"""Interface between a model and the dynamic engine: schedule, update, aggregate and apply over columns of a design.

Names have the same meaning as in `ooc.program`. A parameter belongs to one held column (see
`ooc.dynamic.held_columns`), or to `group` consecutive ones, and its index is its position among the held columns or
groups. State per row, such as a residual, is in shared arrays; each worker reads and writes the rows of its bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from blocks.design.design import DenseDesignBlock, Design, SparseDesignBlock
from ooc.dynamic.candidate_independence import CandidateCheck, independent_dense, independent_sparse
from ooc.dynamic.held_columns import HeldDenseColumns, HeldSparseColumns
from ooc.dynamic.round_schedule import AGGREGATE, SCHEDULE, UPDATE
from ooc.dynamic.round_steps import (
    CandidateProposals,
    RoundState,
    StepParameters,
    count_update,
    enter_round,
    is_ready,
    parameters_in_flight,
    set_priorities,
    wave_places,
)
from ooc.program import Arrays
from ooc.workers.shared_arrays import ArraySpec


class ParameterWave(NamedTuple):
    """Parameters that one round updates together.

    parameters: int64 (c,), by descending priority.
    columns: all columns held.
    bands: the first of this worker's bands, and the band after the last one.
    sums: float64 (c, B, *`sums_shape`), sums over the rows of each band.
    changes: float64 (c, *`change_shape`), set by `aggregate` and read by `apply`.
    priorities: float64 (c,), set by `aggregate`.
    """

    parameters: np.ndarray
    columns: HeldSparseColumns | HeldDenseColumns
    bands: tuple[int, int]
    sums: np.ndarray
    changes: np.ndarray
    priorities: np.ndarray
    shared: Arrays


class WorkerSteps(NamedTuple):
    """Steps that a worker has to take.

    steps: int64 (k, 3), with the fields of a `WorkerStep` in each row.
    columns, bands, shared: see ParameterWave.
    sums, changes: of all slots, float64 (slots, parallel, ...).
    """

    steps: np.ndarray
    order: StepParameters
    rounds: RoundState
    proposals: CandidateProposals
    check: CandidateCheck
    columns: HeldSparseColumns | HeldDenseColumns
    bands: tuple[int, int]
    sums: np.ndarray
    changes: np.ndarray
    shared: Arrays


class ParameterSurvey(NamedTuple):
    """Parameters, int64 (c,), to survey between rounds.

    priorities: float64 (c,), filled by the survey. See ParameterWave for the other fields.
    """

    parameters: np.ndarray
    columns: HeldSparseColumns | HeldDenseColumns
    priorities: np.ndarray
    shared: Arrays


class BlockScan(NamedTuple):
    """A block of columns, of which a scan computes the priorities.

    first: index of the block's first column in the design.
    """

    first: int
    block: SparseDesignBlock | DenseDesignBlock
    shared: Arrays


class RoundProgram:
    """Base class of low-level programs of the dynamic engine, which work on waves of parameters.

    Users write an `ooc.dynamic.program.DynamicProgram` instead. A subclass defines `shared_arrays`, `update`,
    `aggregate` and `apply`. The coordinator and the process from which workers are forked build equal instances.

    most: maximum number of columns held at a time; None for all.
    """

    group = 1  # number of consecutive columns per parameter
    sums_shape: tuple[int, ...] = (1,)  # shape of the numbers that `update` computes for each parameter and band
    change_shape: tuple[int, ...] = ()  # shape of the change that `aggregate` computes for each parameter
    nearness: str | None = None  # name of a shared array, float64 (most,), or None; larger values mean that the
    # parameter was nearer to a nonzero update when it was last updated or surveyed

    def __init__(self, design: Design, most: int | None = None) -> None:
        self.design, self.most = design, most or design.columns

    def shared_arrays(self) -> dict[str, ArraySpec]:
        """Return the specs of the arrays per parameter, (most,), the arrays per row, and any other arrays that workers
        read."""
        raise NotImplementedError

    def primary_arrays(self) -> Sequence[str]:
        """Return the names of the shared arrays that are committed, in addition to the priorities."""
        return tuple(self.shared_arrays())

    def followers(self) -> Sequence[str]:
        """Return the names of the row arrays that `apply` changes."""
        return ()

    def surveyed(self) -> Sequence[str]:
        """Return the names of the parameter arrays that `survey` fills, in addition to the priorities."""
        return [self.nearness] if self.nearness else []

    def hold(self, columns: np.ndarray, shared: Arrays) -> None:
        """Set the data of the columns, int64 (m,), that are held from now on; called in the coordinator."""

    def start(self, wave: ParameterWave) -> None:
        """Compute row state from the initial values of all parameters.

        Called in each worker, for its bands, before the first round. `wave.sums`, `wave.changes` and `wave.priorities`
        are empty.
        """

    def advance(self, ahead: WorkerSteps) -> tuple[int, int]:
        """Take the first step, if the worker need not wait for it; returns the number of steps taken, and of the values
        read. Subclasses may take several."""
        what, number, wave = ahead.steps[0].tolist()
        order, rounds, samples = ahead.order, ahead.rounds, 0
        if not is_ready(what, number, wave, order, rounds.counters):
            return 0, 0
        if what == SCHEDULE:
            together, taken = parameters_in_flight(number, order, rounds, ahead.proposals)
            independent = independent_sparse if isinstance(ahead.columns, HeldSparseColumns) else independent_dense
            enter_round(number, independent(ahead.columns, together, taken, ahead.check), order, rounds)
            return 1, 0
        slot, first, last = wave_places(number, wave, order.slots, order.waves, rounds.counts)
        parameters, span = rounds.parameters[slot, first:last], (slot, slice(first, last))
        sums, changes, found = ahead.sums[span], ahead.changes[span], np.empty(last - first)
        some = ParameterWave(parameters, ahead.columns, ahead.bands, sums, changes, found, ahead.shared)
        if what == UPDATE:
            samples = self.update(some)
            count_update(number, wave, order, rounds.counters)
        elif what == AGGREGATE:
            self.aggregate(some)
            set_priorities(number, wave, parameters, found, order, rounds)
        else:
            self.apply(some)
        return 1, samples

    def update(self, wave: ParameterWave) -> int:
        """Fill `wave.sums` for the bands of this worker; returns the number of nonzero values read."""
        raise NotImplementedError

    def aggregate(self, wave: ParameterWave) -> None:
        """Add up the sums in band order, and change the parameters; called in the scheduler's worker.

        Fills `wave.changes` and `wave.priorities`. Other parameters must not be read.
        """
        raise NotImplementedError

    def apply(self, wave: ParameterWave) -> None:
        """Apply the changes of the parameters to the rows of this worker's bands; called in each worker."""
        raise NotImplementedError

    def survey(self, survey: ParameterSurvey) -> int:
        """Fill `survey.priorities` from the current state. Default: equal priorities.

        Called in a worker between rounds.
        Returns the number of values read.
        """
        survey.priorities[:] = 1.0
        return 0

    def scan(self, scan: BlockScan) -> Any:
        """Read a block in a worker between rounds; `DynamicEngine.scan` yields the returned value."""
        raise NotImplementedError
