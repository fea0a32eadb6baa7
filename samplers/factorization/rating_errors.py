"""Errors of the predictions of a factorization."""

from __future__ import annotations

import math

import numpy as np

from blocks.errors import RequestError
from blocks.ratings.matrix import Matrix
from samplers.factorization.model import Factorization, FactorModel
from samplers.factorization.rankings import summed_percentile_ranks

_PRODUCTS = 1 << 22  # number of factors multiplied at a time


def evaluate_ratings(model: FactorModel, held_out: Matrix) -> dict[str, float]:
    """Return the RMSE and mean absolute error for ratings by known users of known items; for implicit feedback, the
    expected percentile rank.

    Raises RequestError unless `held_out` was ingested with --names-from and the training ratings.
    """
    if held_out.row_names() != model.rows.names or held_out.column_names() != model.columns.names:
        raise RequestError(
            f"{held_out.path} and {model.path} have different users or items",
            "Ingest the ratings again with --names-from and the training ratings.",
        )
    if model.solver["alpha"]:
        places = np.arange(len(model.rows)), held_out.index.column_ids
        total, counts = summed_percentile_ranks(
            held_out, model.rows.factors, places[0], model.columns.factors, places[1]
        )
        return {"counts": held_out.entries, "percentile_rank": total / counts}
    squares = absolutes = 0.0
    for number in range(held_out.block_count):
        block = held_out.block(number)
        rows = np.repeat(block.rows, np.diff(block.offsets))
        errors = block.values - predictions(model, rows, held_out.index.column_ids[block.columns])
        squares += float(errors @ errors)
        absolutes += float(np.abs(errors).sum())
    return {
        "ratings": held_out.entries,
        "rmse": math.sqrt(squares / held_out.entries),
        "mae": absolutes / held_out.entries,
    }


def predictions(model: Factorization, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return predictions for pairs of row and column indices: float64 (n,)."""
    found = model.mean + model.rows.biases[rows].astype(np.float64) + model.columns.biases[columns]
    step = max(_PRODUCTS // model.rank, 1)
    for first in range(0, rows.size, step):
        some = slice(first, first + step)
        factors = model.rows.factors[rows[some]], model.columns.factors[columns[some]]
        found[some] += np.einsum("ij,ij->i", *factors, dtype=np.float64)
    return found
