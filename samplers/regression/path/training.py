"""Train a regularization path with the training loop, on one machine or on each rank of a ring."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from blocks import stderr
from blocks.files import publish_directory
from blocks.plurals import count_of
from ooc.dynamic.selection_rules import SelectionRule
from ooc.ring.ring import Ring
from ooc.runs.run import Run
from ooc.solver_steps import SolverTrainingSteps
from ooc.training_loop import CheckpointSchedule, StopRequest, add_line
from samplers.regression.model import write_regression
from samplers.regression.path.path_memory_plan import PathMemoryPlan
from samplers.regression.path.solver import Found, LambdaPathSolver, path_arrays
from samplers.regression.program import RegressionProgram
from samplers.regression.rounds.solver import RoundSolver
from samplers.regression.solver.solver_limit import SolverLimit, SolverLimitReached
from samplers.regression.solver.sparse_regression import constant_columns_warning

_PATIENCE = 1.0  # seconds that a step may still take once training has been asked to stop


class LambdaPathTraining(SolverTrainingSteps):
    """The path of one run in one process, as `ooc.training_loop.TrainingSteps`, with its metrics.

    An iteration of the `cursor` is a lambda; a phase is a step towards the next lambda.

    stop: reason to end early; a step that takes more than a second longer is abandoned, but its solutions so far are
        kept.
    rule: schedule of the dynamic engine's rounds, if rounds solve the problem; an iteration is then one step of the
        rounds.
    ring: ranks that train together; all have the same state, which each commits to its own run; rank 0 publishes the
        model.
    """

    def __init__(
        self,
        run: Run,
        program: RegressionProgram,
        plan: PathMemoryPlan,
        stop: StopRequest,
        ring: Ring | None = None,
        rule: SelectionRule | None = None,
    ) -> None:
        super().__init__(run, program.design, ring)
        self._program, self._design = program, program.design
        self.total, self.unit = None if rule else program.length, "pass" if rule else "lambda"
        self._rule = rule
        self._solver: LambdaPathSolver | RoundSolver
        if rule:
            self._solver = RoundSolver(program, rule, plan.workers, plan.room)
        else:
            limit = (
                SolverLimit() if ring else SolverLimit(is_wanted=lambda: stop.is_overdue(_PATIENCE))
            )  # keeps ranks in step
            self._solver = LambdaPathSolver(program, plan.workers, plan.room, limit, ring)
        self._budget = plan.held + plan.room
        self._go_on_with(self._solver)
        solved = count_of(self.cursor.iteration, "lambda")
        held = f"{plan.held / 1e6:,.0f} MB, and up to {plan.room / 1e6:,.0f} MB for the working set"
        run.log(f"{solved} solved; {count_of(plan.workers, 'worker')}, {held}")

    @property
    def done(self) -> bool:
        return self._solver.done

    def begin(self) -> None:
        """Compute the lambdas and commit.

        Raises SolverLimitReached at the limit, since there is nothing to commit yet.
        """
        if not self._goes_on:
            self._solver.begin()
            self._warn_of_nothing()
            self._warn_of_constant()
            self.commit()

    def step(self, checkpoints: CheckpointSchedule, *, due: bool) -> str:
        """Do one step of the solver; a step may solve several lambdas, or be abandoned."""
        if due:
            with checkpoints.taken():
                self.commit()
        before = self.cursor.iteration
        with suppress(SolverLimitReached):  # some folds may have progressed further
            self._solver.step()
        self.cursor.phase += 1
        self._spend()
        for number in range(before, self._solver.solved):
            self.cursor.iteration, self.cursor.phase = number + 1, 0
            self._add_line(self._solver.found[number], [errors[number] for errors in self._solver.errors])
        return f"gap {self._solver.gap:.1e} of {self._program.tolerance:.0e}"

    def _warn_of_nothing(self) -> None:
        """Warn that a lambda is above lambda_max."""
        lam, largest = float(self._solver.lambdas[0]), self._solver.largest
        if lam > largest and self._ring.rank == 0:
            stderr.print_warning(
                f"lambda {lam:g} is above lambda_max = {largest:g}, so all penalized coefficients are 0"
            )

    def _warn_of_constant(self) -> None:
        """Warn that constant columns are left out."""
        if self._solver.constant.size and self._ring.rank == 0:
            stderr.print_warning(constant_columns_warning(self._design.names_of(self._solver.constant)))

    def _add_line(self, found: Found, errors: list[float]) -> None:
        """Add the metrics for a lambda; the cost of a pass for several lambdas is counted for the first of them."""
        last = self._told
        line = self._line(
            {
                "lambda": found.lam,
                "objective": found.objective,
                "duality_gap": found.gap,
                "nonzeros": found.columns.size,
                **({"held_out_error": float(np.mean(errors))} if errors else {}),
            },
            self._budget,
        )
        line["lambda_bytes_read"] = line["bytes_read"] - last["bytes_read"]
        self._told = add_line(self._run, line, is_first=self._ring.rank == 0)

    @property
    def position(self) -> str:
        number = self.cursor.iteration
        return f"after {number} passes of rounds" if self._rule else f"after {number} of {self.total} values of lambda"

    def choice(self) -> dict[str, Any]:
        """Return the lambda chosen by cross-validation, if any, and the schedule of the rounds, if any."""
        if self._rule:
            return {"schedule": self._rule.schedule}
        validation, found = self._solver.validation(), self._solver.found
        if not validation:
            return {}
        chosen = found[validation.chosen]
        told = {"chosen_lambda": chosen.lam, "chosen_nonzeros": chosen.columns.size}
        return told | {"best_lambda": found[validation.best].lam}

    def finish(self) -> None:
        """Publish the model, and record the number of iterations, which is unknown in advance for rounds."""
        if self._ring.rank == 0:
            self._publish()
        self._run.set_iterations(self.cursor.iteration)

    def _publish(self) -> None:
        with publish_directory(self._run.path / "model", overwrite=True) as directory:
            write_regression(
                directory,
                self._design,
                loss=self._program.loss,
                classes=self._program.classes.tolist(),
                arrays=path_arrays(self._solver.models),
                constant=self._solver.constant,
                validation=self._solver.validation(),
            )
