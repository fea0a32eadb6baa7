"""Contest of multi-class linear models: contestants, choice of their learning rates, and results.

The rate of steps, or the penalty, and the number of passes are chosen for each contestant by the last fifth of the
samples to train on, in an order of their own. Then it has all of them, in as many orders as there are turns.
"""

from __future__ import annotations

import importlib.util
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.stochastic_data import LabelledMatrix, SampleSubset
from ooc.stochastic.engine import StochasticEngine
from ooc.workers.worker import ProgramSpec
from samplers.programs import target

PASSES = 12
RATES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
INVERSE_PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)  # of a solver that goes on until it has converged
YARDSTICK = "SGDClassifier"

Line = tuple[float, float]  # seconds of training so far, the error


class StochasticContestant(NamedTuple):
    """A contestant.

    run: function that trains with a parameter value and a seed; yields a line after each pass, or one line at the end.
    all_passes: whether the single line covers all passes.
    """

    run: Callable[[SampleSubset, SampleSubset, float, int], Iterator[Line]]
    values: Sequence[float]
    all_passes: bool = False


class ChosenValue(NamedTuple):
    """Parameter value chosen on the validation samples, and the number of lines to train for."""

    value: float
    lines: int


def engine(train: SampleSubset, **options: Any) -> StochasticEngine:
    return StochasticEngine(train.samples, ProgramSpec(target("softmax"), {"parallelism": 1} | options), workers=1)


def ours(loss: str) -> StochasticContestant:
    def run(train: SampleSubset, test: SampleSubset, rate: float, seed: int) -> Iterator[Line]:
        with engine(train, loss=loss, rate=rate) as running:
            jobs, seconds = running.program.jobs, 0.0  # type: ignore[attr-defined]
            for _ in range(PASSES):
                began = time.perf_counter()
                running.run()
                seconds += time.perf_counter() - began
                wrong = math.fsum(map(math.fsum, jobs.elsewhere("wrong", test.samples, running.arrays)))
                yield seconds, wrong / test.samples.rows

    return StochasticContestant(run, RATES)


def estimator(loss: str) -> StochasticContestant:
    """Return the contestant that trains the ooc estimator in this process, by one `partial_fit` per pass."""

    def run(train: SampleSubset, test: SampleSubset, rate: float, seed: int) -> Iterator[Line]:
        from samplers import SoftmaxRegression

        classes = np.unique(train.y)
        SoftmaxRegression(loss, rate=rate).partial_fit(train.x[:10], train.y[:10], classes)  # compiles
        return pass_by_pass(SoftmaxRegression(loss, rate=rate), train, test)

    return StochasticContestant(run, RATES)


def gradient_descent(loss: str) -> StochasticContestant:
    """Return the contestant scikit-learn SGDClassifier, one-vs-rest, with defaults except the loss and the penalty."""

    def run(train: SampleSubset, test: SampleSubset, penalty: float, seed: int) -> Iterator[Line]:
        from sklearn.linear_model import SGDClassifier

        return pass_by_pass(SGDClassifier(loss=loss, alpha=penalty, n_jobs=1, random_state=seed), train, test)

    return StochasticContestant(run, PENALTIES)


def pass_by_pass(model: Any, train: SampleSubset, test: SampleSubset) -> Iterator[Line]:
    seconds, classes = 0.0, np.unique(train.y)
    for _ in range(PASSES):
        began = time.perf_counter()
        model.partial_fit(train.x, train.y, classes)
        seconds += time.perf_counter() - began
        yield seconds, error_of(model, test)


def all_passes(loss: str) -> StochasticContestant:
    """Return the contestant SGDClassifier that runs all passes in one call, its fastest use."""

    def run(train: SampleSubset, test: SampleSubset, penalty: float, seed: int) -> Iterator[Line]:
        from sklearn.linear_model import SGDClassifier

        told = {"loss": loss, "alpha": penalty, "max_iter": PASSES, "tol": None}
        yield fitted(SGDClassifier(n_jobs=1, random_state=seed, **told), train, test)

    return StochasticContestant(run, PENALTIES, all_passes=True)


def batch(solver: str) -> StochasticContestant:
    """Return the contestant scikit-learn LogisticRegression with a solver that runs until it converges."""

    def run(train: SampleSubset, test: SampleSubset, inverse: float, seed: int) -> Iterator[Line]:
        from sklearn.linear_model import LogisticRegression

        yield fitted(LogisticRegression(solver=solver, C=inverse, max_iter=100, random_state=seed), train, test)

    return StochasticContestant(run, INVERSE_PENALTIES)


def fitted(model: Any, train: SampleSubset, test: SampleSubset) -> Line:
    began = time.perf_counter()
    model.fit(train.x, train.y)
    return time.perf_counter() - began, error_of(model, test)


def error_of(model: Any, test: SampleSubset) -> float:
    return float(np.mean(model.predict(test.x) != test.y))


