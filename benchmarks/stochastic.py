"""Benchmark the stochastic engine: speed of compiled functions, classification beside scikit-learn, and the effect of
many workers.

    python -m benchmarks.stochastic DATA [--output DIR] [--json FILE]

DATA has 20news.train.svm.gz and 20news.test.svm.gz, and the digits t10k-images-idx3-ubyte.gz and
t10k-labels-idx1-ubyte.gz. All on one thread. With --output figures are drawn. Peers: scikit-learn, and vowpal-wabbit if
it is installed. Degrees of parallelism are compared on these, and on 648,000 digits of 7 x 7 pixels: each of four in
five, shifted up to four pixels each way before pixels are merged. That is many samples for each weight and worker, as
in the paper; workers synchronize five times a pass, as there. How rates are chosen: benchmarks.stochastic_contest.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import describe_machine, machine, table
from benchmarks.stochastic_contest import PASSES, YARDSTICK, contest, engine
from benchmarks.stochastic_data import SampleSubset, load, shifted_digits
from blocks.compiled import reordered_kernel
from ooc.stochastic.pass_tasks import ProcessElements
from samplers.regression.softmax.program import FIRST_SQUARES, SoftmaxProgram, class_of, turn_to_gradients

DEGREES = (1, 4, 16, 64)
SYNCHRONISATIONS = 5  # of a pass with several workers
SHIFTED = "shifted digits"
RATES = {"20news": 0.5, "digits": 0.05, SHIFTED: 0.1}  # of what is compared with a loop, and with more workers
TURNS = 9  # of the compiled function and the loop by hand


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.stochastic", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("data", type=Path, help="the directory of the data")
    add("--output", type=Path, help="draw figures into this directory")
    add("--json", type=Path, help="write the numbers there")
    add("--turns", type=int, default=5, help="of all contestants, each in another order")
    return parser.parse_args()


@reordered_kernel
def by_hand(offsets, columns, values, labels, classes, weights, squares, rate, scores):
    """Run a pass of AdaGrad over samples in a hand-written loop; all arrays are changed in place."""
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


def compare_loops(train: SampleSubset, rate: float) -> dict[str, float]:
    """Return the processor seconds per pass of the engine's compiled function and of the hand-written loop, and the
    median of their ratio.
    """
    program = SoftmaxProgram(train.samples, parallelism=1, rate=rate)
    arrays = {name: np.zeros(spec.shape, spec.dtype) for name, spec in program.shared_arrays().items()}
    block, classes = train.samples.block(0), np.array(train.samples.index.labels)
    weights = np.zeros((train.samples.columns + 1, classes.size), np.float32)
    squares, scores = np.zeros_like(weights), np.zeros(classes.size, np.float32)
    values, columns = np.append(block.values, np.float32(0)), np.append(block.columns, np.uint32(0))

    def function() -> None:
        program.jobs.process(ProcessElements(0, program.elements, 0, 1), arrays, 0)

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


def workers(train: SampleSubset, rate: float) -> dict[str, Any]:
    """Return the loss after each pass for several degrees of parallelism, with reweighting and with averaging."""
    found = {}
    for degree in DEGREES:
        for strategy in ("reweight", "average") if degree > 1 else ("reweight",):
            rounds = SYNCHRONISATIONS if degree > 1 else 1
            with engine(train, rate=rate, parallelism=degree, strategy=strategy, sync_per_pass=rounds) as running:
                losses = []
                for _ in range(PASSES):
                    running.run()
                    losses.append(running.reduce("loss") / train.samples.rows)
                found[f"{degree} {strategy}"] = losses
    return found


def passes_to(losses: list[float], target: float) -> float:
    """Return the number of passes to a loss, interpolated in its logarithm; infinity if it was not reached."""
    for number, loss in enumerate(losses):
        if loss <= target:
            if number == 0:
                return 1.0
            before = losses[number - 1]
            return number + math.log(before / target) / math.log(before / loss)
    return math.inf


def describe(found: dict[str, Any]) -> Iterator[str]:
    for name, result in found["contests"].items():
        goal = result[YARDSTICK]["error"]
        rows = [[name, "value", "passes", "examples/s", "test error", "+-", "s", f"s to {goal:.4f}"]]
        for who, told in result.items():
            speed = f"{told['examples_per_s']:,.0f}" if told["examples_per_s"] else ""
            chosen = [who, f"{told['value']:g}", str(told["passes"] or ""), speed]
            errors = [f"{told['error']:.4f}", f"{told['deviation']:.4f}"]
            rows.append([*chosen, *errors, f"{told['seconds']:.3f}", f"{told['seconds_to_goal']:.3f}"])
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
    """Plot losses against passes for all degrees, and errors against seconds."""
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
    for name, contestants in found["contests"].items():
        figure, panel = pyplot.subplots(figsize=(6, 4), layout="constrained")
        for who, told in contestants.items():
            panel.plot(*zip(*told["curve"], strict=True), "o-", markersize=3, label=who)
        panel.set(xlabel="seconds", ylabel="test error", xscale="log", title=f"{name}: one thread")
        panel.legend(fontsize=7)
        figure.savefig(directory / f"{name}.png", dpi=150)


def main() -> None:
    args = options()
    facts = machine()
    found: dict[str, Any] = {"contests": {}, "loops": {}, "workers": {}}
    with tempfile.TemporaryDirectory(prefix="ooc-benchmark-") as scratch:
        directory = Path(scratch)
        for name in ("20news", "digits"):
            train, test = load(args.data, name)
            written = train.written(directory / name)
            found["loops"][name] = compare_loops(written, RATES[name])
            found["contests"][name] = contest(name, train, test, args.turns, directory)
            found["workers"][name] = workers(written, RATES[name])
        found["workers"][SHIFTED] = workers(shifted_digits(args.data).written(directory / "shifted"), RATES[SHIFTED])
    print("\n".join([*describe_machine(facts), *describe(found)]))
    if args.output:
        draw(found, args.output)
    if args.json:
        args.json.write_text(json.dumps({"machine": facts, **found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
