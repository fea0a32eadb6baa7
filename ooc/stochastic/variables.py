"""A worker's copy of the shared variables of the stochastic engine, and the operators that change it (Splash, 4.2).

A worker starts from the common value v of the last synchronisation. After any sequence of operators its variable is

    Gamma * v + Delta + T                                                                     (Splash, equation 7)

where Gamma comes from multiply, Delta from add, and T from the delayed additions that were executed. Stored are a scale
s, x = (Gamma * v + Delta + T) / s, and T / s if delayed additions are allowed. Thus multiply changes only s, whatever
the size of the variable, and add changes one element of x. A row that the worker has not touched is v times `kept`,
which is 0 after a multiplication by 0. Thus neither a start nor a reset copies anything: rows whose stamp is not the
epoch are taken from v when they are first added to. Stamps are bytes, so that they stay in the cache together with the
rows; every 255 epochs, all stamps are cleared.

Users call the methods of `ooc.stochastic.operators`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined_kernel, unmanaged_kernel
from ooc.workers.intrinsics import prefetch, unlikely

CHUNK = 16  # elements of a vector that form one row
SCALE, INVERSE, KEPT, WEIGHT, SETTLED, WEIGHTS = 0, 1, 2, 3, 4, 5  # indices into a state
STATE = 6
_LAST_EPOCH = 255
OUTSIDE, FULL, LOST = 1, 2, 3  # mistakes: invalid index, too many delayed additions, reset of a variable with a mean


class Queue(NamedTuple):
    """Delayed additions of the current element.

    filled: int64 (1,), number of additions.
    places: int64 (n, 3), variable number, row and column of each addition.
    deltas: float64 (n,), numbers to add.
    mistake: int64 (4,), kind of the first mistake (0 for none), variable number, row and column.
    """

    filled: np.ndarray
    places: np.ndarray
    deltas: np.ndarray
    mistake: np.ndarray


class WorkerVariable(NamedTuple):
    """A variable of one worker, stored in rows.

    number: number of the variable.
    places: size of the variable, which may be less than rows * width.
    values: (rows, width), x.
    late: (rows, width), T / s, or (0, width) without delayed additions.
    past: (rows, width), see `weigh`, or (0, width) without a mean.
    stamps: uint8 (rows,), epoch in which each row was touched.
    epoch: int64 (1,), current epoch.
    state: float64 (STATE,): s, 1 / s, kept; and, for `weigh`, H, settled, and the sum of weights.
    base: (rows, width), v, read-only; a single worker's values may be v itself. All (rows, width) arrays have the same
        dtype.
    """

    number: int
    places: int
    values: np.ndarray
    late: np.ndarray
    past: np.ndarray
    stamps: np.ndarray
    epoch: np.ndarray
    state: np.ndarray
    base: np.ndarray
    queue: Queue


@unmanaged_kernel
def note(mistake, which, number, row, column):
    """Record a user's mistake (see `Queue`), unless an earlier one is recorded already."""
    if not mistake[0]:
        mistake[0], mistake[1], mistake[2], mistake[3] = which, number, row, column


class PlainVariable(NamedTuple):
    """A variable whose values are v itself, as it is read-only or belongs to the only worker. See `WorkerVariable` for
    the fields."""

    number: int
    places: int
    values: np.ndarray
    queue: Queue


@inlined_kernel
def is_outside(store, row, column):
    """Return whether a position is out of bounds, and record the mistake if so."""
    width = store.values.shape[1]
    outside = row < 0 or column < 0 or column >= width or row * width + column >= store.places
    if unlikely(outside):
        note(store.queue.mistake, OUTSIDE, store.number, row, column)
    return outside


@inlined_kernel
def is_beyond(store, place, count, row, column):
    """Return whether a place is not in range(count), and if so record the position as a mistake; takes fewer
    comparisons than `is_outside`.
    """
    outside = place < 0 or place >= count
    if unlikely(outside):
        note(store.queue.mistake, OUTSIDE, store.number, row, column)
    return outside


@unmanaged_kernel
def take_row(base, state, values, late, past, row):
    """Initialize a row of this worker from v. The arguments are fields of a `WorkerVariable`; kept out of `touch`,
    which is inlined.
    """
    if late.size:
        late[row] = 0
    if past.size:
        for column in range(past.shape[1]):
            past[row, column] = -state[SETTLED] * base[row, column]
    for column in range(values.shape[1]):  # done last, as values may be v itself
        values[row, column] = state[KEPT] * base[row, column]


@inlined_kernel
def touch(store, row):
    """Initialize a row of this worker if needed."""
    if unlikely(store.stamps[row] != store.epoch[0]):
        store.stamps[row] = store.epoch[0]
        take_row(store.base, store.state, store.values, store.late, store.past, row)


@inlined_kernel
def prefetch_row(store, row):
    """Prefetch the start of a row; processors prefetch the rest themselves."""
    if not is_outside(store, row, 0):
        prefetch(store.values[row], 0)


@inlined_kernel
def read(store, row, column):
    """Return the value at a position; 0 if the position is out of bounds."""
    if is_outside(store, row, column):
        return 0.0
    if store.stamps[row] == store.epoch[0]:
        return store.state[SCALE] * store.values[row, column]
    return store.state[SCALE] * store.state[KEPT] * store.base[row, column]


