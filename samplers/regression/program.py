"""A Lasso, or an l1 logistic or Poisson regression, on a design matrix: the options that a run stores, and the target,
weights, folds and regressions built from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np

from blocks.design.design import Design
from blocks.design.row_files import read_rows, read_weights
from blocks.design.row_shards import DesignRowShard
from blocks.errors import RequestError
from blocks.files import checksum
from blocks.schemas import Count
from ooc.program import LocalState
from ooc.ring.ring import Ring
from samplers.regression.data.column_moments import column_moments, column_shifts
from samplers.regression.data.design_features import DesignFeatures
from samplers.regression.data.ring_features import RingFeatures
from samplers.regression.path.cross_validation import held_out_weights
from samplers.regression.solver.solver_limit import SolverLimit
from samplers.regression.solver.sparse_regression import SparseRegression
from samplers.regression.solver.working_sets import AHEAD

_OF_COLUMN = 117 + 8 * AHEAD  # bytes that a regression holds per column, of which 8 for each lambda in a pass
_OF_SLOPE = 8  # additional bytes per column if coefficients must be at least 0, for a copy of the slopes
_OF_ROW = 600  # bytes that a regression holds per row
_NEAR_LABELS = 5  # number of names in a message


class RowNumbersFile(NamedTuple):
    """A file of row numbers or weights on which a run depends."""

    path: str
    checksum: str


# {"lambda": L}, or {"ratio": R, "number": N}: R is the ratio of the last of N lambdas to lambda_max.
Levels = TypedDict("Levels", {"lambda": float, "ratio": float, "number": Count}, total=False)


def row_file(path: Path) -> RowNumbersFile:
    """Return the entry of a row file.

    Raises RequestError if the file does not exist.
    """
    if not path.is_file():
        raise RequestError(f"{path}: there is no such file")
    return RowNumbersFile(str(path.resolve()), checksum(path))


@dataclass(eq=False)
class RegressionProgram:
    """A regression of a design's y along a path of lambdas.

    share, intercept, standardize, positive: see `SparseRegression`.
    weights, rows: files; None for all rows with weight 1.
    folds: number of cross-validation folds, or 0.
    """

    design: Design
    loss: str  # "squared", "logistic" or "poisson"
    levels: Levels
    tolerance: float
    share: float
    intercept: bool
    standardize: bool
    unpenalized: Sequence[int]  # column indices
    weights: RowNumbersFile | None
    rows: RowNumbersFile | None
    folds: int
    seed: int
    positive: bool = False

    def local_state(self) -> LocalState:
        """Return no local state: blocks are only read."""
        return LocalState("uint8", 0)

    @property
    def length(self) -> int:
        """Return the number of lambdas."""
        return self.levels.get("number", 1)

    @property
    def regressions(self) -> int:
        return 1 + self.folds

    def bytes(self) -> int:
        """Return the memory in bytes of the regressions, without their working sets."""
        free = 16 * (len(self.unpenalized) + 1) * self.design.rows
        of_column = _OF_COLUMN + (_OF_SLOPE if self.positive else 0)
        each = of_column * self.design.columns + _OF_ROW * self.design.rows + free
        return self.regressions * each

    @cached_property
    def sample_weight(self) -> np.ndarray | None:
        """Return the sample weights, float64 (n,); None if all are 1.

        Raises RequestError if a file has changed.
        """
        if self.weights is None and self.rows is None:
            return None
        found = np.ones(self.design.rows)
        if self.weights:
            found = read_weights(_unchanged(self.weights), self.design.rows)
        if self.rows:
            found = found * read_rows(_unchanged(self.rows), self.design.rows)
        if not found.any():
            raise RequestError("all rows to train on have weight 0", "Choose other --rows or --weights.")
        return found

    @cached_property
    def _labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Return y, float64 (n,), 0 for unused rows; and the classes in ascending order, for a logistic regression."""
        weights = self.sample_weight
        y, used = self.design.y, np.ones(self.design.rows, bool) if weights is None else weights > 0
        if y is None:
            raise RequestError(f"{self.design.path} has no target y", "Ingest it again with --target.")
        if wrong := np.flatnonzero(used & ~np.isfinite(y)).tolist():
            raise RequestError(
                f"y is {y[wrong[0]]} in row {wrong[0] + 1} of {self.design.path}", "Exclude the row with --rows."
            )
        if self.loss != "logistic":
            if np.ptp(y[used]) == 0 and (self.intercept or y[used][0] == 0):
                raise RequestError(f"y is {y[used][0]:g} in all rows", "Choose a target that is not constant.")
            if self.loss == "poisson" and (wrong := np.flatnonzero(used & (y < 0)).tolist()):
                raise RequestError(
                    f"y must be at least 0 for a Poisson regression, but is {y[wrong[0]]:g} in row {wrong[0] + 1} of"
                    f" {self.design.path}",
                    "For other targets use `ooc train lasso`.",
                )
            return np.where(used, y, 0.0), np.empty(0)
        classes, counts = np.unique(y[used], return_counts=True)
        if classes.size != 2:
            found = ", ".join(f"{value:g}" for value in classes[:_NEAR_LABELS])
            found += ", ..." if classes.size > _NEAR_LABELS else ""
            raise RequestError(
                f"y must have 2 values for a logistic regression, got {classes.size}: {found}",
                "For other targets use `ooc train lasso`.",
            )
        if self.folds and counts.min() < 2:
            raise RequestError(
                f"--cross-validate: y is {classes[counts.argmin()]:g} in only one row, so a fold would lack it",
                "Omit --cross-validate.",
            )
        return (used & (y == classes[1])).astype(np.float64), classes

    @property
    def y(self) -> np.ndarray:
        """Return y, float64 (n,), with values 0 and 1 for the classes of a logistic regression."""
        return self._labels[0]

    @property
    def classes(self) -> np.ndarray:
        return self._labels[1]

    @cached_property
    def held_out(self) -> list[np.ndarray]:
        """Return the weights of the held-out rows of each fold, float64 (n,), 0 for all other rows."""
        if not self.folds:
            return []
        every = np.ones(self.design.rows) if self.sample_weight is None else self.sample_weight
        found = held_out_weights(every, self.folds, self.seed, self.y if self.loss == "logistic" else None)
        if self.loss == "poisson" and not all(self.y[every > held_out].any() for held_out in found):
            raise RequestError(
                "--cross-validate: y is 0 in all rows to train on for one of the folds",
                "Choose another --seed, or omit --cross-validate.",
            )
        return found

    def build(
        self, threads: int, room: int, limit: SolverLimit, ring: Ring | None
    ) -> tuple[Sequence[DesignFeatures | RingFeatures], list[SparseRegression]]:
        """Return the regression on all rows, followed by a regression on the training rows of each fold, each with its
        own features.

        room: bytes for the columns of all working sets.
        limit: limit shared by all regressions.
        ring: ranks that solve together, each with its shard, one regression after the other.
        """
        every = np.ones(self.design.rows) if self.sample_weight is None else self.sample_weight
        weights = [self.sample_weight, *(every - held_out for held_out in self.held_out)]
        factors = np.ones(self.design.columns) if self.unpenalized else None
        if factors is not None:
            factors[list(self.unpenalized)] = 0.0
        features: list[DesignFeatures | RingFeatures]
        keeps, all_moments = self.regressions == 1, column_moments(self.design, weights, threads, ring)
        if ring and isinstance(self.design, DesignRowShard):
            features = [RingFeatures(self.design, ring, threads, room, keeps=keeps) for _ in weights]
        else:
            at_once = min(threads, self.regressions)
            each = threads // at_once, room // at_once
            scaled = [
                self.loss != "squared"
                or of_rows is not None
                or column_shifts(self.design.offsets, moments, intercept=self.intercept) is not None
                for of_rows, moments in zip(weights, all_moments, strict=True)
            ]
            features = [DesignFeatures(self.design, *each, limit, keeps=keeps, scaled=one) for one in scaled]
        regressions = [
            SparseRegression(
                own,
                self.y,
                self.loss,
                weights=of_rows,
                intercept=self.intercept,
                standardize=self.standardize,
                share=self.share,
                factors=factors,
                moments=moments,
                positive=self.positive,
            )
            for own, of_rows, moments in zip(features, weights, all_moments, strict=True)
        ]
        for one in regressions:
            one.regression.limit = limit
        return features, regressions


def _unchanged(file: Sequence[str]) -> str:
    path, before = file
    if not Path(path).is_file() or checksum(Path(path)) != before:
        raise RequestError(f"{path} has changed since the run was started", "Restore the file, or train a new run.")
    return path
