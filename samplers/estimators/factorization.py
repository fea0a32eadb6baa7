"""Matrix factorization with the scikit-learn interface."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash

from blocks.errors import RequestError
from blocks.ratings.from_memory import write_matrix
from blocks.ratings.matrix import Matrix
from samplers.estimators.base import integer_parameter, reword_errors
from samplers.estimators.feature_tables import CsrRows, is_path, read_table
from samplers.estimators.known_values import KnownMatrixValues, is_columns, known_rows, rating_triples, read_known
from samplers.estimators.parameters import checked_parameters
from samplers.estimators.rating_ids import places_among
from samplers.estimators.rating_triples import refuse_triples
from samplers.estimators.run_estimator import RunEstimator, estimator_parameters, training_options
from samplers.factorization.model import Factorization, FactorModel
from samplers.factorization.options import FactorizationOptions
from samplers.factorization.predictions import predict_pairs
from samplers.factorization.ranking_metrics import rank_rated
from samplers.factorization.rated_items import RatedItems, group_by_user
from samplers.factorization.recommendation import candidates, fold_in, memory_users, recommend
from samplers.factorization.training import train
from samplers.models import open_factors


@dataclass(eq=False, repr=False)
class MatrixFactorization(RunEstimator):
    """Matrix factorization of the known values of a matrix, such as ratings of items by users.

    X can be a sparse matrix, whose entries are the known values; an array or data frame with NaN (and 0, if implicit)
    for unknown values; a tuple of columns (row names, column names, values), where values default to 1; or the path of
    a matrix made by `ooc ingest ratings`.

    Parameters
    ----------
    n_components : int
        Number R of factors of each row and column.
    method : str, optional
        "sgd", "ccd", "als" or "splash"; default "sgd", or "als" if implicit.
    regularization : float, optional
        L2 penalty on the factors; default 0.03, with penalty="row" 1.
    penalty : str, optional
        "entry" weights the penalty of a row by its number of values (default, unless implicit), "row" does not.
    biases, center : bool, optional
        Whether to fit row and column biases; whether to subtract the mean of all values. Default: True if the method
        supports it.
    nonnegative : bool
        Keep all factors at 0 or above; only for "ccd".
    implicit : bool
        Treat values as counts of implicit feedback, not as ratings; only for "als".
    alpha : float, optional
        With implicit, confidence that a count of 1 adds; default 1.
    rate : float, optional
        Initial learning rate of "sgd" and "splash"; default 0.15.
    schedule, replicas, combine, steps, parallelism, sync_per_pass
        Options of the methods, as in `ooc train mf` (docs/factorization.md).
    max_iter : int
        Number of passes over the data.
    evaluate_every : int
        Number of iterations between evaluations of the objective.
    n_jobs, memory, random_state, verbose, warm_start, callbacks
        See `samplers.estimators.run_estimator.RunEstimator`.

    Attributes
    ----------
    model_ : samplers.factorization.model.Factorization
        The trained model.
    row_factors_ : ndarray of float32 (n, R)
        Factors of the rows.
    row_biases_ : ndarray of float32 (n,)
        Biases of the rows.
    components_ : ndarray of float32 (R, p)
        Factors of the columns.
    column_biases_ : ndarray of float32 (p,)
        Biases of the columns.
    mean_ : float
        Mean subtracted from the values.
    rows_, columns_ : ndarray
        Row and column names, or indices if there are no names.
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        Lines of the metrics (docs/files.md).
    n_features_in_ : int
        p.
    feature_names_in_ : ndarray of str (p,)
        Columns of a data frame.
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
        """Return an estimator with a model trained by `ooc train mf`."""
        model = open_factors(Path(path))
        estimator = cls(model.rank, implicit=bool(model.solver["alpha"]))
        return estimator._take(model, np.array(model.rows.names), np.array(model.columns.names))

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to the known values.

        y: ignored.
        Raises RequestError if an argument is invalid.
        """
        parameters = checked_parameters(self)
        if not is_path(X):
            refuse_triples(X, y, "fit")
        data = Matrix(X) if is_path(X) else read_known(X, counts=self.implicit)
        if isinstance(data, Matrix):
            names = np.array(data.row_names()), np.array(data.column_names())
        else:
            names = data.rows, data.columns
        begin = partial(self._train, data, parameters)
        with (
            reword_errors(estimator_parameters(FactorizationOptions)),
            self._trained_run(begin, _identity(data)) as run,
        ):
            feature_names = None if isinstance(data, Matrix) else data.names
            return self._take(FactorModel(run.path / "model"), *names, feature_names)

    def _train(
        self,
        data: Matrix | KnownMatrixValues,
        parameters: dict[str, Any],
        directory: Path,
        seed: int,
        iterations: int,
        **how: Any,
    ) -> None:
        if not isinstance(data, Matrix):
            names = [list(map(str, range(side.size))) for side in (data.rows, data.columns)]
            data = write_matrix(directory / "data", data.entries, *names, seed=seed)
        options = training_options(FactorizationOptions, parameters, iterations=iterations, seed=seed)
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
        """Return the factors of the rows, float32 (n, R)."""
        self._require_fitted()
        return self.model_.rows.factors

    @property
    def row_biases_(self) -> np.ndarray:
        """Return the biases of the rows, float32 (n,)."""
        self._require_fitted()
        return self.model_.rows.biases

    @property
    def components_(self) -> np.ndarray:
        """Return the factors of the columns, float32 (R, p)."""
        self._require_fitted()
        return self.model_.columns.factors.T

    @property
    def column_biases_(self) -> np.ndarray:
        """Return the biases of the columns, float32 (p,)."""
        self._require_fitted()
        return self.model_.columns.biases

    @property
    def mean_(self) -> float:
        """Return the mean that was subtracted from the values."""
        self._require_fitted()
        return self.model_.mean

    def _outputs(self) -> int:
        return self.model_.rank

    def transform(self, X: Any) -> np.ndarray:
        """Return the best factors for the rows of a table, with the columns' factors fixed: float32 (n, R)."""
        return self._solve(self._rows(X))[:, 1:].astype(np.float32)

    def predict(self, X: Any) -> np.ndarray:
        """Predict the values of pairs, or of whole rows.

        X: a tuple of two columns, with row and column names seen in training, for float64 (N,); unknown names
        contribute nothing, with a UserWarning. Or a table, for float64 (n, p), predicted from the known values of each
        row.
        Raises RequestError for names of another type than in `fit`, unless the meaning is clear: "17" is 17.
        """
        if not is_columns(X):
            self._refuse_triples(X, "predict")
            solved = self._solve(self._rows(X))
            products = solved[:, 1:] @ self.model_.columns.factors.T.astype(np.float64)
            return self.model_.mean + solved[:, :1] + self.model_.columns.biases + products
        self._require_fitted()
        users, items, _ = rating_triples(X[:2])
        rows, columns = places_among(self.rows_, users, "users"), places_among(self.columns_, items, "items")
        if (rows < 0).any() or (columns < 0).any():
            warnings.warn(_unknown(users[rows < 0], items[columns < 0], rows.size), UserWarning, stacklevel=2)
        return predict_pairs(self.model_, rows, columns)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the negative root mean squared error. X: as for `predict`; a tuple also has a column of values."""
        if self.implicit:
            raise RequestError(
                "with implicit=True the model predicts preferences, not values", "Use `recommend` or `predict`."
            )
        if is_columns(X):
            errors = self.predict(X[:2]) - rating_triples(X)[2]
        else:
            self._refuse_triples(X, "score")
            known = self._rows(X)
            rows = np.repeat(np.arange(known.offsets.size - 1), np.diff(known.offsets))
            errors = self.predict(X)[rows, known.columns] - known.values
        return -math.sqrt(np.mean(errors**2))

    def _refuse_triples(self, X: Any, call: str) -> None:
        """Raise RequestError if X has one rating per row, and other columns than in training."""
        self._require_fitted()
        shape = np.shape(X) if not hasattr(X, "shape") else X.shape
        if len(shape) == 2 and shape[1] != self.n_features_in_:
            refuse_triples(X, None, call, pairs=True)

    def recommend(self, X: Any, top: int = 10) -> list[np.ndarray]:
        """Return, for each row of a table, the `top` columns with the highest predictions among those without a value,
        best first.
        """
        rated = RatedItems(*self._rows(X))
        users = memory_users(self.model_, rated, np.arange(rated.offsets.size - 1), integer_parameter("top", top, 1))
        choices = recommend(self.model_, users, top, candidates(self.model_), exclude_seen=True)
        return [self.columns_[items[items >= 0]] for _, best in choices for items in best.items]

    def ranking_metrics(self, train: Any, test: Any, top: int = 10, threshold: float | None = None) -> dict[str, Any]:
        """Compare the recommendations for the training rows with held-out values, as `ooc evaluate --ranking`.

        Parameters
        ----------
        train, test : tuple of columns, or table
            Training values, whose columns are not recommended again, and held-out values: a tuple of (row names,
            column names, values), where values default to 1, or a table with the training rows and columns.
        top : int
            Number T of columns to recommend for each row.
        threshold : float, optional
            Lowest held-out value of a relevant column; by default all are relevant.

        Returns
        -------
        dict
            "top"; "users", the number of rows with relevant columns; and for the "model", and for "popularity", the
            columns with the most values in training, the means over these rows: "precision", "recall", "map" and
            "ndcg" at T, and "coverage", the fraction of all columns that are recommended at all.

        Raises
        ------
        RequestError
            If no row has a relevant column that it does not have in `train`.
        """
        self._require_fitted()
        known, held_out = (self._rated(X) for X in (train, test))
        return dict(rank_rated(self.model_, known, held_out, integer_parameter("top", top, 1), threshold))

    def _rated(self, X: Any) -> RatedItems:
        """Return values of the training rows; values of other rows or columns are left out, with a warning."""
        if not is_columns(X):
            known = self._rows(X)
            if known.offsets.size != self.rows_.size + 1:
                raise RequestError(
                    f"X has {known.offsets.size - 1:,} rows, but the training data had {self.rows_.size:,}",
                    "Pass all rows of the training data, or a tuple of (row names, column names, values).",
                )
            return RatedItems(*known)
        users, items, values = rating_triples(X)
        rows, columns = places_among(self.rows_, users, "users"), places_among(self.columns_, items, "items")
        there = (rows >= 0) & (columns >= 0)
        if unknown := int(np.count_nonzero(~there)):
            said = f"{unknown:,} of {there.size:,} values of users or items outside the training data are ignored"
            warnings.warn(said, UserWarning, stacklevel=4)
        return group_by_user(self.rows_.size, rows[there], columns[there], values[there])

    def _rows(self, X: Any) -> CsrRows:
        """Return the known values of a table with the columns seen in training."""
        self._require_fitted()
        table = read_table(X, missing=True)
        self._check_features(table.columns, table.names)
        return known_rows(table, counts=self.implicit)

    def _solve(self, known: CsrRows) -> np.ndarray:
        """Return the biases and factors of rows: float64 (n, 1 + R)."""
        solved = np.empty((known.offsets.size - 1, 1 + self.model_.rank))
        for row in range(len(solved)):
            span = slice(known.offsets[row], known.offsets[row + 1])
            solved[row] = fold_in(self.model_, known.columns[span], known.values[span])
        return solved


def _unknown(users: np.ndarray, items: np.ndarray, rows: int) -> str:
    """Warn about names, in some of `rows` rows, that did not occur in training."""
    sides = [
        f"{np.unique(names).size:,} {what} (in {names.size:,} of {rows:,} rows)"
        for what, names in (("users", users), ("items", items))
        if names.size
    ]
    said = " and ".join(sides)
    what = f"X has {said} that are not in the training data"
    return f"{what}: their predictions are the mean plus the bias of the known side"


def _identity(data: Matrix | KnownMatrixValues) -> str:
    if isinstance(data, Matrix):
        return data.identity
    content = xxhash.xxh3_128()
    for array in (*data.entries, data.rows, data.columns):
        content.update(np.ascontiguousarray(array).view(np.uint8).data)
    return content.hexdigest()
