"""Starting a Lasso or an l1 logistic regression of a design matrix, from options to a run; going on with one; and its
way from lambda to lambda, with commits, metrics, progress and an orderly stop, as `ooc.training` has them."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from blocks import memory
from blocks.design.design import Design
from blocks.errors import Interrupted, OocError, RequestError
from blocks.files import disk_errors, publish_directory
from blocks.workers import cores
from ooc.run import Run, create_run
from ooc.state import Cursor, Generations, layout_of, remove_uncommitted
from ooc.training import Checkpoints, Stop, noted_signals, resumable
from ooc.worker import ProgramSpec
from samplers.preparation import MEMORY_SHARE, check_dataset, check_limits
from samplers.regression.model import write_regression
from samplers.regression.path_solver import Found, PathSolver, path_arrays
from samplers.regression.program import RegressionProgram, row_file
from samplers.regression.warm_up import prepare_regression

TARGET = "samplers.regression.program:RegressionProgram"
LENGTH, LEAST = 100, 0.01  # of a path: values of lambda, and the last as a share of the first
_PROCESS = 170_000_000  # bytes of the process that has loaded the kernels
_ROOM = 16_000_000  # bytes of the columns that are worked on: without them there is no use to begin


class PathPlan(NamedTuple):
    """What a run keeps in memory. room: bytes of the columns that are worked on, besides all that is held for sure."""

    workers: int
    held: int
    room: int

    def told(self) -> str:
        return (
            f"plan: {self.workers} workers; {self.held / 1e6:,.0f} MB, and up to {self.room / 1e6:,.0f} MB for the"
            " columns that are worked on; blocks are mapped, and only the columns that may matter are read"
        )


def train_regression(
    data: Path,
    path: Path,
    loss: str,
    *,
    level: float | None = None,
    ratio: float | None = None,
    length: int | None = None,
    least: float | None = None,
    tolerance: float = 1e-6,
    share: float = 1.0,
    intercept: bool = True,
    standardize: bool = True,
    unpenalized: Sequence[str] = (),
    weights: Path | None = None,
    rows: Path | None = None,
    folds: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    memory_bytes: int | None = None,
    max_time: float | None = None,
    scratch: Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Solve a regression of the design `data` in the new run directory `path`.

    loss: "squared" or "logistic". level: lambda; or ratio: of lambda to the largest; or length and least: of a path,
    and the ratio of its last value. unpenalized: names of columns, or numbers if they have no names. weights, rows: see
    `blocks.design.row_files`. folds: of a cross-validation. The others are as in `SparseRegression` and
    `samplers.lda.training.train_lda`. Returns the last line of the metrics. Raises RequestError, before anything is
    written, if an option is wrong.
    """
    if not 0 < tolerance < 1:
        raise RequestError(f"--tolerance {tolerance:g}: a number between 0 and 1 is needed")
    if not 0 < share <= 1:
        raise RequestError(f"--l1-ratio {share:g}: above 0 and up to 1 is possible", "1 is the Lasso.")
    if folds is not None and folds < 2:
        raise RequestError(f"--cross-validate {folds}: at least 2 folds are needed")
    design = Design(data)
    options = {
        "loss": loss,
        "levels": _levels(level, ratio, length, least),
        "tolerance": tolerance,
        "share": share,
        "intercept": intercept,
        "standardize": standardize,
        "unpenalized": column_numbers(design, unpenalized),
        "weights": row_file(weights) if weights else None,
        "rows": row_file(rows) if rows else None,
        "folds": folds or 0,
        "seed": seed,
    }
    spec = ProgramSpec(TARGET, options)
    check_limits(spec, workers, max_time)
    program = program_of(spec, design)
    _ = program.y, program.held_out
    plan = plan_path(program, workers, memory_bytes)
    check_dataset(design)
    run = create_run(
        path, design, spec, iterations=program.length, evaluate_every=1, scratch=scratch, overwrite=overwrite
    )
    return follow_path(run, plan, max_time=max_time, quiet=quiet)


def resume_regression(
    run: Run, *, workers: int | None, memory_bytes: int | None, max_time: float | None, quiet: bool
) -> dict[str, Any]:
    """Go on with a run, also with other workers or another budget."""
    check_limits(run.spec, workers, max_time)
    design = run.dataset(Design)
    plan = plan_path(program_of(run.spec, design), workers, memory_bytes)
    check_dataset(design)
    return follow_path(run, plan, max_time=max_time, quiet=quiet)


def is_regression(run: Run) -> bool:
    return run.config["program"] == TARGET


def program_of(spec: ProgramSpec, design: Design) -> RegressionProgram:
    return spec.build(design)  # type: ignore[return-value]


