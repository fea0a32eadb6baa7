"""Products of vectors whose digits belong to the build alone.

A BLAS has other digits with other threads, and kernels of its own for each processor, which an environment variable
may choose, too: ranks, and a run before and after a resume, would come to other models.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import reordered_kernel


def inner(one: np.ndarray, other: np.ndarray) -> float:
    """The inner product of two vectors, float64 (n,)."""
    return float(np.einsum("n,n", one, other))


def products(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """The inner products, float64 (k,), of rows, float64 (k, n), and a vector, float64 (n,)."""
    return np.einsum("kn,n->k", rows, vector)


def combined(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The sum, float64 (n,), of rows, float64 (k, n), times weights, float64 (k,)."""
    return np.einsum("k,kn->n", weights, rows)


@reordered_kernel
def project(basis, vector):
    """Take out of a vector, float64 (n,), what an orthonormal basis spans, float64 (k, n)."""
    for m in range(len(basis)):
        axis, along = basis[m], 0.0
        for i in range(vector.size):
            along += axis[i] * vector[i]
        for i in range(vector.size):
            vector[i] -= along * axis[i]
