"""Columns without a penalty, the intercept among them: an orthonormal basis, and their best coefficients."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.vectors import inner, project

DEPENDENT = 1e-9  # of a column's norm: if no more is left beside those before it, it depends on them


class FreeColumns(NamedTuple):
    """k columns, of which r do not depend on those before them. All float64, but for what is said."""

    basis: np.ndarray  # (r, n), orthonormal
    triangle: np.ndarray  # (k, k), inner products of the basis and the columns that are kept, in the first r rows
    kept: np.ndarray  # int64 (r,), which do not depend on those before them

    def coefficients(self, target: np.ndarray) -> np.ndarray:
        """Those that come nearest to the target, float64 (n,); 0 of columns that depend on others."""
        found = np.zeros(len(self.triangle))
        find_coefficients(self, self.kept.size, target, found)
        return found


def room_for_free(columns: np.ndarray) -> FreeColumns:
    """Arrays for those of columns, float64 (k, n), which `orthonormalise` is to find: of k rows, as r is not known."""
    count = len(columns)
    return FreeColumns(np.empty(columns.shape), np.zeros((count, count)), np.empty(count, np.int64))


def orthonormal(columns: np.ndarray) -> FreeColumns:
    """Those of columns, float64 (k, n)."""
    free = room_for_free(columns)
    rank = orthonormalise(columns, np.ones(columns.shape[1]), free)
    return FreeColumns(free.basis[:rank], free.triangle, free.kept[:rank])


@reordered_kernel
def orthonormalise(columns, factors, free):
    """Find those of columns, float64 (k, n), whose rows are multiplied by factors, float64 (n,), by Gram and Schmidt,
    twice for each; returns how many do not depend on those before them."""
    rank = 0
    for number in range(len(columns)):
        left = free.basis[rank]
        for i in range(left.size):
            left[i] = columns[number, i] * factors[i]
        length = math.sqrt(inner(left, left))
        for _ in range(2):
            project(free.basis[:rank], left)
        norm = math.sqrt(inner(left, left))
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
    """Of the columns, those that come nearest to the target, float64 (n,), by a basis of so many; found: float64 (k,),
    which stays 0 for columns that depend on others."""
    for r in range(rank - 1, -1, -1):
        total = inner(free.basis[r], target)
        for c in range(r + 1, rank):
            total -= free.triangle[r, c] * found[free.kept[c]]
        found[free.kept[r]] = total / free.triangle[r, r]
