"""Train or resume a Lasso, or an l1 logistic or Poisson regression: from options to a run, on one machine or on a ring
of machines that each have some of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from blocks import stderr
from blocks.design.design import Design
from blocks.design.row_shards import shard_or_whole
from blocks.errors import RequestError
from blocks.plurals import count_of
from ooc.dynamic.selection_rules import SelectionRule, check_rule
from ooc.ring.ring import Ring
from ooc.runs.new_run import create_run
from ooc.runs.run import Run
from ooc.runs.schemas import RunSettings
from ooc.training_loop import StopRequest, end_training, inform_ranks_of_errors, interruption, run_steps, training_lock
from ooc.workers.worker import ProgramSpec
from samplers.options import TrainingResources, by_keywords, check_machines, of_several
from samplers.programs import target
from samplers.regression.data.column_moments import column_shifts, known_moments
from samplers.regression.options import RegressionOptions
from samplers.regression.path.path_memory_plan import PathMemoryPlan, largest_bytes, plan_path
from samplers.regression.path.training import LambdaPathTraining
from samplers.regression.program import RegressionProgram, row_file
from samplers.regression.rounds.solver import MOST_STEPS, selection_rule
from samplers.regression.solver.solver_limit import SolverLimitReached
from samplers.regression.solver.warm_up import prepare_regression
from samplers.ring_checks import check_alike, check_paths_differ, check_processors, check_same, check_shards
from samplers.training_preparation import announcement, check_dataset, check_limits

RHO, PARALLELISM = 0.2, 64  # defaults of rounds
TARGET = target("regression")
LENGTH, LEAST = 100, 0.01  # defaults of a path: number of lambdas, and ratio of the last lambda to the first


class StoredSelectionRule(TypedDict):
    """A `SelectionRule` of rounds as stored in a run."""

    schedule: str
    parallelism: int
    rho: float | None


class RegressionSettings(RunSettings):
    """Settings of a run with rounds."""

    rounds: NotRequired[StoredSelectionRule]


def train(
    data: Path, path: Path, options: RegressionOptions, resources: TrainingResources, ring: Ring | None = None
) -> dict[str, Any]:
    """Fit a regression to the design `data` in the new run directory `path`.

    The options `level` (a single lambda), `ratio` (a single lambda, relative to lambda_max), or `length` and `least`
    (number of lambdas on a path, and its last lambda relative to lambda_max) are alternatives. `unpenalized` has column
    names, or column indices if columns have no names. `weights` and `rows` are described in `blocks.design.row_files`,
    `schedule`, `parallelism` and `rho` in `ooc.dynamic.selection_rules`; without `schedule`, working sets are used.
    `folds` is the number of cross-validation folds. For the other options see `SparseRegression`.

    ring: machines that train together, each with its shard and its own run; weights and rows refer to the rows of the
        whole dataset.
    Returns the last line of the metrics.
    Raises RequestError, before anything is written, if an option is invalid.
    """
    if resources.on_node:
        raise RequestError(
            "--scratch node cannot be used for regressions", "Omit --scratch, or set it to the path of a directory."
        )
    ring = of_several(ring)
    check_machines(RegressionOptions, vars(options), several=ring is not None)
    design = shard_or_whole(data) if ring else Design(data)
    given = _program_options(options, design)
    spec = ProgramSpec(TARGET, given)
    check_limits(spec, resources)
    if ring:
        check_shards(ring, design)
        check_processors(ring, spec)
        check_alike(ring, _shared(given))
        check_paths_differ(ring, path)
    program = program_of(spec, design)
    _ = program.y, program.held_out
    rounds = _rounds(program, options)
    plan = plan_path(program, resources.workers, resources.memory_bytes, _rule(program, rounds))
    check_dataset(design)
    run = create_run(
        path,
        design,
        spec,
        iterations=MOST_STEPS if rounds else program.length,
        evaluate_every=1,
        settings=({"rounds": rounds} if rounds else {}) | ({"staleness": 0} if ring else {}),  # no value is stale
        scratch=resources.scratch,
        overwrite=resources.overwrite,
    )
    return follow_path(run, plan, ring, max_time=resources.max_time, quiet=resources.quiet)


train_regression = by_keywords(train, RegressionOptions, positional=1)


def _program_options(options: RegressionOptions, design: Design) -> dict[str, Any]:
    """Return the options of the program."""
    if not 0 < options.tolerance < 1:
        raise RequestError(f"--tolerance must be between 0 and 1, got {options.tolerance:g}")
    if not 0 < options.share <= 1:
        raise RequestError(f"--l1-ratio must be above 0 and at most 1, got {options.share:g}", "Use 1 for the Lasso.")
    if options.folds is not None and options.folds < 2:
        raise RequestError(f"--cross-validate must be at least 2, got {options.folds}")
    if options.positive and options.unpenalized:
        raise RequestError(
            "--positive and --unpenalized are mutually exclusive: only penalized coefficients can be restricted",
            "Omit one of them.",
        )
    return {
        "loss": options.loss,
        "levels": _levels(options),
        "tolerance": options.tolerance,
        "share": options.share,
        "intercept": options.intercept,
        "standardize": options.standardize,
        "unpenalized": column_numbers(design, options.unpenalized),
        "weights": row_file(options.weights) if options.weights else None,
        "rows": row_file(options.rows) if options.rows else None,
        "folds": options.folds or 0,
        "seed": options.seed,
        "positive": options.positive,
    }


def resume_regression(run: Run, resources: TrainingResources, ring: Ring | None = None) -> dict[str, Any]:
    """Resume a run, possibly with other workers or another memory limit."""
    check_limits(run.spec, resources)
    if ring:
        check_same(ring, run, _shared(run.config["options"]))
        check_processors(ring, run.spec)
    design = run.dataset(shard_or_whole if ring else Design)
    program = program_of(run.spec, design)
    plan = plan_path(program, resources.workers, resources.memory_bytes, rule_of_run(run, design))
    check_dataset(design)
    return follow_path(run, plan, ring, max_time=resources.max_time, quiet=resources.quiet)


def _shared(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that all ranks share; files may have different paths but must have equal contents."""
    return options | {name: options[name] and options[name][1] for name in ("weights", "rows")}


