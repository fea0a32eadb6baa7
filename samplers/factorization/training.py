"""Starting a matrix factorization: from options to a run, a plan and the engine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from blocks.errors import RequestError
from blocks.ratings.matrix import Matrix
from ooc.batch import node_directory
from ooc.remembered import entry_of
from ooc.ring.ring import Ring
from ooc.run import create_run
from ooc.state import GENERATIONS
from ooc.training import Callback
from ooc.worker import ProgramSpec
from samplers.factorization.lanes import LANE
from samplers.factorization.observer import FactorizationObserver, check_held_out_ratings
from samplers.factorization.programs import factorization_spec
from samplers.factorization.rows import BIASES
from samplers.factorization.units import size_of, unit_of
from samplers.preparation import check_dataset, check_lengths, check_limits, plan_training, train_planned
from samplers.ring_checks import check_apart, check_shards

DEFAULT_REGULARIZATION = 0.03  # of each rating, where they deviate by about 1
DEFAULT_ROW_REGULARIZATION = 1.0  # of each user and item
DEFAULT_ALPHA = 1.0
_CHOICES = {"method": ("sgd", "ccd", "als", "splash"), "schedule": ("rotation", "bsp")}


def train_mf(
    data: Path,
    path: Path,
    *,
    rank: int,
    iterations: int,
    method: str | None = None,
    regularization: float | None = None,
    penalty: str | None = None,
    biases: bool | None = None,
    center: bool | None = None,
    nonnegative: bool = False,
    implicit: bool = False,
    alpha: float | None = None,
    rate: float | None = None,
    schedule: str | None = None,
    replicas: int | None = None,
    combine: str | None = None,
    steps: int | None = None,
    parallelism: int | str | None = None,
    sync_per_pass: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    memory_bytes: int | None = None,
    evaluate_every: int = 1,
    held_out: Path | None = None,
    max_time: float | None = None,
    scratch: Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    callback: Callback | None = None,
    ring: Ring | None = None,
    on_node: bool = False,
) -> dict[str, Any]:
    """Factorize the matrix `data` in the new run directory `path`.

    method: sgd, ccd, als or splash; None for sgd, or for als if `implicit`: the values are then counts, and `alpha` is
    the confidence that one gives. regularization, penalty, biases, center: see `samplers.factorization.program`. rate:
    of the first steps of sgd or splash. schedule: of sgd, rotation or bsp, which takes replicas and combine, see
    `samplers.factorization.gradient_programs`. steps: conjugate gradients of als for each row. parallelism,
    sync_per_pass: of splash, see `ooc.stochastic.program`. The others are as in `samplers.lda.training.train_lda`.
    biases: None for yes where they are possible. ring: of machines that do it together, each with its shard and a run
    of its own, by a method of ON_RING; `held_out` has the users of the shard, and the first machine writes the model.
    on_node: see `samplers.lda.ring_training.train_lda_on_ring`. Returns the last line of the metrics. Raises
    RequestError, before anything is written, if an option is wrong."""
    check_lengths(iterations, evaluate_every)
    chosen = _method(method, schedule, implicit=implicit)
    if implicit and alpha is None:
        alpha = DEFAULT_ALPHA
    if biases is None and chosen not in ("implicit", "splash"):
        biases = not nonnegative
    given = {"penalty": penalty, "biases": biases, "center": center, "alpha": alpha, "rate": rate, "steps": steps}
    given |= {"nonnegative": nonnegative or None, "replicas": replicas, "combine": combine}
    given |= {"parallelism": parallelism, "sync_per_pass": sync_per_pass}
    if regularization is None:
        by_row = implicit or penalty == "row"
        regularization = DEFAULT_ROW_REGULARIZATION if by_row else DEFAULT_REGULARIZATION
    options = {"rank": rank, "regularization": regularization, "seed": seed}
    spec = factorization_spec(chosen, options, given, on_ring=ring is not None)
    check_limits(spec, workers, max_time)
    if on_node:
        node_directory()
    matrix = Matrix(data)
    settings: dict[str, Any] = {"held_out": _held_out(held_out, matrix) if held_out else None}
    if ring:
        check_shards(ring, matrix)
        check_apart(ring, path)
        settings |= {"staleness": 0, "on_node": on_node}  # nothing is stale
    spec = _in_unit(spec, matrix, implicit=implicit)
    plan = plan_training(matrix, spec, workers, memory_bytes)
    check_dataset(matrix)
    run = create_run(
        path,
        matrix,
        spec,
        iterations=iterations,
        evaluate_every=evaluate_every,
        settings=settings,
        scratch=scratch,
        overwrite=overwrite,
    )
    observer = FactorizationObserver(run)
    return train_planned(run, plan, observer, max_time=max_time, quiet=quiet, callback=callback, ring=ring)


def disk_needed(data: Path, rank: int, method: str | None = None) -> int:
    """Bytes of the generations of state that a new run on a ring keeps at most, of a shard."""
    matrix = Matrix(data)
    rows = matrix.rows + (2 if method == "splash" else 1) * matrix.columns  # with squares as wide as items
    return GENERATIONS * 4 * (BIASES + rank + 2 * LANE) * rows


def _method(method: str | None, schedule: str | None, *, implicit: bool) -> str:
    """The name among the methods for what was asked for; raises RequestError if there is none."""
    for option, value in (("method", method), ("schedule", schedule)):
        if value not in (None, *_CHOICES[option]):
            raise RequestError(f"--{option} {value!r} is not known", f"Choose one of: {', '.join(_CHOICES[option])}.")
    if implicit:
        if method not in (None, "als"):
            raise RequestError(f"--implicit is not for --method {method}", "It is for --method als.")
        method = "als"
    method = method or "sgd"
    if schedule and method != "sgd":
        raise RequestError(f"--schedule is not for --method {method}", "It is for --method sgd.")
    if schedule == "bsp":
        return "bsp"
    return "implicit" if implicit else method


def _in_unit(spec: ProgramSpec, matrix: Matrix, *, implicit: bool) -> ProgramSpec:
    """The program with the unit in which it trains these ratings, where it is not 1; that of counts always is."""
    centered = spec.options.get("center", True) and not spec.options.get("nonnegative")
    size = size_of(matrix.whole, matrix.whole.mean if centered else 0.0)
    if not math.isfinite(size):
        raise RequestError(f"{matrix.path} has a value that is not finite", "Ingest the ratings again, without it.")
    unit = 1.0 if implicit else unit_of(size)
    return spec if unit == 1 else spec._replace(options=spec.options | {"unit": unit})


def _held_out(path: Path, matrix: Matrix) -> dict[str, str]:
    """What a run remembers of its held-out ratings, which must be whole and fit the matrix."""
    held_out = Matrix(path)
    check_held_out_ratings(held_out, matrix)
    check_dataset(held_out)
    return entry_of(held_out)
