"""Run scikit-learn's own tests of Lasso, elastic net and logistic regression on the estimators of ooc.

    python -m benchmarks.sklearn_tests
    python -m benchmarks.sklearn_tests -k positive

The test files are read from the installed scikit-learn. Each test that fits one of the three estimators is counted:

    passed
    lacking         it asks for a parameter, attribute or method that ooc does not have
    refused         ooc raises an error that says why, as for several targets or classes
    says otherwise  it expects another warning or message
    rounding        it expects another number, which differs by less than 1e-13: two gaps of 0, rounded differently
    numbers         it expects another number

Parameters that only choose how to solve, such as `solver`, are accepted and have no effect. Some tests compare
coefficients to seven digits, so the default of `tol`, which is the duality gap for ooc, is 1e-14 here.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
import sklearn
import sklearn.linear_model

from blocks.errors import RequestError
from samplers.estimators import lasso, logistic

FILES = ("test_coordinate_descent.py", "test_sparse_coordinate_descent.py", "test_logistic.py")
PASSED, LACKING, REFUSED, SAYS = "passed", "lacking", "refused", "says otherwise"
ROUNDING, NUMBERS = "rounding", "numbers"


class TestFits:
    """Fits of ooc estimators in the current test, and their errors, after which parameter searches continue."""

    number = 0
    failures: ClassVar[list[Exception]] = []


class _RecordedFit:
    """Mixin of the replaced estimators; `standardize` is a parameter of ooc only."""

    standardize = False

    def keep(self, given: dict[str, Any]) -> None:
        """Store the arguments of `__init__` under their names, as estimators do."""
        self.__dict__ |= {name: value for name, value in given.items() if name not in ("self", "__class__")}

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        TestFits.number += 1
        try:
            return super().fit(X, y, sample_weight)  # type: ignore[misc]
        except RequestError as error:
            TestFits.failures.append(error)
            raise


class ElasticNet(_RecordedFit, lasso.ElasticNet):
    n_jobs = 1

    def __init__(  # type: ignore[no-untyped-def]
        self,
        alpha=1.0,
        *,
        l1_ratio=0.5,
        fit_intercept=True,
        precompute=False,
        max_iter=1000,
        copy_X=True,
        tol=1e-14,
        warm_start=False,
        positive=False,
        random_state=None,
        selection="cyclic",
    ) -> None:
        self.keep(locals())


class Lasso(_RecordedFit, lasso.Lasso):
    n_jobs = 1

    def __init__(  # type: ignore[no-untyped-def]
        self,
        alpha=1.0,
        *,
        fit_intercept=True,
        precompute=False,
        copy_X=True,
        max_iter=1000,
        tol=1e-14,
        warm_start=False,
        positive=False,
        random_state=None,
        selection="cyclic",
    ) -> None:
        self.keep(locals())


class LogisticRegression(_RecordedFit, logistic.LogisticRegression):
    def __init__(  # type: ignore[no-untyped-def]
        self,
        *,
        C=1.0,
        l1_ratio=0.0,
        dual=False,
        tol=1e-14,
        fit_intercept=True,
        intercept_scaling=1,
        class_weight=None,
        random_state=None,
        solver="lbfgs",
        max_iter=100,
        verbose=0,
        warm_start=False,
        n_jobs=1,
    ) -> None:
        self.keep(locals())


class TestOutcomes:
    """pytest plugin that records the outcome of each test that creates or fits an ooc estimator."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str, str]] = []  # name, outcome, reason

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        TestFits.number, TestFits.failures = 0, []
        try:
            result = yield
        except BaseException as error:
            if isinstance(error, pytest.skip.Exception):
                raise
            outcome, reason = judged(error)
            if TestFits.number or outcome == LACKING:
                self.found.append((item.nodeid.split("/")[-1], outcome, reason))
            raise
        if TestFits.number:
            self.found.append((item.nodeid.split("/")[-1], PASSED, ""))
        return result


def judged(error: BaseException) -> tuple[str, str]:
    """Return the outcome and its reason."""
    text, chain = str(error).strip(), [error, *TestFits.failures]
    if reason := next(filter(None, map(lacking, chain)), None):
        return LACKING, reason
    if "dtype('float64')" in text:
        return LACKING, "coefficients of float32"
    if refused := [one.what for one in chain if isinstance(one, RequestError)]:
        return REFUSED, refused[0]
    if isinstance(error, pytest.fail.Exception | Warning) or "Regex pattern" in text:
        return SAYS, text.splitlines()[0]
    found = re.search(r"Max absolute difference among violations: (\S+)", text)
    outcome = ROUNDING if found and float(found[1]) < 1e-13 else NUMBERS
    return outcome, f"{type(error).__name__}: {' '.join(text.split())[:160]}"


def lacking(error: BaseException) -> str | None:
    """Return the feature missing in ooc that explains an error, or None."""
    text = str(error)
    if found := re.search(r"unexpected keyword argument '(\w+)'", text):
        return found[1]
    if found := re.search(r"(l1_ratio|alpha)=[^:]*\b0(\.0)?\b[^:]*: a finite number above 0", text):
        return f"{found[1]}=0"
    if found := re.search(r"has no (parameter|attribute).*", text):
        return found[0]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", default="", help="tests whose names match, as pytest's -k")
    asked = parser.parse_args()
    for estimator in (ElasticNet, Lasso, LogisticRegression):
        setattr(sklearn.linear_model, estimator.__name__, estimator)
    outcomes, package = TestOutcomes(), Path(sklearn.__file__).parent
    files = [str(package / "linear_model" / "tests" / name) for name in FILES]
    settings = ["-q", "--no-header", "--tb=no", "--disable-warnings", "-rN", "-c", "/dev/null", f"--rootdir={package}"]
    pytest.main([*settings, "-p", "no:cacheprovider", "-p", "no:xdist", "-k", asked.k, *files], [outcomes])
    print(f"\nscikit-learn {sklearn.__version__}: {len(outcomes.found)} tests fit an estimator of ooc, or try to")
    for name, number in sorted(Counter(outcome for _, outcome, _ in outcomes.found).items()):
        print(f"{number:5} {name}")
    for outcome in (LACKING, REFUSED, SAYS, ROUNDING, NUMBERS):
        reasons = Counter(reason for _, ended, reason in outcomes.found if ended == outcome)
        print(f"\n{outcome}:", *(f"{number:5} {reason}" for reason, number in reasons.most_common()), sep="\n")
    wrong = [(name, reason) for name, outcome, reason in outcomes.found if outcome == NUMBERS]
    print("\ntests with other numbers:", *(f"  {name}\n      {reason}" for name, reason in wrong), sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
