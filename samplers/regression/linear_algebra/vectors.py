"""Vector products with reproducible digits, for ranks that must compute equal results.

A BLAS gives different digits for different numbers of threads or kernels, which an environment variable can select;
ranks, or a run before and after a resume, would get different models.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import reordered_kernel


@reordered_kernel
def inner_product(one, other):
    """Return the inner product of two vectors, float64 (n,)."""
    total = 0.0
    for i in range(one.size):
        total += one[i] * other[i]
    return total


@reordered_kernel
def multiply(rows, vector, found):
    for k in range(len(rows)):
        found[k] = inner_product(rows[k], vector)


def inner_products(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Return the inner products, float64 (k,), of rows, float64 (k, n), and a vector, float64 (n,)."""
    found = np.empty(len(rows))
    multiply(rows, vector, found)
    return found


@reordered_kernel
def add_up(weights, rows, found):
    for k in range(len(rows)):
        for i in range(found.size):
            found[i] += weights[k] * rows[k, i]


def combine_rows(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the sum, float64 (n,), of rows, float64 (k, n), times weights, float64 (k,)."""
    found = np.zeros(rows.shape[1])
    add_up(weights, rows, found)
    return found


@reordered_kernel
def project_out(basis, vector):
    """Subtract from a vector, float64 (n,), its projection onto an orthonormal basis, float64 (k, n)."""
    for m in range(len(basis)):
        axis, along = basis[m], 0.0
        for i in range(vector.size):
            along += axis[i] * vector[i]
        for i in range(vector.size):
            vector[i] -= along * axis[i]
