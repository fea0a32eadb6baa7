"""Predict the ratings of user-item pairs in a file, in chunks."""

from __future__ import annotations

import csv
from itertools import count
from typing import NamedTuple, TextIO

import numpy as np

from blocks.ratings.formats import RatingsFormatOptions
from blocks.ratings.input_chunks import RatingsInput
from blocks.ratings.rating_parser import RatingsParser
from blocks.text_inputs import InputOpenOptions
from samplers.factorization.model import Factorization, FactorModel, Side
from samplers.factorization.new_ratings import names_of
from samplers.factorization.rating_errors import predictions


class PredictedPairCounts(NamedTuple):
    """Number of pairs, and of pairs with an unknown user, an unknown item, or either."""

    all: int
    of_unknown_users: int
    of_unknown_items: int
    unknown: int


def predict_file(
    model: FactorModel, pairs: str, out: TextIO, written: RatingsFormatOptions, encoding: str | None = None
) -> PredictedPairCounts:
    """Write a line with user, item and prediction for each pair; returns the counts.

    pairs: path of a file in a format of `ooc ingest ratings`.
    written: format of the file; if its rating column is `none`, ratings are not needed.
    encoding: encoding of the file, None for UTF-8.
    """
    writer = csv.writer(out)
    writer.writerow(["user", "item", "prediction"])
    reader, done = RatingsParser(-np.inf, np.inf, skip=False), np.zeros(4, np.int64)
    for chunk in RatingsInput(pairs, written, InputOpenOptions(encoding), count()).chunks:
        found = reader.read(chunk)
        users, items = (names_of(side) for side in (found.users, found.items))
        rows, columns = _places(model.rows, users), _places(model.columns, items)
        scores = predict_pairs(model, rows, columns)
        writer.writerows(zip(users, items, (f"{score:.6g}" for score in scores.tolist()), strict=True))
        no_user, no_item = rows < 0, columns < 0
        done += [rows.size, *(int(some.sum()) for some in (no_user, no_item, no_user | no_item))]
    return PredictedPairCounts(*done.tolist())


def predict_pairs(model: Factorization, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return predictions for pairs of row and column indices, float64 (n,); index -1 stands for an unknown row or
    column, whose bias and factors are 0.
    """
    found = np.full(rows.size, model.mean, np.float64)
    for side, places in ((model.rows, rows), (model.columns, columns)):
        found[places >= 0] += side.biases[places[places >= 0]]
    known = (rows >= 0) & (columns >= 0)
    found[known] = predictions(model, rows[known], columns[known])
    return found


def _places(side: Side, names: list[str]) -> np.ndarray:
    """Return the index of each name, int64, or -1."""
    return np.array([side.places.get(name, -1) for name in names], np.int64)
