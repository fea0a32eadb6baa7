"""Matrix factorization by stochastic gradient descent: kernels.

The objective is sum_(u,i) (a_ui - w_u . h_i)^2 + lambda * (n_u |w_u|^2 + n_i |h_i|^2) over what is known, so a step at
one rating a_ui, with e = a_ui - w_u . h_i, goes along e * h_i - lambda * w_u and e * w_u - lambda * h_i.

How far is adapted row by row, with few numbers to keep (Chin, Zhuang, Juan and Lin, PAKDD 2015): a row's rate is the
first one divided by the root of the sum of the mean squares of its gradients so far. That is kept for the first
`LEADING` places and for the others apart: biases, see `samplers.factor_rows`, are among the first, and their gradients
are so large that all others would take too short steps. In the first pass only the leading places move: they find what
rows and columns are like on average; the others, whose sums would be spoiled by errors that large, begin from there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel, reordered_kernel
from samplers.factor_rows import LANE, dot

LEADING = LANE // 2  # places of a row whose squares are kept apart


class Ratings(NamedTuple):
    """The entries of D rows. ends: int64 (D,), where those of each end in columns uint32 (N,) and values float32 (N,).
    following: int64 (D,), where those of the next slice begin."""

    ends: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    following: np.ndarray


@kernel
def rewind(ratings, offsets, first):
    """Set `following` to the first entry of each row whose rank is `first` or more. offsets: int64 (D+1,)."""
    for d in range(offsets.size - 1):
        columns = ratings.columns[offsets[d] : offsets[d + 1]]
        ratings.following[d] = offsets[d] + np.searchsorted(columns, np.uint32(first))


@reordered_kernel
def step(error, regularization, row, other, row_rate, other_rate):
    """Move two rows of factors, float32 (n,), along their gradients; returns the sums of the squares of these."""
    row_squares, other_squares = np.float32(0.0), np.float32(0.0)
    for k in range(row.size):
        along_row = error * other[k] - regularization * row[k]
        along_other = error * row[k] - regularization * other[k]
        row_squares += along_row * along_row
        other_squares += along_other * along_other
        row[k] += row_rate * along_row
        other[k] += other_rate * along_other
    return row_squares, other_squares


@reordered_kernel
def sweep_cell(
    ratings, last, mean, rows, others, used, biased, row_squares, other_squares, rate, regularization, leading_only
):
    """A step at each rating of a cell, row by row; returns the sum of the squares of their errors before it.

    ratings: Ratings, `following` is moved on to the next slice. last: the rank after the last of the slice. rows:
    float32 (D, R), others: float32 (I, R), by rank. biased: whether they begin with biases. row_squares float32 (D, 2),
    other_squares float32 (I, 2): sums of the mean squares of the gradients so far, of the leading places and of the
    others.
    rate, regularization: float32.
    """
    loss, columns = 0.0, ratings.columns
    of_leading, of_others = np.float32(1.0 / min(used, LEADING)), np.float32(1.0 / max(used - LEADING, 1))
    for d in range(rows.shape[0]):
        row, at, end = rows[d], ratings.following[d], ratings.ends[d]
        while at < end and columns[at] < last:
            column = columns[at]
            other = others[column]
            error = ratings.values[at] - mean - dot(row, other)
            loss += error * error
            at += 1
            row_rate, other_rate = rate / np.sqrt(row_squares[d, 0]), rate / np.sqrt(other_squares[column, 0])
            mine, its = step(error, regularization, row[:LEADING], other[:LEADING], row_rate, other_rate)
            if biased:
                row[1] = other[0] = np.float32(1.0)
            row_squares[d, 0] += mine * of_leading
            other_squares[column, 0] += its * of_leading
            if leading_only:
                continue
            row_rate, other_rate = rate / np.sqrt(row_squares[d, 1]), rate / np.sqrt(other_squares[column, 1])
            mine, its = step(error, regularization, row[LEADING:], other[LEADING:], row_rate, other_rate)
            row_squares[d, 1] += mine * of_others
            other_squares[column, 1] += its * of_others
        ratings.following[d] = at
    return loss