def _levels(level: float | None, ratio: float | None, length: int | None, least: float | None) -> dict[str, Any]:
    given = {"--lambda": level, "--lambda-ratio": ratio, "--path": length}
    if len(names := [name for name, value in given.items() if value is not None]) > 1:
        raise RequestError(f"{' and '.join(names)} cannot go together", "Give one of them.")
    if least is not None and (level is not None or ratio is not None):
        raise RequestError("--lambda-min-ratio is for a path", f"Leave it or {names[0]} out.")
    if level is not None:
        if not 0 < level < math.inf:
            raise RequestError(f"--lambda {level:g}: a number above 0 is needed")
        return {"lambda": level}
    if ratio is not None:
        if not 0 < ratio < math.inf:
            raise RequestError(f"--lambda-ratio {ratio:g}: a number above 0 is needed")
        return {"ratio": ratio, "number": 1}
    length, least = LENGTH if length is None else length, LEAST if least is None else least
    if length < 2:
        raise RequestError(f"--path {length}: at least 2 values are needed", "For one, use --lambda-ratio.")
    if not 0 < least < 1:
        raise RequestError(f"--lambda-min-ratio {least:g}: a number between 0 and 1 is needed")
    return {"ratio": least, "number": length}


def column_numbers(design: Design, names: Sequence[str]) -> list[int]:
    """Numbers, from 0 on and ascending, of columns that users name; RequestError for one that is not there."""
    if not names:
        return []
    known, first = design.column_names(), design.manifest["first_column"]
    if known is None:
        places = {name: int(name) - first if name.isdecimal() else -1 for name in names}
        there = f"They go by numbers from {first} to {first + design.columns - 1}."
    else:
        of_name = dict(zip(known, range(len(known)), strict=True))
        places, there = {name: of_name.get(name, -1) for name in names}, "Names are in its columns.txt."
    for name, place in places.items():
        if not 0 <= place < design.columns:
            raise RequestError(f"{design.path} has no column {name!r}", there)
    return sorted(places.values())


