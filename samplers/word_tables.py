"""Alias tables of the words' rows, sparse over their non-zeros, as proposals: kernels (LightLDA section 4, AliasLDA).

    q_w(k) ~ (n_kw + beta) * weights_k

falls into a sparse part, drawn from the word's own table, and a smoothing part `beta * weights_k`, drawn from one
dense table that all words share. The weights are alpha_k / (n_k + V*beta) for AliasLDA and 1 / (n_k + V*beta) for
LightLDA, with the n_k of the time at which the tables were made.

Every entry of a table is one uint64: a topic, the topic it may turn into, and with what probability it does not, in 20,
20 and 24 bits: a draw is one load.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel
from ooc.shared import ArraySpec
from samplers.rows import nonzeros
from samplers.streams import bits, uniform

_TOPIC_BITS = 20
_TOPIC = np.uint64((1 << _TOPIC_BITS) - 1)
_CUT = 1 << 24
_CERTAIN = _CUT - 1  # stands for probability 1: such an entry turns into itself


class WordTables(NamedTuple):
    """The tables of the words in `rows`, and the one for smoothing.

    weights: float64 (K,). smoothing: uint64 (K,) entries. total: float64 (1,), sum of the weights. sizes: int32 (V,),
    entries of each word's table. masses: float64 (V,), sum of n_kw * weights_k. entries: uint64 (E,), and starts: int64
    (V,), where each table begins in it.
    """

    weights: np.ndarray
    smoothing: np.ndarray
    total: np.ndarray
    sizes: np.ndarray
    masses: np.ndarray
    entries: np.ndarray
    starts: np.ndarray


TABLE_ARRAYS = ("weights", "smoothing", "total", "sizes", "masses", "entries")  # all but starts


class TableScratch(NamedTuple):
    """Working memory to make a table: float64 (K+1,) and int32 (K+1,) arrays."""

    shares: np.ndarray
    topics: np.ndarray
    counts: np.ndarray
    order: np.ndarray


def table_specs(sizes: np.ndarray, topics: int) -> dict[str, ArraySpec]:
    """The arrays of tables of up to `sizes`, int64 (V,), entries."""
    return {
        "weights": ArraySpec((topics,), "float64"),
        "smoothing": ArraySpec((topics,), "uint64"),
        "total": ArraySpec((1,), "float64"),
        "sizes": ArraySpec(sizes.shape, "int32"),
        "masses": ArraySpec(sizes.shape, "float64"),
        "entries": ArraySpec((int(sizes.sum()),), "uint64"),
    }


@kernel
def fill_table(topics, shares, order, size, entries):
    """Write the alias table (Vose 1991) of the first `size` of `shares`, which are used up, to `entries`.

    order: int32 (size,), set: light entries from the front, heavy ones from the back.
    """
    mean = 0.0
    for i in range(size):
        mean += shares[i]
    mean /= size
    light, heavy = 0, size
    for i in range(size):
        shares[i] /= mean
        if shares[i] < 1.0:
            order[light] = i
            light += 1
        else:
            heavy -= 1
            order[heavy] = i
    # Light entries are taken from order[:light], the heavy one in use is order[heavy].
    while light and heavy < size:
        light -= 1
        small, large = order[light], order[heavy]
        entries[small] = _entry(topics[small], topics[large], shares[small])
        shares[large] -= 1.0 - shares[small]
        if shares[large] < 1.0:
            order[light] = large
            light += 1
            heavy += 1
    for i in range(light):
        entries[order[i]] = _entry(topics[order[i]], topics[order[i]], 1.0)
    for i in range(heavy, size):
        entries[order[i]] = _entry(topics[order[i]], topics[order[i]], 1.0)


@inlined
def _entry(topic, other, probability):
    cut = min(np.uint64(probability * _CUT), np.uint64(_CERTAIN))
    return np.uint64(topic) | np.uint64(other) << np.uint64(_TOPIC_BITS) | cut << np.uint64(2 * _TOPIC_BITS)


@inlined
def draw_entry(entries, start, size, random):
    """A topic from the table of `size` entries at `start`, by 64 random bits."""
    place = ((random >> np.uint64(24)) * np.uint64(size)) >> np.uint64(40)
    entry = entries[start + np.int64(place)]
    turns = (random & np.uint64(_CERTAIN)) >= entry >> np.uint64(2 * _TOPIC_BITS)
    return np.int64((entry >> np.uint64(_TOPIC_BITS * turns)) & _TOPIC)  # no branch: it could not be foreseen


@kernel
def make_smoothing(tables, scratch):
    """Make the smoothing table and the total of `tables.weights`; `smoothing` and `total` are set."""
    size = tables.weights.size
    tables.total[0] = tables.weights.sum()
    scratch.shares[:size] = tables.weights
    for k in range(size):
        scratch.topics[k] = k
    fill_table(scratch.topics, scratch.shares, scratch.order, size, tables.smoothing)


@kernel
def make_table(tables, place, rows, word, scratch):
    """Make the table of a word as number `place`; `entries`, `sizes` and `masses` are set."""
    weights, topics, counts, shares = tables.weights, scratch.topics, scratch.counts, scratch.shares
    size = nonzeros(rows.topics, rows.masks, rows.starts, rows.dense, rows.tables, word, topics, counts)
    mass = 0.0
    for i in range(size):
        shares[i] = counts[i] * weights[topics[i]]
        mass += shares[i]
    tables.sizes[place] = size
    tables.masses[place] = mass
    if size:
        fill_table(topics, shares, scratch.order, size, tables.entries[tables.starts[place] :])


@kernel
def make_tables(tables, rows, words, scratch):
    """Make the tables of some words, uint32 (n,), each in the place of its word."""
    for word in words:
        make_table(tables, word, rows, word, scratch)


@inlined
def draw_word(entries, start, size, mass, own, own_count, smoothing, smoothing_mass, key):
    """A topic from q_w; key: a random stream.

    start, size: the word's table in `entries`. mass, smoothing_mass: of its sparse part and of smoothing. own: a topic
    of which the table holds one token too many, `mass` no more (-1: there is none); own_count: its n_kw in the table. A
    draw of that topic is drawn again with probability 1 / own_count.
    """
    if uniform(key, np.uint64(0)) * (mass + smoothing_mass) >= mass:
        topic = draw_entry(smoothing, 0, smoothing.size, bits(key, np.uint64(1)))
    else:
        n = np.uint64(1)
        topic = draw_entry(entries, start, size, bits(key, n))
        while topic == own and uniform(key, n + np.uint64(1)) * own_count < 1.0:
            n += np.uint64(2)
            topic = draw_entry(entries, start, size, bits(key, n))
    return topic
