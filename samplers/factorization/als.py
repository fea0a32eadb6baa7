"""Matrix factorization by alternating least squares: kernels.

With the factors of the columns fixed, the best factors w of a row solve A w = b, where, summed over the row's entries
j,

    A = G + lambda I + sum_j e_j h_j h_j',   b = sum_j t_j h_j.

For ratings, G = 0, e_j = 1 and t_j = a_j. For implicit feedback (Hu, Koren and Volinsky, ICDM 2008), every column is an
entry, with preference 1 if the user chose the item and 0 if not, and with confidence 1 + alpha a_j or 1: then G = H'H
over all columns, and for the chosen columns e_j = alpha a_j and t_j = 1 + e_j. A is never formed: conjugate gradients,
starting at the current w, only need products of A and a vector, with 4 R operations per entry (Takacs, Pilaszy and
Tikk, RecSys 2011).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.factorization.row_kernels import dot, row_penalty

SMALL = 1e-20  # squared norm of b - A w below which no more steps are taken


class ImplicitConfidences(NamedTuple):
    """Confidences of counts.

    alpha: float32, 0 for ratings.
    unknown: float32, confidence of unknown entries: 1, or less after scaling.
    """

    alpha: np.float32
    unknown: np.float32 = np.float32(1.0)


RATINGS = ImplicitConfidences(np.float32(0.0))


class ConjugateGradientScratch(NamedTuple):
    """Working memory, float32 (R,): residual b - A w, direction, and A times the direction."""

    left: np.ndarray
    direction: np.ndarray
    image: np.ndarray


@reordered_kernel
def add(total, weight, row):
    """Compute total += weight * row, float32 (R,); the total may be float64."""
    for k in range(total.size):
        total[k] += weight * row[k]


@reordered_kernel
def multiply(gram, regularization, vector, image):
    """Compute image = (G + lambda I) vector.

    gram: float32 (R, R), or (0, 0) for 0.
    image: float32 or float64 (R,).
    """
    for k in range(vector.size):
        image[k] = regularization * vector[k]
    for k in range(gram.shape[0]):
        add(image, vector[k], gram[k])


@reordered_kernel
def add_errors(columns, values, mean, confidences, row, others, left):
    """Add sum_j (t_j - e_j w . h_j) h_j over the entries of a row to `left`; returns the sum of squared residuals.

    left: float32 or float64 (R,). See `solve_rows` for the other arrays.
    """
    total, one, alpha = 0.0, np.float32(1.0), confidences.alpha
    for j in range(columns.size):
        other = others[columns[j]]
        score = dot(other, row)
        extra = alpha * values[j] if alpha > 0 else one
        target = confidences.unknown + extra if alpha > 0 else values[j] - mean
        error = (one if alpha > 0 else target) - score
        total += np.float64(error) * error
        add(left, target - extra * score, other)
    return total


@reordered_kernel
def add_products(columns, values, confidences, vector, others, image):
    """Add sum_j e_j (h_j . vector) h_j over the entries of a row to `image`, float32 or float64 (R,)."""
    one, alpha = np.float32(1.0), confidences.alpha
    for j in range(columns.size):
        other = others[columns[j]]
        extra = alpha * values[j] if alpha > 0 else one
        add(image, extra * dot(other, vector), other)


@reordered_kernel
def solve_rows(offsets, columns, values, mean, confidences, gram, rows, others, fixed, penalty, steps, work):
    """Take some conjugate gradient steps towards the best factors of each row; returns the sum of squared residuals of
    all entries before these steps.

    offsets: int64 (D+1,), start of each row's entries in columns uint32 (N,) and values float32 (N,).
    confidences: `ImplicitConfidences`.
    rows: float32 (D, R), updated.
    others: float32 (I, R), indexed by `columns`.
    fixed: index of the factor that is not changed, or -1.
    penalty: `samplers.factorization.row_kernels.RowPenalty`. Padding stays 0.
    """
    total = 0.0
    left, direction, image = work.left, work.direction, work.image
    for d in range(offsets.size - 1):
        row_columns, row_values = columns[offsets[d] : offsets[d + 1]], values[offsets[d] : offsets[d + 1]]
        row, regularization = rows[d], row_penalty(penalty, max(row_columns.size, 1))
        multiply(gram, regularization, row, image)
        if fixed >= 0:  # one of the first two places is fixed at 1, the other is the bias
            image[1 - fixed] *= penalty.of_biases
        for k in range(row.size):
            left[k] = -image[k]
        total += add_errors(row_columns, row_values, mean, confidences, row, others, left)
        if fixed >= 0:
            left[fixed] = 0.0
        for k in range(row.size):
            direction[k] = left[k]
        before = dot(left, left)
        for _ in range(steps):
            if before <= SMALL:
                break
            multiply(gram, regularization, direction, image)
            if fixed >= 0:
                image[1 - fixed] *= penalty.of_biases
            add_products(row_columns, row_values, confidences, direction, others, image)
            if fixed >= 0:
                image[fixed] = 0.0
            length = before / dot(direction, image)
            add(row, length, direction)
            add(left, -length, image)
            after = dot(left, left)
            for k in range(row.size):
                direction[k] = left[k] + (after / before) * direction[k]
            before = after
    return total


@reordered_kernel
def confidence_terms(offsets, columns, values, alpha, rows, others):
    """Return the contribution of the entries of rows to the objective of Hu, Koren and Volinsky.

    Without entries, all preferences being 0, it is sum w' G w; each entry adds (1 + e) (1 - w . h)^2 - (w . h)^2.
    """
    total, one = 0.0, np.float32(1.0)
    for d in range(offsets.size - 1):
        for j in range(offsets[d], offsets[d + 1]):
            score = dot(rows[d], others[columns[j]])
            total += (one + alpha * values[j]) * (one - score) * (one - score) - score * score
    return total
