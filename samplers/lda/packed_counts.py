"""Byte encoding of rows of topic counts, used to send them between machines.

A row is encoded as its size in bytes (four bytes), then one entry per topic, in ascending order. An entry is a byte
with four bits for the distance to the previous topic and four bits for the count, each minus one. The value 15 means 15
plus a number that follows in base 128, least significant byte first, with the highest bit clear in its last byte. Most
entries take one byte.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import inlined, inlined_kernel

SIZE_BYTES = 4  # number of bytes that hold the size of a row
_LARGE = 15  # a distance or a count, minus one, of at least this does not fit in four bits
_STEP_BYTES, _COUNT_BYTES = 3, 5  # maximum additional bytes, as topics are below 2^20 and counts below 2^35


@inlined
def read_number(data, at):
    """Read a base-128 number; returns the number and the position after it."""
    value, shift = np.int64(0), np.int64(0)
    byte = np.int64(data[at])
    at += 1
    while byte & 128:
        value |= (byte & 127) << shift
        shift += 7
        byte = np.int64(data[at])
        at += 1
    return value | byte << shift, at


@inlined
def write_number(data, at, value):
    """Write a base-128 number; returns the position after it."""
    while value > 127:
        data[at] = value & 127 | 128
        value >>= 7
        at += 1
    data[at] = value
    return at + 1


@inlined_kernel
def read_entry(data, at):
    """Read an entry; returns the distance to the previous topic, the count, and the position after the entry."""
    byte = np.int64(data[at])
    step, count = byte >> 4, byte & _LARGE
    at += 1
    if step == _LARGE:
        more, at = read_number(data, at)
        step += more
    if count == _LARGE:
        more, at = read_number(data, at)
        count += more
    return step + 1, count + 1, at


@inlined_kernel
def write_entry(data, at, step, count):
    """Write an entry, given as int64; returns the position after it."""
    step, count = step - 1, count - 1
    if max(step, count) < _LARGE:
        data[at] = step << 4 | count
        return at + 1
    data[at] = min(step, _LARGE) << 4 | min(count, _LARGE)
    at += 1
    if step >= _LARGE:
        at = write_number(data, at, step - _LARGE)
    if count >= _LARGE:
        at = write_number(data, at, count - _LARGE)
    return at


@inlined
def read_size(data, at):
    """Return the number of bytes of a row."""
    size = np.int64(data[at]) | np.int64(data[at + 1]) << 8
    return size | np.int64(data[at + 2]) << 16 | np.int64(data[at + 3]) << 24


def max_packed_bytes(frequencies: np.ndarray, topics: int) -> int:
    """Return the maximum number of bytes of the rows of words with the given frequencies, int64 (W,)."""
    entries = np.minimum(frequencies, topics)
    steps, counts = (
        np.minimum(entries, topics // _LARGE),
        np.minimum(entries, frequencies // _LARGE),
    )  # large distances and counts
    return int((entries + _STEP_BYTES * steps + _COUNT_BYTES * counts).sum() + SIZE_BYTES * frequencies.size)


def random_bytes(frequencies: np.ndarray, topics: int) -> int:
    """Return the expected bytes of such rows if topics are random, approximating each count by its mean."""
    present = -np.expm1(-frequencies / topics)  # probability that a topic occurs in the row
    entries = topics * present
    counts = frequencies / np.maximum(entries, 1e-9)
    lengths = [
        _LARGE,
        *(_LARGE + (1 << 7 * more) for more in range(1, _COUNT_BYTES)),
    ]  # a distance or count takes one more byte for each of these that it reaches
    large = sum((1.0 - present) ** least + (counts > least) for least in lengths)
    return int((entries * (1.0 + large)).sum() + SIZE_BYTES * frequencies.size)


def sharpened_bytes(iteration: int) -> float:
    """Return the bytes of rows in an iteration (counted from 1) relative to `random_bytes`.

    A power law fitted to two-phase sampling. Measured: at most a fifth too high or an eighth too low
    (docs/benchmarks.md).
    """
    return float(0.955 * iteration**-0.225)
