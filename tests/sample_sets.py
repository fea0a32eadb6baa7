"""Labelled samples drawn from a model, and readers of sample datasets."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blocks.samples.ingestion import write_samples
from blocks.samples.samples import Samples


def drawn(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples, float32 (n, 12), about half of them 0, with labels 0, 2, 5 by a linear rule plus noise."""
    random = np.random.default_rng(seed)
    rule = np.random.default_rng(0).normal(size=(12, 3))
    x = (random.normal(size=(count, 12)) * (random.random((count, 12)) < 0.5)).astype(np.float32)
    return x, np.array([0.0, 2.0, 5.0])[(x @ rule + random.gumbel(size=(count, 3)) / 2).argmax(axis=1)]


def samples_of(path: Path, x: np.ndarray, labels: np.ndarray, spacing: int = 1) -> Samples:
    """Write samples as a dataset.

    spacing: distance between the columns that have values.
    """
    offsets, columns = np.concatenate(([0], np.cumsum((x != 0).sum(axis=1)))), spacing * np.nonzero(x)[1]
    return write_samples(path, offsets, columns, x[x != 0], labels, width=spacing * x.shape[1], block_entries=800)


def read_back(samples: Samples) -> list[tuple[float, dict[int, float]]]:
    """Return the samples in their original order."""
    found = {}
    for number in range(samples.block_count):
        block = samples.block(number)
        for row, original in enumerate(block.rows.tolist()):
            mine = slice(*block.offsets[row : row + 2])
            entries = zip(block.columns[mine].tolist(), block.values[mine].tolist(), strict=True)
            found[original] = (float(block.labels[row]), dict(entries))
    return [found[number] for number in range(len(found))]