def vowpal(train: SampleSubset, test: SampleSubset, rate: float, seed: int) -> Iterator[Line]:
    """Train vowpal-wabbit, one-vs-rest, from its own binary cache, so that parsing text is not timed."""
    from vowpalwabbit import Workspace

    classes = np.unique(train.y)
    told = f"--oaa {classes.size} --loss_function logistic -b 22 -l {rate} --holdout_off --quiet"
    with tempfile.TemporaryDirectory(prefix="ooc-benchmark-") as folder:
        text, cache = Path(folder) / "train.vw", Path(folder) / "cache"
        lines = zip(np.searchsorted(classes, train.y) + 1, vowpal_lines(train), strict=True)
        text.write_text("".join(f"{label} {line}\n" for label, line in lines))
        Workspace(f"{told} -d {text} --cache_file {cache} -k").finish()
        began = time.perf_counter()
        model = Workspace(f"{told} --cache_file {cache} --passes {PASSES}")
        seconds = time.perf_counter() - began
        found = np.array([model.predict(line) for line in vowpal_lines(test)]) - 1
        model.finish()
    yield seconds, float(np.mean(classes[found] != test.y))


def vowpal_lines(part: SampleSubset) -> Iterator[str]:
    """Return the samples in the text format of vowpal-wabbit, without labels."""
    x = part.x
    for first, last in zip(x.indptr[:-1], x.indptr[1:], strict=True):
        entries = zip(x.indices[first:last].tolist(), x.data[first:last].tolist(), strict=True)
        yield "| " + " ".join(f"{column}:{value:.6g}" for column, value in entries)


CONTESTANTS: dict[str, StochasticContestant] = {
    "ooc, softmax": ours("softmax"),
    "ooc, hinge": ours("hinge"),
    "SoftmaxRegression, softmax": estimator("softmax"),
    "SoftmaxRegression, hinge": estimator("hinge"),
    YARDSTICK: gradient_descent("hinge"),
    "SGDClassifier, log loss": gradient_descent("log_loss"),
    "SGDClassifier, all passes": all_passes("hinge"),
    "saga": batch("saga"),
    "lbfgs": batch("lbfgs"),
}
if importlib.util.find_spec("vowpalwabbit"):
    CONTESTANTS["vowpal-wabbit"] = StochasticContestant(vowpal, (0.2, 0.5, 1.0, 2.0), all_passes=True)


def contest(name: str, train: LabelledMatrix, test: LabelledMatrix, turns: int, scratch: Path) -> dict[str, Any]:
    """Return the chosen value of each contestant, and its lines in every turn; in a turn, all train in the same order
    of samples.
    """
    written = test.written(scratch / "test")
    choices = choose(name, train, scratch)
    lines: dict[str, list[list[Line]]] = {who: [] for who in CONTESTANTS}
    for turn in range(turns):
        part = train.written(scratch / "train", turn)
        for who, (run, _, _) in CONTESTANTS.items():
            say(f"{name}, turn {turn + 1}, {who} ...")
            lines[who].append(list(run(part, written, choices[who].value, turn)))
    found = {who: summary(train.y.size, CONTESTANTS[who], choices[who], lines[who]) for who in CONTESTANTS}
    goal = found[YARDSTICK]["error"]
    for told in found.values():
        told["seconds_to_goal"] = next((seconds for seconds, error in told["curve"] if error <= goal), math.inf)
    return found


def choose(name: str, train: LabelledMatrix, scratch: Path) -> dict[str, ChosenValue]:
    """Return, for each contestant, the value and number of passes with the smallest error on the validation samples."""
    order = np.random.default_rng(99).permutation(train.y.size)
    chosen, left_out = np.split(order, [4 * order.size // 5])
    parts = train.take(chosen).written(scratch / "chosen"), train.take(left_out).written(scratch / "left-out")
    choices = {}
    for who, (run, values, _) in CONTESTANTS.items():
        say(f"{name}, {who} chooses ...")
        errors = {
            ChosenValue(value, number + 1): error
            for value in values
            for number, (_, error) in enumerate(run(*parts, value, 0))
        }
        choices[who] = min(errors, key=lambda choice: errors[choice])
    return choices


def summary(
    samples: int, contestant: StochasticContestant, choice: ChosenValue, turns: list[list[Line]]
) -> dict[str, Any]:
    """Return the results of a contestant.

    curve: median seconds and mean error after each pass.
    seconds, error: values after the chosen number of passes.
    """
    curve = [
        (statistics.median(seconds for seconds, _ in lines), statistics.fmean(error for _, error in lines))
        for lines in zip(*turns, strict=True)
    ]
    passes = len(curve) if len(curve) == PASSES else PASSES * contestant.all_passes
    seconds, error = curve[choice.lines - 1]
    return {
        "value": choice.value,
        "passes": choice.lines if len(curve) == PASSES else passes,
        "examples_per_s": samples * passes / curve[-1][0] if passes else None,
        "error": error,
        "deviation": statistics.stdev(lines[choice.lines - 1][1] for lines in turns) if len(turns) > 1 else 0.0,
        "seconds": seconds,
        "curve": curve,
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
