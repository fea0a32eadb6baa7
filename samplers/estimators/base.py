"""Base classes of the estimators, which follow scikit-learn's conventions without importing scikit-learn.

Parameters are the arguments of `__init__`, stored by name; attributes learnt by `fit` end in `_`.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import signature
from numbers import Real
from typing import Any, Self

import numpy as np

from blocks.control_groups import core_count
from blocks.errors import Interrupted, RequestError, WorkFailed, in_parameters, reword_error
from blocks.memory import parse_size
from samplers.estimators.feature_tables import Names
from samplers.options import Options

_SEEDS = 1 << 31
_TOLD = 5  # maximum number of names in a message


class NotFittedEstimator(ValueError, AttributeError):
    """The estimator is not fitted; a subclass of scikit-learn's NotFittedError if scikit-learn is imported."""


class NotConverged(UserWarning):
    """The model has not converged; a subclass of scikit-learn's ConvergenceWarning if scikit-learn is imported."""


class Estimator:
    """Base class of estimators: parameters, features and state."""

    _options: type[Options] | None = None  # parameters that describe the training
    _several: tuple[str, ...] = ()  # parameters for which a list of candidates is allowed
    feature_names_in_: np.ndarray
    n_features_in_: int

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        parameters = signature(cls).parameters.values()
        return {parameter.name: parameter.default for parameter in sorted(parameters, key=lambda each: each.name)}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        deep: has no effect, since there are no nested estimators.
        """
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters.

        Raises RequestError for an unknown parameter.
        """
        for name, value in params.items():
            if name not in self._defaults():
                raise RequestError(
                    f"{type(self).__name__} has no parameter {name!r}", f"It has: {', '.join(self._defaults())}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = self._defaults()
        chosen = {name: value for name, value in self.get_params().items() if value is not defaults[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in chosen.items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        tags = Tags(None, TargetTags(required=False), input_tags=InputTags(sparse=True))
        self._describe(tags)
        return tags

    def _describe(self, tags: Any) -> None:
        """Set the scikit-learn tags of this estimator."""

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise _not_fitted_class()(f"this {type(self).__name__} is not fitted yet: call fit first")

    def _note_features(self, count: int, names: Names) -> None:
        """Store the number and names of the columns seen in `fit`."""
        self.n_features_in_ = count
        if names is not None:
            self.feature_names_in_ = np.array(names, object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _check_features(self, count: int, names: Names, remedy: str = "") -> None:
        """Raise RequestError unless the number and the names (if any) of the columns are those seen in `fit`.

        remedy: remedy for a wrong number of columns.
        """
        fitted = getattr(self, "feature_names_in_", None)
        if names is not None and fitted is not None and not np.array_equal(fitted, np.array(names, object)):
            raise RequestError(_of_names(fitted.tolist(), list(names)))
        if (names is None) != (fitted is None):
            who = type(self).__name__
            fault = f"X does not have valid feature names, but {who} was fitted with feature names"
            unnamed = f"X has feature names, but {who} was fitted without feature names"
            warnings.warn(fault if names is None else unnamed, UserWarning, stacklevel=3)
        if count != self.n_features_in_:
            raise RequestError(
                f"X has {count} features, but {type(self).__name__} is expecting {self.n_features_in_} features as "
                "input",
                remedy,
            )


class Transformer(Estimator):
    """Base class of estimators with `transform`.

    _outputs: number of columns returned by `transform`.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        raise NotImplementedError

    def transform(self, X: Any) -> np.ndarray:
        raise NotImplementedError

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Call `fit`, then `transform`."""
        return self.fit(X, y).transform(X)

    def _outputs(self) -> int:
        raise NotImplementedError

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the column names of `transform`: the lower-case class name, followed by an index."""
        self._require_fitted()
        name = type(self).__name__.lower()
        return np.array([f"{name}{number}" for number in range(self._outputs())], object)

    def _describe(self, tags: Any) -> None:
        from sklearn.utils import TransformerTags

        tags.transformer_tags = TransformerTags(preserves_dtype=[])


def _not_fitted_class() -> type[Exception]:
    """Return scikit-learn's NotFittedError if scikit-learn is imported; code that catches it has imported it."""
    exceptions = sys.modules.get("sklearn.exceptions")
    return exceptions.NotFittedError if exceptions else NotFittedEstimator


def convergence_warning() -> type[Warning]:
    """Return scikit-learn's ConvergenceWarning if scikit-learn is imported."""
    exceptions = sys.modules.get("sklearn.exceptions")
    return exceptions.ConvergenceWarning if exceptions else NotConverged


def _of_names(fitted: list[str], given: list[str]) -> str:
    """Return what is wrong with the column names."""
    told = ["The feature names should match those that were passed during fit."]
    unseen, missing = sorted(set(given) - set(fitted)), sorted(set(fitted) - set(given))
    for what, names in (("unseen at fit time", unseen), ("seen at fit time, yet now missing", missing)):
        if names:
            more = ["- ..."] if len(names) > _TOLD else []
            told += [f"Feature names {what}:", *(f"- {name}" for name in names[:_TOLD]), *more]
    if not unseen and not missing:
        told.append("Feature names must be in the same order as they were in fit.")
    return "\n".join(told) + "\n"


def random_seed(random_state: Any) -> int:
    """Return the seed given by a random_state: an integer, a NumPy generator (which advances), or None for a random
    seed.
    """
    if random_state is None:
        return int(np.random.default_rng().integers(_SEEDS))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(_SEEDS))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(_SEEDS))
    return integer_parameter("random_state", random_state, 0)


def integer_parameter(name: str, value: Any, least: int) -> int:
    """Return a parameter that must be an integer.

    Raises RequestError for other values.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise RequestError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def job_count(n_jobs: int | None) -> int:
    """Return the number of processes or threads given by n_jobs: None is 1, -1 all cores, -2 all but one."""
    if n_jobs is None:
        return 1
    if n_jobs == 0 or isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer):
        raise RequestError(f"n_jobs must be an integer other than 0 (-1 for all cores), got {n_jobs!r}")
    return int(n_jobs) if n_jobs > 0 else max(core_count() + 1 + int(n_jobs), 1)


def byte_count(memory: str | float | None) -> int | None:
    """Return the bytes given by the parameter `memory`.

    Raises RequestError if its value is not a size.
    """
    if memory is None:
        return None
    if isinstance(memory, str):
        return parse_size(memory, "memory")
    if isinstance(memory, bool) or not isinstance(memory, Real) or not 1 <= memory < math.inf:
        raise RequestError(f"memory must be a number of bytes or a string such as '2GB', got {memory!r}")
    return int(memory)


def combine_callbacks(callbacks: Callable | Sequence[Callable] | None) -> Callable[[dict[str, Any]], bool]:
    """Return a function that calls all callbacks and returns whether any of them returned true."""
    several = [] if callbacks is None else [callbacks] if callable(callbacks) else list(callbacks)
    return lambda line: sum(bool(callback(line)) for callback in several) > 0


@contextmanager
def reword_errors(names: Mapping[str, str]) -> Iterator[None]:
    """Reword errors of the context with `in_parameters`, and raise KeyboardInterrupt for an interrupted run.

    Remedies that mention resuming are dropped, since there is no run to resume.
    """
    to_parameters = partial(in_parameters, names=names)
    try:
        yield
    except RequestError as error:
        raise reword_error(error, to_parameters) from None
    except WorkFailed as error:
        told = WorkFailed(error.what, "" if "resume" in error.remedy else error.remedy)
        raise reword_error(told, to_parameters) from error
    except Interrupted as error:
        raise KeyboardInterrupt(error.what) from None
