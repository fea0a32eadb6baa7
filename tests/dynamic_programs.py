"""User programs of the dynamic engine for tests, written to a directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from designs import ingested, write

from blocks import Design

MORE = '''
import math

import numpy as np
from ooc import DynamicProgram, Field


class Logistic(DynamicProgram):
    """l1-regularised logistic regression, whose pulls are derived from the scores."""

    penalty: float

    b = Field("column", initial=0.5)
    score = Field("row")
    pull = Field("row", derived=True)
    y = Field("row")

    sums = 2

    def initialize(self, shared):
        super().initialize(shared)
        shared["y"][:] = np.where(self.dataset.y > 0, 1, -1)

    @staticmethod
    def derive(row, shared):
        return row.y / (1 + math.exp(row.y * row.score))

    @staticmethod
    def update(x, row, sums, shared):
        sums[0] += x * row.pull
        sums[1] += x * x / 4

    @staticmethod
    def aggregate(sums, column, shared):
        goal = column.b + sums[0] / sums[1]
        return math.copysign(max(abs(goal) - shared.penalty / sums[1], 0), goal)

    def objective(self, shared):
        losses = np.logaddexp(0, -shared["y"] * shared["score"])
        return {"objective": losses.sum() + self.penalty * np.abs(shared["b"]).sum(), "worst": losses.max()}


class MultiTask(DynamicProgram):
    """Several targets, which have a column in common or not (Obozinski et al., 2010), and a priority of its own."""

    penalty: float
    tasks: int = 3
    targets: str = ""

    b = Field("column", "tasks")
    residual = Field("row", "tasks")
    squares = Field("column")

    sums = "tasks"

    def initialize(self, shared):
        shared["residual"][:] = -np.load(self.targets)
        shared["squares"][:] = self.dataset.norms**2

    @staticmethod
    def update(x, row, sums, shared):
        for task in range(sums.size):
            sums[task] += x * row.residual[task]

    @staticmethod
    def aggregate(sums, column, shared):
        goal = column.b - sums / column.squares
        norm = np.sqrt((goal**2).sum())
        column.b[:] = goal * max(1 - shared.penalty / (column.squares * norm), 0)

    @staticmethod
    def priority(before, column, shared):
        return np.abs(column.b - before).max()

    def objective(self, shared):
        norms = np.sqrt((shared["b"] ** 2).sum(axis=1))
        return (shared["residual"] ** 2).sum() / 2 + self.penalty * norms.sum()
'''


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the dense design `small`, the sparse design `wide` with enough columns for overlapping rounds, and the
    module `more`.
    """
    path, random = tmp_path_factory.mktemp("made"), np.random.default_rng(0)
    for name, rows, columns, share in (("small", 120, 20, 1.0), ("wide", 300, 320, 0.1)):
        x = random.normal(size=(rows, columns)) * (random.random((rows, columns)) < share)
        y = x @ (random.normal(size=columns) * (random.random(columns) < 0.3)) + random.normal(size=rows)
        (path / f"{name}-files").mkdir()
        source, options = write("npz-C", x, y, path / f"{name}-files")
        ingested("npz", source, path / name, block_bytes=3000, **options)
    assert Design(path / "small").dense and not Design(path / "wide").dense
    (path / "more.py").write_text(MORE)
    return path
