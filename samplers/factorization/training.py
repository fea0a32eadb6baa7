"""Train a matrix factorization: from options to a run, a plan and the engine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from blocks.errors import RequestError
from blocks.ratings.matrix import Matrix
from ooc.ring.ring import Ring
from ooc.runs.dataset_entries import dataset_entry
from ooc.runs.new_run import create_run
from ooc.slurm import node_directory
from ooc.state.generations import GENERATIONS
from ooc.training import Callback
from ooc.workers.worker import ProgramSpec
from samplers.factorization.observer import FactorizationObserver, check_held_out_ratings
from samplers.factorization.options import FactorizationOptions
from samplers.factorization.programs import factorization_spec
from samplers.factorization.rating_units import rating_size, rating_unit
from samplers.factorization.row_kernels import BIASES
from samplers.factorization.simd import LANE
from samplers.options import TrainingResources, by_keywords, check_machines, of_several, takers
from samplers.ring_checks import check_paths_differ, check_processors, check_shards
from samplers.training_preparation import check_dataset, check_limits, plan_training, train_planned

DEFAULT_REGULARIZATION = 0.03  # per rating, for ratings with deviation about 1
DEFAULT_ROW_REGULARIZATION = 1.0  # per user and item
DEFAULT_ALPHA = 1.0


def train(
    data: Path,
    path: Path,
    options: FactorizationOptions,
    resources: TrainingResources,
    ring: Ring | None = None,
    callback: Callback | None = None,
) -> dict[str, Any]:
    """Factorize the matrix `data` in the new run directory `path`.

    ring: machines that all call this function with their own shard and run directory and the same options, except
        held_out, which has the users of the shard; rank 0 writes the model.
    callback: see `ooc.training.train`.
    Returns the last line of the metrics.
    Raises RequestError, before anything is written, if an option is invalid.
    """
    ring = of_several(ring)
    check_machines(FactorizationOptions, vars(options), several=ring is not None)
    spec = _spec(options, on_ring=ring is not None)
    check_limits(spec, resources)
    if resources.on_node:
        node_directory()
    matrix = Matrix(data)
    settings: dict[str, Any] = {"held_out": _held_out(options.held_out, matrix) if options.held_out else None}
    if ring:
        check_shards(ring, matrix)
        check_processors(ring, spec)
        check_paths_differ(ring, path)
        settings |= {"staleness": 0, "on_node": resources.on_node}  # no value is stale
    spec = _in_unit(spec, matrix, implicit=options.implicit)
    plan = plan_training(matrix, spec, resources)
    check_dataset(matrix)
    run = create_run(
        path,
        matrix,
        spec,
        iterations=options.iterations,
        evaluate_every=options.evaluate_every,
        settings=settings,
        scratch=resources.scratch,
        overwrite=resources.overwrite,
    )
    return train_planned(run, plan, FactorizationObserver(run), resources, ring, callback)


train_mf = by_keywords(train, FactorizationOptions)


def disk_needed(data: Path, rank: int, method: str | None = None) -> int:
    """Return the maximum size in bytes of the generations that a new run on a shard keeps on a ring."""
    matrix = Matrix(data)
    rows = matrix.rows + (2 if method == "splash" else 1) * matrix.columns  # sums of squares have the width of items
    return GENERATIONS * 4 * (BIASES + rank + 2 * LANE) * rows


def _spec(options: FactorizationOptions, *, on_ring: bool) -> ProgramSpec:
    """Return the program of the method with its options."""
    chosen = _method(options)
    given = {name: getattr(options, name) for name in takers(FactorizationOptions)}
    given["nonnegative"] = options.nonnegative or None
    if options.implicit and options.alpha is None:
        given["alpha"] = DEFAULT_ALPHA
    if options.biases is None and chosen not in ("implicit", "splash"):
        given["biases"] = not options.nonnegative
    regularization = options.regularization
    if regularization is None:
        by_row = (options.penalty or ("row" if options.implicit else "entry")) == "row"
        regularization = DEFAULT_ROW_REGULARIZATION if by_row else DEFAULT_REGULARIZATION
    of_all = {"rank": options.rank, "regularization": regularization, "seed": options.seed}
    return factorization_spec(chosen, of_all, given, on_ring=on_ring)


def _method(options: FactorizationOptions) -> str:
    """Return the name of the requested method.

    Raises RequestError if there is no such method.
    """
    method = options.method or ("als" if options.implicit else "sgd")
    if options.implicit and method != "als":
        raise RequestError(f"--implicit cannot be used with --method {method}", "Choose --method als.")
    if options.schedule and method != "sgd":
        raise RequestError(
            f"--schedule cannot be used with --method {method}", "Choose --method sgd, or omit --schedule."
        )
    if options.schedule == "bsp":
        return "bsp"
    return "implicit" if options.implicit else method


def _in_unit(spec: ProgramSpec, matrix: Matrix, *, implicit: bool) -> ProgramSpec:
    """Return the program with the unit for these ratings, if the unit is not 1; for counts the unit is 1."""
    centered = spec.options.get("center", True) and not spec.options.get("nonnegative")
    size = rating_size(matrix.whole, matrix.whole.mean if centered else 0.0)
    if not math.isfinite(size):
        raise RequestError(
            f"{matrix.path} has a value that is not finite", "Ingest the ratings again without this value."
        )
    unit = 1.0 if implicit else rating_unit(size)
    return spec if unit == 1 else spec._replace(options=spec.options | {"unit": unit})


def _held_out(path: Path, matrix: Matrix) -> dict[str, str]:
    """Check the held-out ratings, and return the run's settings for them."""
    held_out = Matrix(path)
    check_held_out_ratings(held_out, matrix)
    check_dataset(held_out)
    return dataset_entry(held_out)
