"""Products of a vector and the Gram matrix A' A of the active set's columns.

Sparse columns: row by row, as the sum of a (a . d) over the rows a. Each entry is loaded once for both products, and a
thread works on its own rows; only the threads' sums, as long as the active set, have to be added up. Rows are grouped
by their number of entries: most rows have a few, and branch prediction would fail at the ends of their loops. Dense
columns, and sparse columns with values in many rows: the image A d is computed first, with columns divided among the
threads. Sorting their entries by rows would take as long as several products, and gain less.

Rows or columns are divided into parts, see `samplers.regression.linear_algebra.pairwise_sum`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from blocks.compiled import inlined_kernel, reordered_kernel, unmanaged_kernel
from samplers.regression.linear_algebra.columns import DenseColumns, SparseColumns, add, dot, entry_count
from samplers.regression.linear_algebra.pairwise_sum import add_up, add_up_own, own_parts
from samplers.regression.linear_algebra.type_dispatch import by_kind
from samplers.regression.threads.thread_pool import own_numbers, thread_barrier

_MOST_PARTS = 8
# minimum number of entries per column and part of the rows; minimum number of columns per part: sums take time, too
_ENTRIES, _COLUMNS = 4, 16
_MANY = 1 / 16  # fraction of the rows


class GramRows(NamedTuple):
    """n rows of W sparse columns, in P parts, and their N entries by row."""

    bounds: np.ndarray  # int64 (P+1,), start of each part's rows
    products: np.ndarray  # float64 (P, W), sums of the parts
    sums: np.ndarray  # float64 (P, W), working memory for sums
    ends: np.ndarray  # int64 (P, W+1), end of a part's rows with a given number of entries, in this order:
    order: np.ndarray  # uint32 (n,), rows by part and number of entries; rows without entries are left out
    places: np.ndarray  # uint32 (n,), int64 if needed: position of the next entry of each row
    spans: np.ndarray  # int64 (P, 2), range of each part's entries
    entries: np.ndarray  # (N,), records: column, uint32, its index in the active set; and value, in the columns' dtype


class MatrixProducts(NamedTuple):
    """Products A d for n rows, in P parts, float64."""

    parts: np.ndarray  # (P, n)
    sums: np.ndarray  # (P, n)
    whole: np.ndarray  # (n,)


def gram_memory(columns: SparseColumns | DenseColumns, rows: int) -> GramRows | MatrixProducts:
    """Return working memory for active sets of the columns, which have `rows` rows."""
    size = entry_count(columns)
    count = len(columns.values) if isinstance(columns, DenseColumns) else columns.offsets.size - 1
    if isinstance(columns, DenseColumns) or size > _MANY * rows * count:
        images, sums = np.empty((2, _parts(count // _COLUMNS), rows))
        return MatrixProducts(images, sums, np.empty(rows))
    parts = _parts(size // max(_ENTRIES * count, 1))
    return GramRows(
        bounds=np.arange(parts + 1) * rows // parts,
        products=np.empty((parts, count)),
        sums=np.empty((parts, count)),
        ends=np.empty((parts, count + 1), np.int64),
        order=np.empty(rows, np.uint32),
        places=np.empty(rows, np.uint32 if size < 1 << 32 else np.int64),
        spans=np.empty((parts, 2), np.int64),
        entries=np.empty(size, [("column", np.uint32), ("value", columns.values.dtype)]),
    )


def _parts(most: int) -> int:
    """Return the number of parts, a power of two."""
    return min(1 << max(most.bit_length() - 1, 0), _MOST_PARTS)


@reordered_kernel
def order_rows(part, begin, rows):
    """Sort a part's rows by their number of entries, which `places` has, and find the start of each row's entries.

    begin: start of the first row's entries.
    Returns the end of the last row's entries.
    """
    first, last, longest = rows.bounds[part], rows.bounds[part + 1], 0
    for r in range(first, last):
        # few entries per row, whereas the active set may have thousands of columns
        longest = max(longest, rows.places[r])
    ends = rows.ends[part, : longest + 1]
    ends[:] = 0
    for r in range(first, last):
        ends[rows.places[r]] += 1
    ends[0] = at = first
    for length in range(1, longest + 1):
        count = ends[length]
        ends[length] = at  # position of the next of these rows; finally, the position after the last one
        at += count
    for r in range(first, last):
        length = rows.places[r]
        if length > 0:
            rows.order[ends[length]] = r
            ends[length] += 1
    place = begin
    for k in range(first, ends[longest]):
        r = rows.order[k]
        length = rows.places[r]
        rows.places[r] = place
        place += length
    rows.spans[part, 0], rows.spans[part, 1] = begin, place
    return place


def arrange_rows(columns, active, memory):
    memory.places[:] = 0
    for j in active:
        for k in range(columns.offsets[j], columns.offsets[j + 1]):
            memory.places[columns.rows[k]] += 1
    end = 0
    for part in range(len(memory.spans)):
        end = order_rows(part, end, memory)
    for i in range(active.size):
        for k in range(columns.offsets[active[i]], columns.offsets[active[i] + 1]):
            place = memory.places[columns.rows[k]]
            memory.entries[place]["column"], memory.entries[place]["value"] = i, columns.values[k]
            memory.places[columns.rows[k]] = place + 1


@inlined_kernel
def multiply_rows(length, count, begin, rows, vector, found):
    """Add the products of `count` rows with `length` entries each."""
    for _ in range(count):
        row, along = rows.entries[begin : begin + length], 0.0
        for k in range(length):
            along += row[k]["value"] * vector[row[k]["column"]]
        for k in range(length):
            found[row[k]["column"]] += row[k]["value"] * along
        begin += length


@unmanaged_kernel
def multiply_part(part, rows, vector, found):
    """Compute the product of a part's Gram matrix and a vector."""
    found[:] = 0.0
    (begin, end), length = rows.spans[part], 0
    while begin < end:
        length += 1
        count = rows.ends[part, length] - rows.ends[part, length - 1]
        if length == 1:  # the compiler has a loop for each of these lengths
            multiply_rows(1, count, begin, rows, vector, found)
        elif length == 2:
            multiply_rows(2, count, begin, rows, vector, found)
        elif length == 3:
            multiply_rows(3, count, begin, rows, vector, found)
        elif length == 4:
            multiply_rows(4, count, begin, rows, vector, found)
        elif length == 5:
            multiply_rows(5, count, begin, rows, vector, found)
        elif length == 6:
            multiply_rows(6, count, begin, rows, vector, found)
        else:
            multiply_rows(length, count, begin, rows, vector, found)
        begin += length * count


