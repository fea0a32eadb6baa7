"""Base class of the linear estimators, which turn tables and a target into coefficients and scores."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from blocks.design.design import Design
from blocks.errors import RequestError
from samplers.estimators.base import Estimator, convergence_warning, job_count
from samplers.estimators.feature_tables import FeatureTable, dataset_path, is_path, products, read_table
from samplers.estimators.parameters import checked_parameters
from samplers.estimators.penalty_paths import Problem
from samplers.estimators.targets import read_factors
from samplers.regression.data.column_moments import ColumnMoments, needed_moments
from samplers.regression.data.features import BlockFeatures, block_columns, features_of_matrix
from samplers.regression.linear_algebra.vectors import inner_product
from samplers.regression.solver.solver_limit import SolverLimit
from samplers.regression.solver.sparse_regression import (
    SparseRegression,
    constant_columns_warning,
    row_scores,
)
from samplers.regression.solver.working_sets import RegressionSolution
from samplers.regression.threads.thread_pool import ThreadPool


@dataclass(kw_only=True, eq=False, repr=False)
class LinearEstimator(Estimator):
    """Base class of the linear estimators.

    X can be a sparse matrix, an array or a data frame; or the path of a dataset made by `ooc ingest
    svmlight|mtx|npz|plink|csv`, whose columns stay on disk and which contains y.

    Parameters
    ----------
    fit_intercept : bool
        Fit an unpenalized intercept.
    standardize : bool
        Penalize coefficients as if the columns had standard deviation 1; the coefficients are on the original scale.
    tol : float
        Maximum duality gap, relative to the loss of the null model.
    max_iter : int
        Maximum number of solver rounds. If the gap stays above tol, a ConvergenceWarning is issued, and the best model
        found is kept.
    n_jobs : int or None
        Number of threads; -1 uses all cores. Does not affect the result.
    warm_start : bool
        Start from the coefficients of the last fit.
    penalty_factor : array-like (p,), optional
        Nonnegative factor for the penalty on each column; 0 leaves a column unpenalized, the default is 1. Unlike in
        glmnet, the factors are not scaled to mean 1.
    positive : bool
        Restrict coefficients to at least 0; all columns must be penalized then.

    Attributes
    ----------
    n_iter_ : int
        Number of solver rounds.
    dual_gap_, objective_, null_loss_ : float
        Duality gap, objective, and loss of the null model, as sums over rows.
    constant_features_ : ndarray of int64
        Columns with equal values in all rows, except empty columns of sparse matrices; their coefficients are 0, and a
        warning names them.
    n_features_in_ : int
        Number of columns p.
    feature_names_in_ : ndarray of str (p,)
        Columns of a data frame.
    """

    fit_intercept: bool = True
    standardize: bool = False
    tol: float = 1e-6
    max_iter: int = 1000
    n_jobs: int | None = -1
    warm_start: bool = False
    penalty_factor: Any = None
    positive: bool = False
    n_iter_: int = field(init=False)
    dual_gap_: float = field(init=False)
    objective_: float = field(init=False)
    null_loss_: float = field(init=False)
    constant_features_: np.ndarray = field(init=False)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def _describe(self, tags: Any) -> None:
        tags.target_tags.required = True

    def _read(self, X: Any, y: Any) -> tuple[BlockFeatures, Any]:
        """Check the parameters, and return the columns and the unchecked target."""
        checked_parameters(self)
        if is_path(X):
            design = Design(dataset_path(X))
            if y is not None and design.y is not None:
                raise RequestError(
                    f"y is given twice: as an argument and in the dataset {design.path}", "Omit y: fit(X)."
                )
            if design.y is None:
                raise RequestError(
                    f"the dataset {design.path} has no target y",
                    "Ingest it again with a target: `ooc ingest ... --target FILE`, or --target COLUMN for csv.",
                )
            self._note_features(design.columns, None)
            return _of_design(design, job_count(self.n_jobs)), np.asarray(design.y)
        if y is None:
            raise RequestError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None."
            )
        table = read_table(X)
        self._note_features(table.columns, table.names)
        return _features(X, table, job_count(self.n_jobs)), y

    def _solve(
        self, features: BlockFeatures, y: np.ndarray, loss: str, lam: float, share: float, weights: np.ndarray | None
    ) -> tuple[np.ndarray, float]:
        """Return the coefficients, float64 (p,), and the intercept."""
        problem = self._problem(features, y, loss, share, weights)
        self._note_constant(problem.constant)
        nothing = problem.regression.nothing()
        self.null_loss_ = nothing.fit.loss
        found, limit, target = nothing, SolverLimit(self.max_iter), self.tol * nothing.fit.loss
        problem.regression.limit = limit
        if lam < nothing.lam:
            found = problem.regression.best(lam, self._start(problem, nothing), target)
            if found.gap > target:
                warnings.warn(self._told_of_gap(found.gap, limit), convergence_warning(), stacklevel=3)
        # computing the loss of the null model takes a round
        self.n_iter_ = limit.taken if self.warm_start else max(limit.taken, 1)
        self.dual_gap_, self.objective_ = found.gap, found.objective
        model = problem.model(found)
        return model.coefficients, model.intercept

    def _moments(self, features: BlockFeatures, weights: np.ndarray | None) -> ColumnMoments:
        return needed_moments(features, weights, intercept=self.fit_intercept, standardize=self.standardize)

    def _problem(
        self,
        features: BlockFeatures,
        y: np.ndarray,
        loss: str,
        share: float,
        weights: np.ndarray | None,
        moments: ColumnMoments | None = None,
    ) -> SparseRegression:
        """Return the regression problem for y, float64 (n,), with the parameters of the estimator."""
        options = self._problem_options(features, share, weights, moments)
        return SparseRegression(features, y, loss, positive=self.positive, **options)

    def _path_problem(
        self,
        features: BlockFeatures,
        y: np.ndarray,
        loss: str,
        share: float,
        weights: np.ndarray | None,
        moments: ColumnMoments | None = None,
    ) -> Problem:
        """Return the regression of a path; for "multinomial" y has the class of each row, int64 (n,)."""
        return self._problem(features, y, loss, share, weights, moments)

    def _problem_options(
        self, features: BlockFeatures, share: float, weights: np.ndarray | None, moments: ColumnMoments | None
    ) -> dict[str, Any]:
        return {
            "weights": weights,
            "intercept": self.fit_intercept,
            "standardize": self.standardize,
            "share": share,
            "factors": read_factors(self.penalty_factor, features.count),
            "moments": moments,
        }

    def _one_l1_ratio(self) -> float:
        """Return the l1_ratio of a path.

        Raises RequestError if l1_ratio is a list, which needs cross-validation.
        """
        ratio = self.l1_ratio  # type: ignore[attr-defined]
        if np.ndim(ratio):
            raise RequestError(
                f"path() needs a single l1_ratio, got {ratio!r}",
                "Choose one with set_params(l1_ratio=...). After fit, coef_path_ has the path of the best one.",
            )
        return float(ratio)

    def _note_constant(self, constant: np.ndarray) -> None:
        self.constant_features_ = constant
        if constant.size:
            warnings.warn(constant_columns_warning(self._names_of(constant)), UserWarning, stacklevel=4)

    def _told_of_gap(self, gap: float, limit: SolverLimit) -> str:
        share = gap / self.null_loss_
        what = f"did not converge: the duality gap is {gap:.3g}, {share:.1e} of the null loss, above tol={self.tol:g}"
        if limit.reached:
            return f"{what}, after max_iter={self.max_iter} iterations. Increase max_iter or tol."
        return f"{what}: float64 rounding allows no smaller gap. Increase tol or the penalty, or scale the columns."

    def _names_of(self, columns: np.ndarray) -> list[str]:
        """Return the names of columns, or their 0-based indices."""
        names = getattr(self, "feature_names_in_", None)
        return [repr(names[column]) if names is not None else str(column) for column in columns.tolist()]

    def _start(self, problem: SparseRegression, nothing: RegressionSolution) -> RegressionSolution:
        """Return the solver's starting point."""
        before = getattr(self, "coef_", None)
        if not self.warm_start or before is None or before.size != problem.regression.features.count:
            return nothing
        coefficients = np.array(before, np.float64).reshape(-1)
        coefficients[problem.unpenalised] = 0.0  # these are recomputed
        if self.positive:
            coefficients = np.maximum(coefficients, 0.0)
        fit = problem.loss.fit(row_scores(problem.regression.features, coefficients), nothing.fit.free)
        support = np.flatnonzero(coefficients)
        return RegressionSolution(nothing.lam, support, coefficients[support], fit, fit.loss, np.inf)

    def _scores(self, X: Any, coefficients: np.ndarray) -> np.ndarray:
        """Return X B', float64 (n, K), for coefficients B, float64 (K, p)."""
        self._require_fitted()
        if is_path(X):
            design = Design(dataset_path(X))
            self._check_features(design.columns, None)
            features, lacking = _of_design(design, job_count(self.n_jobs)), design.offsets
            found = np.stack([row_scores(features, each) for each in coefficients], axis=1)
            return found if lacking is None else found + [inner_product(lacking, each) for each in coefficients]
        table = read_table(X)
        self._check_features(table.columns, table.names)
        return products(table, coefficients)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        raise NotImplementedError


def _of_design(design: Design, threads: int) -> BlockFeatures:
    """Return the columns of a dataset, which stay memory-mapped; missing values are replaced by column means."""
    blocks = [block_columns(design, number, design.means) for number in range(design.block_count)]
    return BlockFeatures(blocks, design.rows, ThreadPool(threads), design.offsets)


def _features(X: Any, table: FeatureTable, threads: int) -> BlockFeatures:
    if hasattr(X, "tocsc"):
        return features_of_matrix(X.tocsc(), threads)
    values: Any = table.values
    return features_of_matrix(values if values.dtype == np.float32 else values.astype(np.float64), threads)
