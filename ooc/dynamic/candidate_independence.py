"""Dependency checker: select candidates that can be updated simultaneously, with |x_j' x_k| < rho for each pair.

Small products alone are not enough for many columns: P independent columns still have products of about 1 / sqrt(n) in
n rows, and the largest eigenvalue of their Gram matrix is near (1 + sqrt(P/n))^2. Simultaneous updates can diverge if
an eigenvalue is 2 or more (Shotgun, theorem 3.2), which is reached when the squared products of one column with all
others add up to P/n = 0.17. Therefore, for each selected column, the sum of (x_j' x_k)^2 over the previously selected
columns must also be less than rho.

x_j is column j of a design matrix in a sample of its rows, shifted to mean 0 in the sample if columns are centred, and
scaled to norm 1. x_j' x_k is thus the correlation if columns are centred, and the cosine otherwise. A column that is
constant (if centred) or 0 in the sample depends on no other column. Candidates are checked in order, so the first of
two dependent candidates is kept. Columns that are already being updated come before the candidates and are not checked.

A candidate can be a group of columns, which may depend on each other but not on columns of other groups.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel, reordered_kernel, unmanaged_kernel

NOBODY = np.int32(-1)


class CandidateCheck(NamedTuple):
    """How the candidates of a round are checked.

    parallel: maximum number of parameters in a round.
    group: number of columns per parameter.
    rho: upper bound, or infinity for no check.
    centred: whether columns are centred.
    """

    parallel: int
    group: int
    rho: float
    centred: bool
    rows: np.ndarray  # int64 (s,), the sampled rows
    sampled: np.ndarray  # bool (n,), whether each row is sampled
    last: np.ndarray  # int32 (n,), NOBODY


@kernel
def independent_dense(columns, together, taken, check):
    """Return the first candidates, int64 (k,), for one round, which are independent of each other and of the parameters
    that are being updated.

    columns: HeldDenseColumns.
    together: int64 (c,), the `taken` parameters that are being updated, then the candidates.
    """
    if check.rho == np.inf:
        return together[taken : taken + check.parallel]
    members, chosen = columns_of(together, check.group), np.empty(taken + check.parallel, np.int64)
    vectors = np.empty((members.size, check.rows.size), np.float32)
    unit_vectors(columns.values, members, check.rows, check.centred, vectors)
    count = independent_vectors(vectors, check.group, taken, check.rho, chosen)
    return together[chosen[taken:count]]


@kernel
def independent_sparse(columns, together, taken, check):
    """Return the first independent candidates of HeldSparseColumns; see `independent_dense`."""
    if check.rho == np.inf:
        return together[taken : taken + check.parallel]
    members, chosen = columns_of(together, check.group), np.empty(taken + check.parallel, np.int64)
    begins, ends = columns.bounds[:, 0], columns.bounds[:, -1]
    count = independent_columns(
        begins,
        ends,
        columns.rows,
        columns.values,
        members,
        check.group,
        taken,
        check.sampled,
        check.centred,
        check.rho,
        check.last,
        chosen,
    )
    return together[chosen[taken:count]]


@kernel
def columns_of(parameters, group):
    """Return the columns, int64 (c * group,), of parameters, int64 (c,)."""
    columns = np.empty(parameters.size * group, np.int64)
    for place in range(columns.size):
        columns[place] = group * parameters[place // group] + place % group
    return columns


@reordered_kernel
def unit_vectors(values, columns, rows, centred, vectors):
    """Fill vectors, float32 (k, s), with the scaled columns, integers (k,), of values, (p, n), in sampled rows,
    (s,)."""
    size = np.float32(rows.size)
    for i in range(columns.size):
        column, vector = values[columns[i]], vectors[i]
        total, squares = np.float32(0.0), np.float32(0.0)
        for place in range(rows.size):
            vector[place] = column[rows[place]]
            total += vector[place]
        mean = total / size if centred else np.float32(0.0)
        for place in range(rows.size):
            vector[place] -= mean
            squares += vector[place] * vector[place]
        scale = np.float32(1.0 / math.sqrt(squares)) if is_more(squares, total * mean) else np.float32(0.0)
        for place in range(rows.size):
            vector[place] *= scale


@inlined
def is_more(squares, lost):
    """Return whether a sum of squares, from which `lost` was subtracted, exceeds the rounding error."""
    return squares > 1e-10 * lost


@reordered_kernel
def independent_vectors(vectors, group, taken, rho, chosen):
    """Choose candidates until `chosen` is full; returns the number chosen.

    vectors: float32 (k * group, s), see `unit_vectors`, with the columns of a candidate one after the other; the first
        `taken` candidates are chosen without a check.
    Filled: chosen int64 (l,), indices of candidates, in order.
    """
    count = 0
    for candidate in range(len(vectors) // group):
        free = count < chosen.size
        for member in range(group if free and candidate >= taken else 0):
            vector, squares = vectors[group * candidate + member], np.float32(0.0)
            for place in range(group * count if free else 0):
                other, product = vectors[group * chosen[place // group] + place % group], np.float32(0.0)
                for i in range(other.size):
                    product += vector[i] * other[i]
                squares += product * product
                if abs(product) >= rho or squares >= rho:
                    free = False
                    break
        if free:
            chosen[count] = candidate
            count += 1
    return count


# Entry of a chosen column: the previous entry of its row, or NOBODY, and the position of its column among the chosen
# ones. In one record, as all fields are needed at once and are not in a cache.
ENTRY = np.dtype([("before", np.int32), ("owner", np.int32), ("value", np.float64)])


class SampledRowEntries(NamedTuple):
    """Entries of the chosen columns in the sampled rows, as a linked list for each row."""

    last: np.ndarray  # int32 (n,), the last entry of each row, or NOBODY
    all: np.ndarray  # ENTRY (N,)
    places: (
        np.ndarray
    )  # int32 (m,), m is the maximum number of entries in a column: the current position in each entry's list
    values: np.ndarray  # float64 (m,), value of each entry


@kernel
def independent_columns(begins, ends, rows, values, columns, group, taken, sampled, centred, rho, last, chosen):
    """Choose sparse candidates until `chosen` is full, as `independent_vectors` does; returns the number chosen.

    begins, ends: integers (p,), bounds of the entries of each column.
    rows: uint32 (N,) and values: float32 (N,), all entries.
    columns: integers (k * group,), with the columns of a candidate one after the other; the first `taken` candidates
        are chosen without a check.
    sampled: bool (n,).
    last: int32 (n,), NOBODY everywhere before and after the call.
    Filled: chosen int64 (l,), indices of candidates.
    """
    sizes = ends[columns] - begins[columns]
    longest = sizes.max() if sizes.size else 0
    entries = SampledRowEntries(last, np.empty(sizes.sum(), ENTRY), np.empty(longest, np.int32), np.empty(longest))
    most = group * chosen.size
    products, totals, scales = np.zeros(most), np.empty(most), np.empty(most)
    sample, count, filled = np.count_nonzero(sampled), 0, 0
    for candidate in range(columns.size // group):
        if count == chosen.size:
            break
        before, free = group * count, True  # number of columns chosen before
        for member in range(group):
            column = columns[group * candidate + member]
            span = slice(begins[column], ends[column])
            total, squares = sums_of(rows[span], values[span], sampled)
            share = (
                total / sample if centred else 0.0
            )  # contribution of the mean to products of columns that are not centred
            left, scale = squares - share * total, 0.0
            if is_more(left, squares):
                scale = 1.0 / math.sqrt(left)
            totals[before + member], scales[before + member] = total, scale
            if candidate >= taken:
                add_products(entries, rows[span], values[span], sampled, products)
                free = are_small(products[:before], share, totals, scales, scale, rho)
                products[:before] = 0.0
            if not free:
                break
        if free:
            for member in range(group):
                column = columns[group * candidate + member]
                span = slice(begins[column], ends[column])
                filled = append(entries, filled, rows[span], values[span], sampled, before + member)
            chosen[count] = candidate
            count += 1
    for candidate in chosen[:count]:
        for column in columns[group * candidate : group * (candidate + 1)]:
            for entry in range(begins[column], ends[column]):
                last[rows[entry]] = NOBODY
    return count


@unmanaged_kernel
def sums_of(rows, values, sampled):
    """Return the sum and the sum of squares of a column in the sampled rows."""
    total, squares = 0.0, 0.0
    for i in range(rows.size):
        if sampled[rows[i]]:
            value = np.float64(values[i])
            total += value
            squares += value * value
    return total, squares


@unmanaged_kernel
def add_products(entries, rows, values, sampled, products):
    """Add the products of a column with each chosen column to `products`.

    All lists are walked at the same time, so that the processor waits for many entries at once.
    """
    left = 0
    for i in range(rows.size):
        if sampled[rows[i]]:
            entries.places[left], entries.values[left] = entries.last[rows[i]], values[i]
            left += entries.last[rows[i]] != NOBODY
    while left:
        lists, left = left, 0
        for i in range(lists):
            entry, value = entries.all[entries.places[i]], entries.values[i]
            products[entry.owner] += value * entry.value
            entries.places[left], entries.values[left] = entry.before, value
            left += entry.before != NOBODY


@reordered_kernel
def are_small(products, share, totals, scales, scale, rho):
    """Return whether a column with this scale is independent of all chosen columns."""
    largest, squares = 0.0, 0.0
    for place in range(products.size):
        product = scale * scales[place] * (products[place] - share * totals[place])
        squares += product * product
        largest = max(largest, abs(product))
    return largest < rho and squares < rho


@unmanaged_kernel
def append(entries, filled, rows, values, sampled, owner):
    """Append the entries of a column to the lists, which hold `filled` entries; returns the new number."""
    for i in range(rows.size):
        if sampled[rows[i]]:
            entry = entries.all[filled]
            entry.before, entry.owner, entry.value = entries.last[rows[i]], owner, values[i]
            entries.last[rows[i]] = filled
            filled += 1
    return filled
