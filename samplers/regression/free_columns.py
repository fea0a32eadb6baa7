"""Columns without a penalty, the intercept among them: an orthonormal basis, and their best coefficients."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from samplers.regression.vectors import inner, products, project

DEPENDENT = 1e-9  # of a column's norm: if no more is left beside those before it, it depends on them


class FreeColumns(NamedTuple):
    """k columns, of which r do not depend on those before them. All float64."""

    basis: np.ndarray  # (r, n), orthonormal
    triangle: np.ndarray  # (r, k), their inner products with the columns
    kept: np.ndarray  # int64 (r,), which do not depend on those before them

    def coefficients(self, target: np.ndarray) -> np.ndarray:
        """Those that come nearest to the target, float64 (n,); 0 of columns that depend on others."""
        found = np.zeros(self.triangle.shape[1])
        if self.kept.size:
            found[self.kept] = _solved(self.triangle[:, self.kept], products(self.basis, target))
        return found


def orthonormal(columns: np.ndarray) -> FreeColumns:
    """Those of columns, float64 (k, n), by Gram and Schmidt, twice for each."""
    basis, kept = np.empty((0, columns.shape[1])), []
    for number, column in enumerate(columns):
        left = column.copy()
        project(basis, left)
        project(basis, left)
        norm = math.sqrt(inner(left, left))
        if norm > DEPENDENT * math.sqrt(inner(column, column)):
            basis = np.vstack([basis, left / norm])
            kept.append(number)
    triangle = np.array([products(columns, axis) for axis in basis]).reshape(len(basis), len(columns))
    return FreeColumns(basis, triangle, np.array(kept, np.int64))


def _solved(triangle: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """x of triangle x = wanted, (r,), what is below the diagonal of the triangle, (r, r), being 0."""
    found = np.zeros(wanted.size)
    for i in reversed(range(found.size)):
        found[i] = (wanted[i] - inner(triangle[i, i + 1 :], found[i + 1 :])) / triangle[i, i]
    return found