def multiply_by_rows(member, columns, active, memory, vector, found):
    first, last = own_parts(member, len(memory.spans))
    for part in range(first, last):
        multiply_part(part, memory, vector, memory.products[part, : active.size])
    add_up_own(member, memory.products, active.size)
    thread_barrier(member)
    add_up(member, memory.products, memory.sums, *own_numbers(member, active.size), found)


@reordered_kernel
def subtract_part(part, rows, weights, residual):
    """Subtract the product of a part's rows and the weights from the residual."""
    (begin, end), length = rows.spans[part], 0
    while begin < end:
        length += 1
        for at in range(rows.ends[part, length - 1], rows.ends[part, length]):
            row, along = rows.entries[begin : begin + length], 0.0
            for k in range(length):
                along += row[k]["value"] * weights[row[k]["column"]]
            residual[rows.order[at]] -= along
            begin += length


def subtract_from_rows(member, columns, active, memory, weights, residual):
    first, last = own_parts(member, len(memory.spans))
    for part in range(first, last):
        subtract_part(part, memory, weights, residual)


def arrange_nothing(columns, active, memory):
    pass


@reordered_kernel
def find_image(member, columns, active, memory, vector):
    """Compute the product of the columns and a vector, for the member's rows."""
    parts = len(memory.parts)
    first, last = own_parts(member, parts)
    for part in range(first, last):
        memory.parts[part] = 0.0
        for i in range(active.size * part // parts, active.size * (part + 1) // parts):
            add(columns, active[i], vector[i], memory.parts[part])
    add_up_own(member, memory.parts, memory.whole.size)
    thread_barrier(member)
    add_up(member, memory.parts, memory.sums, *own_numbers(member, memory.whole.size), memory.whole)


def multiply_by_columns(member, columns, active, memory, vector, found):
    find_image(member, columns, active, memory, vector)
    thread_barrier(member)
    first, last = own_numbers(member, active.size)
    for i in range(first, last):
        found[i] = dot(columns, active[i], memory.whole)


def subtract_image(member, columns, active, memory, weights, residual):
    find_image(member, columns, active, memory, weights)
    first, last = own_numbers(member, residual.size)
    for k in range(first, last):
        residual[k] -= memory.whole[k]


_OPTIONS: Any = {"fastmath": True, "error_model": "numpy", "_nrt": False}
# arrange(columns, active, memory): prepare an active set, int64 (m,), of columns, before any member multiplies.
arrange = by_kind("memory", ({GramRows: arrange_rows, MatrixProducts: arrange_nothing}, _OPTIONS))
# multiply(member, columns, active, memory, vector, found): set the member's range of found to the product of the Gram
# matrix and a vector, both float64 (m,).
multiply = by_kind("memory", ({GramRows: multiply_by_rows, MatrixProducts: multiply_by_columns}, _OPTIONS))
# subtract(member, columns, active, memory, weights, residual): subtract the columns times weights, float64 (m,), from
# the member's range of a residual, float64 (n,).
subtract = by_kind("memory", ({GramRows: subtract_from_rows, MatrixProducts: subtract_image}, _OPTIONS))
