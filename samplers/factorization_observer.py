"""What a factorization's training does at its evaluations and at its end: held-out ratings, and the model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from blocks.errors import RequestError
from blocks.matrix import Matrix
from ooc.engine import StaticEngine
from ooc.run import Run, remembered_dataset
from ooc.training import publish_model
from samplers.factor_model import row_order
from samplers.factor_rows import squared_errors
from samplers.factorization import MatrixFactorization
from samplers.factorization_programs import ImplicitFeedback
from samplers.rankings import expected_percentile_rank


def check_held_out_ratings(held_out: Matrix, matrix: Matrix) -> None:
    """Raise RequestError unless a factorization of `matrix` can be evaluated on `held_out`."""
    for side in ("rows", "columns"):
        checksums = [each.manifest["texts"][side]["checksum"] for each in (held_out, matrix)]
        if checksums[0] != checksums[1]:
            raise RequestError(
                f"--held-out {held_out.path} has other users or items than {matrix.path}",
                f"Ingest the held-out ratings with --names-from {matrix.path}.",
            )


class FactorizationObserver:
    """Of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        entry = run.config["settings"]["held_out"]
        name = "the held-out ratings that the run was started with"
        self._held_out = remembered_dataset(entry, name, Matrix) if entry else None
        self._order = row_order(run.dataset(Matrix)) if entry else np.empty(0, np.int64)

    def observe(self, engine: StaticEngine, line: dict[str, Any]) -> dict[str, Any]:
        if not self._held_out:
            return {}
        program, arrays = engine.program, engine.arrays
        assert isinstance(program, MatrixFactorization)
        if isinstance(program, ImplicitFeedback):
            factors = arrays["rows"], self._order, arrays["columns"], np.arange(self._held_out.columns)
            return {"held_out_percentile_rank": expected_percentile_rank(self._held_out, *factors)}
        return {"held_out_rmse": held_out_rmse(program, arrays, self._held_out, self._order)}

    def finish(self, engine: StaticEngine) -> None:
        publish_model(self._run, engine)


def held_out_rmse(program: MatrixFactorization, arrays: Any, held_out: Matrix, order: np.ndarray) -> float:
    """The root of the mean squared error of ratings that were not trained on.

    order: int64, the place of the row of each name, or -1, see `row_order`. A user without ratings has factors of 0.
    """
    unknown = np.zeros(program.width, np.float32)
    unknown[1] = program.biases
    errors = 0.0
    for number in range(held_out.block_count):
        block = held_out.block(number)
        work = np.empty(int(np.diff(block.offsets).max()), np.float32)
        entries, factors = (block.offsets, block.columns, block.values), (arrays["rows"], order[block.rows], unknown)
        errors += squared_errors(*entries, np.float32(program.mean), *factors, arrays["columns"], work)
    return math.sqrt(errors / held_out.entries)