@inlined_kernel
def read_row(store, row, into):
    """Copy the first n values of a row to `into`, (n,)."""
    if is_outside(store, row, into.size - 1):
        return
    touched = store.stamps[row] == store.epoch[0]
    scale = into.dtype.type(store.state[SCALE] if touched else store.state[SCALE] * store.state[KEPT])
    values = store.values[row] if touched else store.base[row]
    for column in range(into.size):
        into[column] = scale * values[column]


@inlined_kernel
def add(store, row, column, delta):
    """Add `delta` to the number at a position."""
    if is_outside(store, row, column):
        return
    touch(store, row)
    change = delta * store.state[INVERSE]
    store.values[row, column] += change
    if store.past.size:
        store.past[row, column] += change * store.state[WEIGHT]


@inlined_kernel
def add_row(store, row, deltas):
    """Add `deltas`, (n,), to the first n numbers of a row."""
    if is_outside(store, row, deltas.size - 1):
        return
    touch(store, row)
    values, inverse = store.values[row], store.values.dtype.type(store.state[INVERSE])
    for column in range(deltas.size):
        values[column] += deltas[column] * inverse
    if store.past.size:
        past, weight = store.past[row], store.state[INVERSE] * store.state[WEIGHT]
        for column in range(deltas.size):
            past[column] += deltas[column] * weight


@inlined_kernel
def add_late(store, row, column, delta):
    """Add a delayed addition to one number, as part of T."""
    if is_outside(store, row, column) or not store.late.size:
        return
    add(store, row, column, delta)
    store.late[row, column] += delta * store.state[INVERSE]


@inlined_kernel
def delay(store, row, column, delta):
    """Queue an addition that is executed before the element is processed the next time."""
    queue = store.queue
    if is_outside(store, row, column):
        return
    count = queue.filled[0]
    if count == queue.deltas.size:
        note(queue.mistake, FULL, store.number, row, column)
        return
    queue.places[count, 0], queue.places[count, 1], queue.places[count, 2] = store.number, row, column
    queue.deltas[count] = delta
    queue.filled[0] = count + 1


@unmanaged_kernel
def multiply(store, factor):
    """Multiply the variable by a factor.

    If the scale becomes so small or large that x would lose precision, the scale is multiplied into the touched rows.
    """
    state = store.state
    if factor == 0.0:
        if store.past.size:
            note(store.queue.mistake, LOST, store.number, 0, 0)
        restart(store, 0.0)
        return
    state[SCALE] *= factor
    least = 1e-3 if store.past.size else 1e-100 if store.values.itemsize == 8 else 1e-12
    if not least < abs(state[SCALE]) < 1 / least:
        rescale(store)
    state[INVERSE] = 1.0 / state[SCALE]


@unmanaged_kernel
def rescale(store):
    """Multiply the scale into the touched rows, and move the sums of iterates to `past` (see `weigh`)."""
    state = store.state
    for row in range(store.stamps.size):
        if store.stamps[row] != store.epoch[0]:
            continue
        for column in range(store.values.shape[1]):
            if store.past.size:
                store.past[row, column] -= store.values[row, column] * state[WEIGHT]
            store.values[row, column] *= state[SCALE]
            if store.late.size:
                store.late[row, column] *= state[SCALE]
    state[SETTLED] += state[KEPT] * state[WEIGHT]
    state[WEIGHT] = 0.0
    state[KEPT] *= state[SCALE]
    state[SCALE] = 1.0


@unmanaged_kernel
def restart(store, kept):
    """Mark all rows as untouched, with value `kept` (0 or 1) times v."""
    if store.epoch[0] == _LAST_EPOCH:
        store.stamps[:] = 0
        store.epoch[0] = 0
    store.epoch[0] += 1
    store.state[SCALE] = store.state[INVERSE] = 1.0
    store.state[KEPT] = kept


@unmanaged_kernel
def begin(store, in_place):
    """Start a worker from v.

    in_place: whether its values are v itself; then all rows count as initialized, unless other data is kept for them.
    """
    restart(store, 1.0)
    if in_place and not store.late.size and not store.past.size:
        store.stamps[:] = store.epoch[0]
    store.state[WEIGHT] = store.state[SETTLED] = store.state[WEIGHTS] = 0.0


@inlined_kernel
def weigh(store, weight):
    """Add the current values to the mean over all iterates, with a weight.

    The sum of a_t * s_t * x_t, with weights a_t and scales s_t, is stored as x * H - past, with H = sum_t a_t * s_t: a
    change of x adds the change times the current H to `past`, so unchanged rows cost nothing. The sum of an untouched
    row is v times `settled`, plus v times kept * H.
    """
    store.state[WEIGHT] += weight * store.state[SCALE]
    store.state[WEIGHTS] += weight


def storage(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the number of rows, and their width, in which a variable of up to two dimensions is stored."""
    if len(shape) == 2:
        return shape[0], shape[1]
    return (-(-shape[0] // CHUNK), CHUNK) if shape else (1, 1)


def unpacked(shape: tuple[int, ...], rows: np.ndarray) -> np.ndarray:
    """Return a variable in its declared shape, a view of its rows."""
    if len(shape) == 2:
        return rows
    return rows.reshape(-1)[: shape[0]] if shape else rows.reshape(())


def place_of(shape: tuple[int, ...], row: int, column: int) -> tuple[int, ...]:
    """Return the indices by which a user addresses the number at a row and column of the storage."""
    return ((), (row * CHUNK + column,), (row, column))[len(shape)]