def plan_path(program: RegressionProgram, workers: int | None, memory_bytes: int | None) -> PathPlan:
    """Raises RequestError if the budget will not do."""
    available = memory.available()
    if memory_bytes and memory_bytes > available:
        print(f"warning: --memory is more than the {available / 1e9:.1f} GB that are available", file=sys.stderr)
    budget = memory_bytes or int(MEMORY_SHARE * available)
    held = _PROCESS + program.bytes()
    if held + _ROOM > budget:
        least = -(-(held + _ROOM) // 10**6)
        raise RequestError(
            f"--memory {budget / 1e6:,.0f} MB is too little: {program.design.columns:,} columns need at least"
            f" {least:,} MB",
            "Give more memory, or leave --cross-validate out." if program.folds else "Give more memory.",
        )
    return PathPlan(workers or cores(), held, budget - held)


def follow_path(run: Run, plan: PathPlan, *, max_time: float | None, quiet: bool) -> dict[str, Any]:
    """Solve for the values of lambda that are left, then write the model. Returns the last line of the metrics, and
    what a cross-validation has chosen.

    Raises Interrupted, with everything committed, after SIGINT, SIGTERM or max_time.
    """
    stop = Stop(time.monotonic() + max_time if max_time else math.inf)
    design = run.dataset(Design)
    if not quiet:
        print(plan.told(), file=sys.stderr)
    program = program_of(run.spec, design)
    prepare_regression(design, program.loss, weighted=program.weights is not None or program.folds > 0)
    with run.locked(), noted_signals(stop), resumable(run), disk_errors(run.path):
        path = PathTraining(run, program, plan, quiet=quiet)
        reason = path.follow(stop)
        if reason is None:
            path.publish()
            run.set_finished()
    done = f"after {path.cursor.iteration} of {run.config['iterations']} values of lambda"
    run.log(f"{f'stopped by {reason}' if reason else 'done'} {done}")
    if reason:
        raise Interrupted(f"stopped by {reason} {done}; everything is saved", f"Go on with: ooc resume {run.path}")
    return run.metrics()[-1] | path.choice()


class PathTraining:
    """The way of one run in one process, and what is told of it. Attributes: `cursor`, of which an iteration is a value
    of lambda."""

    def __init__(self, run: Run, program: RegressionProgram, plan: PathPlan, *, quiet: bool) -> None:
        self._run, self._program, self._design, self._quiet = run, program, program.design, quiet
        layout = layout_of(self._design, program.local_state())
        self._generations = Generations(run.scratch / "state", self._design, layout)
        self._clock = time.monotonic()
        self._solver = PathSolver(self._program, plan.workers, plan.room)
        self._budget = plan.held + plan.room
        self.cursor, self._start = Cursor(), Cursor()
        if self._generations:
            self._restore()
        run.keep_metrics(self.cursor.iteration)
        lines = run.metrics()
        self._told = lines[-1] if lines else {"elapsed_s": 0.0, "samples_processed": 0, "bytes_read": 0}
        run.log(f"at value {self.cursor.iteration} of lambda; {plan.told()}")

    def _restore(self) -> None:
        try:
            self._generations.check()
            self._solver.restore(self._generations.arrays())
        except OocError as error:
            self._generations.fall_back(error)
            self._restore()
        else:
            self.cursor, self._start = self._generations.cursor, self._generations.cursor

    def follow(self, stop: Stop) -> str | None:
        """Solve for what is left; returns why it stopped before that was done, or None."""
        solver, checkpoints, reason = self._solver, Checkpoints(), None
        with tqdm(
            total=self._program.length,
            initial=self.cursor.iteration,
            unit="lambda",
            disable=True if self._quiet else None,
            file=sys.stderr,
        ) as progress:
            if not self._generations:
                solver.begin()
                self._warn_of_nothing()
                self._commit()
            while not solver.done and not (reason := stop.reason()):
                progress.update(self._step())
                progress.set_postfix_str(f"gap {solver.gap:.1e} of {self._program.tolerance:.0e}")
                if checkpoints.due:
                    with checkpoints.taken():
                        self._commit()
        self._commit()
        remove_uncommitted(self._generations.directory)
        return reason

    def _warn_of_nothing(self) -> None:
        """Tell of a lambda that is too large."""
        level, largest = float(self._solver.levels[0]), self._solver.largest
        if level > largest:
            print(
                f"warning: lambda {level:g} is above {largest:g}, from where on all coefficients with a penalty are 0",
                file=sys.stderr,
            )

    def _step(self) -> int:
        """Make a step of the solver; returns for how many more values of lambda all is found."""
        before = self.cursor.iteration
        self._solver.step()
        self._spend()
        for number in range(before, self._solver.solved):
            self.cursor.iteration = number + 1
            self._add_line(self._solver.found[number], [errors[number] for errors in self._solver.errors])
        return self.cursor.iteration - before

    def _spend(self) -> None:
        """Add to the cursor what was done since the last time."""
        before, self._clock = self._clock, time.monotonic()
        self.cursor.elapsed_s += self._clock - before
        self.cursor.bytes_read = self._start.bytes_read + self._solver.bytes_read
        self.cursor.samples_processed = self._start.samples_processed + self._solver.samples

    @property
    def _seconds(self) -> float:
        """Of this process."""
        return self.cursor.elapsed_s - self._start.elapsed_s

    def _commit(self) -> None:
        self._spend()
        self._run.sync_metrics()
        cells = self._generations.create()
        try:
            self._generations.commit(cells, self._solver.arrays(), self.cursor)
        finally:
            cells.close()

    def _add_line(self, found: Found, errors: list[float]) -> None:
        """What a pass for several values of lambda has cost is told of the first of them."""
        cursor, last = self.cursor, self._told
        self._told = {
            "iteration": cursor.iteration,
            "elapsed_s": round(cursor.elapsed_s, 6),
            self._design.rate: round((cursor.samples_processed - self._start.samples_processed) / self._seconds),
            "lambda": found.level,
            "objective": found.objective,
            "duality_gap": found.gap,
            "nonzeros": found.columns.size,
            **({"held_out_error": float(np.mean(errors))} if errors else {}),
            "samples_processed": cursor.samples_processed,
            "memory_bytes": memory.held([os.getpid()]),
            "budget_bytes": self._budget,
            "bytes_read": cursor.bytes_read,
            "lambda_bytes_read": cursor.bytes_read - last["bytes_read"],
            "bytes_written": 0,
            "bytes_sent": 0,
        }
        self._run.add_metrics(self._told)

    def choice(self) -> dict[str, Any]:
        """What the folds, if there are any, say of lambda."""
        validation, found = self._solver.validation(), self._solver.found
        if not validation:
            return {}
        chosen = found[validation.chosen]
        told = {"chosen_lambda": chosen.level, "chosen_nonzeros": chosen.columns.size}
        return told | {"best_lambda": found[validation.best].level}

    def publish(self) -> None:
        """Write the model."""
        with publish_directory(self._run.path / "model", overwrite=True) as directory:
            write_regression(
                directory,
                self._design,
                loss=self._program.loss,
                classes=self._program.classes.tolist(),
                arrays=path_arrays(self._solver.found),
                validation=self._solver.validation(),
            )