def _rounds(program: RegressionProgram, options: RegressionOptions) -> dict[str, Any] | None:
    """Return the settings of a run's rounds, if any.

    Raises RequestError if rounds cannot solve the problem.
    """
    schedule, parallelism, rho = options.schedule, options.parallelism, options.rho
    if schedule is None:
        if given := [name for name, value in (("parallelism", parallelism), ("rho", rho)) if value is not None]:
            raise RequestError(
                f"--{given[0]} can only be used with --schedule", f"Omit --{given[0]}, or add --schedule priority."
            )
        return None
    unable = {
        "a path": program.length > 1,
        "--cross-validate": program.folds > 0,
        "--weights and --rows": program.sample_weight is not None,
        "--unpenalized": bool(program.unpenalized),
        "--positive": program.positive,
        "a Poisson regression": program.loss == "poisson",
        "an intercept of a logistic regression": program.loss == "logistic" and program.intercept,
        "--l1-ratio of a logistic regression": program.loss == "logistic" and program.share < 1,
    }
    for what in (what for what, asked in unable.items() if asked):
        raise RequestError(
            f"--schedule {schedule} cannot be used with {what}",
            "Omit --schedule; it can only be used with one --lambda or --lambda-ratio, for `lasso` or"
            " `logistic --no-intercept`.",
        )
    rho = RHO if rho is None and schedule == "priority" else rho
    rounds = {"schedule": schedule, "parallelism": PARALLELISM if parallelism is None else parallelism, "rho": rho}
    check_rule(_rule(program, rounds))  # type: ignore[arg-type]
    return rounds


def _rule(program: RegressionProgram, rounds: dict[str, Any] | None) -> SelectionRule | None:
    return selection_rule(program.design, **rounds, seed=program.seed, centred=program.intercept) if rounds else None


