"""A start for the samplers by stochastic collapsed variational inference: kernels.

SCVB0 (Foulds, Boyles, DuBois, Smyth and Welling, KDD 2013, algorithm 1) keeps expected counts N_kw of words, and
replaces a part of them by what one minibatch of documents says:

    N_kw = (1 - rho_t) * N_kw + rho_t * (C / |M|) * sum over the minibatch's tokens of w of gamma_k

C being the tokens of the corpus and |M| those of the minibatch. Here a minibatch takes two steps. Its documents are
folded in, four words at a time and several times over, a word's c tokens in place of as many of the N_d before:

    n_kd = (1 - c / N_d) * n_kd + c * gamma_k,   gamma_k ~ (n_kd + alpha_k) * phi_kw

with phi_kw = (N_kw + beta) / (N_k + V*beta); the first time nothing is replaced. Then, word by word, so that a row
has one writer,

    gamma_k ~ (n_kd^- + alpha_k) * phi_kw

is summed over the word's tokens. In `^-` the token's own gamma, as it would be if it were not taken out, is taken out.
In the end every document is folded in once more, and a topic is drawn from this gamma for each of its tokens: the state
with which sampling starts.

Rows hold N_kw / `scale`, so that only those of the minibatch's words are written.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel, reordered_kernel, unmanaged_kernel
from ooc.rng import uniform
from ooc.workers.intrinsics import prefetch

_GROUP = 4  # words that read the same n_kd: their sums over topics are independent, so the processor overlaps them
_LEAST_SHARE = 0.1  # of the largest n_kd: topics with less are left out, measured: as good as all of them


class Estimate(NamedTuple):
    """Expected counts.

    rows: float32 (V*K,), one after the other. scale: what they are to be multiplied by. shares: float32 (K,),
    1 / (N_k + V*beta). alpha: float32 (K,). beta. sweeps: how often a document is gone through to fold it in.
    """

    rows: np.ndarray
    scale: float
    shares: np.ndarray
    alpha: np.ndarray
    beta: float
    sweeps: int


class Mixtures(NamedTuple):
    """Expected topic counts n_kd of the documents of a block.

    sizes: uint32 (D,), topics that document d has. topics: topic type (N,) and counts: float32 (N,): its topics, at the
    place of its tokens. documents: uint32 (N,), the document at each word-major position.
    """

    sizes: np.ndarray
    topics: np.ndarray
    counts: np.ndarray
    documents: np.ndarray


@unmanaged_kernel
def find_documents(offsets, positions, first, last, documents):
    """Set documents[p] to the document of position p, for the documents from first to last."""
    for d in range(first, last):
        for token in range(offsets[d], offsets[d + 1]):
            documents[positions[token]] = d


@kernel
def fold_documents(offsets, positions, position_words, first, last, estimate, mixtures):
    """Set the mixtures of the documents from first to last, of a block.

    offsets: int64 (D+1,); positions: uint32 (N,); position_words: uint32 (N,), the word at each position.
    """
    memory = _memory(offsets, first, last, estimate)
    for d in range(first, last):
        mine = slice(offsets[d], offsets[d + 1])
        _fold(_different_words(positions[mine], position_words, memory), estimate, memory)
        mixtures.sizes[d] = _store_mixture(memory.expected, mixtures.topics[mine], mixtures.counts[mine])


@kernel
def draw_documents(state, base, offsets, positions, position_words, first, last, estimate, drawn, key):
    """Draw the topics of the tokens of the documents from first to last, of a block, given the estimate.

    state: topic type (rows, columns), set; base: row of position 0. drawn: int64 (K,), how often each topic was, added
    to. key: the random stream; a draw for each position. For the others see `fold_documents`.
    """
    memory = _memory(offsets, first, last, estimate)
    gammas = np.empty(estimate.shares.size, np.float32)
    for d in range(first, last):
        mine = positions[offsets[d] : offsets[d + 1]]
        _fold(_different_words(mine, position_words, memory), estimate, memory)
        size = _store_mixture(memory.expected, memory.topics[: mine.size], memory.counts[: mine.size])
        topics, counts = memory.topics[:size], memory.counts[:size]
        word, total = np.int64(-1), np.float32(0.0)
        for position in mine:
            if position_words[position] != word:
                word = np.int64(position_words[position])
                total = _find_gammas(estimate, word, topics, counts, gammas)
            x, chosen = np.float32(uniform(key, np.uint64(position))) * total, np.int64(0)
            for a in range(size):
                x -= gammas[a]
                chosen += (x >= 0) & (a < size - 1)
            drawn[topics[chosen]] += 1
            for column in range(state.shape[1]):
                state[base + position, column] = topics[chosen]


class Memory(NamedTuple):
    """What a document is folded in with.

    words: uint32 (U,), its different words, and times: float32 (U,), how often each occurs. expected: float32 (K,),
    n_kd. weights: float32 (K,), (n_kd + alpha_k) / (N_k + V*beta). topics: uint32 (N,) and counts: float32 (N,), its
    mixture.
    """

    words: np.ndarray
    times: np.ndarray
    expected: np.ndarray
    weights: np.ndarray
    topics: np.ndarray
    counts: np.ndarray


@kernel
def _memory(offsets, first, last, estimate):
    """Room for the longest of the documents from first to last."""
    longest, topics = 0, estimate.shares.size
    for d in range(first, last):
        longest = max(longest, offsets[d + 1] - offsets[d])
    words, times = np.empty(longest + _GROUP, np.uint32), np.empty(longest + _GROUP, np.float32)
    expected, weights = np.empty(topics, np.float32), np.empty(topics, np.float32)
    return Memory(words, times, expected, weights, np.empty(longest, np.uint32), np.empty(longest, np.float32))


@unmanaged_kernel
def _different_words(positions, position_words, memory):
    """Find the different words of a document with tokens at some positions; returns how many.

    After them comes a group of the last one that does not occur.
    """
    words, times, size = memory.words, memory.times, 0
    for position in positions:
        word = position_words[position]
        if size and words[size - 1] == word:
            times[size - 1] += np.float32(1.0)
        else:
            words[size], times[size] = word, np.float32(1.0)
            size += 1
    for j in range(size, size + _GROUP):
        words[j], times[j] = words[max(size - 1, 0)], np.float32(0.0)
    return size


@reordered_kernel
def _fold(size, estimate, memory):
    """Set the expected counts of a document with so many different words."""
    words, times, expected, weights = memory.words, memory.times, memory.expected, memory.weights
    topics, rows, alpha, shares = estimate.shares.size, estimate.rows, estimate.alpha, estimate.shares
    scale, beta = np.float32(estimate.scale), np.float32(estimate.beta)
    tokens = np.float32(0.0)
    for j in range(size):
        tokens += times[j]
    for k in range(topics):
        expected[k], weights[k] = np.float32(0.0), alpha[k] * shares[k]
    for sweep in range(estimate.sweeps):
        for j in range(0, size, _GROUP):
            if sweep == 0 and j + _GROUP < size:
                _prefetch_rows(rows, topics, words[j + _GROUP : j + 2 * _GROUP])
            row_0, row_1 = np.int64(words[j]) * topics, np.int64(words[j + 1]) * topics
            row_2, row_3 = np.int64(words[j + 2]) * topics, np.int64(words[j + 3]) * topics
            rest = sum_0 = sum_1 = sum_2 = sum_3 = np.float32(0.0)
            for k in range(topics):
                rest += weights[k]
                sum_0 += weights[k] * rows[row_0 + k]
                sum_1 += weights[k] * rows[row_1 + k]
                sum_2 += weights[k] * rows[row_2 + k]
                sum_3 += weights[k] * rows[row_3 + k]
            c_0, c_1, c_2, c_3 = times[j], times[j + 1], times[j + 2], times[j + 3]
            kept = np.float32(1.0) - (c_0 + c_1 + c_2 + c_3) / tokens if sweep else np.float32(1.0)
            rest *= beta
            c_0 /= scale * sum_0 + rest
            c_1 /= scale * sum_1 + rest
            c_2 /= scale * sum_2 + rest
            c_3 /= scale * sum_3 + rest
            of_beta = beta * (c_0 + c_1 + c_2 + c_3)
            c_0, c_1, c_2, c_3 = c_0 * scale, c_1 * scale, c_2 * scale, c_3 * scale
            for k in range(topics):
                of_rows = c_0 * rows[row_0 + k] + c_1 * rows[row_1 + k] + c_2 * rows[row_2 + k] + c_3 * rows[row_3 + k]
                expected[k] = kept * expected[k] + weights[k] * (of_rows + of_beta)
                weights[k] = (expected[k] + alpha[k]) * shares[k]


@inlined
def _prefetch_rows(rows, topics, words):
    for word in words:
        for k in range(0, topics, 16):
            prefetch(rows, np.int64(word) * topics + k)


@unmanaged_kernel
def _store_mixture(expected, topics, counts):
    """Store the counts of a document, but for those with too small a share; returns how many.

    expected: float32 (K,). topics, counts: room for as many as the document has tokens: if it is too little, the
    smallest are left out.
    """
    largest, share = _largest(expected), np.float32(_LEAST_SHARE)
    while share < 1 and _above(expected, share * largest) > topics.size:
        share = min(share * np.float32(1.25), np.float32(1.0))
    size = 0
    for k in range(expected.size):
        if (expected[k] > 0) & (expected[k] >= share * largest) & (size < topics.size):  # the largest may be several
            topics[size], counts[size] = k, expected[k]
            size += 1
    return size


@inlined
def _largest(expected):
    largest = np.float32(0.0)
    for k in range(expected.size):
        largest = max(largest, expected[k])
    return largest


@inlined
def _above(expected, least):
    """How many are not 0 and at least so much."""
    size = 0
    for k in range(expected.size):
        size += (expected[k] > 0) & (expected[k] >= least)
    return size


class Scratch(NamedTuple):
    """Working memory of `count_words`. expected: float32 (K,), all 0. seen: int64 (K+1,). gammas: float32 (K+1,)."""

    expected: np.ndarray
    seen: np.ndarray
    gammas: np.ndarray


def new_scratch(topics: int) -> Scratch:
    return Scratch(np.zeros(topics, np.float32), np.zeros(topics + 1, np.int64), np.zeros(topics + 1, np.float32))


@unmanaged_kernel
def count_words(words, ends, nexts, last, offsets, estimate, mixtures, added, scratch, totals):
    """Add to the rows of some words what the documents before `last` say that were not counted yet.

    words: uint32 (n,). ends: int64 (n,), where their word-major positions end. nexts: uint32 (n,), the first of them
    that are not counted yet: moved on. offsets: int64 (D+1,). added: to a row, for a token. totals: float64 (K,), sums
    of gamma, added to.
    """
    expected, seen, gammas = scratch.expected, scratch.seen, scratch.gammas
    topics = np.uint64(estimate.shares.size)
    for i in range(words.size):
        row, size = np.uint64(words[i]) * topics, 0
        position, end = np.int64(nexts[i]), ends[i]
        while position < end and mixtures.documents[position] < last:
            d, times = mixtures.documents[position], np.float32(0.0)
            while position < end and mixtures.documents[position] == d:
                times += np.float32(1.0)
                position += 1
            mine = slice(offsets[d], offsets[d] + np.int64(mixtures.sizes[d]))
            of_document = mixtures.topics[mine]
            total = _find_gammas(estimate, words[i], of_document, mixtures.counts[mine], gammas)
            for a in range(of_document.size):
                k = np.uint64(of_document[a])
                seen[size] = k  # kept if it is new
                size += expected[k] == 0
                expected[k] += gammas[a] * (times / total)
        nexts[i] = position
        for place in range(size):
            k = np.uint64(seen[place])
            estimate.rows[row + k] += expected[k] * np.float32(added)
            totals[k] += expected[k]
            expected[k] = 0


@inlined
def _find_gammas(estimate, word, topics, counts, gammas):
    """Set `gammas` to those of a token over the topics of its document, up to a factor; returns their sum."""
    row = np.uint64(word) * np.uint64(estimate.shares.size)
    scale, beta = np.float32(estimate.scale), np.float32(estimate.beta)
    total = np.float32(0.0)
    for a in range(topics.size):
        k = np.uint64(topics[a])
        phi = (estimate.rows[row + k] * scale + beta) * estimate.shares[k]
        gammas[a] = (counts[a] + estimate.alpha[k]) * phi
        total += gammas[a]
    own, total = np.float32(1.0) / total, np.float32(0.0)
    for a in range(topics.size):
        count, alpha = counts[a], estimate.alpha[np.uint64(topics[a])]
        gammas[a] *= (max(count - gammas[a] * own, np.float32(0.0)) + alpha) / (count + alpha)
        total += gammas[a]
    return total
