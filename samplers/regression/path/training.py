"""Train a regularization path with the training loop, on one machine or on each rank of a ring."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import numpy as np

from blocks import stderr
from blocks.errors import OocError
from blocks.files import publish_directory
from blocks.memory import Held
from blocks.plurals import count_of
from ooc.dynamic.schedules import Rule
from ooc.loop import Checkpoints, Stop, add_line, go_back
from ooc.ring.generations import fall_back_together
from ooc.ring.relay import gather_values
from ooc.ring.ring import LocalRing, Ring
from ooc.runs.run import Run
from ooc.state.generations import Cursor, Generations, remove_uncommitted
from ooc.state.layout import Layout
from samplers.regression.model import write_regression
from samplers.regression.path.plan import PathPlan
from samplers.regression.path.solver import Found, PathSolver, path_arrays
from samplers.regression.program import RegressionProgram
from samplers.regression.rounds.solver import RoundSolver
from samplers.regression.solver.limit import Limit, Stopped
from samplers.regression.solver.sparse_regression import told_of_constant

_PATIENCE = 1.0  # seconds, with a step when it is to stop


class PathTraining:
    """The path of one run in one process, as `ooc.loop.TrainingSteps`, with its metrics.

    An iteration of the `cursor` is a lambda, a phase is a step towards the next. stop: reason to end early; a step that
    lasts a second longer is abandoned, except for what it has found. rule: of rounds of the dynamic engine, if they
    solve it; an iteration is then one step of these. ring: ranks that train together; all have the same state, which
    each commits to its own run; rank 0 publishes the model.
    """

    may_stop = True  # what was found is committed

    def __init__(
        self,
        run: Run,
        program: RegressionProgram,
        plan: PathPlan,
        stop: Stop,
        ring: Ring | None = None,
        rule: Rule | None = None,
    ) -> None:
        self._run, self._program, self._design = run, program, program.design
        self.total, self.unit = None if rule else program.length, "pass" if rule else "lambda"
        layout = Layout(self._design.cells, program.local_state())
        self._generations = Generations.to_write(run.scratch / "state", self._design, layout)
        self._clock = time.monotonic()
        self._ring: Ring = ring or LocalRing()
        self._sent, self._held = self._ring.bytes_summed, Held()
        self._rule = rule
        self._solver: PathSolver | RoundSolver
        if rule:
            self._solver = RoundSolver(program, rule, plan.workers, plan.room)
        else:
            limit = Limit() if ring else Limit(is_wanted=lambda: stop.is_overdue(_PATIENCE))  # ranks keep in step
            self._solver = PathSolver(program, plan.workers, plan.room, limit, ring)
        self._budget = plan.held + plan.room
        self.cursor, self._start = Cursor(), Cursor()
        self._goes_on = self._restore()
        start = {"elapsed_s": 0.0, "samples_processed": 0, "bytes_read": 0}
        self._told = go_back(run, self.cursor.iteration, start)
        for warning in self._generations.warnings:
            run.log(warning)
        solved = count_of(self.cursor.iteration, "lambda")
        held = f"{plan.held / 1e6:,.0f} MB, and up to {plan.room / 1e6:,.0f} MB for the working set"
        run.log(f"{solved} solved; {count_of(plan.workers, 'worker')}, {held}")

    def gather(self, value: Any) -> list[Any]:
        return gather_values(self._ring, value)

    def _restore(self) -> bool:
        """Restore the newest generation that is intact on all ranks; returns whether there is one."""
        if not fall_back_together(self._generations, self.gather):
            return False
        damage = None
        try:
            self._generations.check()
            with self._generations.restoring():
                self._solver.restore(self._generations.arrays())
                if self._solver.solved != self._generations.cursor.iteration:
                    raise ValueError(f"{self._solver.solved} solutions, but not after as many iterations")
        except OocError as error:
            damage = error
        damaged = any(self.gather(damage is not None))
        if damage:
            self._generations.fall_back(damage)
        if damaged:
            return self._restore()
        self.cursor, self._start = self._generations.cursor, self._generations.cursor
        return True

    @property
    def done(self) -> bool:
        return self._solver.done

    def is_due(self, checkpoints: Checkpoints) -> bool:
        return checkpoints.due

    def begin(self) -> None:
        """Find the lambdas and commit. Raises Stopped if that is abandoned, as there is nothing to commit yet."""
        if not self._goes_on:
            self._solver.begin()
            self._warn_of_nothing()
            self._warn_of_constant()
            self.commit()

    def step(self, checkpoints: Checkpoints, *, due: bool) -> str:
        """Do one step of the solver; it may solve several lambdas, or be abandoned."""
        if due:
            with checkpoints.taken():
                self.commit()
        before = self.cursor.iteration
        with suppress(Stopped):  # some folds may have come further
            self._solver.step()
        self.cursor.phase += 1
        self._spend()
        for number in range(before, self._solver.solved):
            self.cursor.iteration, self.cursor.phase = number + 1, 0
            self._add_line(self._solver.found[number], [errors[number] for errors in self._solver.errors])
        return f"gap {self._solver.gap:.1e} of {self._program.tolerance:.0e}"

    def _warn_of_nothing(self) -> None:
        """Warn about a lambda above lambda_max."""
        lam, largest = float(self._solver.lambdas[0]), self._solver.largest
        if lam > largest and self._ring.rank == 0:
            stderr.warn(f"lambda {lam:g} is above {largest:g}, at and above which all penalized coefficients are 0")

    def _warn_of_constant(self) -> None:
        """Warn about constant columns, which are left out."""
        if self._solver.constant.size and self._ring.rank == 0:
            stderr.warn(told_of_constant(self._design.names_of(self._solver.constant)))

    def _spend(self) -> None:
        """Add the work since the last call to the cursor."""
        cursor, start, before = self.cursor, self._start, self._clock
        self._clock = time.monotonic()
        cursor.elapsed_s += self._clock - before
        cursor.bytes_read = start.bytes_read + self._solver.bytes_read
        cursor.samples_processed = start.samples_processed + self._solver.samples
        cursor.bytes_sent = start.bytes_sent + self._ring.bytes_summed - self._sent

    def commit(self) -> None:
        self._ring.barrier()  # all have the generation before: nobody gives up the last that others have
        self._spend()
        self._run.sync_metrics()
        cells = self._generations.create()
        try:
            self._generations.commit(cells, self._solver.arrays(), self.cursor)
        finally:
            cells.close()

    def _add_line(self, found: Found, errors: list[float]) -> None:
        """Add the metrics of a lambda; the cost of a pass for several lambdas is counted for the first."""
        of_ranks, last = np.array(self.gather(self._spent())).T, self._told
        samples, lately, bytes_read, bytes_sent = of_ranks[:4].sum(axis=1)
        elapsed, seconds, memory_bytes = of_ranks[4:].max(axis=1)
        line = {
            "iteration": self.cursor.iteration,
            "elapsed_s": round(elapsed, 6),
            self._design.rate: round(lately / seconds),
            "lambda": found.lam,
            "objective": found.objective,
            "duality_gap": found.gap,
            "nonzeros": found.columns.size,
            **({"held_out_error": float(np.mean(errors))} if errors else {}),
            "samples_processed": int(samples),
            "memory_bytes": int(memory_bytes),
            "budget_bytes": self._budget,
            "bytes_read": int(bytes_read),
            "lambda_bytes_read": int(bytes_read) - last["bytes_read"],
            "bytes_written": 0,
            "bytes_sent": int(bytes_sent),
        }
        self._told = add_line(self._run, line, is_first=self._ring.rank == 0)

    def _spent(self) -> list[float]:
        """Return the work of this rank: samples (of all and of this process), bytes read and sent, seconds (of this
        process), memory."""
        cursor, start = self.cursor, self._start
        return [
            cursor.samples_processed,
            cursor.samples_processed - start.samples_processed,
            cursor.bytes_read,
            cursor.bytes_sent,
            cursor.elapsed_s,
            cursor.elapsed_s - start.elapsed_s,
            self._held(self._solver.pids),
        ]

    def close(self) -> None:
        """Release threads and workers."""
        self._solver.close()
        remove_uncommitted(self._generations.directory)

    @property
    def position(self) -> str:
        number = self.cursor.iteration
        return f"after {number} passes of rounds" if self._rule else f"after {number} of {self.total} values of lambda"

    def choice(self) -> dict[str, Any]:
        """Return the choice of lambda by cross-validation, if any, and the schedule of rounds, if any."""
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