def rule_of_run(run: Run, design: Design) -> SelectionRule | None:
    """Return the rule of a run's rounds, if it has any."""
    rule = _rule(program_of(run.spec, design), run.settings(RegressionSettings).get("rounds"))
    if rule:
        check_rule(rule)
    return rule


def program_of(spec: ProgramSpec, design: Design) -> RegressionProgram:
    return spec.build(design)  # type: ignore[return-value]


def _levels(options: RegressionOptions) -> dict[str, Any]:
    level, ratio, length, least = options.level, options.ratio, options.length, options.least
    given = {"--lambda": level, "--lambda-ratio": ratio, "--path": length}
    if len(names := [name for name, value in given.items() if value is not None]) > 1:
        raise RequestError(f"{' and '.join(names)} are mutually exclusive", "Use only one of them.")
    if least is not None and (level is not None or ratio is not None):
        raise RequestError("--lambda-min-ratio can only be used with a path", f"Omit --lambda-min-ratio or {names[0]}.")
    if level is not None:
        if not 0 < level < math.inf:
            raise RequestError(f"--lambda must be a finite number above 0, got {level:g}")
        return {"lambda": level}
    if ratio is not None:
        if not 0 < ratio < math.inf:
            raise RequestError(f"--lambda-ratio must be a finite number above 0, got {ratio:g}")
        return {"ratio": ratio, "number": 1}
    length, least = LENGTH if length is None else length, LEAST if least is None else least
    if length < 2:
        raise RequestError(f"--path must be at least 2, got {length}", "For a single lambda, use --lambda-ratio.")
    if not 0 < least < 1:
        raise RequestError(f"--lambda-min-ratio must be between 0 and 1, got {least:g}")
    return {"ratio": least, "number": length}


def column_numbers(design: Design, names: Sequence[str]) -> list[int]:
    """Return the indices of named columns, 0-based and ascending.

    Raises RequestError for an unknown column.
    """
    if not names:
        return []
    known, first = design.column_names(), design.manifest["first_column"]
    if known is None:
        places = {name: int(name) - first if name.isdecimal() else -1 for name in names}
        there = f"Its columns have no names, but numbers from {first} to {first + design.columns - 1}."
    else:
        of_name = dict(zip(known, range(len(known)), strict=True))
        places, there = (
            {name: of_name.get(name, -1) for name in names},
            f"The names of its columns are in {design.path / 'columns.txt'}.",
        )
    for name, place in places.items():
        if not 0 <= place < design.columns:
            raise RequestError(f"{design.path} has no column {name!r}", there)
    return sorted(places.values())


def follow_path(
    run: Run, plan: PathMemoryPlan, ring: Ring | None = None, *, max_time: float | None, quiet: bool
) -> dict[str, Any]:
    """Solve for the remaining lambdas, then write the model.

    Returns the last line of the metrics, and the lambda chosen by cross-validation.
    Raises Interrupted after SIGINT, SIGTERM or SIGHUP and TimeOver after max_time, with everything committed.
    """
    stop = StopRequest(max_time)
    design = run.dataset(shard_or_whole if ring else Design)
    program = program_of(run.spec, design)
    if not quiet:
        lambdas = count_of(program.length, "lambda")
        steps = f"path of {lambdas}" if program.length > 1 else lambdas
        folds = f" and {count_of(program.folds, 'fold')}" if program.folds else ""
        stderr.print_note(announcement(design, steps + folds, plan.workers, largest_bytes(plan, program)))
    weighted = program.sample_weight is not None or program.folds > 0
    shifts = column_shifts(design.offsets, known_moments(design), intercept=program.intercept)
    prepare_regression(design, program.loss, weighted=weighted, shifted=shifts is not None)
    with training_lock(run, stop), inform_ranks_of_errors(ring):
        try:
            with closing(LambdaPathTraining(run, program, plan, stop, ring, rule_of_run(run, design))) as path:
                reason = run_steps(run, path, stop, quiet=quiet)
        except SolverLimitReached:
            go_on = f"Continue with: ooc resume {run.path}"
            raise interruption(run, stop.reason(), "before it began", go_on, ring) from None
    return end_training(run, path, reason, ring) | path.choice()
