"""Predict the classes of samples, block by block."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from blocks.compiled import kernel
from blocks.errors import RequestError
from blocks.number_spool import NumberSpool
from blocks.samples.samples import Samples
from samplers.regression.softmax.model import SoftmaxModel
from samplers.regression.softmax.program import LOSSES, turn_to_gradients

_NUMBERS = 1 << 20  # number of scores computed at a time


class ScoredSamples(NamedTuple):
    """Some samples of a block: indices, uint64 (n,), labels, float64 (n,), and scores, float32 (n, K)."""

    numbers: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


def scored(model: SoftmaxModel, samples: Samples) -> Iterator[ScoredSamples]:
    """Yield the scores of all samples in stored order.

    Raises RequestError unless the columns match those of the model.
    """
    if samples.columns != model.columns:
        raise RequestError(
            f"{samples.path} has {samples.columns:,} columns, but the model has {model.columns:,}",
            "Ingest it again with --columns-from and the training samples.",
        )
    weights, intercepts = np.ascontiguousarray(model.arrays["weights"].T), model.arrays["intercepts"]
    for number in range(samples.block_count):
        block = samples.block(number)
        for some in runs(block.labels.size, intercepts.size):
            scores = np.tile(intercepts, (some.stop - some.start, 1))
            add_products(block.offsets[some.start : some.stop + 1], block.columns, block.values, weights, scores)
            yield ScoredSamples(block.rows[some], block.labels[some], scores)


def runs(rows: int, classes: int) -> Iterator[slice]:
    """Yield ranges of rows with a limited number of scores each."""
    step = max(_NUMBERS // classes, 1)
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))


@kernel
def add_products(offsets, columns, values, weights, scores):
    """Add the products of samples with weights, float32 (p, K), to their scores, float32 (D, K)."""
    for row in range(scores.shape[0]):
        for entry in range(offsets[row], offsets[row + 1]):
            of_column, value = weights[columns[entry]], values[entry]
            for k in range(of_column.size):
                scores[row, k] += value * of_column[k]


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Return the softmax of scores (n, K), as float64."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True), dtype=np.float64)
    return powers / powers.sum(axis=1, keepdims=True)


def write_classes(model: SoftmaxModel, samples: Samples, out: TextIO, directory: Path) -> None:
    """Write one line per sample in original order, numbered from 1: its class, and with the softmax loss the
    probability of each class.

    directory: where to create temporary files.
    """
    numbers, softmax = [], model.loss == "softmax"
    names = [np.format_float_positional(label, trim="-") for label in model.arrays["labels"]]
    with NumberSpool(directory, "float32") as spool:
        for some in scored(model, samples):
            numbers.append(some.numbers)
            spool.add(some.scores)
        scores, order = spool.mapped(-1, len(names)), np.argsort(np.concatenate(numbers))
    writer = csv.writer(out)
    writer.writerow(["row", "class", *(f"probability of {name}" for name in names if softmax)])
    for run in runs(order.size, len(names)):
        mine = scores[order[run]]
        told = probabilities(mine).tolist() if softmax else [[]] * len(mine)
        for number, best, each in zip(count(run.start + 1), mine.argmax(axis=1).tolist(), told, strict=False):
            writer.writerow([number, names[best], *(f"{one:.9g}" for one in each)])


def evaluate_softmax(model: SoftmaxModel, samples: Samples) -> dict[str, float]:
    """Return the error rate and the mean loss.

    Raises RequestError for an unknown label.
    """
    labels, losses, wrong = model.arrays["labels"], [], 0
    for some in scored(model, samples):
        places = np.minimum(np.searchsorted(labels, some.labels), labels.size - 1)
        unknown = some.labels[labels[places] != some.labels]
        if unknown.size:
            raise RequestError(f"{samples.path} has the label {unknown[0]:g}, which {model.path} was not trained on")
        wrong += int(np.count_nonzero(some.scores.argmax(axis=1) != places))
        found = np.empty(places.size)
        losses_of(LOSSES.index(model.loss), places, some.scores, found)
        losses.append(math.fsum(found))
    return {"samples": samples.rows, "error": wrong / samples.rows, "loss": math.fsum(losses) / samples.rows}


@kernel
def losses_of(kind, places, scores, found):
    """Set the losses of samples, float64 (n,), given class indices, int64 (n,); overwrites the scores, float32
    (n, K).
    """
    for row in range(found.size):
        found[row] = turn_to_gradients(kind, places[row], scores[row])[0]
