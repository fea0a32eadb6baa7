"""Rows of topic counts as bytes, in which they travel between machines.

A row travels as bytes: their number in four bytes, then an entry for each topic, in ascending order. An entry is a
byte: four bits for the distance from the topic before, four bits for the count, each minus one. 15 means 15 plus a
number that follows, seven bits a byte, the lowest first, with the highest bit clear in its last byte. Most entries take
one byte.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import inlined, inlined_kernel

SIZE_BYTES = 4  # before a row
_LARGE = 15  # from there on a step or a count, less one, takes more than four bits, and
_STEP_BYTES, _COUNT_BYTES = 3, 5  # at most so many bytes more, a topic being below 2^20 and a count below 2^35


@inlined
def read_number(data, at):
    """Read a number; returns it and the position after it."""
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
    """Write a number; returns the position after it."""
    while value > 127:
        data[at] = value & 127 | 128
        value >>= 7
        at += 1
    data[at] = value
    return at + 1


@inlined_kernel
def read_entry(data, at):
    """Read an entry; returns the step from the last topic, the count, and the position after it."""
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
    """Write an entry, of int64; returns the position after it."""
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


def room(frequencies: np.ndarray, topics: int) -> int:
    """Return the largest number of bytes of the rows of words with given frequencies, int64 (W,)."""
    entries = np.minimum(frequencies, topics)
    steps, counts = np.minimum(entries, topics // _LARGE), np.minimum(entries, frequencies // _LARGE)  # that are large
    return int((entries + _STEP_BYTES * steps + _COUNT_BYTES * counts).sum() + SIZE_BYTES * frequencies.size)


def random_bytes(frequencies: np.ndarray, topics: int) -> int:
    """Return the expected bytes of such rows with random topics, with all counts at their mean."""
    present = -np.expm1(-frequencies / topics)  # the chance of each topic
    entries = topics * present
    counts = frequencies / np.maximum(entries, 1e-9)
    lengths = [_LARGE, *(_LARGE + (1 << 7 * more) for more in range(1, _COUNT_BYTES))]  # from which it is a byte more
    large = sum((1.0 - present) ** least + (counts > least) for least in lengths)
    return int((entries * (1.0 + large)).sum() + SIZE_BYTES * frequencies.size)


def sharpened(iteration: int) -> float:
    """Return the bytes of rows in an iteration (counted from 1) as a share of `random_bytes`, by a power law fitted to
    two-phase sampling.

    Measured: at most a fifth too high or an eighth too low (docs/benchmarks.md).
    """
    return float(0.955 * iteration**-0.225)
