"""Estimators: scikit-learn's conventions, with and without scikit-learn; nothing is seen of the files below."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from blocks import RequestError
from blocks.corpus.partition import BLOCK_TOKENS
from blocks.files import TEMPORARY
from samplers import LatentDirichletAllocation, MatrixFactorization
from samplers.estimators.base import random_seed

ESTIMATORS = [
    LatentDirichletAllocation(n_components=3, max_iter=3, n_jobs=1),
    MatrixFactorization(n_components=2, max_iter=3, n_jobs=1, method="als"),
]
WITHOUT_FITS = {  # checks of scikit-learn that take no time
    "check_complex_data",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_transformers_unfitted",
    "check_valid_tag_types",
}
not_derived = pytest.mark.filterwarnings("ignore:.*does not inherit from:UserWarning")


def checks() -> list[Any]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [pair for each in ESTIMATORS for pair in estimator_checks_generator(each)]
    return [
        pytest.param(each, check, id=f"{type(each).__name__}-{name}")
        for each, check in found
        if (name := getattr(check, "func", check).__name__) in WITHOUT_FITS
    ]


@pytest.mark.parametrize(("estimator", "check"), checks())
def test_scikit_learn_checks_that_train_nothing(estimator: Any, check: Any) -> None:
    check(estimator)


EXPECTED = {  # to fail, and why
    MatrixFactorization: dict.fromkeys(
        ("check_estimator_sparse_array", "check_estimator_sparse_matrix"),
        "predictions for a table are all its values, (n, p), where the checks want (n,)",
    )
}


@pytest.mark.long
@not_derived
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: type(each).__name__)
def test_scikit_learn_checks(estimator: Any) -> None:
    expected = EXPECTED.get(type(estimator), {})
    results = check_estimator(estimator, on_fail=None, expected_failed_checks=expected)
    assert [result for result in results if result["status"] == "failed"] == []
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(expected)
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # only if SCIPY_ARRAY_API is set


def test_parameters_are_kept_set_and_shown() -> None:
    estimator = LatentDirichletAllocation(7, doc_topic_prior=[0.1] * 7)
    assert estimator.get_params()["n_components"] == 7
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.set_params(max_iter=3) is estimator
    assert repr(estimator) == f"LatentDirichletAllocation(doc_topic_prior={[0.1] * 7!r}, max_iter=3, n_components=7)"
    with pytest.raises(RequestError, match="no parameter 'topics'"):
        estimator.set_params(topics=3)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"n_components": 0}, "n_components must be an integer of at least 1, got 0"),
        ({"max_iter": 1.5}, r"max_iter must be an integer of at least 1, got 1\.5"),
        ({"n_jobs": 0}, "n_jobs must be an integer other than 0"),
        ({"random_state": "today"}, "random_state must be an integer of at least 0, got 'today'"),
        ({"memory": "much"}, "memory: 'much' is not a size"),
        ({"doc_topic_prior": [0.1, 0.2]}, "doc_topic_prior must have 1 or 3 values, got 2"),
        ({"evaluate_every": 0}, "evaluate_every must be an integer of at least 1, got 0"),
        ({"sampler": "best"}, "sampler"),
    ],
)
def test_wrong_parameters_are_told_by_their_names(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LatentDirichletAllocation(**{"n_components": 3, **parameters}).fit([["a", "b"]])


def test_what_is_not_fitted_says_so() -> None:
    for estimator in ESTIMATORS:
        with pytest.raises(NotFittedError, match="call fit first"):
            estimator.transform([[1, 2]])
        with pytest.raises(NotFittedError):
            _ = estimator.components_


def test_seeds_are_those_of_numpy_generators() -> None:
    assert random_seed(np.int64(5)) == 5
    assert random_seed(np.random.default_rng(1)) == random_seed(np.random.default_rng(1))
    generator = np.random.RandomState(1)
    assert random_seed(generator) != random_seed(generator)
    assert random_seed(None) != random_seed(None)


def test_scikit_learn_is_not_needed() -> None:
    """Nor scipy nor pandas; what has not been fitted is a ValueError and an AttributeError all the same."""
    script = (
        "import sys\n"
        "for name in ('sklearn', 'scipy', 'pandas'): sys.modules[name] = None\n"
        "from samplers import LatentDirichletAllocation, MatrixFactorization\n"
        "try: LatentDirichletAllocation(3).transform([[1, 2]])\n"
        "except (ValueError, AttributeError) as error: print(error)\n"
        "print(MatrixFactorization(3).set_params(max_iter=4))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "this LatentDirichletAllocation is not fitted yet: call fit first",
        "MatrixFactorization(max_iter=4, n_components=3)",
    ]


def test_importing_is_fast_as_nothing_heavy_is_loaded() -> None:
    script = "import ooc, samplers, blocks, sys; print(*sorted({'numpy', 'numba', 'h5py'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


COUNTS = np.random.default_rng(0).poisson(0.7, (60, 40))


def few() -> LatentDirichletAllocation:
    return LatentDirichletAllocation(3, max_iter=4, evaluate_every=2, n_jobs=1, random_state=5)


@pytest.fixture(scope="module")
def fitted() -> LatentDirichletAllocation:
    return few().fit(COUNTS)


def test_nothing_is_left_of_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor of one that fails."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = []

    def callback(line: dict[str, Any]) -> None:
        seen.append([path.name for path in tmp_path.iterdir()])
        if line["iteration"] == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        few().set_params(callbacks=callback).fit(COUNTS)
    assert [len(names) for names in seen] == [1, 1]
    assert seen[0][0].startswith(f".ooc{TEMPORARY}")
    assert list(tmp_path.iterdir()) == []


def test_a_training_goes_on_where_it_ended(fitted: LatentDirichletAllocation) -> None:
    """To the same bits as one of as many iterations; with other data or parameters it begins anew."""
    warm = few().set_params(warm_start=True, max_iter=1)
    assert warm.fit(COUNTS).n_iter_ == 1
    again = warm.set_params(max_iter=3).fit(COUNTS)
    assert again.n_iter_ == 4
    assert [line["iteration"] for line in again.history_] == [1, 2, 3, 4]
    np.testing.assert_array_equal(again.components_, fitted.components_)
    unpickled = pickle.loads(pickle.dumps(warm))
    assert unpickled.set_params(max_iter=2).fit(COUNTS).n_iter_ == 2  # what is on the disk did not go with it
    assert warm.set_params(max_iter=2).fit(COUNTS[:50]).n_iter_ == 2


def test_a_callback_hears_of_each_iteration_and_may_end_it() -> None:
    heard: list[int] = []

    def stop(line: dict[str, Any]) -> bool:
        return line["iteration"] == 2

    def listen(line: dict[str, Any]) -> None:
        heard.append(line["iteration"])

    estimator = few().set_params(callbacks=[stop, listen]).fit(COUNTS)
    assert heard == [1, 2]
    assert estimator.n_iter_ == 2
    assert "log_likelihood_per_token" in estimator.history_[1]


def test_fitted_estimators_go_through_pickles_and_pipelines(fitted: LatentDirichletAllocation) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(COUNTS), fitted.transform(COUNTS))
    pipeline = make_pipeline(FunctionTransformer(lambda counts: counts), few()).fit(COUNTS)
    np.testing.assert_array_equal(pipeline.transform(COUNTS), fitted.transform(COUNTS))
    names = ["latentdirichletallocation0", "latentdirichletallocation1", "latentdirichletallocation2"]
    assert pipeline[-1].get_feature_names_out().tolist() == names


def test_documents_in_parts_are_those_in_one(
    fitted: LatentDirichletAllocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fitted.transform(COUNTS)
    assert COUNTS.sum() < BLOCK_TOKENS
    monkeypatch.setattr("samplers.topics.document_sources.PART_TOKENS", 100)
    np.testing.assert_array_equal(clone_with(fitted, n_jobs=2).transform(COUNTS), whole)


def clone_with(estimator: LatentDirichletAllocation, **parameters: Any) -> LatentDirichletAllocation:
    return pickle.loads(pickle.dumps(estimator)).set_params(**parameters)
