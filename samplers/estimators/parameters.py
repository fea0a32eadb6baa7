"""Check the parameters of all estimators, by a rule per parameter or by the description of the corresponding option."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np

from blocks.errors import RequestError
from samplers.estimators.base import Estimator, byte_count, integer_parameter, job_count
from samplers.options import Options, described

Rule = Callable[[str, Any], Any]


def checked_parameters(estimator: Estimator) -> dict[str, Any]:
    """Return the checked parameters of an estimator by name, as Python numbers and lists.

    A parameter whose default is None may be None.
    Raises RequestError for the first invalid parameter.
    """
    parameters, defaults = estimator.get_params(), estimator._defaults()
    rules = (_option_rules(estimator._options) if estimator._options else {}) | _RULES
    for name, value in parameters.items():
        if name in estimator._several and not isinstance(value, Real):
            parameters[name] = _each(name, value, rules[name])
        elif name in rules and not (value is None and defaults[name] is None):
            parameters[name] = rules[name](name, value)
    return parameters


def _each(name: str, value: Any, rule: Rule) -> list[Any]:
    """Return a list whose elements satisfy a rule."""
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray) or not len(value):
        raise RequestError(f"{name}={value!r}: expected a number, or a list of numbers")
    return [rule(f"{name}[{place}]", each) for place, each in enumerate(value)]


def _option_rules(options: type[Options]) -> dict[str, Rule]:
    """Return rules by parameter name for the options of a training run, based on their types and bounds."""
    found: dict[str, Rule] = {}
    for each in described(options).values():
        least = 1 if each.option.least is None else int(each.option.least)
        if each.type is bool:
            found[each.parameter] = _flag
        elif each.type is int:
            found[each.parameter] = partial(integer_parameter, least=least)
        elif each.type is float:
            found[each.parameter] = _number
        elif each.option.choices:
            found[each.parameter] = _text
        elif int in get_args(each.type):
            found[each.parameter] = partial(_workers, least=least)
    return found


def _number(name: str, value: Any, *, zero: bool = False, most: float = math.inf) -> float:
    """Return a finite number: positive (or nonnegative, if `zero`), and at most `most`."""
    if _is_number(value) and math.isfinite(value) and (value > 0 or (zero and value == 0)) and value <= most:
        return float(value)
    up_to = "" if math.isinf(most) else f" and at most {most:g}"
    raise RequestError(f"{name} must be a finite number {'of at least' if zero else 'above'} 0{up_to}, got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _priors(name: str, value: Any) -> float | list[float]:
    """Return a positive number, or a list of positive numbers."""
    if _is_number(value):
        return _number(name, value)
    if (isinstance(value, Sequence) and not isinstance(value, str)) or getattr(value, "ndim", 0) == 1:
        return [_number(f"{name}[{place}]", prior) for place, prior in enumerate(value)]
    raise RequestError(f"{name} must be a number above 0, or a list of one for each topic; got {value!r}")


def _word_priors(name: str, value: Any) -> float | np.ndarray:
    """Return a positive number, or a weight for each topic and word, float64 (K, V), at least 0."""
    if _is_number(value):
        return _number(name, value)
    if getattr(value, "ndim", 0) == 2:
        weights = np.asarray(value.toarray() if hasattr(value, "toarray") else value, np.float64)
        if (weights >= 0).all() and np.isfinite(weights).all():
            return weights
    raise RequestError(f"{name} must be a number above 0, or an array (topics, words) of numbers of at least 0")


def _seed_words(name: str, value: Any) -> dict[str, list[str]]:
    """Return the seed words of topics by name."""
    if isinstance(value, Mapping) and all(
        isinstance(topic, str) and isinstance(words, Sequence) and not isinstance(words, str)
        for topic, words in value.items()
    ):
        return {topic: [str(word) for word in words] for topic, words in value.items()}
    raise RequestError(f"{name} must be a dict of topic names and lists of words, got {value!r}")


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise RequestError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _words(name: str, value: Any) -> Any:
    """Return None, a string, or a list of strings."""
    if value is None:
        return None
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, Collection) or not all(isinstance(word, str) for word in words):
        raise RequestError(
            f"{name} must be a language such as 'english', the path of a file, a list of words or None; got {value!r}"
        )
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{name} must be a string, got {value!r}")
    return value


def _ngrams(name: str, value: Any) -> tuple[int, int]:
    """Return (1, n)."""
    if not isinstance(value, Sequence) or len(value) != 2 or value[0] != 1:
        raise RequestError(f"{name} must be (1, n) for n-grams of 1 to n words, got {value!r}")
    return 1, integer_parameter(name, value[1], least=1)


def _documents(name: str, value: Any) -> int | float:
    """Return a number of documents, or a fraction of all documents."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return integer_parameter(name, value, least=0)
    return _number(name, value, zero=True, most=1.0)


def _association(name: str, value: Any) -> float:
    if not _is_number(value) or not -1 <= value <= 1:
        raise RequestError(f"{name} must be a number from -1 to 1, got {value!r}")
    return float(value)


def _functions(name: str, value: Any) -> Any:
    """Return a function, or a list of functions."""
    if not callable(value) and not (isinstance(value, Sequence) and all(map(callable, value))):
        raise RequestError(f"{name} must be a function or a list of functions, got {value!r}")
    return value


def _workers(name: str, value: Any, least: int) -> int | str:
    """Return a number of parallel learners, or "auto"."""
    return value if isinstance(value, str) and value == "auto" else integer_parameter(name, value, least)


def _seed(name: str, value: Any) -> Any:
    """Return random_state unchecked; it is checked when it is used, because a generator advances."""
    return value


_positive, _from_0 = _number, partial(_number, zero=True)
_from_1 = partial(integer_parameter, least=1)
_RULES: dict[str, Rule] = {
    "C": _positive,
    "alpha": _positive,
    "callbacks": _functions,
    "doc_topic_prior": _priors,
    "eps": partial(_number, most=1.0),
    "fit_intercept": _flag,
    "l1_ratio": partial(_number, most=1.0),
    "lowercase": _flag,
    "max_df": _documents,
    "max_features": _from_1,
    "max_iter": _from_1,
    "memory": lambda _, value: byte_count(value),
    "min_df": _documents,
    "min_npmi": _association,
    "n_jobs": lambda _, value: job_count(value),
    "ngram_range": _ngrams,
    "positive": _flag,
    "random_state": _seed,
    "regularization": _from_0,
    "rule": _text,
    "seed_words": _seed_words,
    "segment": _text,
    "shuffle": _flag,
    "standardize": _flag,
    "stop_words": _words,
    "token_pattern": _text,
    "tol": _from_0,
    "topic_word_prior": _word_priors,
    "warm_start": _flag,
}
