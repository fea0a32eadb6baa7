"""Evaluation on held-out ratings during the training of a factorization, and publication of its model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from blocks.errors import RequestError
from blocks.ratings.matrix import Matrix
from ooc.engine import StaticEngine
from ooc.runs.run import Run
from ooc.runs.schemas import HeldOutObserverSettings
from ooc.training import publish_model
from samplers.factorization.model import row_order
from samplers.factorization.program import SIDES, FactorizationProgram
from samplers.factorization.programs import ImplicitFeedback
from samplers.factorization.rankings import summed_percentile_ranks
from samplers.factorization.splash import SplashFactorization


def check_held_out_ratings(held_out: Matrix, matrix: Matrix) -> None:
    """Raise RequestError unless a factorization of `matrix` can be evaluated on `held_out`.

    Names, ranks and slices of columns, and names of rows, must be equal.
    """
    same = [
        held_out.manifest["texts"][side]["checksum"] == matrix.manifest["texts"][side]["checksum"] for side in SIDES
    ]
    same += [np.array_equal(held_out.index.column_ids, matrix.index.column_ids)]
    same += [np.array_equal(held_out.index.slice_bounds, matrix.index.slice_bounds)]
    if not all(same):
        raise RequestError(
            f"--held-out {held_out.path} and {matrix.path} have different users or items",
            f"Ingest the held-out ratings with --names-from {matrix.path}.",
        )


class FactorizationObserver:
    """Observer of one run; on a ring, each machine has the held-out ratings of its own users."""

    def __init__(self, run: Run) -> None:
        self._run = run
        run.settings(HeldOutObserverSettings)
        self._held_out = run.held_out(Matrix)
        self._order = row_order(run.dataset(Matrix)) if self._held_out else np.empty(0, np.int64)

    def observe(self, engine: StaticEngine, line: dict[str, Any]) -> dict[str, Any]:
        if not self._held_out:
            return {}
        program, arrays = engine.program, engine.arrays
        assert isinstance(program, FactorizationProgram | SplashFactorization)
        if isinstance(program, ImplicitFeedback):
            factors = arrays["rows"], self._order, arrays["columns"], np.arange(self._held_out.columns)
            ranks = summed_percentile_ranks(self._held_out, *factors)
            return {"held_out_percentile_rank": _mean_of_all(engine, *ranks)}
        errors = program.held_out_errors(self._held_out, self._order, engine.sweep, arrays)
        return {"held_out_rmse": math.sqrt(_mean_of_all(engine, errors, self._held_out.entries))}

    def finish(self, engine: StaticEngine) -> None:
        publish_model(self._run, engine)


def _mean_of_all(engine: StaticEngine, total: float, weights: float) -> float:
    """Return a sum over the held-out ratings of all machines, divided by the sum of their weights."""
    totals, all_weights = zip(*engine.gather([total, weights]), strict=True)
    return math.fsum(totals) / math.fsum(all_weights)
