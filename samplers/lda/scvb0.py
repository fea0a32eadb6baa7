"""Kernels of a start for the samplers by stochastic collapsed variational inference (SCVB0).

SCVB0 (Foulds, Boyles, DuBois, Smyth and Welling, KDD 2013, algorithm 1) keeps expected counts N_kw of words, and
replaces a share of them by the counts of one minibatch of documents:

    N_kw = (1 - rho_t) * N_kw + rho_t * (C / |M|) * sum over the minibatch's tokens of w of gamma_k

where C is the number of tokens of the corpus and |M| that of the minibatch. Here a minibatch takes two steps. First,
its documents are folded in, with phi_kw = (N_kw + beta) / (N_k + V*beta):

- one sweep over at most _EVIDENCE of a document's words, evenly spread, four at a time, adds up over all K topics

      n_kd = n_kd + c * gamma_k,   gamma_k ~ (n_kd + alpha_k) * phi_kw

  for a word with c tokens, and finds the likely topics;
- further sweeps over all of its words, and the likely topics alone, start from these n_kd, scaled to the document's
  tokens N_d, and replace c tokens for a word with c tokens:

      n_kd = (1 - c / N_d) * n_kd + c * gamma_k

Second, word by word, so that each row has one writer,

    gamma_k ~ (n_kd^- + alpha_k) * phi_kw

is summed over the word's tokens. `^-` is n_kd without the token's own gamma, where this gamma is computed with the
token included. At the end every document is folded in once more, and a topic is drawn from this gamma for each of its
tokens: the state with which sampling starts.

Rows hold N_kw / `scale`, so that only the rows of the minibatch's words are written. Infrequent words may have no row:
documents are folded in without these words, C and |M| count tokens of the others, and V stays the number of all words.
The topic of a token of such a word is drawn from n_kd, or from the prior if the document has no other words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel, reordered_kernel, unmanaged_kernel
from ooc.rng import uniform
from samplers.lda.groups import draw_prior

NO_ROW = np.uint32(0xFFFFFFFF)  # row of a word whose expected counts are not kept
_CHOICES = 1 << 40  # number of the first draw of a stream with which documents choose topics of a group
_GROUP = 4  # words of a group that read the same n_kd: their sums are independent, so the processor overlaps them
_EVIDENCE = 16  # largest number of words of a document by which its likely topics are found
_LEAST_EVIDENCE = 0.01  # share of the largest expected count: topics with less are not likely
LIKELY = 64  # largest number of likely topics
_BISECTIONS = 14  # steps to find the least expected count if more topics than that are likely
_LEAST_SHARE = 0.1  # share of the largest n_kd: topics with less are left out; measured: as good as all topics


class Estimate(NamedTuple):
    """Expected counts.

    rows: float32 (V*K,), one after the other. scale: factor of the rows. shares: float32 (K,), 1 / (N_k + V*beta).
    alpha: float32 (K,). beta: number. sweeps: number of sweeps over all words of a document.
    """

    rows: np.ndarray
    scale: float
    shares: np.ndarray
    alpha: np.ndarray
    beta: float
    sweeps: int


class Mixtures(NamedTuple):
    """Expected topic counts n_kd of the documents of a block.

    sizes: uint32 (D,), number of topics of document d. topics: topic type (N,) and counts: float32 (N,), a document's
    topics, stored at the positions of its tokens. documents: uint32 (N,), the document at each word-major position.
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
def fold_documents(offsets, positions, position_rows, first, last, estimate, mixtures):
    """Set the mixtures of the documents from first to last of a block; returns their number of tokens with rows.

    offsets: int64 (D+1,); positions: uint32 (N,); position_rows: uint32 (N,), the row of the word at each position, or
    NO_ROW.
    """
    memory, tokens = _memory(offsets, first, last, estimate), np.int64(0)
    for d in range(first, last):
        mine = slice(offsets[d], offsets[d + 1])
        size = _different_words(positions[mine], position_rows, memory)
        found = _fold(size, estimate, memory)
        mixtures.sizes[d] = _store_mixture(found, memory, mixtures.topics[mine], mixtures.counts[mine])
        for j in range(size):
            tokens += np.int64(memory.times[j])
    return tokens


