"""Show why samples are reweighted, by the seven solutions in figure 1 of the Splash paper: python examples/toy.py
[figure1.png]

Stochastic gradient descent looks for the point with the smallest weighted distance to 3,000 points of a plane: with one
thread, and with 30 threads that see 100 points each.
"""

import math
import sys
import tempfile
from pathlib import Path

import numpy as np

from blocks import write_samples
from ooc import ProgramSpec, Shared, StochasticEngine, StochasticProgram

POINTS, WORKERS = 3000, 30
SCALES = np.array([1.0, 0.01])  # weights of the distance along each axis


class Nearest(StochasticProgram):
    def shared_variables(self):
        return {"w": Shared((2,)), "t": Shared()}

    def first_values(self):
        return {"w": -1.0}

    def constants(self):
        return {"scales": SCALES}

    @staticmethod
    def process(element, weight, shared, local):
        shared.t.add(weight)
        step = weight / math.sqrt(shared.t.get())
        for axis in range(2):
            shared.w.add(axis, step * 2 * shared.scales[axis] * (element.values[axis] - shared.w.get(axis)))

    @staticmethod
    def loss(element, shared, local):
        total = 0.0
        for axis in range(2):
            total += shared.scales[axis] * (element.values[axis] - shared.w.get(axis)) ** 2
        return total


def solutions(samples, points):
    """Return the seven solutions, each float64 (n, 2), by the names that the paper has for them."""
    found = {"a: exact": points.mean(axis=0, keepdims=True)}
    for parallelism, strategy, name in (
        (1, "reweight", "b: one thread"),
        (WORKERS, "average", "d: average of c"),
        (WORKERS, "accumulate", "e: sum of c"),
        (WORKERS, "reweight", "g: average of f (Splash)"),
    ):
        spec = ProgramSpec("toy:Nearest", {"parallelism": parallelism, "strategy": strategy})
        with StochasticEngine(samples, spec, workers=2) as engine:
            engine.run()
            found[name] = engine.variables()["w"][None]
            if strategy == "average":
                found["c: workers, weight 1"] = engine.solutions("w")
            if strategy == "reweight" and parallelism > 1:
                found[f"f: workers, weight {WORKERS}"] = engine.solutions("w")
    return dict(sorted(found.items()))


def plot(found, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 5))
    for (name, places), marker in zip(found.items(), "*s..vPo", strict=True):
        axes.plot(*places.T, marker, label=name, markersize=4 if len(places) > 1 else 9)
    axes.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), xlabel="w1", ylabel="w2")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    points = np.random.default_rng(0).normal(size=(POINTS, 2)).astype(np.float32)
    with tempfile.TemporaryDirectory() as directory:
        offsets, axes = np.arange(POINTS + 1) * 2, np.tile([0, 1], POINTS)
        samples = write_samples(Path(directory) / "points", offsets, axes, points.reshape(-1), np.zeros(POINTS))
        found = solutions(samples, points)
    for name, places in found.items():
        loss = (SCALES * (places[:, None] - points) ** 2).sum(axis=2).mean()
        print(f"{name:28} mean {places.mean(axis=0).round(3)}, spread {places.std(axis=0).round(3)}, loss {loss:.4f}")
    if len(sys.argv) > 1:
        plot(found, sys.argv[1])
