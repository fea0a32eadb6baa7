"""Lasso, elastic net and sparse logistic regression whose penalty is chosen by cross-validation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from blocks.errors import RequestError
from samplers.estimators.lasso import ElasticNet
from samplers.estimators.linear import LinearEstimator
from samplers.estimators.logistic import LogisticRegression
from samplers.estimators.paths import Fold, fold_errors, folds_of, models_of, path_of, penalties, total_weight
from samplers.estimators.tables import is_path
from samplers.regression.data.features import BlockFeatures
from samplers.regression.path.cross_validation import Validation, validate
from samplers.regression.path.solver import Found

RULES = ("min", "1se")


class Validated(NamedTuple):
    """A path for one l1_ratio. errors: float64 (N, K), of each fold."""

    l1_ratio: float
    rounds: int  # of the solver, for the path of all rows
    lambdas: np.ndarray
    models: list[Found]
    errors: np.ndarray
    validation: Validation

    def chosen(self, rule: str) -> int:
        return self.validation.best if rule == "min" else self.validation.chosen


@dataclass(kw_only=True, eq=False, repr=False)
class _CrossValidated(LinearEstimator):
    """What is the same for all of them.

    eps: the smallest penalty of the path as a share of the largest. cv: folds, drawn by random_state, with the same
    shares of the classes; or an object with `split`, as those of scikit-learn, or pairs of row numbers. rule: "min"
    takes the penalty with the smallest error, "1se" the largest one whose error is within a standard error of that
    (glmnet's lambda.1se). max_iter: rounds of the solver for each penalty, on average.

    Learnt by `fit`, for N penalties and K folds: mean_error_ and standard_error_ (N,), of the l1_ratio that was chosen,
    folds weighted by their rows; l1_ratio_; and coef_path_ (p, N), intercept_path_ (N,), the models of all rows.
    The final model is the one of the path for the penalty that was chosen.
    """

    _several = ("l1_ratio",)

    eps: float = 1e-3
    cv: Any = 5
    rule: str = "min"
    random_state: Any = 0
    warm_start: bool = field(init=False, default=False)  # every lambda starts from the one before
    mean_error_: np.ndarray = field(init=False)
    standard_error_: np.ndarray = field(init=False)
    l1_ratio_: float = field(init=False)
    _columns: int = field(init=False)
    _models: list[Found] = field(init=False)

    def _choose(
        self,
        features: BlockFeatures,
        y: np.ndarray,
        loss: str,
        weights: np.ndarray | None,
        grid: tuple[str, Any, float | None],
        given: tuple[Any, Any, Any],
    ) -> tuple[Validated, int]:
        """The path of the best l1_ratio, and the place of the penalty that was chosen; notes what is the same for all.

        grid: name and value of the parameter that says which penalties, and what alphas are multiplied by.
        """
        if self.rule not in RULES:
            raise RequestError(f"rule must be one of {', '.join(RULES)}, got {self.rule!r}")
        every = np.ones(features.rows) if weights is None else weights
        folds = folds_of(self.cv, every, y if loss == "logistic" else None, self.random_state, given)
        _require_classes(loss, y, folds)
        ratios = self.l1_ratio if np.ndim(self.l1_ratio) else [self.l1_ratio]  # type: ignore[attr-defined]
        paths = [self._validated(features, y, loss, weights, grid, folds, float(ratio)) for ratio in ratios]
        best = min(paths, key=lambda path: float(path.validation.errors[path.validation.best]))
        self.mean_error_, self.standard_error_ = best.validation.errors, best.validation.standard_errors
        self.l1_ratio_, self._models, self._columns = best.l1_ratio, best.models, features.count
        place, self.n_iter_ = best.chosen(self.rule), best.rounds
        self.dual_gap_, self.objective_ = best.models[place].gap, best.models[place].objective
        return best, place

    def _validated(
        self,
        features: BlockFeatures,
        y: np.ndarray,
        loss: str,
        weights: np.ndarray | None,
        grid: tuple[str, Any, float | None],
        folds: list[Fold],
        ratio: float,
    ) -> Validated:
        whole = self._problem(features, y, loss, ratio, weights)
        self._note_constant(whole.constant)
        name, values, total = grid
        lambdas = penalties(name, values, self.eps, whole, total)
        self.null_loss_ = whole.nothing.fit.loss
        models = models_of(whole, lambdas, self.tol, self.max_iter)
        rounds = max(whole.regression.limit.taken, 1)
        errors = np.array(
            [
                fold_errors(
                    self._problem(features, y, loss, ratio, fold.trained),
                    loss,
                    y,
                    fold,
                    lambdas,
                    self.tol,
                    self.max_iter,
                )
                for fold in folds
            ]
        ).T
        validation = validate(errors, np.array([fold.held_out.sum() for fold in folds]))
        return Validated(ratio, rounds, lambdas, models, errors, validation)

    @property
    def coef_path_(self) -> np.ndarray:
        """float64 (p, N): the coefficients for each penalty."""
        self._require_fitted()
        return path_of(np.empty(0), self._models, self._columns).coefs

    @property
    def intercept_path_(self) -> np.ndarray:
        """float64 (N,): the intercept for each penalty."""
        self._require_fitted()
        return np.array([model.intercept for model in self._models])

    def _model(self, place: int) -> tuple[np.ndarray, float]:
        found = path_of(np.empty(0), self._models[place : place + 1], self._columns)
        return found.coefs[:, 0], float(found.intercepts[0])


def _rows_of(X: Any, y: np.ndarray) -> Any:
    """What `cv.split` takes for X: of the path of a dataset y, which has as many rows."""
    return y if is_path(X) else X


def _require_classes(loss: str, y: np.ndarray, folds: list[Fold]) -> None:
    for number, fold in enumerate(folds):
        if loss == "logistic" and np.unique(y[fold.trained > 0]).size < 2:
            raise RequestError(
                f"without the rows of fold {number} all rows are of one class", "Use fewer folds, or stratified ones."
            )


@dataclass(eq=False, repr=False)
class ElasticNetCV(_CrossValidated, ElasticNet):
    """`ElasticNet` whose alpha, and l1_ratio if there are several, are chosen by cross-validation.

    alphas: how many, at equal ratios from the smallest with an empty model downwards; or these. l1_ratio: one, or a
    list to choose from. The others are those of `ElasticNet`, and eps, cv, rule and random_state:

    eps: the smallest alpha as a share of the largest. cv: the number of folds, drawn by random_state; or an object with
    `split(X, y, groups)`, as those of scikit-learn, or pairs of row numbers. rule: "min" takes the alpha with the
    smallest mean squared error, "1se" the largest one within a standard error of it (glmnet's lambda.1se).

    Learnt by `fit`, besides what `ElasticNet` learns: alpha_, l1_ratio_; alphas_ (N,), falling; mse_path_ (N, K), the
    mean squared error of each fold; mean_error_, standard_error_ (N,); alpha_min_, alpha_1se_; coef_path_ (p, N),
    intercept_path_ (N,).
    """

    alpha: float = field(init=False, default=1.0)
    _: KW_ONLY
    l1_ratio: Any = 0.5
    alphas: Any = 100
    alpha_: float = field(init=False)
    alpha_min_: float = field(init=False)
    alpha_1se_: float = field(init=False)
    alphas_: np.ndarray = field(init=False)
    mse_path_: np.ndarray = field(init=False)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Solve for the path of all rows, and of those of each fold. groups: for `cv.split`. Raises RequestError."""
        features, numbers, weights = self._read_numbers(X, y, sample_weight)
        total = total_weight(features.rows, weights)
        path, place = self._choose(
            features,
            numbers,
            "squared",
            weights,
            ("alphas", self.alphas, total),
            (_rows_of(X, numbers), numbers, groups),
        )
        self.alphas_, self.mse_path_ = path.lambdas / total, path.errors
        self.alpha_min_, self.alpha_1se_ = (float(self.alphas_[path.chosen(rule)]) for rule in RULES)
        self.alpha_ = float(self.alphas_[place])
        self.coef_, self.intercept_ = self._model(place)
        return self


@dataclass(eq=False, repr=False)
class LassoCV(ElasticNetCV):
    """`ElasticNetCV` with an l1_ratio of 1."""

    l1_ratio: float = field(init=False, default=1.0)


@dataclass(eq=False, repr=False)
class LogisticRegressionCV(_CrossValidated, LogisticRegression):
    """`LogisticRegression` of two classes whose C, and l1_ratio if there are several, are chosen by cross-validation.

    Cs: how many, at equal ratios from the largest with an empty model upwards; or these. l1_ratio: one, or a list to
    choose from. The others are those of `LogisticRegression`, and eps, cv, rule and random_state:

    eps: the smallest C as a share of the largest. cv: the number of folds, drawn by random_state with the same shares
    of the classes; or an object with `split(X, y, groups)`, as those of scikit-learn, or pairs of row numbers. rule:
    "min" takes the C with the smallest mean of minus the logarithm of the probability of y, "1se" the smallest C
    within a standard error of it (glmnet's lambda.1se). A model without the rows of a fold has C divided by the share
    of the rows that it has, so that the penalty weighs as much in the mean over them (as in glmnet; scikit-learn keeps
    C).

    Learnt by `fit`, besides what `LogisticRegression` learns: C_, l1_ratio_; Cs_ (N,), rising; loss_path_ (N, K), of
    each fold; mean_error_, standard_error_ (N,); C_min_, C_1se_; coef_path_ (p, N), intercept_path_ (N,).
    """

    _multi_class = False

    C: float = field(init=False, default=1.0)
    _: KW_ONLY
    l1_ratio: Any = 1.0
    Cs: Any = 100
    C_: float = field(init=False)
    C_min_: float = field(init=False)
    C_1se_: float = field(init=False)
    Cs_: np.ndarray = field(init=False)
    loss_path_: np.ndarray = field(init=False)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Solve for the path of all rows, and of those of each fold. groups: for `cv.split`. Raises RequestError."""
        features, labels, weights = self._read_two_classes(X, y, sample_weight)
        path, place = self._choose(
            features, labels, "logistic", weights, ("Cs", self.Cs, None), (_rows_of(X, labels), labels, groups)
        )
        self.Cs_, self.loss_path_ = 1 / path.lambdas, path.errors
        self.C_min_, self.C_1se_ = (float(self.Cs_[path.chosen(rule)]) for rule in RULES)
        self.C_ = float(self.Cs_[place])
        coefficients, intercept = self._model(place)
        self.coef_, self.intercept_ = coefficients[None], np.array([intercept])
        return self
