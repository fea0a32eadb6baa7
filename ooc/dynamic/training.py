"""Train a user's program in passes of the dynamic engine, for a number of passes or until the duality gap is small.

A step is one pass: as many rounds as are needed to update every parameter once. After each pass, all parameters are
surveyed if the program has a duality gap; otherwise they are surveyed when their priorities have become small
(`DynamicEngine.survey_if_settled`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np

from blocks.design.design import Design
from blocks.errors import ModelDiverged
from blocks.files import publish_directory
from ooc.dynamic.column_rounds import UserProgramRounds
from ooc.dynamic.engine import DynamicEngine
from ooc.dynamic.program import DynamicProgram
from ooc.dynamic.round_memory_plan import RoundMemoryPlan
from ooc.ring.ring import Ring
from ooc.runs.run import Run
from ooc.solver_steps import SolverTrainingSteps
from ooc.state.slice_file import SLICES
from ooc.training import Callback
from ooc.training_loop import (
    CheckpointSchedule,
    StopRequest,
    add_line,
    end_training,
    inform_ranks_of_errors,
    naming_iteration,
    run_steps,
    training_lock,
)
from ooc.user_programs import metrics_of_method, user_errors

_DIVERGED = 2.0  # training diverges if the objective exceeds this multiple of its initial value
_OURS = "rounds."  # prefix of the names of arrays that are not fields of the program
_FIRST = f"{_OURS}first_objective"


def train_rounds(
    run: Run,
    plan: RoundMemoryPlan,
    *,
    max_time: float | None = None,
    quiet: bool = False,
    callback: Callback | None = None,
    ring: Ring | None = None,
) -> dict[str, Any]:
    """Train a run for its configured number of passes, or until its duality gap is small; see `ooc.training.train`."""
    stop = StopRequest(max_time)
    with training_lock(run, stop), inform_ranks_of_errors(ring):
        run.warn_of_changed_program()
        design = run.dataset(Design)
        program: DynamicProgram = run.spec.build(design)  # type: ignore[assignment]
        run.require_same_state(program)
        with (
            closing(RoundTraining(run, program, plan, callback, ring)) as training,
            inform_ranks_of_errors(
                ring
            ),  # is left before the wait for workers, as a thread may be waiting for other ranks
            user_errors(program),
        ):
            reason = run_steps(run, training, stop, quiet=quiet)
    return end_training(run, training, reason, ring)


class ColumnPassSolver:
    """Runs the passes of a program.

    Attributes: `engine`; `solved`, number of passes done; `program`; `shared`, the arrays of the program's fields.
    """

    def __init__(self, run: Run, program: DynamicProgram, plan: RoundMemoryPlan, ring: Ring | None) -> None:
        directory = run.scratch / SLICES if plan.in_file else None
        self.engine = DynamicEngine(
            program.dataset, run.spec, program.rule, plan.workers, directory=directory, ring=ring
        )
        assert isinstance(self.engine.program, UserProgramRounds)
        self._rounds = self.engine.program
        self.program, self.shared = program, program.own_arrays(self.engine.arrays)
        self._first = 0.0  # objective before the first pass

    @property
    def pids(self) -> list[int]:
        return [os.getpid(), *self.engine.pids]

    @property
    def bytes_read(self) -> int:
        return self.engine.bytes_read

    @property
    def samples(self) -> int:
        return self.engine.samples

    @property
    def solved(self) -> int:
        return self.engine.round // self._of_pass

    @property
    def _of_pass(self) -> int:
        """Return the number of rounds in a pass."""
        return max(self.program.dataset.columns // self.program.group // self.program.rule.parallel, 1)

    @property
    def _by_priority(self) -> bool:
        return self.program.rule.schedule == "priority"

    def begin(self) -> None:
        """Hold the columns and set the initial values."""
        self.engine.hold()
        self.program.initialize(self.shared)
        self.engine.start()
        if self._by_priority:
            self.engine.survey()
        self._first = self.objective().get("objective", 0.0)

    def step(self) -> None:
        """Run one pass."""
        self.engine.run(self._of_pass)
        if self.program.has_gap:
            self.engine.survey()
        elif self._by_priority:
            self.engine.survey_if_settled()

    def objective(self) -> dict[str, float]:
        """Return the program's objective.

        Raises ModelDiverged if the objective is not finite, or far above its initial value.
        """
        told = metrics_of_method(self.program.objective, self.shared, single="objective")
        value, first = told.get("objective", 0.0), self._first
        if not np.isfinite(self.shared[self.program.coefficient_name]).all() or not np.isfinite(value):
            raise self._diverged(f"the objective is {value:g}, or some coefficients are not finite")
        if self.solved and first and value > first + (_DIVERGED - 1) * abs(first):
            raise self._diverged(f"the objective is {value:g}, far above its initial value {first:g}")
        return told

    def _diverged(self, what: str) -> ModelDiverged:
        remedy = "Reduce parallelism or rho, or check the sign in `aggregate` and `update`."
        return ModelDiverged(f"{type(self.program).__name__} diverges: {what}", remedy)

    def gap(self) -> float | None:
        """Return the duality gap, or None if the program has none."""
        return self._rounds.gap(self.engine.arrays) if self.program.has_gap else None

    def is_small(self, gap: float | None) -> bool:
        """Return whether the duality gap is small enough to end training."""
        return gap is not None and gap <= self.program.tolerance * (abs(self._first) or 1.0)

    def arrays(self) -> dict[str, np.ndarray]:
        fields = self.program.primary_arrays()
        found = {name if name in fields else _OURS + name: array for name, array in self.engine.committed().items()}
        return found | {_FIRST: np.array([self._first])}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.engine.hold()
        self._first = float(arrays[_FIRST][0])
        self.engine.restore({name.removeprefix(_OURS): array for name, array in arrays.items()})

    def close(self) -> None:
        self.engine.__exit__()


class RoundTraining(SolverTrainingSteps):
    """Trains one run in one process in passes, as `ooc.training_loop.TrainingSteps`, and writes its metrics."""

    unit = "iteration"

    def __init__(
        self, run: Run, program: DynamicProgram, plan: RoundMemoryPlan, callback: Callback | None, ring: Ring | None
    ) -> None:
        super().__init__(run, program.dataset, ring)
        self.total: int | None = run.config["iterations"]
        self._planned: int = run.config["iterations"]
        self._callback, self._plan, self._enough = callback, plan, False
        self._solver = ColumnPassSolver(run, program, plan, ring)
        self._go_on_with(self._solver)
        where = "in a file" if plan.in_file else "in memory"
        run.log(f"at iteration {self.cursor.iteration}; columns of {plan.columns_bytes / 1e6:,.0f} MB {where}")

    @property
    def done(self) -> bool:
        converged = self._told.get("converged") and self._told["iteration"] > self._run.config["extended_at"]
        return self.cursor.iteration >= self._planned or self._enough or bool(converged)

    @property
    def position(self) -> str:
        return f"at iteration {self.cursor.iteration}"

    def begin(self) -> None:
        if not self._goes_on:
            with naming_iteration(0):
                self._solver.begin()
            self.commit()

    def step(self, checkpoints: CheckpointSchedule, *, due: bool) -> str:
        if due:
            with checkpoints.taken():
                self.commit()
        self._solver.step()
        self.cursor.iteration += 1
        self._spend()
        line = self._line(self._found(), self._plan.budget)
        self._told = add_line(self._run, line, is_first=self._ring.rank == 0)
        self._enough = bool(self._callback and self._callback(self._told))
        told = (("objective", "objective {:.6g}"), ("duality_gap", "gap {:.1e}"), ("nonzeros", "{:,} nonzeros"))
        return ", ".join(text.format(line[name]) for name, text in told if name in line)

    def _found(self) -> dict[str, Any]:
        """Return the metrics of the model after a pass."""
        solver, config, iteration = self._solver, self._run.config, self.cursor.iteration
        gap = solver.gap()
        ends = solver.is_small(gap)
        found: dict[str, Any] = {}
        if ends or iteration % config["evaluate_every"] == 0 or iteration >= self._planned:
            with naming_iteration(iteration):
                found = solver.objective()
        found |= {} if gap is None else {"duality_gap": gap}
        found["nonzeros"] = int(np.count_nonzero(solver.shared[solver.program.coefficient_name]))
        return found | ({"converged": True} if ends else {})

    def finish(self) -> None:
        if self._ring.rank == 0:
            with publish_directory(self._run.path / "model", overwrite=True) as directory:
                self._solver.program.export(self._solver.shared, directory)
