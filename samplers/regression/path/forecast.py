"""Estimate the memory and time of a regularization path, and state the assumptions."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from blocks import memory
from blocks.design.design import Design
from blocks.errors import RequestError
from blocks.plurals import count_of, rate_text, seconds_text, size_text
from ooc.plan.disk_speed import measure_disk
from samplers.regression.data.design_features import DesignFeatures
from samplers.regression.path.path_memory_plan import LEAST_ROOM, disk_needed, plan_path
from samplers.regression.program import RegressionProgram
from samplers.regression.solver.working_sets import FURTHER

WITHIN = 0.25  # maximum measured deviation from the planned memory
_SPARE = 85_000_000  # bytes that the plan reserves for the process, but that no measured run used
_FIRST, _EACH = (
    4.0,
    0.1,
)  # number of passes over all columns: for the first lambda, and for each further lambda of a path
_VISITS = 100  # number of times that each column of a working set is read, per lambda
_SMALLEST = 100  # minimum number of columns of a working set
# bytes per entry of a working set; additional bytes if it is sparse; additional bytes if rows are weighted, as in folds
_COPIES, _SORTED, _SCALED = 16, 8, 8
_TRIAL = 1 << 22  # number of entries that are read to measure the speed
_ASSUMED = (
    f"all columns are read in {_FIRST:g} passes for the first lambda and {_EACH:g} for each further lambda"
    " (measured: 9 to 12 passes for 100 lambdas, up to 15 for a single small lambda)",
    f"a working set has three columns for each nonzero coefficient, and each column is visited {_VISITS} times per"
    " lambda; correlated columns take several times as long",
    "columns have average lengths, and on average over the path half of the final coefficients are nonzero",
)


def plan_regression(
    design: Design,
    *,
    length: int = 100,
    folds: int = 0,
    nonzeros: int | None = None,
    workers: int | None = None,
    memory_bytes: int | None = None,
    speed: float | None = None,
    disk: float | None = None,
) -> dict[str, Any]:
    """Return the estimates for a path of `length` lambdas, with the same number of lambdas for each fold, as JSON
    types.

    nonzeros: number of nonzero coefficients at the end of the path; None for half the number of rows or columns.
    speed: entries (cells, if dense) per second that a worker reads; None to measure it.
    disk: bytes per second, measured if it matters and is not given.
    Raises RequestError if the memory limit is too small.
    """
    if length < 1 or folds == 1 or folds < 0:
        raise RequestError(f"--path must be at least 1, and --cross-validate 0 or at least 2; got {length} and {folds}")
    nonzeros = min(design.rows, design.columns) // 2 if nonzeros is None else nonzeros
    program = _program(design, length, folds)
    plan = plan_path(program, workers, memory_bytes)
    cells = design.rows * design.columns if design.dense else design.entries
    at_once = min(plan.workers, program.regressions)
    copies = _COPIES + _SORTED * (not design.dense) + _SCALED * (folds > 0)
    largest = min(max(_SMALLEST, FURTHER * nonzeros), design.columns) * cells // design.columns
    passes = (_FIRST + _EACH * (length - 1)) * program.regressions
    read = round(passes * design.data_bytes)
    speed = speed or entries_per_s(design)
    solved = length * program.regressions * _VISITS * largest / 2 / speed / at_once
    is_cached = design.data_bytes <= max(memory.available_memory() - plan.held, 0)
    disk = None if is_cached else disk or measure_disk(design.path.parent).reading
    looking, reading = passes * cells / speed / plan.workers, read / disk if disk else 0.0
    return {
        "rows": design.rows,
        "columns": design.columns,
        "entries": cells,
        "lambdas": length,
        "folds": folds,
        "workers": plan.workers,
        "assumed_nonzeros": nonzeros,
        "memory_bytes": plan.held - _SPARE + copies * largest * at_once,
        "held_bytes": plan.held,
        "least_memory_bytes": plan.held + LEAST_ROOM,
        "room_bytes": plan.room,
        "fitting_columns": min(plan.room // at_once // max(copies * cells // design.columns, 1), design.columns),
        "dataset_bytes": design.data_bytes,
        "state_bytes": disk_needed(design.path, folds),
        "passes": passes,
        "read_bytes": read,
        "lambda_bytes": round(read / length),
        "looking_s": looking,
        "disk_s": reading,
        "solving_s": solved,
        "path_s": max(looking, reading) + solved,
        "assumed_entries_per_s": speed,
        **({"assumed_disk": disk} if disk else {}),
    }


def _program(design: Design, length: int, folds: int) -> RegressionProgram:
    """Return a program of this length; its memory does not depend on the other options."""
    return RegressionProgram(
        design,
        loss="squared",
        levels={"ratio": 0.01, "number": length},
        tolerance=1e-6,
        share=1.0,
        intercept=True,
        standardize=True,
        unpenalized=[],
        weights=None,
        rows=None,
        folds=folds,
        seed=0,
    )


def entries_per_s(design: Design) -> float:
    """Return the number of entries or cells that one worker processes per second: the best of several trials on the
    first columns.
    """
    features = DesignFeatures(design, 1, 0)
    each = max(design.rows if design.dense else design.entries // design.columns, 1)
    some, vector = np.arange(min(design.columns, max(_TRIAL // each, 1))), np.ones(design.rows)
    best = 0.0
    for _ in range(4):
        before, began = features.samples, time.perf_counter()
        features.correlations(some, vector)
        best = max(best, (features.samples - before) / (time.perf_counter() - began))
    return best


def forecast_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the estimates as lines of text."""
    folds = f" and {count_of(facts['folds'], 'fold')}" if facts["folds"] else ""
    rows, columns = count_of(facts["rows"], "row"), count_of(facts["columns"], "column")
    yield f"design     {rows} x {columns}, {count_of(facts['entries'], 'entry', 'entries')}"
    nonzeros = f"{count_of(facts['assumed_nonzeros'], 'nonzero coefficient')} at its end"
    yield f"path       {count_of(facts['lambdas'], 'lambda')}{folds}, {nonzeros}"
    workers, least = count_of(facts["workers"], "worker"), f"{math.ceil(facts['least_memory_bytes'] / 1e6):,} MB"
    yield f"memory     about {size_text(facts['memory_bytes'])} (within {WITHIN:.0%}) with {workers}"
    yield f"           --memory must be at least {least}; what it allows beyond {size_text(facts['held_bytes'])} is for"
    fitting = count_of(facts["fitting_columns"], "column")
    yield f"           working sets: {size_text(facts['room_bytes'])}, enough for {fitting} at a time"
    saved = f"up to three saved states, {size_text(facts['state_bytes'])} in all"
    yield f"disk       dataset {size_text(facts['dataset_bytes'])}; {saved}"
    each = f"{size_text(facts['lambda_bytes'])} per lambda"
    yield f"reads      {size_text(facts['read_bytes'])} in {facts['passes']:.1f} passes over the dataset, {each}"
    speed = f"{rate_text(facts['assumed_entries_per_s'], 'entries')} per worker"
    yield f"time       {seconds_text(facts['path_s'])}; the actual time can be several times as long, or as short:"
    yield f"           all columns   {seconds_text(facts['looking_s'])}, at {speed}"
    if "assumed_disk" in facts:
        at = f"at {size_text(facts['assumed_disk'])}/s"
        yield f"           disk          {seconds_text(facts['disk_s'])}, in parallel, {at}"
    yield f"           working sets  {seconds_text(facts['solving_s'])}"
    yield from (f"assumes    {assumption}" for assumption in _ASSUMED)
