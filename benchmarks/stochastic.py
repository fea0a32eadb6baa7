"""The stochastic engine: speed of compiled functions, classes beside scikit-learn, and what many workers come to.

    python -m benchmarks.stochastic DATA [--output DIR] [--json FILE]

DATA has 20news.train.svm.gz and 20news.test.svm.gz, and the digits t10k-images-idx3-ubyte.gz and
t10k-labels-idx1-ubyte.gz. All on one thread. With --output figures are drawn. Peers: scikit-learn, and vowpal-wabbit if
it is installed. Degrees of parallelism are compared on these, and on 648,000 digits of 7 x 7 pixels: each of four in
five, shifted up to four pixels each way before pixels are merged. That is many samples for each weight and worker, as
in the paper; workers synchronise five times a pass, as there.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.report import describe_machine, machine, table
from blocks.compiled import unmanaged_kernel
from blocks.samples.ingestion import write_samples
from blocks.samples.samples import Samples
from ooc.stochastic.engine import StochasticEngine
from ooc.stochastic.tasks import Process
from ooc.worker import ProgramSpec
from samplers.programs import target
from samplers.regression.softmax import FIRST_SQUARES, Softmax, class_of, turn_to_gradients

PASSES = 12
RATES = {"20news": {"softmax": 0.5, "hinge": 0.1}, "digits": {"softmax": 0.05, "hinge": 0.05}}
DEGREES = (1, 4, 16, 64)
SYNCHRONISATIONS = 5  # of a pass with several workers
SHIFTED, SHIFTED_RATE = "shifted digits", 0.1
SHIFT, MERGED = 4, 4  # pixels
TURNS = 9  # of the compiled function and the loop by hand


Rates = dict[str, float]  # for each loss


class Part(NamedTuple):
    """Samples as scipy.sparse.csr_array and as what the engine reads."""

    x: Any
    y: np.ndarray
    samples: Samples


Contestant = Callable[[Part, Part, Rates], Iterator[dict[str, float]]]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.stochastic", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("data", type=Path, help="the directory of the data")
    add("--output", type=Path, help="draw figures into this directory")
    add("--json", type=Path, help="write the numbers there")
    add("--turns", type=int, default=5, help="of each contestant in turn; medians count")
    return parser.parse_args()


def load(data: Path, name: str, scratch: Path) -> tuple[Part, Part]:
    """The samples to train on and to test on."""
    from scipy.sparse import csr_matrix

    if name == "20news":
        from sklearn.datasets import load_svmlight_files

        files = [str(data / f"20news.{part}.svm.gz") for part in ("train", "test")]
        x_train, y_train, x_test, y_test = load_svmlight_files(files, zero_based=False)
    else:
        images, labels = digits(data)
        x, y = images.reshape(labels.size, -1) / np.float32(255), labels.astype(float)
        train, test = np.split(np.random.default_rng(0).permutation(y.size), [4 * y.size // 5])
        x_train, y_train, x_test, y_test = csr_matrix(x[train]), y[train], csr_matrix(x[test]), y[test]
    return part(x_train, y_train, scratch / f"{name}-train"), part(x_test, y_test, scratch / f"{name}-test")


def digits(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (n, 28, 28), and their labels, uint8 (n,)."""
    images = np.frombuffer(gzip.decompress((data / "t10k-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((data / "t10k-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    return images.reshape(labels.size, 28, 28), labels


def part(x: Any, y: np.ndarray, path: Path) -> Part:
    """x: scipy.sparse.csr_matrix, float32; its samples are written to a path."""
    x.indptr, x.indices = x.indptr.astype(np.int32), x.indices.astype(np.int32)  # or scikit-learn takes none of it
    arrays = x.indptr, x.indices, x.data
    return Part(x, y, write_samples(path, *arrays, y, width=x.shape[1], block_entries=1 << 30))


def shifted_digits(data: Path, scratch: Path) -> Part:
    """Digits that were shifted, see above, in random order."""
    from scipy.sparse import csr_matrix

    images, labels = digits(data)
    random = np.random.default_rng(0)
    chosen = random.permutation(labels.size)[: 4 * labels.size // 5]
    steps, size = range(-SHIFT, SHIFT + 1), 28 // MERGED
    moved = [np.roll(images[chosen], (down, right), (1, 2)) for down in steps for right in steps]
    merged = [some.reshape(-1, size, MERGED, size, MERGED).mean((2, 4), dtype=np.float32) for some in moved]
    order = random.permutation(len(moved) * chosen.size)
    x = csr_matrix(np.concatenate(merged).reshape(order.size, -1)[order] / np.float32(255))
    return part(x, np.tile(labels[chosen], len(moved))[order].astype(float), scratch / "shifted")


@unmanaged_kernel
def by_hand(offsets, columns, values, labels, classes, weights, squares, rate, scores):
    """The loop that one would write: a pass of AdaGrad over samples, all arrays as they are."""
    one = np.float32(1.0)
    last = weights.shape[0] - 1
    for sample in range(labels.size):
        for k in range(scores.size):
            scores[k] = weights[last, k]
        for entry in range(offsets[sample], offsets[sample + 1]):
            row, value = weights[columns[entry]], values[entry]
            for k in range(scores.size):
                scores[k] += value * row[k]
        turn_to_gradients(0, class_of(labels[sample], classes), scores)
        for entry in range(offsets[sample], offsets[sample + 1] + 1):
            place = columns[entry] if entry < offsets[sample + 1] else last
            value = values[entry] if entry < offsets[sample + 1] else one
            row, sums = weights[place], squares[place]
            for k in range(scores.size):
                gradient = value * scores[k]
                sums[k] += gradient * gradient
                row[k] -= rate * gradient / np.sqrt(sums[k] + FIRST_SQUARES)


def compare_loops(train: Part, rate: float) -> dict[str, float]:
    """Processor seconds of a pass by the engine's compiled function and by hand, in turn; the median of their ratio."""
    program = Softmax(train.samples, parallelism=1, rate=rate)
    arrays = {name: np.zeros(spec.shape, spec.dtype) for name, spec in program.shared_arrays().items()}
    block, classes = train.samples.block(0), np.array(train.samples.index.labels)
    weights = np.zeros((train.samples.columns + 1, classes.size), np.float32)
    squares, scores = np.zeros_like(weights), np.zeros(classes.size, np.float32)
    values, columns = np.append(block.values, np.float32(0)), np.append(block.columns, np.uint32(0))

    def function() -> None:
        program.jobs.process(Process(0, program.elements, 0, 1), arrays, 0)

    def loop() -> None:
        by_hand(block.offsets, columns, values, block.labels, classes, weights, squares, np.float32(rate), scores)

    turns = []
    for _ in range(TURNS + 1):
        weights[:] = squares[:] = 0
        turns.append((processor_seconds(function), processor_seconds(loop)))
    turns = turns[1:]  # the first compiles
    ours, theirs = (statistics.median(seconds) for seconds in zip(*turns, strict=True))
    return {"function_s": ours, "by_hand_s": theirs, "ratio": statistics.median(one / other for one, other in turns)}


def processor_seconds(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def engine(train: Part, rates: Rates, loss: str = "softmax", **options: Any) -> StochasticEngine:
    given = {"loss": loss, "rate": rates[loss], "parallelism": 1} | options
    return StochasticEngine(train.samples, ProgramSpec(target("softmax"), given), workers=1)


def error_of(running: StochasticEngine, name: str, test: Part) -> float:
    """The mean of a function over the samples to test on."""
    values = running.program.jobs.elsewhere(name, test.samples, running.arrays)  # type: ignore[attr-defined]
    return math.fsum(map(math.fsum, values)) / test.samples.rows


def ours(loss: str) -> Contestant:
    """After each pass: seconds of training so far, the error."""

    def run(train: Part, test: Part, rates: Rates) -> Iterator[dict[str, float]]:
        with engine(train, rates, loss) as running:
            seconds = 0.0
            for _ in range(PASSES):
                began = time.perf_counter()
                running.run()
                seconds += time.perf_counter() - began
                yield {"seconds": seconds, "error": error_of(running, "wrong", test)}

    return run


def estimator(loss: str) -> Contestant:
    """The same in this process, as SGDClassifier is used: each pass begins with the matrix."""

    def run(train: Part, test: Part, rates: Rates) -> Iterator[dict[str, float]]:
        from samplers import SoftmaxRegression

        def begin() -> SoftmaxRegression:
            return SoftmaxRegression(loss, rate=rates[loss])

        model, seconds, classes = begin(), 0.0, np.unique(train.y)
        order = np.random.default_rng(0).permutation(train.y.size)
        x, y = train.x[order], train.y[order]
        begin().partial_fit(x[:10], y[:10], classes)  # compiles
        for _ in range(PASSES):
            began = time.perf_counter()
            model.partial_fit(x, y, classes)
            seconds += time.perf_counter() - began
            yield {"seconds": seconds, "error": float(np.mean(model.predict(test.x) != test.y))}

    return run


def all_passes(train: Part, test: Part, rates: Rates) -> Iterator[dict[str, float]]:
    """SGDClassifier told of all passes at once, which is how it is fastest."""
    from sklearn.linear_model import SGDClassifier

    began = time.perf_counter()
    model = SGDClassifier(n_jobs=1, random_state=0, max_iter=PASSES, tol=None).fit(train.x, train.y)
    seconds = time.perf_counter() - began
    yield {"seconds": seconds, "passes": PASSES, "error": float(np.mean(model.predict(test.x) != test.y))}


def vowpal(train: Part, test: Part, rates: Rates) -> Iterator[dict[str, float]]:
    """vowpal-wabbit, one class against the rest, from its own binary cache: its text has been parsed before."""
    from vowpalwabbit import Workspace

    classes = np.unique(train.y)
    told = f"--oaa {classes.size} --loss_function logistic -b 22 --holdout_off --quiet"
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
    yield {"seconds": seconds, "passes": PASSES, "error": float(np.mean(classes[found] != test.y))}


def vowpal_lines(part: Part) -> Iterator[str]:
    """The samples as vowpal-wabbit reads them, without their labels."""
    x = part.x.tocsr()
    for first, last in zip(x.indptr[:-1], x.indptr[1:], strict=True):
        entries = zip(x.indices[first:last].tolist(), x.data[first:last].tolist(), strict=True)
        yield "| " + " ".join(f"{column}:{value:.6g}" for column, value in entries)


def gradient_descent(loss: str) -> Contestant:
    """scikit-learn's SGDClassifier, one class against the rest, with its defaults but for the loss."""

    def run(train: Part, test: Part, rates: Rates) -> Iterator[dict[str, float]]:
        from sklearn.linear_model import SGDClassifier

        model, seconds, classes = SGDClassifier(loss=loss, n_jobs=1, random_state=0), 0.0, np.unique(train.y)
        for _ in range(PASSES):
            began = time.perf_counter()
            model.partial_fit(train.x, train.y, classes)
            seconds += time.perf_counter() - began
            yield {"seconds": seconds, "error": float(np.mean(model.predict(test.x) != test.y))}

    return run


def batch(solver: str) -> Contestant:
    """scikit-learn's LogisticRegression by a solver: where it ends."""

    def run(train: Part, test: Part, rates: Rates) -> Iterator[dict[str, float]]:
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(solver=solver, C=10.0 if train.x.shape[1] > 1000 else 1.0, max_iter=100)
        began = time.perf_counter()
        model.fit(train.x, train.y)
        seconds = time.perf_counter() - began
        yield {"seconds": seconds, "error": float(np.mean(model.predict(test.x) != test.y))}

    return run


CONTESTANTS: dict[str, Contestant] = {
    "ooc": ours("softmax"),
    "ooc, hinge": ours("hinge"),
    "SoftmaxRegression": estimator("softmax"),
    "SoftmaxRegression, hinge": estimator("hinge"),
    "SGDClassifier": gradient_descent("hinge"),
    "SGDClassifier, log loss": gradient_descent("log_loss"),
    "SGDClassifier, all passes": all_passes,
    "saga": batch("saga"),
    "lbfgs": batch("lbfgs"),
    **({"vowpal-wabbit": vowpal} if importlib.util.find_spec("vowpalwabbit") else {}),
}


def contest(name: str, train: Part, test: Part, turns: int) -> dict[str, Any]:
    """All in turn: examples/s of a pass, the best error, seconds to the best error of SGDClassifier."""
    lines: dict[str, list[list[dict[str, float]]]] = {who: [] for who in CONTESTANTS}
    for _ in range(turns):
        for who, run in CONTESTANTS.items():
            print(f"{name}, {who} ...", file=sys.stderr, flush=True)
            lines[who].append(list(run(train, test, RATES[name])))
    found: dict[str, Any] = {}
    for who, runs in lines.items():
        passes = PASSES if len(runs[0]) == PASSES else runs[0][-1].get("passes")
        speeds = [train.y.size * passes / run[-1]["seconds"] for run in runs] if passes else []
        found[who] = {
            "examples_per_s": statistics.median(speeds) if speeds else None,
            "error": min(line["error"] for line in runs[0]),
            "seconds": statistics.median(run[-1]["seconds"] for run in runs),
            "lines": runs[0],
        }
    target = found["SGDClassifier"]["error"]
    for who, runs in lines.items():
        reached = [next((x["seconds"] for x in run if x["error"] <= target), math.inf) for run in runs]
        found[who]["seconds_to_error_of_sgd"] = statistics.median(reached)
    return found


def workers(train: Part, rates: Rates) -> dict[str, Any]:
    """The loss after each pass, of several degrees of parallelism, reweighted and averaged."""
    found = {}
    for degree in DEGREES:
        for strategy in ("reweight", "average") if degree > 1 else ("reweight",):
            rounds = SYNCHRONISATIONS if degree > 1 else 1
            with engine(train, rates, parallelism=degree, strategy=strategy, sync_per_pass=rounds) as running:
                losses = []
                for _ in range(PASSES):
                    running.run()
                    losses.append(running.reduce("loss") / train.samples.rows)
                found[f"{degree} {strategy}"] = losses
    return found


def passes_to(losses: list[float], target: float) -> float:
    """Passes to a loss, interpolated in its logarithm; infinite if it was not reached."""
    for number, loss in enumerate(losses):
        if loss <= target:
            if number == 0:
                return 1.0
            before = losses[number - 1]
            return number + math.log(before / target) / math.log(before / loss)
    return math.inf


def describe(found: dict[str, Any]) -> Iterator[str]:
    for name, result in found["contests"].items():
        rows = [[name, "examples/s", "best test error", "s to SGDClassifier's", "s in all"]]
        for who, told in result.items():
            speed = f"{told['examples_per_s']:,.0f}" if told["examples_per_s"] else ""
            reached = f"{told['seconds_to_error_of_sgd']:.3f}"
            rows.append([who, speed, f"{told['error']:.4f}", reached, f"{told['seconds']:.3f}"])
        yield from table(rows)
        loops = found["loops"][name]
        yield f"the function of a user takes {loops['ratio']:.2f} times as long as a loop by hand"
        yield ""
    for name, degrees in found["workers"].items():
        one = degrees["1 reweight"]
        targets = [one[0], one[PASSES // 4 - 1]]
        rows = [[f"{name}: passes to a loss of", *(f"{target:.4f}" for target in targets), "times one worker's", ""]]
        for who, losses in degrees.items():
            needed = [passes_to(losses, target) for target in targets]
            times = [passes / passes_to(one, target) for passes, target in zip(needed, targets, strict=True)]
            rows.append([who, *(f"{number:.2f}" for number in (*needed, *times))])
        yield from table(rows)
        yield ""


def draw(found: dict[str, Any], directory: Path) -> None:
    """Losses by passes of all degrees, and errors by seconds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    directory.mkdir(parents=True, exist_ok=True)
    for name, degrees in found["workers"].items():
        figure, panel = pyplot.subplots(figsize=(6, 4), layout="constrained")
        for who, losses in degrees.items():
            panel.plot(range(1, PASSES + 1), losses, "--" if "average" in who else "-", label=who)
        panel.set(xlabel="passes", ylabel="loss", yscale="log", title=f"{name}: workers")
        panel.legend(fontsize=7)
        figure.savefig(directory / f"{name.replace(' ', '-')}-workers.png", dpi=150)
    for name, contest in found["contests"].items():
        figure, panel = pyplot.subplots(figsize=(6, 4), layout="constrained")
        for who, told in contest.items():
            seconds, errors = zip(*((line["seconds"], line["error"]) for line in told["lines"]), strict=True)
            panel.plot(seconds, errors, "o-", markersize=3, label=who)
        panel.set(xlabel="seconds", ylabel="test error", xscale="log", title=f"{name}: one thread")
        panel.legend(fontsize=7)
        figure.savefig(directory / f"{name}.png", dpi=150)


def main() -> None:
    args = options()
    facts = machine()
    found: dict[str, Any] = {"contests": {}, "loops": {}, "workers": {}}
    with tempfile.TemporaryDirectory(prefix="ooc-benchmark-") as scratch:
        for name, rates in RATES.items():
            train, test = load(args.data, name, Path(scratch))
            found["loops"][name] = compare_loops(train, rates["softmax"])
            found["contests"][name] = contest(name, train, test, args.turns)
            found["workers"][name] = workers(train, rates)
        found["workers"][SHIFTED] = workers(shifted_digits(args.data, Path(scratch)), {"softmax": SHIFTED_RATE})
    print("\n".join([*describe_machine(facts), *describe(found)]))
    if args.output:
        draw(found, args.output)
    if args.json:
        args.json.write_text(json.dumps({"machine": facts, **found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
