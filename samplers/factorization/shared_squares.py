"""Conjugate gradients for rows whose entries are on several machines: kernels.

Like `samplers.factorization.als`, solve A w = b with A = G + lambda I + sum_j e_j h_j h_j' and b = sum_j t_j h_j, but
return the sums over the entries of a row before they are used, so that the sums of other machines can be added. The
product of G and a vector is returned in the same way, since G is a sum over machines, too.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.factorization.als import SMALL, add, add_errors, add_products, multiply
from samplers.factorization.row_kernels import dot, row_penalty


@reordered_kernel
def open_rows(offsets, columns, values, mean, confidences, gram, rows, others, sums):
    """Set sums, float64 (D, R), to this machine's part of b - (A - lambda I) w for each row; returns the sum of squared
    residuals.

    offsets: int64 (D+1,), start of each row's entries in columns uint32 (N,) and values float32 (N,).
    confidences: `als.ImplicitConfidences`.
    gram: float32 (R, R), part of G, or (0, 0) for 0.
    rows: float32 (D, R).
    others: float32 (I, R), indexed by `columns`.
    """
    total = 0.0
    for d in range(offsets.size - 1):
        row_columns, row_values = columns[offsets[d] : offsets[d + 1]], values[offsets[d] : offsets[d + 1]]
        multiply(gram, np.float32(0.0), rows[d], sums[d])
        for k in range(rows.shape[1]):
            sums[d, k] = -sums[d, k]
        total += add_errors(row_columns, row_values, mean, confidences, rows[d], others, sums[d])
    return total


@reordered_kernel
def multiply_rows(offsets, columns, values, confidences, gram, directions, others, sums):
    """Set sums, float64 (D, R), to this machine's part of the product (A - lambda I) d for each row, where d is the
    row's direction.

    directions: float32 (D, R). See `open_rows` for the other arrays.
    """
    for d in range(offsets.size - 1):
        row_columns, row_values = columns[offsets[d] : offsets[d + 1]], values[offsets[d] : offsets[d + 1]]
        multiply(gram, np.float32(0.0), directions[d], sums[d])
        add_products(row_columns, row_values, confidences, directions[d], others, sums[d])


@reordered_kernel
def begin(sums, rows, left, directions, entries, fixed, penalty):
    """Set the residual b - A w (`left`) and the first direction, float32 (D, R) both.

    sums: result of `open_rows`, summed over all machines.
    entries: int64 (D,), number of entries of each row on all machines.
    fixed: index of the factor that is not changed, or -1.
    penalty: `samplers.factorization.row_kernels.RowPenalty`.
    """
    for d in range(entries.size):
        regularization = row_penalty(penalty, max(entries[d], 1))
        for k in range(rows.shape[1]):
            left[d, k] = sums[d, k] - regularization * rows[d, k]
        if fixed >= 0:  # one of the first two places is fixed at 1, the other is the bias
            bias = 1 - fixed
            left[d, bias] = sums[d, bias] - regularization * penalty.of_biases * rows[d, bias]
            left[d, fixed] = 0.0
        for k in range(rows.shape[1]):
            directions[d, k] = left[d, k]


@reordered_kernel
def step(sums, rows, left, directions, entries, fixed, penalty):
    """Take a step along each direction, and compute the next direction.

    sums: result of `multiply_rows`, summed over all machines; set to A times the direction. See `begin` for the other
        arrays.
    """
    for d in range(entries.size):
        image, before = sums[d], dot(left[d], left[d])
        if before <= SMALL:
            continue
        regularization = row_penalty(penalty, max(entries[d], 1))
        add(image, regularization, directions[d])
        if fixed >= 0:
            image[1 - fixed] += (penalty.of_biases - np.float32(1.0)) * regularization * directions[d, 1 - fixed]
            image[fixed] = 0.0
        along = 0.0
        for k in range(image.size):
            along += image[k] * directions[d, k]
        length = before / along
        for k in range(image.size):
            rows[d, k] += length * directions[d, k]
            left[d, k] -= length * image[k]
        after = dot(left[d], left[d])
        for k in range(image.size):
            directions[d, k] = left[d, k] + (after / before) * directions[d, k]
