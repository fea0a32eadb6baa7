"""Matrix factorization by stochastic gradient descent: kernels.

The objective is sum_(u,i) (a_ui - w_u . h_i)^2 + lambda * (n_u |w_u|^2 + n_i |h_i|^2) over the known ratings, so a step
for one rating a_ui, with e = a_ui - w_u . h_i, goes along e * h_i - lambda * w_u and e * w_u - lambda * h_i.

Learning rates are adapted per row, with two numbers per row (Chin, Zhuang, Juan and Lin, PAKDD 2015): the rate of a row
is the initial rate divided by the root of the sum of the mean squares of its gradients so far. The sum is kept
separately for the first `LEADING` places and for the others: the leading places include the biases (see
`samplers.factorization.row_kernels`), whose gradients are so large that the other places would take too short steps.
The first pass updates only the leading places, which learn the averages of rows and columns: the large errors of this
pass would spoil the sums of the other places.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined_kernel, kernel, unmanaged_kernel
from ooc.workers.intrinsics import prefetch
from samplers.factorization import simd
from samplers.factorization.simd import LANE

_ROWS_AHEAD = 16
LEADING = LANE  # number of leading places of a row, whose squares are summed separately; LIBMF's 8 are no better


class RatingRows(NamedTuple):
    """Entries of D rows.

    ends: int64 (D,), end of each row in columns uint32 (N,) and values float32 (N,).
    following: int64 (D,), start of the next slice's entries.
    """

    ends: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    following: np.ndarray


@kernel
def rewind(ratings, offsets, first):
    """Set `following` to the first entry of each row with a rank of at least `first`.

    offsets: int64 (D+1,).
    """
    for d in range(offsets.size - 1):
        columns = ratings.columns[offsets[d] : offsets[d + 1]]
        ratings.following[d] = offsets[d] + np.searchsorted(columns, np.uint32(first))


class SgdStepParameters(NamedTuple):
    """Parameters of steps.

    mean, rate, regularization: float32.
    shares: float32 (2, 2), for rows and others, factors of the squared gradients of leading and other places.
    fixed: index of the constant 1 in rows, next to the bias; -1 without biases.
    leading_only: use only the leading places.
    scaling: float32, factor from ratings to the unit of training.
    of_biases: float32, see `samplers.factorization.row_kernels.RowPenalty`.
    """

    mean: np.float32
    rate: np.float32
    regularization: np.float32
    shares: np.ndarray
    fixed: int
    leading_only: bool
    scaling: np.float32 = np.float32(1.0)
    of_biases: np.float32 = np.float32(1.0)


@inlined_kernel
def products_of(row, other, leading_only):
    """Return two quads: inner products of two rows over the leading and the other places, twice; and the squared norms
    of both rows.
    """
    mine, its = simd.load(row, 0), simd.load(other, 0)
    leading, row_leading, other_leading = simd.times(mine, its), simd.times(mine, mine), simd.times(its, its)
    others = row_others = other_others = simd.spread(np.float32(0.0))
    if not leading_only:
        for k in range(LEADING, row.size, LANE):
            mine, its = simd.load(row, k), simd.load(other, k)
            others = simd.fused(mine, its, others)
            row_others = simd.fused(mine, mine, row_others)
            other_others = simd.fused(its, its, other_others)
    products = simd.totals(leading, others, leading, others)
    return products, simd.totals(row_leading, row_others, other_leading, other_others)


@inlined_kernel
def squared_gradients(error, regularization, products, norms):
    """Return |e h - lambda w|^2 and |e w - lambda h|^2 over the leading and over the other places: a quad."""
    cross = simd.times(simd.quad(np.float32(-2.0) * error * regularization), products)
    shrinkage = simd.fused(simd.quad(regularization * regularization), norms, cross)
    return simd.fused(simd.quad(error * error), simd.swapped(norms), shrinkage)


@inlined_kernel
def step(error, row, other, row_squares, other_squares, squared, steps, upcoming):
    """Take a step at one rating with prediction error `error`.

    row_squares, other_squares: float32 (2,), see `sweep_cell`.
    squared: squared gradients, added to these sums after division by the numbers of places.
    upcoming: row of the next step, to prefetch: a long row fills the processor's reorder buffer.
    """
    squares = simd.load_pairs(row_squares, other_squares)
    rates = simd.over_roots(steps.rate, squares)
    gains = simd.times(simd.quad(error), rates)
    rests = simd.fused(simd.quad(-steps.regularization), rates, simd.quad(np.float32(1.0)))
    row_rest, other_rest = simd.spread_place(rests, 0), simd.spread_place(rests, 2)
    if steps.of_biases != 1 and steps.fixed >= 0:
        of_biases = simd.quad(-steps.regularization * steps.of_biases)
        bias_rests = simd.fused(of_biases, rates, simd.quad(np.float32(1.0)))
        row_rest = simd.replaced(row_rest, 1 - steps.fixed, simd.place(bias_rests, 0))
        other_rest = simd.replaced(other_rest, steps.fixed, simd.place(bias_rests, 2))
    mine, its = simd.load(row, 0), simd.load(other, 0)
    mine, its = (
        simd.fused(simd.spread_place(gains, 0), its, simd.times(row_rest, mine)),
        simd.fused(simd.spread_place(gains, 2), mine, simd.times(other_rest, its)),
    )
    if steps.fixed == 1:
        mine, its = simd.replaced(mine, 1, np.float32(1.0)), simd.replaced(its, 0, np.float32(1.0))
    elif steps.fixed == 0:
        mine, its = simd.replaced(mine, 0, np.float32(1.0)), simd.replaced(its, 1, np.float32(1.0))
    simd.store(row, 0, mine)
    simd.store(other, 0, its)
    if not steps.leading_only:
        row_gain, other_gain = simd.spread_place(gains, 1), simd.spread_place(gains, 3)
        row_rest, other_rest = simd.spread_place(rests, 1), simd.spread_place(rests, 3)
        for k in range(LEADING, row.size, LANE):
            prefetch(upcoming, k)
            mine, its = simd.load(row, k), simd.load(other, k)
            simd.store(row, k, simd.fused(row_gain, its, simd.times(row_rest, mine)))
            simd.store(other, k, simd.fused(other_gain, mine, simd.times(other_rest, its)))
    shares = simd.load_pairs(steps.shares[0], steps.shares[1])
    simd.store_pairs(row_squares, other_squares, simd.fused(shares, squared, squares))


@unmanaged_kernel
def next_row(ratings, last, d):
    """Return the first row from d on with ratings left below `last`, prefetching rows; the number of rows if there is
    no such row.
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
def open_row(ratings, last, d, place, open_rows):
    """Open a row with ratings left below `last`, to be processed upwards at place 0, downwards at place 1; returns the
    next row.
    """
    begin = end = ratings.following[d]
    while end < ratings.ends[d] and ratings.columns[end] < last:
        end += 1
    ratings.following[d] = end
    open_rows[0, place], open_rows[1, place], open_rows[2, place] = d, end - 1 if place else begin, end - begin
    return next_row(ratings, last, d + 1)


