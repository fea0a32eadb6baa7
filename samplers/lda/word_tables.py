"""Kernels for alias tables of the word rows, sparse over nonzeros, as proposals (LightLDA section 4, AliasLDA).

    q_w(k) ~ (n_kw + beta) * weights_k

splits into a sparse part, drawn from the word's own table, and a smoothing part `beta * weights_k`, drawn from one
dense table shared by all words. The weights are alpha_k / (n_k + V*beta) for AliasLDA and 1 / (n_k + V*beta) for
LightLDA, with n_k as of the time when the tables were built.

An entry of a table is one uint64 of 20, 20 and 24 bits: a topic, its alias, and the probability of not taking the
alias. So a draw takes one load.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel
from ooc.rng import random_bits, uniform
from ooc.workers.shared_arrays import ArraySpec
from samplers.lda.word_topic_rows import nonzeros

_TOPIC_BITS = 20
_TOPIC = np.uint64((1 << _TOPIC_BITS) - 1)
_CUT = 1 << 24
_CERTAIN = _CUT - 1  # stands for probability 1: the alias of such an entry is its own topic


class WordAliasTables(NamedTuple):
    """Alias tables of the words in `rows`; the last one is the smoothing table, whose entries come first.

    weights: float64 (K,).
    sizes: int32 (V+1,), number of entries of each table.
    masses: float64 (V+1,), sum of n_kw * weights_k for each word, and last the sum of the weights.
    entries: uint64 (E,).
    starts: int64 (V+1,), start of each table in `entries`.
    """

    weights: np.ndarray
    sizes: np.ndarray
    masses: np.ndarray
    entries: np.ndarray
    starts: np.ndarray


class AliasTableScratch(NamedTuple):
    """Working memory for building a table: float64 (K+1,) and int32 (K+1,) arrays."""

    shares: np.ndarray
    topics: np.ndarray
    counts: np.ndarray
    order: np.ndarray


def room_for_tables(sizes: np.ndarray, topics: int) -> tuple[dict[str, ArraySpec], np.ndarray]:
    """Return the arrays for the tables of words, of up to `sizes`, int64 (V,), entries each, and of smoothing, and
    `starts`."""
    specs = {
        "weights": ArraySpec((topics,), "float64"),
        "sizes": ArraySpec((sizes.size + 1,), "int32"),
        "masses": ArraySpec((sizes.size + 1,), "float64"),
        "entries": ArraySpec((topics + int(sizes.sum()),), "uint64"),
    }
    return specs, np.append(topics + np.cumsum(sizes) - sizes, 0)


@unmanaged_kernel
def fill_table(topics, shares, order, size, entries):
    """Write the alias table (Vose 1991) of the first `size` of `shares`, which are overwritten, to `entries`.

    order: int32 (size,), working memory: light entries from the front, heavy entries from the back.
    """
    total = 0.0
    for i in range(size):
        total += shares[i]
    scale = size / total
    light, heavy = 0, size
    for i in range(size):  # these loops are branch-free: a branch would be mispredicted
        shares[i] *= scale
        order[light] = i
        order[heavy - 1] = i
        is_light = shares[i] < 1.0
        light += is_light
        heavy -= not is_light
    # Light entries are taken from order[:light]; order[heavy] is the heavy entry in use.
    while light and heavy < size:
        small, large = order[light - 1], order[heavy]
        entries[small] = _entry(topics[small], topics[large], shares[small])
        shares[large] -= 1.0 - shares[small]
        is_light = shares[large] < 1.0
        order[light - 1] = large
        light -= not is_light
        heavy += is_light
    for i in range(light):
        entries[order[i]] = _entry(topics[order[i]], topics[order[i]], 1.0)
    for i in range(heavy, size):
        entries[order[i]] = _entry(topics[order[i]], topics[order[i]], 1.0)


@inlined
def _entry(topic, other, probability):
    cut = min(np.uint64(probability * _CUT), np.uint64(_CERTAIN))
    return np.uint64(topic) | np.uint64(other) << np.uint64(_TOPIC_BITS) | cut << np.uint64(2 * _TOPIC_BITS)


@inlined
def choose_entry(start, size, random):
    """Return the index of a random entry of the table with `size` entries at `start`, given 64 random bits."""
    return start + np.int64(((random >> np.uint64(24)) * np.uint64(size)) >> np.uint64(40))


@inlined
def topic_of(entry, random):
    """Return a topic or its alias from an entry chosen with the same 64 random bits."""
    turns = (random & np.uint64(_CERTAIN)) >= entry >> np.uint64(2 * _TOPIC_BITS)
    return np.int64((entry >> np.uint64(_TOPIC_BITS * turns)) & _TOPIC)  # branch-free: it would be mispredicted


@unmanaged_kernel
def make_smoothing(tables, scratch):
    """Build the smoothing table from `tables.weights`; sets `entries`, `sizes` and `masses`."""
    place, mass = tables.sizes.size - 1, 0.0
    for k in range(tables.weights.size):
        scratch.topics[k], scratch.shares[k] = k, tables.weights[k]
        mass += tables.weights[k]
    _fill_place(tables, place, tables.weights.size, mass, scratch)


@unmanaged_kernel
def make_table(tables, place, rows, word, scratch):
    """Build the table of a word at index `place`; sets `entries`, `sizes` and `masses`."""
    size, mass = nonzeros(rows, word, scratch.topics, scratch.counts), 0.0
    for i in range(size):
        scratch.shares[i] = scratch.counts[i] * tables.weights[scratch.topics[i]]
        mass += scratch.shares[i]
    _fill_place(tables, place, size, mass, scratch)


@inlined
def _fill_place(tables, place, size, mass, scratch):
    tables.sizes[place] = size
    tables.masses[place] = mass
    if size:
        fill_table(scratch.topics, scratch.shares, scratch.order, size, tables.entries[tables.starts[place] :])


@unmanaged_kernel
def make_tables(tables, rows, words, scratch):
    """Build the tables of some words, uint32 (n,), each at the index of its word."""
    for word in words:
        make_table(tables, word, rows, word, scratch)


@inlined
def choose_word_entry(tables, place, mass, smoothing_mass, key):
    """Return the entry from which `settle_word` draws a topic of q_w.

    key: key of the random stream.
    place: index of the word's table.
    mass: mass of the sparse part without the token itself.
    smoothing_mass: mass of smoothing.
    """
    smooth = uniform(key, np.uint64(0)) * (mass + smoothing_mass) >= mass
    source = tables.sizes.size - 1 if smooth else place
    return choose_entry(tables.starts[source], tables.sizes[source], random_bits(key, np.uint64(1)))


@inlined
def settle_word(tables, place, chosen, own, own_count, key):
    """Return a topic from q_w, given the entry of `choose_word_entry`, which may not be in the cache.

    own: topic that the table counts one token too often, or -1 for none.
    own_count: n_kw of this topic in the table. If this topic is drawn from the table, the draw is repeated with
        probability 1 / own_count.
    """
    n = np.uint64(1)
    topic = topic_of(tables.entries[chosen], random_bits(key, n))
    while (topic == own) & (chosen >= tables.sizes[-1]) & (uniform(key, n + np.uint64(1)) * own_count < 1.0):
        n += np.uint64(2)
        chosen = choose_entry(tables.starts[place], tables.sizes[place], random_bits(key, n))
        topic = topic_of(tables.entries[chosen], random_bits(key, n))
    return topic
