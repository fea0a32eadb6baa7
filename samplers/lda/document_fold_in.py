"""Fold in one document: estimate its expected topic counts, given the expected word counts (`samplers.lda.scvb0`).

If topics were split (`samplers.lda.topic_tree`), the topics at depth 0 are found first. At each further depth, the
children of the document's largest topics, at most PARENTS of them, become the likely topics, and each child starts with
an equal share of its parent's count.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel, reordered_kernel, unmanaged_kernel
from samplers.lda.topic_tree import TopicTree, row_of_child, topic_of_entry

NO_ROW = np.uint32(0xFFFFFFFF)  # row of a word without expected counts
_GROUP = 4  # number of words that use the same n_kd: their sums are independent, so the processor overlaps them
_EVIDENCE = 16  # maximum number of a document's words from which its likely topics are found
_LEAST_EVIDENCE = 0.01  # topics below this fraction of the largest expected count are not likely
LIKELY = 64  # maximum number of likely topics at depth 0
PARENTS = 12  # maximum number of a document's topics whose children become likely topics
MOST_LIKELY = 120  # maximum number of likely topics: the children of PARENTS topics at the largest fanout
_SWEEPS, _SWEEPS_OF_CHILDREN = 2, 5  # number of sweeps over all words of a document
_BISECTIONS = 14  # number of steps to find the smallest expected count to keep, if too many topics are likely
_LEAST_SHARE = 0.1  # topics below this fraction of the largest n_kd are dropped; measured: as good as all topics


class ExpectedTopicCounts(NamedTuple):
    """Expected counts.

    rows: float32, the arena of `samplers.lda.topic_tree`. scale: factor of the rows at tree.depth. shares: float32
        (T,), 1 / (N_k + V*beta) of the topics at all depths. alpha: float32 (T,). beta: scalar. topics: K_0, number of
        topics at depth 0. tree: TopicTree.
    """

    rows: np.ndarray
    scale: float
    shares: np.ndarray
    alpha: np.ndarray
    beta: float
    topics: int
    tree: TopicTree


class FoldInMemory(NamedTuple):
    """Working memory for folding in one document.

    words: uint32 (U,), rows of its distinct words. times: float32 (U,), their counts. expected: float32 (K_0,), n_kd
    from some of the words. weights: float32 (K_0,), (n_kd + alpha_k) / (N_k + V*beta). places: uint32 (K_0,), 1 + index
    of a likely topic, 0 for other topics. likely: uint32 (A,), the likely topics. counts, alpha, shares, gammas:
    float32 (A,), n_kd, alpha_k, 1 / (N_k + V*beta), and gamma_k for one word, of the likely topics. phi: float32 (U,
    A), of each word and likely topic. kept: int64 (A,), indices of the likely topics to keep. parents: int64 (A,),
    index of each likely topic's parent. rows: int64 (A,), rows of one word. nodes: int64 (U, LIKELY), for each word,
    the entry of each likely topic at depth 0, or the row of each parent; -1 for none.
    """

    words: np.ndarray
    times: np.ndarray
    expected: np.ndarray
    weights: np.ndarray
    places: np.ndarray
    likely: np.ndarray
    counts: np.ndarray
    alpha: np.ndarray
    shares: np.ndarray
    gammas: np.ndarray
    phi: np.ndarray
    kept: np.ndarray
    parents: np.ndarray
    rows: np.ndarray
    nodes: np.ndarray


@kernel
def new_memory(offsets, first, last, estimate):
    """Return working memory large enough for each of the documents from first to last."""
    longest, topics = 0, estimate.topics
    for d in range(first, last):
        longest = max(longest, offsets[d + 1] - offsets[d])
    words, times = np.empty(longest + _GROUP, np.uint32), np.empty(longest + _GROUP, np.float32)
    expected, weights = np.empty(topics, np.float32), np.empty(topics, np.float32)
    splits = estimate.tree.depth > 0
    width, different = MOST_LIKELY if splits else LIKELY, min(longest, estimate.tree.entries.size - 1)
    kinds, likely, numbers = (
        np.empty((4, width), np.float32),
        np.empty(width, np.uint32),
        np.empty((3, width), np.int64),
    )
    return FoldInMemory(
        words,
        times,
        expected,
        weights,
        np.zeros(topics if splits else 0, np.uint32),
        likely,
        kinds[0],
        kinds[1],
        kinds[2],
        kinds[3],
        np.empty((different, width), np.float32),
        numbers[0],
        numbers[1],
        numbers[2],
        np.empty((different if splits else 0, LIKELY), np.int64),
    )


@unmanaged_kernel
def different_words(positions, position_rows, memory):
    """Find the distinct words with rows in a document, given the positions of its tokens, and count their tokens.

    Returns the number of distinct words. They are padded to a full group with words of count 0.
    """
    words, times, size = memory.words, memory.times, 0
    for position in positions:
        word = position_rows[position]
        if word == NO_ROW:
            continue
        if size and words[size - 1] == word:
            times[size - 1] += np.float32(1.0)
        else:
            words[size], times[size] = word, np.float32(1.0)
            size += 1
    for j in range(size, size + _GROUP):
        words[j], times[j] = words[max(size - 1, 0)], np.float32(0.0)
    return size


@unmanaged_kernel
def fold(size, estimate, memory):
    """Find the likely topics of a document with `size` distinct words, and their expected counts.

    Returns the number of likely topics.
    """
    if size == 0:
        return 0
    if estimate.tree.depth == 0:
        _sum_rows(size, estimate, memory)
        found = _likely_topics(memory.expected, memory.likely[:LIKELY])
        _take_rows(size, found, estimate, memory)
    else:
        _sum_entries(size, estimate, memory)
        found = _likely_topics(memory.expected, memory.likely[:LIKELY])
        _gather_likely_entries(size, found, estimate, memory)
    _begin_counts(size, found, memory)
    _refine(size, found, memory, _SWEEPS)
    for depth in range(1, estimate.tree.depth + 1):
        parents = _keep_largest(memory.counts[:found], memory.kept[:PARENTS])
        found = _take_children(size, parents, depth, estimate, memory)
        _refine(size, found, memory, _SWEEPS_OF_CHILDREN)
    return found


@reordered_kernel
def _sum_rows(size, estimate, memory):
    """Set the expected counts of all topics by one sweep over some evenly spaced words of the document."""
    words, times, expected, weights = memory.words, memory.times, memory.expected, memory.weights
    topics, rows, alpha, shares = estimate.topics, estimate.rows, estimate.alpha, estimate.shares
    scale, beta = np.float32(estimate.scale), np.float32(estimate.beta)
    for k in range(topics):
        expected[k], weights[k] = np.float32(0.0), alpha[k] * shares[k]
    some = min(size, _EVIDENCE)
    for q in range(0, some, _GROUP):
        j_0 = q * size // some
        j_1 = (q + 1) * size // some if q + 1 < some else size  # padding
        j_2 = (q + 2) * size // some if q + 2 < some else size
        j_3 = (q + 3) * size // some if q + 3 < some else size
        row_0, row_1 = np.int64(words[j_0]) * topics, np.int64(words[j_1]) * topics
        row_2, row_3 = np.int64(words[j_2]) * topics, np.int64(words[j_3]) * topics
        rest = sum_0 = sum_1 = sum_2 = sum_3 = np.float32(0.0)
        for k in range(topics):
            rest += weights[k]
            sum_0 += weights[k] * rows[row_0 + k]
            sum_1 += weights[k] * rows[row_1 + k]
            sum_2 += weights[k] * rows[row_2 + k]
            sum_3 += weights[k] * rows[row_3 + k]
        rest *= beta
        c_0, c_1 = times[j_0] / (scale * sum_0 + rest), times[j_1] / (scale * sum_1 + rest)
        c_2, c_3 = times[j_2] / (scale * sum_2 + rest), times[j_3] / (scale * sum_3 + rest)
        of_beta = beta * (c_0 + c_1 + c_2 + c_3)
        c_0, c_1, c_2, c_3 = c_0 * scale, c_1 * scale, c_2 * scale, c_3 * scale
        for k in range(topics):
            of_rows = c_0 * rows[row_0 + k] + c_1 * rows[row_1 + k] + c_2 * rows[row_2 + k] + c_3 * rows[row_3 + k]
            expected[k] += weights[k] * (of_rows + of_beta)
            weights[k] = (expected[k] + alpha[k]) * shares[k]


@unmanaged_kernel
def _sum_entries(size, estimate, memory):
    """Set the expected counts of all topics at depth 0 like `_sum_rows`, but word by word, from entries alone."""
    expected, terms, entries = memory.expected, memory.weights, estimate.tree.entries
    beta = np.float32(estimate.beta)
    expected[:] = np.float32(0.0)
    some = min(size, _EVIDENCE)
    for q in range(some):
        j = q * size // some
        first, last = entries[memory.words[j]], entries[np.int64(memory.words[j]) + 1]
        total = np.float32(0.0)
        for entry in range(first, last):
            k = topic_of_entry(estimate.tree, entry)
            term = (expected[k] + estimate.alpha[k]) * estimate.shares[k] * (estimate.rows[entry] + beta)
            terms[entry - first] = term
            total += term
        for entry in range(first, last):
            expected[topic_of_entry(estimate.tree, entry)] += terms[entry - first] * (memory.times[j] / total)


@unmanaged_kernel
def _take_rows(size, found, estimate, memory):
    """Set phi, alpha and shares of the likely topics from dense rows."""
    words, likely, phi = memory.words, memory.likely, memory.phi
    topics, rows = estimate.topics, estimate.rows
    scale, beta = np.float32(estimate.scale), np.float32(estimate.beta)
    for a in range(found):
        memory.alpha[a], memory.shares[a] = estimate.alpha[likely[a]], estimate.shares[likely[a]]
    for j in range(size):
        row, mine = np.int64(words[j]) * topics, phi[j]
        for a in range(found):
            mine[a] = (rows[row + likely[a]] * scale + beta) * memory.shares[a]


@unmanaged_kernel
def _gather_likely_entries(size, found, estimate, memory):
    """Gather what the likely topics at depth 0 need into `memory`: alpha, shares, phi of each word, and nodes.

    A node is the index of the entry of a word and a topic in the tree, or -1 if the word has none for this topic.
    """
    likely, places, entries = memory.likely, memory.places, estimate.tree.entries
    beta = np.float32(estimate.beta)
    for a in range(found):
        memory.alpha[a], memory.shares[a] = estimate.alpha[likely[a]], estimate.shares[likely[a]]
        places[likely[a]] = a + 1
    for j in range(size):
        for a in range(found):
            memory.phi[j, a], memory.nodes[j, a] = beta * memory.shares[a], -1
        word = np.int64(memory.words[j])
        for entry in range(entries[word], entries[word + 1]):
            place = np.int64(places[topic_of_entry(estimate.tree, entry)])
            if place:
                memory.phi[j, place - 1] += estimate.rows[entry] * memory.shares[place - 1]
                memory.nodes[j, place - 1] = entry
    for a in range(found):
        places[likely[a]] = 0


@unmanaged_kernel
def _take_children(size, parents, depth, estimate, memory):
    """Replace the likely topics by the children, at `depth`, of the kept topics, and set their initial counts.

    Also sets phi, alpha and shares of the children; the rows of the kept topics become the nodes. parents: number of
    kept topics. Returns the number of children.
    """
    tree, kept = estimate.tree, memory.kept
    fanout, first = tree.fanout, tree.topics[depth]
    for j in range(size):
        _find_rows(j, parents, depth, tree, memory)
    for p in range(parents):
        memory.gammas[p] = memory.counts[kept[p]]
        kept[p] = memory.likely[kept[p]]
    found = 0
    for p in range(parents):
        children = min(fanout, tree.topics[depth + 1] - first - kept[p] * fanout)
        for topic in range(kept[p] * fanout, kept[p] * fanout + children):
            memory.likely[found], memory.parents[found] = topic, p
            memory.counts[found] = memory.gammas[p] / np.float32(children)
            memory.alpha[found], memory.shares[found] = estimate.alpha[first + topic], estimate.shares[first + topic]
            found += 1
    scale, beta = np.float32(estimate.scale if depth == tree.depth else 1.0), np.float32(estimate.beta)
    for j in range(size):
        mine = memory.phi[j]
        for a in range(found):
            row = memory.nodes[j, memory.parents[a]]
            mine[a] = beta * memory.shares[a]
            if row >= 0:
                place = tree.rows[depth] + row * fanout + np.int64(memory.likely[a]) % fanout
                mine[a] += estimate.rows[place] * scale * memory.shares[a]
    return found


@unmanaged_kernel
def _find_rows(j, parents, depth, tree, memory):
    """Set the nodes of a word to its rows at `depth` for the kept topics."""
    nodes, found = memory.nodes[j], memory.rows
    for p in range(parents):
        a = memory.kept[p]
        if depth == 1:
            found[p] = nodes[a]  # an entry and its row have the same index
        else:
            row = nodes[memory.parents[a]]
            found[p] = row_of_child(tree, depth - 1, row, np.int64(memory.likely[a]) % tree.fanout) if row >= 0 else row
    for p in range(parents):
        nodes[p] = found[p]


@unmanaged_kernel
def _likely_topics(expected, likely):
    """Set `likely` to the topics whose expected count is at least _LEAST_EVIDENCE times the largest.

    If `likely` is too small, only the topics with the largest counts are stored. Returns the number stored.
    """
    high = _largest(expected)
    least = np.float32(_LEAST_EVIDENCE) * high
    low = least
    if _count_at_least(expected, least) > likely.size:
        for _ in range(_BISECTIONS):
            least = np.float32(0.5) * (low + high)
            size = _count_at_least(expected, least)
            if size > likely.size:
                low = least
            else:
                high = least
                if 2 * size >= likely.size:
                    break
        least = high
    size = 0
    for k in range(expected.size):
        if (expected[k] >= least) & (size < likely.size):  # the largest count may be tied
            likely[size] = k
            size += 1
    return size


@unmanaged_kernel
def _begin_counts(size, found, memory):
    """Set the counts of the likely topics to their expected counts, scaled to the number of tokens."""
    tokens, total = np.float32(0.0), np.float32(0.0)
    for j in range(size):
        tokens += memory.times[j]
    for a in range(found):
        total += memory.expected[memory.likely[a]]
    for a in range(found):
        memory.counts[a] = memory.expected[memory.likely[a]] * (tokens / total)


@reordered_kernel
def _refine(size, found, memory, sweeps):
    """Update the counts of the likely topics in `sweeps` sweeps over all of the document's words, in order."""
    times, counts, phi, alpha, gammas = memory.times, memory.counts, memory.phi, memory.alpha, memory.gammas
    tokens = np.float32(0.0)
    for j in range(size):
        tokens += times[j]
    for _ in range(sweeps):
        for j in range(size):
            mine, total = phi[j], np.float32(0.0)
            for a in range(found):
                gammas[a] = mine[a] * (counts[a] + alpha[a])
                total += gammas[a]
            kept, taken = np.float32(1.0) - times[j] / tokens, times[j] / total
            for a in range(found):
                counts[a] = kept * counts[a] + taken * gammas[a]


