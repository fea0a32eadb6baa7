"""Unpenalized columns, including the intercept: an orthonormal basis, and their least-squares coefficients."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.vectors import inner_product, project_out

DEPENDENT = 1e-9  # relative to a column's norm: a column with a smaller remainder depends on the columns before it


class UnpenalizedColumns(NamedTuple):
    """k columns of rank r. All arrays are float64 unless stated."""

    basis: np.ndarray  # (r, n), orthonormal
    triangle: np.ndarray  # (k, k), inner products of the basis and the kept columns, in the first r rows
    kept: np.ndarray  # int64 (r,), the columns that do not depend on those before them

    def coefficients(self, target: np.ndarray) -> np.ndarray:
        """Return the least-squares coefficients for a target, float64 (n,); 0 for dependent columns."""
        found = np.zeros(len(self.triangle))
        find_coefficients(self, self.kept.size, target, found)
        return found


def room_for_free(columns: np.ndarray) -> UnpenalizedColumns:
    """Return uninitialized arrays for the basis of columns, float64 (k, n), to be filled by `orthonormalise`; they have
    k rows, since the rank is unknown.
    """
    count = len(columns)
    return UnpenalizedColumns(np.empty(columns.shape), np.zeros((count, count)), np.empty(count, np.int64))


def orthonormal(columns: np.ndarray) -> UnpenalizedColumns:
    """Return an orthonormal basis of columns, float64 (k, n)."""
    free = room_for_free(columns)
    rank = orthonormalise(columns, np.ones(columns.shape[1]), free)
    return UnpenalizedColumns(free.basis[:rank], free.triangle, free.kept[:rank])


@reordered_kernel
def orthonormalise(columns, factors, free):
    """Compute the basis of columns, float64 (k, n), whose rows are scaled by factors, float64 (n,); returns the rank.

    Applies Gram-Schmidt twice to each column.
    """
    rank = 0
    for number in range(len(columns)):
        left = free.basis[rank]
        for i in range(left.size):
            left[i] = columns[number, i] * factors[i]
        length = math.sqrt(inner_product(left, left))
        for _ in range(2):
            project_out(free.basis[:rank], left)
        norm = math.sqrt(inner_product(left, left))
        if norm > DEPENDENT * length:
            for i in range(left.size):
                left[i] /= norm
            free.kept[rank] = number
            rank += 1
    for r in range(rank):
        axis = free.basis[r]
        for c in range(r, rank):
            column, total = columns[free.kept[c]], 0.0
            for i in range(axis.size):
                total += axis[i] * column[i] * factors[i]
            free.triangle[r, c] = total
    return rank


@reordered_kernel
def find_coefficients(free, rank, target, found):
    """Compute the least-squares coefficients for a target, float64 (n,), from a basis of the given rank.

    found: float64 (k,), set; 0 for dependent columns.
    """
    for r in range(rank - 1, -1, -1):
        total = inner_product(free.basis[r], target)
        for c in range(r + 1, rank):
            total -= free.triangle[r, c] * found[free.kept[c]]
        found[free.kept[r]] = total / free.triangle[r, r]
