"""What estimators of linear models have in common: tables with a target in, coefficients and scores out."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from blocks.design.design import Design
from blocks.errors import RequestError
from samplers.estimators.base import Estimator, convergence_warning, job_count
from samplers.estimators.parameters import checked_parameters
from samplers.estimators.tables import Table, dataset_path, is_path, products, read_table
from samplers.estimators.targets import read_factors
from samplers.regression.data.features import BlockFeatures, block_columns, features_of_matrix
from samplers.regression.linear_algebra.vectors import inner
from samplers.regression.solver.limit import Limit
from samplers.regression.solver.sparse_regression import SparseRegression, scores_of, told_of_constant
from samplers.regression.solver.working_sets import Solution
from samplers.regression.threads.thread_pool import ThreadPool


@dataclass(kw_only=True, eq=False, repr=False)
class LinearEstimator(Estimator):
    """What is the same for all of them.

    fit_intercept: whether there is one, without a penalty. standardize: whether the penalty is that of columns of
    standard deviation 1; coefficients are those of the columns as they are. tol: the duality gap is at most that times
    the loss without columns. max_iter: rounds of the solver, at most. Where the gap stays larger, for that or for
    rounding, a ConvergenceWarning says so, and the model is the best that was found. n_jobs: threads, -1 for all cores;
    the result does not depend on them. warm_start: fitted again, it starts from the coefficients that it has.
    penalty_factor: the penalty of each column is multiplied by these, (p,), of at least 0; 0 leaves a column without
    a penalty, and None is 1 for all (they are not scaled to a mean of 1, as glmnet's are).

    Learnt by `fit`: n_iter_, rounds of the solver; dual_gap_, objective_ and the loss without columns, null_loss_, all
    as sums over rows; constant_features_, int64, columns that a warning names, as they have the same value in all rows
    and the coefficient 0 (but for empty ones of sparse matrices); n_features_in_; feature_names_in_ of data frames.

    X: a sparse matrix, an array or a data frame; or the path of a dataset of `ooc ingest svmlight|mtx|npz|plink|csv`,
    whose columns stay on the disk, and which has y.
    """

    fit_intercept: bool = True
    standardize: bool = False
    tol: float = 1e-6
    max_iter: int = 1000
    n_jobs: int | None = -1
    warm_start: bool = False
    penalty_factor: Any = None
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
        """The columns, and y, that is to be checked, of parameters that are."""
        checked_parameters(self)
        if is_path(X):
            design = Design(dataset_path(X))
            if y is not None and design.y is not None:
                raise RequestError(
                    f"y is given twice: as an argument and in the dataset {design.path}", "Leave y out: fit(X)."
                )
            if design.y is None:
                raise RequestError(
                    f"the dataset {design.path} has no target y",
                    "Ingest it again with y: `ooc ingest ... --target FILE`; --target COLUMN for csv.",
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
        """Coefficients, float64 (p,), and intercept."""
        problem = self._problem(features, y, loss, share, weights)
        self._note_constant(problem.constant)
        nothing = problem.regression.nothing()
        self.null_loss_ = nothing.fit.loss
        found, limit, target = nothing, Limit(self.max_iter), self.tol * nothing.fit.loss
        problem.regression.limit = limit
        if lam < nothing.lam:
            found = problem.regression.best(lam, self._start(problem, nothing), target)
            if found.gap > target:
                warnings.warn(self._told_of_gap(found.gap, limit), convergence_warning(), stacklevel=3)
        self.n_iter_ = limit.taken if self.warm_start else max(limit.taken, 1)  # the loss without columns takes one
        self.dual_gap_, self.objective_ = found.gap, found.objective
        model = problem.model(found)
        return model.coefficients, model.intercept

    def _problem(
        self, features: BlockFeatures, y: np.ndarray, loss: str, share: float, weights: np.ndarray | None
    ) -> SparseRegression:
        """The regression of y, float64 (n,), with the parameters of the estimator."""
        return SparseRegression(
            features,
            y,
            loss,
            weights=weights,
            intercept=self.fit_intercept,
            standardize=self.standardize,
            share=share,
            factors=read_factors(self.penalty_factor, features.count),
        )

    def _one_l1_ratio(self) -> float:
        """That of a path. Raises RequestError where a cross-validation is given several to choose from."""
        ratio = self.l1_ratio  # type: ignore[attr-defined]
        if np.ndim(ratio):
            raise RequestError(
                f"a path has one l1_ratio, got {ratio!r}",
                "Set one of them: set_params(l1_ratio=...). After fit, coef_path_ has the path of the best.",
            )
        return float(ratio)

    def _note_constant(self, constant: np.ndarray) -> None:
        self.constant_features_ = constant
        if constant.size:
            warnings.warn(told_of_constant(self._names_of(constant)), UserWarning, stacklevel=4)

    def _told_of_gap(self, gap: float, limit: Limit) -> str:
        share = gap / self.null_loss_
        what = f"did not converge: the duality gap is {gap:.3g}, {share:.1e} of the null loss, above tol={self.tol:g}"
        if limit.reached:
            return f"{what}, after max_iter={self.max_iter} iterations. Increase max_iter or tol."
        return f"{what}: float64 rounding allows no smaller gap. Increase tol or the penalty, or scale the columns."

    def _names_of(self, columns: np.ndarray) -> list[str]:
        """Names of some columns, or their numbers, from 0 on."""
        names = getattr(self, "feature_names_in_", None)
        return [repr(names[column]) if names is not None else str(column) for column in columns.tolist()]

    def _start(self, problem: SparseRegression, nothing: Solution) -> Solution:
        """Where the solver starts."""
        before = getattr(self, "coef_", None)
        if not self.warm_start or before is None or before.size != problem.regression.features.count:
            return nothing
        coefficients = np.array(before, np.float64).reshape(-1)
        coefficients[problem.unpenalised] = 0.0  # they are found anew
        fit = problem.loss.fit(scores_of(problem.regression.features, coefficients), nothing.fit.free)
        support = np.flatnonzero(coefficients)
        return Solution(nothing.lam, support, coefficients[support], fit, fit.loss, np.inf)

    def _scores(self, X: Any, coefficients: np.ndarray) -> np.ndarray:
        """X B', float64 (n, K), of coefficients B, float64 (K, p)."""
        self._require_fitted()
        if is_path(X):
            design = Design(dataset_path(X))
            self._check_features(design.columns, None)
            features, lacking = _of_design(design, job_count(self.n_jobs)), design.offsets
            found = np.stack([scores_of(features, each) for each in coefficients], axis=1)
            return found if lacking is None else found + [inner(lacking, each) for each in coefficients]
        table = read_table(X)
        self._check_features(table.columns, table.names)
        return products(table, coefficients)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        raise NotImplementedError


def _of_design(design: Design, threads: int) -> BlockFeatures:
    """The columns of a dataset, which stay mapped; missing values are the means of their columns."""
    blocks = [block_columns(design, number, design.means) for number in range(design.block_count)]
    return BlockFeatures(blocks, design.rows, ThreadPool(threads), design.offsets)


def _features(X: Any, table: Table, threads: int) -> BlockFeatures:
    if hasattr(X, "tocsc"):
        return features_of_matrix(X.tocsc(), threads)
    values: Any = table.values
    return features_of_matrix(values if values.dtype == np.float32 else values.astype(np.float64), threads)