@kernel
def draw_documents(state, base, offsets, positions, position_rows, first, last, estimate, prior, each, drawn, key):
    """Draw the topics of the tokens of the documents from first to last of a block, given the estimate.

    state: topic type (rows, columns), set. base: row of position 0. prior: Prior of the K topics. each: number of
    consecutive topics that share one topic of the estimate; a document draws one of them. drawn: int64 (K,), number of
    draws of each topic, added to. key: key of the random stream; each position takes one draw. For the other arrays see
    `fold_documents`.
    """
    memory = _memory(offsets, first, last, estimate)
    groups = estimate.shares.size
    gammas, counts = np.empty(LIKELY, np.float32), np.empty(LIKELY, np.float32)
    topics = np.empty(LIKELY, np.uint32)
    for d in range(first, last):
        mine = positions[offsets[d] : offsets[d + 1]]
        found = _fold(_different_words(mine, position_rows, memory), estimate, memory)
        size = _store_mixture(found, memory, topics[: mine.size], counts[: mine.size])
        word, total = np.int64(-1), np.float32(0.0)
        for position in mine:
            if position_rows[position] != word:
                word = np.int64(position_rows[position])
                total = _find_gammas(estimate, word, topics[:size], counts[:size], gammas)
            u, chosen = uniform(key, np.uint64(position)), np.int64(0)
            x = np.float32(u) * total
            for a in range(size):
                x -= gammas[a]
                chosen += (x >= 0) & (a < size - 1)
            topic = np.int64(topics[chosen]) if size else draw_prior(prior, u)
            if each > 1 and size:
                choice = uniform(key, np.uint64(_CHOICES + d * groups + topic))
                topic = topic * each + np.int64(choice * min(each, prior.topics - topic * each))
            drawn[topic] += 1
            for column in range(state.shape[1]):
                state[base + position, column] = topic


class Memory(NamedTuple):
    """Working memory of folding in one document.

    words: uint32 (U,), rows of its distinct words. times: float32 (U,), count of each. expected: float32 (K,), n_kd by
    some words. weights: float32 (K,), (n_kd + alpha_k) / (N_k + V*beta). likely: uint32 (A,), its likely topics.
    counts, alpha, shares, gammas: float32 (A,), of the likely topics: n_kd, alpha_k, 1 / (N_k + V*beta), and gamma_k of
    a word. phi: float32 (U, A), of its words and likely topics.
    """

    words: np.ndarray
    times: np.ndarray
    expected: np.ndarray
    weights: np.ndarray
    likely: np.ndarray
    counts: np.ndarray
    alpha: np.ndarray
    shares: np.ndarray
    gammas: np.ndarray
    phi: np.ndarray


