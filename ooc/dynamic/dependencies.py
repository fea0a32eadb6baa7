"""The dependency checker: of some candidates those that can be updated at once, |x_j' x_k| < rho for every two of them.

That is not enough where they are many: P columns that have nothing to do with each other still have products of some
1 / root n in n rows, and the largest eigenvalue of all their products is near (1 + root P/n)^2; updates at once can
diverge from 2 on (Shotgun, theorem 3.2), which is where the squares of the products of one column with all others add
up to P/n = 0.17. So of each column that is taken, (x_j' x_k)^2 add up to less than rho over those before it, too.

x_j is column j of a design matrix in a sample of its rows, scaled there to norm 1 and, if columns are centred, shifted
to mean 0: x_j' x_k is their correlation, else their cosine. A column that is constant, or 0, in the sample depends on
none. Candidates are taken in their order: of two that depend on each other the first is kept. Before them come columns
that are being updated already, of which none is asked whether it depends on another.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel, reordered_kernel, unmanaged_kernel

NOBODY = np.int32(-1)


@reordered_kernel
def unit_vectors(values, columns, rows, centred, vectors):
    """Fill vectors, float32 (k, s), with some columns, integers (k,), of values (p, n), in a sample of rows (s,)."""
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
    """Whether a sum of squares is more than what rounding leaves of 0 when so much is taken off."""
    return squares > 1e-10 * lost


@reordered_kernel
def independent_vectors(vectors, taken, rho, chosen):
    """Choose candidates until `chosen` is full; returns how many it holds then.

    vectors: float32 (k, s), see `unit_vectors`; the first `taken` are chosen anyway. Filled: chosen int64 (l,), places
    of vectors in their order.
    """
    count = 0
    for candidate in range(len(vectors)):
        free, squares = count < chosen.size, np.float32(0.0)
        for place in range(count if free and candidate >= taken else 0):
            other, product = vectors[chosen[place]], np.float32(0.0)
            for i in range(other.size):
                product += vectors[candidate, i] * other[i]
            squares += product * product
            if abs(product) >= rho or squares >= rho:
                free = False
                break
        if free:
            chosen[count] = candidate
            count += 1
    return count


class Entries(NamedTuple):
    """The entries in sampled rows of the columns chosen so far, as a list for each row."""

    last: np.ndarray  # int32 (n,), the entry of each row that came last, or NOBODY
    before: np.ndarray  # int32 (N,), which entry of its row came before it, or NOBODY
    owners: np.ndarray  # int32 (N,), the place of its column among those chosen
    values: np.ndarray  # float32 (N,)


@kernel
def independent_columns(begins, ends, rows, values, columns, taken, sampled, centred, rho, last, chosen):
    """The same for sparse columns, by the rows in which they meet.

    begins, ends: integers (p,), of the entries of each column; rows: uint32 (N,) and values: float32 (N,) of all.
    columns: integers (k,); the first `taken` are chosen anyway. sampled: bool (n,). last: int32 (n,), NOBODY
    everywhere, before and afterwards. Filled: chosen int64 (l,), places in `columns`. Returns how many it holds then.
    """
    room = np.sum(ends[columns] - begins[columns])
    entries = Entries(last, np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.float32))
    products, totals, norms = np.zeros(chosen.size), np.empty(chosen.size), np.empty(chosen.size)
    sample, count, filled = np.count_nonzero(sampled), 0, 0
    for candidate in range(columns.size):
        if count == chosen.size:
            break
        mine = slice(begins[columns[candidate]], ends[columns[candidate]])
        total, squares = add_products(entries, rows[mine], values[mine], sampled, products)
        share = total / sample if centred else 0.0  # of the mean, in the product with a column not centred
        norms[count] = math.sqrt(squares - share * total) if is_more(squares - share * total, squares) else 0.0
        totals[count] = total
        if candidate < taken or are_small(products[:count], share, totals, norms, rho):
            filled = append(entries, filled, rows[mine], values[mine], sampled, count)
            chosen[count] = candidate
            count += 1
        products[:count] = 0.0
    for column in columns[chosen[:count]]:
        for entry in range(begins[column], ends[column]):
            last[rows[entry]] = NOBODY
    return count


@unmanaged_kernel
def add_products(entries, rows, values, sampled, products):
    """Add to `products` those of a column with the columns chosen; returns its sum and its sum of squares."""
    total, squares = 0.0, 0.0
    for i in range(rows.size):
        if not sampled[rows[i]]:
            continue
        value = np.float64(values[i])
        total += value
        squares += value * value
        entry = entries.last[rows[i]]
        while entry != NOBODY:
            products[entries.owners[entry]] += value * entries.values[entry]
            entry = entries.before[entry]
    return total, squares


@unmanaged_kernel
def are_small(products, share, totals, norms, rho):
    """Whether a column, the last of which there are totals and norms, depends on none of the columns before it."""
    mine, squares = norms[products.size], 0.0
    for place in range(products.size):
        scale = mine * norms[place]
        product = abs(products[place] - share * totals[place]) / scale if scale > 0 else 0.0
        squares += product * product
        if product >= rho or squares >= rho:
            return False
    return True


@unmanaged_kernel
def append(entries, filled, rows, values, sampled, owner):
    """Add the entries of a column to the lists, `filled` of which are there; returns how many are then."""
    for i in range(rows.size):
        if sampled[rows[i]]:
            entries.values[filled], entries.owners[filled] = values[i], owner
            entries.before[filled], entries.last[rows[i]] = entries.last[rows[i]], filled
            filled += 1
    return filled