@unmanaged_kernel
def sweep_cell(ratings, last, rows, others, row_squares, other_squares, steps, open_rows):
    """Take a step for each rating of a cell; returns the sum of the squared errors before the steps.

    A step waits for the previous step if both have the same row or column. So two rows alternate, one with ascending
    and one with descending columns: they share a column at most once.

    ratings: `RatingRows`, whose `following` is advanced to the next slice.
    last: the rank after the slice's last one.
    rows: float32 (D, R), others: float32 (I, R), by rank. row_squares float32 (D, 2), other_squares float32 (I, 2):
        sums of the mean squares of the gradients so far, of the leading places and of the others.
    open_rows: int64 (3, 2), working memory.
    """
    loss, d, turn = 0.0, next_row(ratings, last, 0), 0
    taking_turns, at, left = open_rows[0], open_rows[1], open_rows[2]
    for place in range(2):
        left[place] = 0
        if d < rows.shape[0]:
            d = open_row(ratings, last, d, place, open_rows)
    while left[turn]:
        mine, here = taking_turns[turn], at[turn]
        following = 1 - turn if left[1 - turn] else turn
        its, upcoming = ratings.columns[here], ratings.columns[at[following]]
        row, other = rows[mine], others[its]
        products, norms = products_of(row, other, steps.leading_only)
        error = ratings.values[here] * steps.scaling - steps.mean - simd.place(products, 0) - simd.place(products, 1)
        loss += error * error
        squared = squared_gradients(error, steps.regularization, products, norms)
        prefetch(other_squares[upcoming], 0)
        prefetch(others[upcoming], 0)
        step(error, row, other, row_squares[mine], other_squares[its], squared, steps, others[upcoming])
        at[turn] = here + 1 - 2 * turn
        left[turn] -= 1
        if not left[turn] and d < rows.shape[0]:
            d = open_row(ratings, last, d, turn, open_rows)
        turn = following
    return loss