@kernel
def _memory(offsets, first, last, estimate):
    """Return working memory for the longest of the documents from first to last."""
    longest, topics = 0, estimate.shares.size
    for d in range(first, last):
        longest = max(longest, offsets[d + 1] - offsets[d])
    words, times = np.empty(longest + _GROUP, np.uint32), np.empty(longest + _GROUP, np.float32)
    expected, weights = np.empty(topics, np.float32), np.empty(topics, np.float32)
    kinds = np.empty((4, LIKELY), np.float32)
    likely, phi = (
        np.empty(LIKELY, np.uint32),
        np.empty((min(longest, estimate.rows.size // topics), LIKELY), np.float32),
    )
    return Memory(words, times, expected, weights, likely, kinds[0], kinds[1], kinds[2], kinds[3], phi)


@unmanaged_kernel
def _different_words(positions, position_rows, memory):
    """Find the rows of the distinct words of a document, given the positions of its tokens; returns their number.

    The words are padded to a whole group with a count of 0.
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
def _fold(size, estimate, memory):
    """Find the likely topics of a document with `size` distinct words, and the expected counts; returns the number."""
    if size == 0:
        return 0
    _sum_evidence(size, estimate, memory)
    found = _likely_topics(memory.expected, memory.likely)
    _refine(size, found, estimate, memory)
    return found


@reordered_kernel
def _sum_evidence(size, estimate, memory):
    """Set the expected counts of all topics by one sweep over some of a document's words, evenly spread."""
    words, times, expected, weights = memory.words, memory.times, memory.expected, memory.weights
    topics, rows, alpha, shares = estimate.shares.size, estimate.rows, estimate.alpha, estimate.shares
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
def _likely_topics(expected, likely):
    """Set `likely` to the topics with at least _LEAST_EVIDENCE of the largest expected count; returns their number.

    If `likely` is too small for all of them, it gets the topics with the largest counts.
    """
    high = _largest(expected)
    least = np.float32(_LEAST_EVIDENCE) * high
    low = least
    if _above(expected, least) > likely.size:
        for _ in range(_BISECTIONS):
            least = np.float32(0.5) * (low + high)
            size = _above(expected, least)
            if size > likely.size:
                low = least
            else:
                high = least
                if 2 * size >= likely.size:
                    break
        least = high
    size = 0
    for k in range(expected.size):
        if (expected[k] >= least) & (size < likely.size):  # several may be largest
            likely[size] = k
            size += 1
    return size


@reordered_kernel
def _refine(size, found, estimate, memory):
    """Set the counts of the likely topics by `sweeps` sweeps over all of a document's words, in order."""
    words, times, likely, counts, phi = memory.words, memory.times, memory.likely, memory.counts, memory.phi
    topics, rows, alpha = estimate.shares.size, estimate.rows, memory.alpha
    scale, beta, tokens, total = np.float32(estimate.scale), np.float32(estimate.beta), np.float32(0.0), np.float32(0.0)
    for j in range(size):
        tokens += times[j]
    for a in range(found):
        total += memory.expected[likely[a]]
    for a in range(found):
        alpha[a] = estimate.alpha[likely[a]]
        counts[a] = memory.expected[likely[a]] * (tokens / total)
        memory.shares[a] = estimate.shares[likely[a]]
    for j in range(size):
        row, mine = np.int64(words[j]) * topics, phi[j]
        for a in range(found):
            mine[a] = (rows[row + likely[a]] * scale + beta) * memory.shares[a]
    gammas = memory.gammas
    for _ in range(estimate.sweeps):
        for j in range(size):
            mine, total = phi[j], np.float32(0.0)
            for a in range(found):
                gammas[a] = mine[a] * (counts[a] + alpha[a])
                total += gammas[a]
            kept, taken = np.float32(1.0) - times[j] / tokens, times[j] / total
            for a in range(found):
                counts[a] = kept * counts[a] + taken * gammas[a]


@unmanaged_kernel
def _store_mixture(found, memory, topics, counts):
    """Store the counts of a document's likely topics, except topics with too small a share; returns the number stored.

    topics, counts: arrays with the length of the document. If there are more topics than tokens, the smallest are left
    out.
    """
    expected = memory.counts[:found]
    largest, share = _largest(expected), np.float32(_LEAST_SHARE)
    while share < 1 and _above(expected, share * largest) > topics.size:
        share = min(share * np.float32(1.25), np.float32(1.0))
    size = 0
    for a in range(found):
        if (expected[a] > 0) & (expected[a] >= share * largest) & (size < topics.size):  # several may be largest
            topics[size], counts[size] = memory.likely[a], expected[a]
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
    """Return how many numbers are at least `least` and not 0."""
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
    """Add the expected counts of the documents before `last` that were not counted yet to the rows of words.

    words: uint32 (n,), rows of the words, or NO_ROW. ends: int64 (n,), end of each word's word-major positions. nexts:
    uint32 (n,), each word's first position that is not counted yet, advanced. offsets: int64 (D+1,). added: amount that
    a token adds to a row. totals: float64 (K,), sums of gamma, added to.
    """
    expected, seen, gammas = scratch.expected, scratch.seen, scratch.gammas
    topics = np.uint64(estimate.shares.size)
    for i in range(words.size):
        if words[i] == NO_ROW:
            continue
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
                seen[size] = k  # kept if the topic is new
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
    """Set `gammas` to the unnormalized gamma of a token over the topics of its document; returns their sum.

    word: row of the word, or NO_ROW.
    """
    if word == np.int64(NO_ROW):
        total = np.float32(0.0)
        for a in range(topics.size):
            gammas[a] = counts[a]
            total += gammas[a]
        return total
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
