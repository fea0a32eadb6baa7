"""Expected word counts of topics that are refined by splitting, for K too large to learn all topics at once.

First the ancestors at depth 0, at most AT_ONCE, are learned from dense rows. Then every topic is split into `fanout`
children, as often as needed; the children of topic k are k * fanout + i. A child's expected counts start at a random
factor between 1/2 and 3/2 of an equal share, and learning continues among the children of the topics in a document.

Only pairs of a word and a topic that occur have counts for children, so rows are sparse. All counts are in one array of
32-bit numbers, the arena, in this order:

- entries, the counts of the topics at depth 0, word by word: float32 with the last 16 bits replaced by the topic;
- for each further depth, the rows of children, float32 (R, fanout): one row per pair at the previous depth, in order;
- for each of these rows, unless the depth is the last, its links, uint32 (R, 3): its topic, the row at the next depth
  of its first child that has one, and a mask of the children that have one.

An entry and its row have the same index. While depth 0 is learned, the arena holds dense rows, float32 (V, K_0).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel
from ooc.rng import uniform
from ooc.workers.madvise import UNWRITTEN, write_back

AT_ONCE = 10_000  # maximum number of topics learned at once: better than splitting unless dense rows get too large
_PARENTS = 1000  # approximate number of topics learned at once if K is larger than AT_ONCE
_MOST_FANOUT = 10
LINKS = 3  # numbers per row of links
_TOPIC, _COUNT = np.uint32(0xFFFF), np.uint32(0xFFFF0000)  # bits of an entry that hold its topic, and its count
_LEAST = 0.5  # minimum expected count of a pair that is kept; more if memory requires it
_STEPS, _BINS = 4, 128  # candidates for this minimum: _LEAST times powers of 2 ** (1 / _STEPS)


class TopicTree(NamedTuple):
    """Arrays of a tree of topics.

    bits: uint32, view of the arena.
    entries: int64 (V+1,), first entry of each word, and the end.
    rows, links: int64 (L+1,), start in the arena of the rows and of the links of each depth.
    sizes: int64 (L+1,), number of rows of each depth.
    topics: int64 (L+2,), first topic of each depth if the topics of all depths are numbered in order, and the end.
    fanout: maximum number of children of a topic.
    depth: depth of the topics in use.
    descendants: number of topics at this depth below one topic at depth 0.
    """

    bits: np.ndarray
    entries: np.ndarray
    rows: np.ndarray
    links: np.ndarray
    sizes: np.ndarray
    topics: np.ndarray
    fanout: int
    depth: int
    descendants: int


def topics_by_depth(topics: int) -> tuple[int, list[int]]:
    """Return the fanout and the number of topics at each depth, for a tree whose last depth has `topics` topics."""
    depths = 0
    while topics > AT_ONCE and _PARENTS * _MOST_FANOUT**depths < topics:
        depths += 1
    fanout = next(n for n in range(2, _MOST_FANOUT + 1) if not depths or _PARENTS * n**depths >= topics)
    sizes = [topics]
    for _ in range(depths):
        sizes.insert(0, -(-sizes[0] // fanout))
    return fanout, sizes


def numbers_of_pair(fanout: int) -> int:
    """Return how many 32-bit numbers of the arena one pair of a word and a topic with children occupies."""
    return 1 + fanout + LINKS


def split_topics(
    arena: np.ndarray, tree: TopicTree, scale: float, first_topics: int, totals: np.ndarray, key: np.uint64
) -> None:
    """Split the topics at tree.depth: create the rows of the next depth.

    scale: factor of the dense rows if the depth is 0; rows of other depths have scale 1.
    first_topics: K_0.
    totals: float64, set to the expected counts of the topics at the next depth.
    key: key of the stream for random shares.
    """
    depth, fanout, pair = tree.depth, tree.fanout, numbers_of_pair(tree.fanout)
    after = tree.rows.size - 1 - depth  # number of splits left, including this one
    totals[:], least = 0.0, 0.0
    if depth == 0:
        _bring_together(arena, tree, scale, first_topics, arena.size // (after * pair))
        begin = parents = tree.sizes[1] = tree.entries[-1]
    else:
        begin, parents = filled(tree, depth) + LINKS * tree.sizes[depth], tree.sizes[depth]
        counts, most = arena[tree.rows[depth] : filled(tree, depth)], (arena.size - begin) // (after * pair)
        least, tree.sizes[depth + 1] = _least_count(counts, 1.0, most)
    links = tree.links[depth + 1] = begin + fanout * tree.sizes[depth + 1]
    tree.rows[depth + 1] = begin
    at_once, end = max(UNWRITTEN // (4 * fanout * pair), 1), 0  # rows per call
    for first in range(0, max(int(parents), 1), at_once):  # at least once, so that kernels are compiled
        last, before = min(first + at_once, int(parents)), end
        if depth == 0:
            end = grow_entries(arena, tree, first, last, totals, key)
        else:
            end = grow_rows(arena, tree, first, last, least, end, totals, key)
            write_back(arena[tree.links[depth] + LINKS * first : tree.links[depth] + LINKS * last])
        write_back(arena[begin + fanout * before : begin + fanout * end])
        if after > 1:
            write_back(arena[links + LINKS * before : links + LINKS * end])


def filled(tree: TopicTree, depth: int) -> int:
    """Return the end in the arena of the rows of a depth of at least 1."""
    return int(tree.rows[depth] + tree.fanout * tree.sizes[depth])


def _bring_together(arena: np.ndarray, tree: TopicTree, scale: float, topics: int, most: int) -> None:
    """Replace the dense rows by at most `most` entries."""
    words = min(arena.size // topics, tree.entries.size - 1)
    least, _ = _least_count(arena[: words * topics], scale, most)
    tree.entries[:] = 0
    at_once = max(UNWRITTEN // (4 * topics), 1)
    for first in range(0, words, at_once):
        last = min(first + at_once, words)
        bring_together(arena, tree.bits, first, last, topics, scale, least, tree.entries)
        write_back(arena[tree.entries[first] : tree.entries[last]])
    tree.entries[words:] = tree.entries[words]


def _least_count(counts: np.ndarray, scale: float, most: int) -> tuple[float, int]:
    """Return the minimum expected count with which at most `most` pairs are kept, and the number of kept pairs."""
    bounds = _LEAST * 2.0 ** (np.arange(_BINS) / _STEPS)
    bins = np.zeros(_BINS, np.int64)
    count_pairs(counts, scale, bounds, bins)
    above = np.cumsum(bins[::-1])[::-1]
    chosen = int(np.argmax(above <= most)) if above[-1] <= most else _BINS - 1
    return float(bounds[chosen]), int(above[chosen])


@kernel
def count_pairs(counts, scale, bounds, bins):
    """Add the numbers of expected counts between consecutive bounds to `bins`.

    bounds: float64, ascending.
    """
    for i in range(counts.size):
        count = counts[i] * np.float32(scale)
        if count >= bounds[0]:
            bins[np.searchsorted(bounds, count, side="right") - 1] += 1


@kernel
def bring_together(arena, bits, first, last, topics, scale, least, entries):
    """Replace the dense rows of the words from first to last by entries at the start of the arena.

    topics: K_0.
    scale: factor of the rows.
    least: minimum expected count of an entry. Sets entries[first+1 : last+1].
    """
    end = entries[first]
    for word in range(first, last):
        for k in range(topics):
            count = arena[word * topics + k] * np.float32(scale)
            if count >= least:
                arena[end] = count
                bits[end] = (bits[end] & _COUNT) | np.uint32(k)
                end += 1
        entries[word + 1] = end


@kernel
def grow_entries(arena, tree, first, last, totals, key):
    """Set the rows at depth 1 of the entries from first to last; returns `last`.

    totals: float64, expected counts of the topics at depth 1, added to.
    """
    for entry in range(first, last):
        topic = topic_of_entry(tree, entry)
        if tree.rows.size > 2:
            tree.bits[tree.links[1] + LINKS * entry] = topic
        _set_children(arena, tree.rows[1] + entry * tree.fanout, tree.fanout, topic, arena[entry], totals, key)
    return last


@kernel
def grow_rows(arena, tree, first, last, least, end, totals, key):
    """Set the links of rows first to last of tree.depth, and the rows of the next depth.

    least: minimum expected count of a pair that gets a row.
    end: number of rows of the next depth that are set already.
    totals: float64, expected counts of the topics at the next depth, added to.
    Returns the new number of rows.
    """
    fanout, rows, links = tree.fanout, tree.rows[tree.depth], tree.links[tree.depth]
    for row in range(first, last):
        link, mask = links + LINKS * row, np.uint32(0)
        topic = np.int64(tree.bits[link])
        tree.bits[link + 1] = end
        for i in range(fanout):
            count = arena[rows + row * fanout + i]
            if count < least:
                continue
            mask |= np.uint32(1) << np.uint32(i)
            child = topic * fanout + i
            if tree.depth + 2 < tree.rows.size:
                tree.bits[tree.links[tree.depth + 1] + LINKS * end] = child
            _set_children(arena, tree.rows[tree.depth + 1] + end * fanout, fanout, child, count, totals, key)
            end += 1
        tree.bits[link + 2] = mask
    return end


@kernel
def _set_children(arena, first, fanout, topic, count, totals, key):
    """Divide an expected count at random among the children of a topic, whose row starts at `first` in the arena.

    The shares are proportional to random numbers between 1/2 and 3/2.
    """
    children, total = min(fanout, totals.size - topic * fanout), 0.0
    for i in range(children):
        total += 0.5 + uniform(key, np.uint64(first + i))
    for i in range(fanout):
        share = (0.5 + uniform(key, np.uint64(first + i))) / total if i < children else 0.0
        arena[first + i] = count * np.float32(share)
        if i < children:
            totals[topic * fanout + i] += arena[first + i]


@inlined
def topic_of_entry(tree, entry):
    return np.int64(tree.bits[entry] & _TOPIC)


@inlined
def row_of_child(tree, depth, row, i):
    """Return the row, at the next depth, of child i of a row, or -1 if the child has no row."""
    link = tree.links[depth] + LINKS * row
    mask = tree.bits[link + 2]
    if not (mask >> np.uint32(i)) & np.uint32(1):
        return np.int64(-1)
    return np.int64(tree.bits[link + 1]) + _ones(mask & ((np.uint32(1) << np.uint32(i)) - np.uint32(1)))


@inlined
def place_of_topic(tree, entry, topic):
    """Return the index in the arena of a word's count for a topic at tree.depth (at least 1), or -1 if there is none.

    entry: index of the entry of the word and the topic's ancestor at depth 0.
    """
    power, row = tree.descendants // tree.fanout, entry
    for depth in range(1, tree.depth):
        row = row_of_child(tree, depth, row, topic // power % tree.fanout)
        if row < 0:
            return row
        power //= tree.fanout
    return tree.rows[tree.depth] + row * tree.fanout + topic % tree.fanout


@inlined
def _ones(mask):
    """Return the number of bits set in a uint32 below 2^16."""
    pairs = mask - ((mask >> np.uint32(1)) & np.uint32(0x5555))
    fours = (pairs & np.uint32(0x3333)) + ((pairs >> np.uint32(2)) & np.uint32(0x3333))
    eights = (fours + (fours >> np.uint32(4))) & np.uint32(0x0F0F)
    return np.int64((eights + (eights >> np.uint32(8))) & np.uint32(0xFF))
