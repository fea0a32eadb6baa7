"""Columns without a penalty, the intercept among them: an orthonormal basis, and their best coefficients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_DEPENDENT = 1e-9  # of a column's norm: if no more is left beside those before it, it depends on them


class FreeColumns(NamedTuple):
    """k columns, of which r do not depend on those before them. All float64."""

    basis: np.ndarray  # (r, n), orthonormal
    triangle: np.ndarray  # (r, k), their inner products with the columns
    kept: np.ndarray  # int64 (r,), which do not depend on those before them

    def coefficients(self, target: np.ndarray) -> np.ndarray:
        """Those that come nearest to the target, float64 (n,); 0 of columns that depend on others."""
        found = np.zeros(self.triangle.shape[1])
        if self.kept.size:
            found[self.kept] = np.linalg.solve(self.triangle[:, self.kept], self.basis @ target)
        return found


def orthonormal(columns: np.ndarray) -> FreeColumns:
    """Those of columns, float64 (k, n), by Gram and Schmidt, twice for each."""
    basis, kept = np.empty((0, columns.shape[1])), []
    for number, column in enumerate(columns):
        left = column - basis.T @ (basis @ column)
        left -= basis.T @ (basis @ left)
        norm = np.linalg.norm(left)
        if norm > _DEPENDENT * np.linalg.norm(column):
            basis = np.vstack([basis, left / norm])
            kept.append(number)
    return FreeColumns(basis, basis @ columns.T, np.array(kept, np.int64))