@unmanaged_kernel
def store_mixture(found, memory, topics, counts):
    """Store the counts of a document's likely topics, dropping those that are too small; returns the number stored.

    topics, counts: arrays as long as the document. If there are more topics than tokens, the smallest are dropped.
    """
    size = _keep_largest(memory.counts[:found], memory.kept[: topics.size])
    for n in range(size):
        topics[n], counts[n] = memory.likely[memory.kept[n]], memory.counts[memory.kept[n]]
    return size


@unmanaged_kernel
def _keep_largest(expected, kept):
    """Set `kept` to the indices, ascending, of the counts of at least _LEAST_SHARE times the largest count.

    If `kept` is too small, the smallest counts are dropped. Returns the number of indices.
    """
    largest, share = _largest(expected), np.float32(_LEAST_SHARE)
    while share < 1 and _count_at_least(expected, share * largest) > kept.size:
        share = min(share * np.float32(1.25), np.float32(1.0))
    size = 0
    for a in range(expected.size):
        if (expected[a] > 0) & (expected[a] >= share * largest) & (size < kept.size):  # the largest count may be tied
            kept[size] = a
            size += 1
    return size


@inlined
def _largest(expected):
    largest = np.float32(0.0)
    for k in range(expected.size):
        largest = max(largest, expected[k])
    return largest


@inlined
def _count_at_least(counts, minimum):
    """Return the number of positive counts that are at least `minimum`."""
    size = 0
    for k in range(counts.size):
        size += (counts[k] > 0) & (counts[k] >= minimum)
    return size
