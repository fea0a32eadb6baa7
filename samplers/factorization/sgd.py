"""Matrix factorization by stochastic gradient descent: kernels.

The objective is sum_(u,i) (a_ui - w_u . h_i)^2 + lambda * (n_u |w_u|^2 + n_i |h_i|^2) over what is known, so a step at
one rating a_ui, with e = a_ui - w_u . h_i, goes along e * h_i - lambda * w_u and e * w_u - lambda * h_i.

How far is adapted row by row, with few numbers to keep (Chin, Zhuang, Juan and Lin, PAKDD 2015): a row's rate is the
first one divided by the root of the sum of the mean squares of its gradients so far. That is kept for the first
`LEADING` places and for the others apart: biases, see `samplers.factorization.rows`, are among the first, and their
gradients are so large that all others would take too short steps. In the first pass there are only the leading places:
they find what rows and columns are like on average; the others, whose sums would be spoiled by errors that large, begin
from there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined_kernel, kernel, unmanaged_kernel
from ooc.prefetch import prefetch
from samplers.factorization import lanes
from samplers.factorization.lanes import LANE
from samplers.factorization.rows import dot

_ROWS_AHEAD = 16
LEADING = LANE  # places of a row whose squares are kept apart: with LIBMF 8, which are no better


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


class Steps(NamedTuple):
    """How steps are taken. mean, rate, regularization: float32. shares: float32 (2,), one divided by how many of the
    leading places, and of the others, are in use. fixed: the place of rows that holds 1, and stays so, beside a bias in
    the other of the first two; -1 if there are no biases. leading_only: whether there are no other places yet."""

    mean: np.float32
    rate: np.float32
    regularization: np.float32
    shares: np.ndarray
    fixed: int
    leading_only: bool


@inlined_kernel
def leading_dot(one, other):
    """The inner product of the leading places of two rows."""
    return lanes.total(lanes.times(lanes.load(one, 0), lanes.load(other, 0)))


@inlined_kernel
def gradients(error, regularization, mine, its):
    """What a step goes along, for a lane of a row and one of a column."""
    errors, shrinkage = lanes.spread(error), lanes.spread(-regularization)
    of_mine = lanes.fused(errors, its, lanes.times(shrinkage, mine))
    return of_mine, lanes.fused(errors, mine, lanes.times(shrinkage, its))


@inlined_kernel
def step(error, row, other, row_squares, other_squares, steps, upcoming):
    """A step at one rating, of whose prediction this is the error. Sums of squares: float32 (2,), see `sweep_cell`.

    upcoming: the row that is stepped in next, which is asked for: a long row fills all that the processor looks ahead.
    """
    squares = lanes.load_pairs(row_squares, other_squares)
    rates = lanes.over_roots(steps.rate, squares)
    mine, its = lanes.load(row, 0), lanes.load(other, 0)
    along_row, along_other = gradients(error, steps.regularization, mine, its)
    mine = lanes.fused(lanes.spread_place(rates, 0), along_row, mine)
    its = lanes.fused(lanes.spread_place(rates, 2), along_other, its)
    if steps.fixed == 1:
        mine, its = lanes.replaced(mine, 1, np.float32(1.0)), lanes.replaced(its, 0, np.float32(1.0))
    elif steps.fixed == 0:
        mine, its = lanes.replaced(mine, 0, np.float32(1.0)), lanes.replaced(its, 1, np.float32(1.0))
    lanes.store(row, 0, mine)
    lanes.store(other, 0, its)
    row_leading, other_leading = lanes.times(along_row, along_row), lanes.times(along_other, along_other)
    row_others = other_others = lanes.spread(np.float32(0.0))
    if not steps.leading_only:
        row_rate, other_rate = lanes.spread_place(rates, 1), lanes.spread_place(rates, 3)
        for k in range(LEADING, row.size, LANE):
            prefetch(upcoming, k)
            mine, its = lanes.load(row, k), lanes.load(other, k)
            along_row, along_other = gradients(error, steps.regularization, mine, its)
            row_others = lanes.fused(along_row, along_row, row_others)
            other_others = lanes.fused(along_other, along_other, other_others)
            lanes.store(row, k, lanes.fused(row_rate, along_row, mine))
            lanes.store(other, k, lanes.fused(other_rate, along_other, its))
    more = lanes.totals(row_leading, row_others, other_leading, other_others)
    shares = lanes.load_pairs(steps.shares, steps.shares)
    lanes.store_pairs(row_squares, other_squares, lanes.fused(shares, more, squares))


@unmanaged_kernel
def next_row(ratings, last, d):
    """The first row from d on that has ratings left below `last`; the number of rows if there is none.

    What rows have in a cell lies apart, so it is asked for before they are looked at.
    """
    while d < ratings.ends.size:
        if d + _ROWS_AHEAD < ratings.ends.size:
            prefetch(ratings.columns, ratings.following[d + _ROWS_AHEAD])
            prefetch(ratings.values, ratings.following[d + _ROWS_AHEAD])
        at = ratings.following[d]
        if at < ratings.ends[d] and ratings.columns[at] < last:
            break
        d += 1
    return d


@unmanaged_kernel
def sweep_cell(ratings, last, rows, others, row_squares, other_squares, steps, open_rows):
    """A step at each rating of a cell; returns the sum of the squares of their errors before it.

    A step waits for the one before it if they are in the same row, so rows take turns, as many as `open_rows`, int64
    (n,), has places.
    ratings: Ratings, `following` is moved on to the next slice. last: the rank after the last of the slice. rows:
    float32 (D, R), others: float32 (I, R), by rank. row_squares float32 (D, 2), other_squares float32 (I, 2): sums of
    the mean squares of the gradients so far, of the leading places and of the others.
    """
    loss, size, d = 0.0, 0, next_row(ratings, last, 0)
    while size < open_rows.size and d < rows.shape[0]:
        open_rows[size] = d
        size, d = size + 1, next_row(ratings, last, d + 1)
    turn = 0
    while size:
        mine = open_rows[turn]
        at = ratings.following[mine]
        its = ratings.columns[at]
        row, other = rows[mine], others[its]
        predicted = steps.mean + (leading_dot(row, other) if steps.leading_only else dot(row, other))
        error = ratings.values[at] - predicted
        loss += error * error
        following = open_rows[turn + 1 if turn + 1 < size else 0]
        upcoming = ratings.columns[ratings.following[following]]
        prefetch(other_squares[upcoming], 0)
        prefetch(others[upcoming], 0)
        step(error, row, other, row_squares[mine], other_squares[its], steps, others[upcoming])
        ratings.following[mine] = at = at + 1
        if at < ratings.ends[mine] and ratings.columns[at] < last:
            turn += 1
        elif d < rows.shape[0]:
            open_rows[turn] = d
            turn, d = turn + 1, next_row(ratings, last, d + 1)
        else:
            size -= 1
            open_rows[turn] = open_rows[size]
        if turn >= size:
            turn = 0
    return loss
