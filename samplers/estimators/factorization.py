"""Matrix factorization with the interface of scikit-learn: known values in, factors and the missing values out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash

from blocks.errors import RequestError
from blocks.ratings.from_memory import write_matrix
from blocks.ratings.matrix import Matrix
from samplers.estimators.base import told_as, whole
from samplers.estimators.by_run import RunEstimator, options_of, parameters_of
from samplers.estimators.ids import places_among
from samplers.estimators.known_values import KnownValues, columns_of, is_columns, known_rows, read_known
from samplers.estimators.parameters import checked_parameters
from samplers.estimators.tables import SparseRows, is_path, read_table
from samplers.estimators.triples import refuse_triples
from samplers.factorization.model import Factorization, FactorModel
from samplers.factorization.options import FactorizationOptions
from samplers.factorization.predictions import predict_pairs
from samplers.factorization.recommendation import Users, fold_in, recommend
from samplers.factorization.training import train
from samplers.models import open_factors

_ROWS = 1 << 12  # whose items are chosen together


@dataclass(eq=False, repr=False)
class MatrixFactorization(RunEstimator):
    """Factors of rows and columns (users and items) from the values that are known of a matrix.

    n_components: factors of each, R. method: "sgd", "ccd", "als" or "splash"; None for sgd, or als if implicit.
    regularization, penalty, biases, center, nonnegative, implicit, alpha, rate, schedule, replicas, combine, steps,
    parallelism, sync_per_pass: as the options of `ooc train mf` (docs/factorization.md); None for its defaults.
    evaluate_every: iterations between values of the objective. The others are those of
    `samplers.estimators.by_run.RunEstimator`.

    Learnt by `fit`: model_ (`samplers.factorization.model.Factorization`); row_factors_ float32 (n, R) and row_biases_
    (n,); components_ float32 (R, p), the factors of columns, and column_biases_ (p,); mean_; rows_ and columns_, their
    names, or numbers; n_iter_; history_; n_features_in_, p; feature_names_in_ of data frames.

    X: a sparse matrix, whose entries are what is known; an array or a data frame, in which NaN is what is not known
    (and 0, if implicit); a tuple of columns, names of rows, names of columns and values, which are 1 if left out; or
    the path of a matrix that `ooc ingest ratings` made.
    """

    _options = FactorizationOptions
    n_components: int = 10
    _: KW_ONLY
    method: str | None = None
    regularization: float | None = None
    penalty: str | None = None
    biases: bool | None = None
    center: bool | None = None
    nonnegative: bool = False
    implicit: bool = False
    alpha: float | None = None
    rate: float | None = None
    schedule: str | None = None
    replicas: int | None = None
    combine: str | None = None
    steps: int | None = None
    parallelism: int | str | None = None
    sync_per_pass: int | None = None
    max_iter: int = 20
    evaluate_every: int = 1
    model_: Factorization = field(init=False)
    rows_: np.ndarray = field(init=False)
    columns_: np.ndarray = field(init=False)

    def _describe(self, tags: Any) -> None:
        super()._describe(tags)
        tags.input_tags.allow_nan = True
        tags.input_tags.positive_only = bool(self.implicit)

    @classmethod
    def from_run(cls, path: str | Path) -> Self:
        """The estimator of a model that `ooc train mf` has made."""
        model = open_factors(Path(path))
        estimator = cls(model.rank, implicit=bool(model.solver["alpha"]))
        return estimator._take(model, np.array(model.rows.names), np.array(model.columns.names))

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on known values. y: not used. Raises RequestError."""
        parameters = checked_parameters(self)
        if not is_path(X):
            refuse_triples(X, y, "fit")
        data = Matrix(X) if is_path(X) else read_known(X, counts=self.implicit)
        if isinstance(data, Matrix):
            names = np.array(data.row_names()), np.array(data.column_names())
        else:
            names = data.rows, data.columns
        begin = partial(self._train, data, parameters)
        with told_as(parameters_of(FactorizationOptions)), self._trained_run(begin, _identity(data)) as run:
            feature_names = None if isinstance(data, Matrix) else data.names
            return self._take(FactorModel(run.path / "model"), *names, feature_names)

    def _train(
        self,
        data: Matrix | KnownValues,
        parameters: dict[str, Any],
        directory: Path,
        seed: int,
        iterations: int,
        **how: Any,
    ) -> None:
        if not isinstance(data, Matrix):
            names = [list(map(str, range(side.size))) for side in (data.rows, data.columns)]
            data = write_matrix(directory / "data", data.entries, *names, seed=seed)
        options = options_of(FactorizationOptions, parameters, iterations=iterations, seed=seed)
        train(data.path, directory / "run", options, **how)

    def _take(
        self, model: FactorModel, rows: np.ndarray, columns: np.ndarray, feature_names: Sequence[str] | None = None
    ) -> Self:
        self.model_ = model.in_memory(rows.tolist(), columns.tolist())
        self.rows_, self.columns_ = rows, columns
        self._note_features(columns.size, feature_names)
        return self

    @property
    def row_factors_(self) -> np.ndarray:
        """float32 (n, R)."""
        self._require_fitted()
        return self.model_.rows.factors

    @property
    def row_biases_(self) -> np.ndarray:
        """float32 (n,)."""
        self._require_fitted()
        return self.model_.rows.biases

    @property
    def components_(self) -> np.ndarray:
        """float32 (R, p)."""
        self._require_fitted()
        return self.model_.columns.factors.T

    @property
    def column_biases_(self) -> np.ndarray:
        """float32 (p,)."""
        self._require_fitted()
        return self.model_.columns.biases

    @property
    def mean_(self) -> float:
        """That was taken out of the values."""
        self._require_fitted()
        return self.model_.mean

    def _outputs(self) -> int:
        return self.model_.rank

    def transform(self, X: Any) -> np.ndarray:
        """The factors that are best for the rows of a table, all columns as they are: float32 (n, R)."""
        return self._solve(self._rows(X))[:, 1:].astype(np.float32)

    def predict(self, X: Any) -> np.ndarray:
        """Values of pairs, or of whole rows.

        X: a tuple of columns, names of rows and of columns of the training: float64 (N,); what is not known has no part
        in it, of which a UserWarning is given. Or a table, of whose rows all values are predicted from those that it
        has: float64 (n, p). Raises RequestError for names of another kind than those of the training, unless it is
        clear which they are: "17" is 17.
        """
        if not is_columns(X):
            self._refuse_triples(X, "predict")
            solved = self._solve(self._rows(X))
            products = solved[:, 1:] @ self.model_.columns.factors.T.astype(np.float64)
            return self.model_.mean + solved[:, :1] + self.model_.columns.biases + products
        self._require_fitted()
        users, items, _ = columns_of(X[:2])
        rows, columns = places_among(self.rows_, users, "users"), places_among(self.columns_, items, "items")
        if (rows < 0).any() or (columns < 0).any():
            warnings.warn(_unknown(users[rows < 0], items[columns < 0], rows.size), UserWarning, stacklevel=2)
        return predict_pairs(self.model_, rows, columns)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the root of the mean squared error of values. X: as in `predict`, columns with their values."""
        if self.implicit:
            raise RequestError(
                "with implicit=True the model predicts preferences, not values", "Use `recommend` or `predict`."
            )
        if is_columns(X):
            errors = self.predict(X[:2]) - columns_of(X)[2]
        else:
            self._refuse_triples(X, "score")
            known = self._rows(X)
            rows = np.repeat(np.arange(known.offsets.size - 1), np.diff(known.offsets))
            errors = self.predict(X)[rows, known.columns] - known.values
        return -math.sqrt(np.mean(errors**2))

    def _refuse_triples(self, X: Any, call: str) -> None:
        """Raise RequestError if X, which has other columns than the training, has a rating in each row."""
        self._require_fitted()
        shape = np.shape(X) if not hasattr(X, "shape") else X.shape
        if len(shape) == 2 and shape[1] != self.n_features_in_:
            refuse_triples(X, None, call, pairs=True)

    def recommend(self, X: Any, top: int = 10) -> list[np.ndarray]:
        """For each row of a table the columns with the highest predictions that it has no value of, best first."""
        known = self._rows(X)
        choices = recommend(self.model_, self._users(known), whole("top", top, 1), exclude_seen=True)
        return [np.array(choice.items) for choice in choices]

    def _users(self, known: SparseRows) -> Iterator[Users]:
        solved = self._solve(known)
        for first in range(0, len(solved), _ROWS):
            some = solved[first : first + _ROWS]
            bounds = known.offsets[first : first + _ROWS + 1]
            seen = [known.columns[begin:end] for begin, end in pairwise(bounds)]
            yield Users([""] * len(some), some[:, 1:], some[:, 0], seen)

    def _rows(self, X: Any) -> SparseRows:
        """The known values of a table that has the columns of the training."""
        self._require_fitted()
        table = read_table(X, missing=True)
        self._check_features(table.columns, table.names)
        return known_rows(table, counts=self.implicit)

    def _solve(self, known: SparseRows) -> np.ndarray:
        """Bias and factors of rows: float64 (n, 1 + R)."""
        solved = np.empty((known.offsets.size - 1, 1 + self.model_.rank))
        for row in range(len(solved)):
            mine = slice(known.offsets[row], known.offsets[row + 1])
            solved[row] = fold_in(self.model_, known.columns[mine], known.values[mine])
        return solved


def _unknown(users: np.ndarray, items: np.ndarray, rows: int) -> str:
    """A warning of names, of some of so many rows, that the training did not have."""
    sides = [
        f"{np.unique(names).size:,} {what} (in {names.size:,} of {rows:,} rows)"
        for what, names in (("users", users), ("items", items))
        if names.size
    ]
    said = " and ".join(sides)
    return f"X has {said} that the training did not have: predicted are the mean and the bias of the other side"


def _identity(data: Matrix | KnownValues) -> str:
    if isinstance(data, Matrix):
        return data.identity
    content = xxhash.xxh3_128()
    for array in (*data.entries, data.rows, data.columns):
        content.update(np.ascontiguousarray(array).view(np.uint8).data)
    return content.hexdigest()
