"""Multi-class regression by stochastic gradient descent, as a program of the stochastic engine (Splash, section 6.1).

The scores of a sample x are w_k . x + b_k for each class k. Losses: "softmax", minus the logarithm of the softmax at
the label; "hinge" and "squared" are one-vs-rest losses, summed over classes, with targets 1 and -1.

Learning rates follow AdaGrad (Duchi, Hazan and Singer 2011): rate / sqrt(delta + sum of squared gradients), for each
weight. Without delta the first step would be as long for a gradient of 0.001 as for a gradient of 1, and rare words
would get large weights at once. A sample of weight m counts as m samples with the same gradient. The penalty
regularization / 2 * |w|^2 for each sample is applied as one multiplication of all weights, with learning rate rate /
sqrt(t) after t samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks.compiled import inlined_kernel, reordered_inlined_kernel
from blocks.errors import RequestError
from blocks.samples.samples import MOST_LABELS, Samples
from ooc.program import Arrays, Sweep
from ooc.stochastic.program import Local, StochasticProgram
from ooc.stochastic.variable_arrays import Shared, committed_specs
from samplers.regression.softmax.model import write_softmax

LOSSES = ("softmax", "hinge", "squared")
_VECTOR = 8  # number of floats in a SIMD vector
_AHEAD = 8  # number of entries whose rows are prefetched ahead
_CACHED = 1 << 20  # size in bytes of a table that stays in a core's cache without prefetching
FIRST_SQUARES = np.float32(1.0)  # delta, for the gradients of the loss with respect to the weights of a column


def check_rates(rate: float, regularization: float) -> None:
    """Raise RequestError unless the learning rate and the regularization are valid."""
    if not 0 < rate < math.inf:
        raise RequestError(f"--rate must be a finite number above 0, got {rate:g}")
    if not 0 <= regularization < math.inf:
        raise RequestError(f"--regularization must be a finite number of at least 0, got {regularization:g}")


def width_of(classes: int) -> int:
    """Return the number of floats in a row, padded with zeros so that loops consist of whole vectors."""
    return classes if classes < _VECTOR else -(-classes // _VECTOR) * _VECTOR


def shared_variables(columns: int, classes: int) -> dict[str, Shared]:
    """Return the shared variables; the last row of each table belongs to the intercepts."""
    rows = columns + 1, width_of(classes)
    return {"weights": Shared(rows, "float32"), "squares": Shared(rows, "float32"), "t": Shared()}


def shared_constants(
    columns: int, labels: np.ndarray, *, kind: int, rate: float, regularization: float
) -> dict[str, Any]:
    """Return the constants.

    labels: float64 (K,), ascending.
    kind: index of the loss in LOSSES. `ahead` is 0 where prefetching rows would cost more than it saves.
    """
    table = committed_specs("weights", shared_variables(columns, labels.size)["weights"])["weights"]
    return {
        "kind": kind,
        "rate": np.float32(rate),
        "shrinkage": rate * regularization,
        "labels": labels,
        "intercepts": columns,
        "ahead": _AHEAD if table.bytes > _CACHED else 0,
    }


class SoftmaxProgram(StochasticProgram):
    """Stochastic program of a multi-class linear model.

    loss: one of LOSSES.
    rate: initial learning rate.
    regularization: L2 penalty per sample. See `StochasticProgram`.
    """

    maps: Sequence[str] = ("wrong",)

    def __init__(
        self, dataset: Samples, *, loss: str = "softmax", rate: float = 0.5, regularization: float = 0.0, **options: Any
    ) -> None:
        if loss not in LOSSES:
            raise RequestError(f"--loss: unknown loss {loss!r}", f"Choose one of: {', '.join(LOSSES)}.")
        check_rates(rate, regularization)
        self.kind, self.rate, self.regularization = LOSSES.index(loss), rate, regularization
        self.labels = np.array(dataset.index.labels)
        if self.labels.size < 2:
            told = "1" if self.labels.size else f"more than {MOST_LABELS:,}"
            raise RequestError(f"{dataset.path} must have 2 to {MOST_LABELS:,} distinct labels, got {told}")
        super().__init__(dataset, **options)

    def shared_variables(self) -> dict[str, Shared]:
        return shared_variables(self.dataset.columns, self.labels.size)

    def local_variables(self) -> dict[str, Local]:
        work = Local((width_of(self.labels.size),), "float32", per="work")
        return {"scores": work}

    def constants(self) -> dict[str, Any]:
        rates = {"rate": self.rate, "regularization": self.regularization}
        return shared_constants(self.dataset.columns, self.labels, kind=self.kind, **rates)

    @staticmethod
    def process(element, weight, shared, local):
        if not find_gradients(element, shared, local)[1]:
            return
        if shared.shrinkage:
            shared.t.add(weight)
            shared.weights.multiply(max(1.0 - shared.shrinkage * weight / math.sqrt(shared.t.get()), 0.1))
        last = element.columns.size - 1
        for entry in range(element.columns.size):
            if shared.ahead:
                shared.squares.prefetch(element.columns[min(entry + shared.ahead, last)])
            step(element.columns[entry], element.values[entry], weight, shared, local.scores)
        step(shared.intercepts, np.float32(1.0), weight, shared, local.scores)

    @staticmethod
    def loss(element, shared, local):
        return find_gradients(element, shared, local)[0]

    @staticmethod
    def wrong(element, shared, local):
        score(element, shared, local)
        best = 0
        for k in range(shared.labels.size):
            if local.scores[k] > local.scores[best]:
                best = k
        return 1.0 if shared.labels[best] != element.label else 0.0

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        wrong = math.fsum(math.fsum(some) for some in self.values("wrong", sweep))
        return {**super().measure(sweep, shared), "error": wrong}

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        found = super().objective(sums, shared)
        if self.regularization:
            weights = shared["weights"][:-1]
            squares = float(np.einsum("ij,ij->", weights, weights, dtype=np.float64))
            found["objective"] += 0.5 * self.regularization * squares
        return found

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        table, loss = shared["weights"][:, : self.labels.size], LOSSES[self.kind]
        weights, intercepts = np.ascontiguousarray(table[:-1].T), table[-1]
        write_softmax(directory, self.dataset, loss=loss, weights=weights, intercepts=intercepts, labels=self.labels)


@inlined_kernel
def class_of(label, labels):
    """Return the index of a label among all labels, float64 (K,), ascending."""
    first, last = 0, labels.size
    while first + 1 < last:
        middle = (first + last) // 2
        if labels[middle] <= label:
            first = middle
        else:
            last = middle
    return first


@reordered_inlined_kernel
def score(element, shared, local):
    """Set `local.scores` to the scores of a sample."""
    scores = local.scores
    shared.weights.get_row(shared.intercepts, scores)
    last = element.columns.size - 1
    for entry in range(element.columns.size):
        if shared.ahead:
            shared.weights.prefetch(element.columns[min(entry + shared.ahead, last)])
        weights, value = shared.weights.row_view(element.columns[entry]), element.values[entry]
        for k in range(scores.size):
            scores[k] += value * weights.get(k)


@inlined_kernel
def find_gradients(element, shared, local):
    """Set `local.scores` to the gradients of the loss of a sample with respect to its scores; returns the result of
    `turn_to_gradients`.
    """
    score(element, shared, local)
    label = class_of(element.label, shared.labels)
    return turn_to_gradients(shared.kind, label, local.scores[: shared.labels.size])


@inlined_kernel
def turn_to_gradients(kind, label, scores):
    """Replace scores by the gradients of the loss; returns the loss, and whether any gradient is nonzero."""
    if kind == 0:
        return softmax_gradients(label, scores), True
    loss, any_ = 0.0, False
    for k in range(scores.size):
        target = np.float32(1.0) if k == label else np.float32(-1.0)
        if kind == 1:
            margin = target * scores[k]
            loss += max(np.float32(0.0), np.float32(1.0) - margin)
            scores[k] = -target if margin < 1 else np.float32(0.0)
        else:
            scores[k] -= target
            loss += 0.5 * scores[k] * scores[k]
        any_ = any_ or scores[k] != 0
    return loss, any_


@inlined_kernel
def softmax_gradients(label, scores):
    """Replace scores by the gradients of the softmax loss; returns the loss."""
    largest = scores[0]
    for k in range(1, scores.size):
        largest = max(largest, scores[k])
    of_label, total = scores[label] - largest, np.float32(0.0)
    for k in range(scores.size):
        scores[k] = math.exp(scores[k] - largest)
        total += scores[k]
    share = np.float32(1.0) / total
    for k in range(scores.size):
        scores[k] *= share
    scores[label] -= np.float32(1.0)
    return math.log(total) - of_label


@reordered_inlined_kernel
def step(column, value, weight, shared, gradients):
    """Update the weights of all classes for one column, or the intercepts.

    Compiled with reordering, since the processor's reciprocal square root takes half as long as a root and a division.
    """
    squares, weights = shared.squares.row_view(column), shared.weights.row_view(column)
    times = np.float32(weight)
    rate = -shared.rate * times
    for k in range(gradients.size):
        gradient = value * gradients[k]
        squares.add(k, times * gradient * gradient)
        weights.add(k, rate * gradient / np.sqrt(squares.get(k) + FIRST_SQUARES))
