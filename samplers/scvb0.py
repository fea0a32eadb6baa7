"""A start for the samplers by stochastic collapsed variational inference: kernels.

SCVB0 (Foulds, Boyles, DuBois, Smyth and Welling, KDD 2013, algorithm 1) keeps expected counts N_kw of words, and
replaces a part of them by what one minibatch of documents says:

    N_kw = (1 - rho_t) * N_kw + rho_t * (C / |M|) * sum over the minibatch's tokens of w of gamma_k

C being the tokens of the corpus and |M| those of the minibatch. Here a minibatch takes two steps. Its documents are
folded in, n_kd being found by the CVB0 update of `samplers.fold_in`; then, word by word, so that a row has one writer,

    gamma_k ~ (n_kd^- + alpha_k) * (N_kw + beta) / (N_k + V*beta)

is summed over the word's tokens, and a topic is drawn from it for each: the state with which sampling starts. In `^-`
the token's own gamma, as it would be if it were not taken out, is taken out.

Rows hold N_kw / `scale`, so that only those of the minibatch's words are written.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel, unmanaged_kernel
from samplers.documents import first_above
from samplers.fold_in import LANES, sweep
from samplers.prefetch import prefetch
from samplers.streams import uniform

_SWEEPS = 3  # of a document, measured: as good as 5
_LEAST_SHARE = 0.1  # of the largest n_kd: topics with less are left out, measured: as good as all of them
_AHEAD = 2  # words by which rows are asked for before they are read


class Estimate(NamedTuple):
    """Expected counts.

    rows: float32 (V*K,), one after the other. scale: what they are to be multiplied by. shares: float32 (K,),
    1 / (N_k + V*beta). alpha: float32 (K,). beta.
    """

    rows: np.ndarray
    scale: float
    shares: np.ndarray
    alpha: np.ndarray
    beta: float


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
def fold_documents(offsets, positions, words_at, first, last, estimate, mixtures):
    """Set the mixtures of the documents from first to last, of a block.

    offsets: int64 (D+1,); positions: uint32 (N,); words_at: uint32 (N,), the word at each position.
    """
    longest = 0
    for d in range(first, last):
        longest = max(longest, offsets[d + 1] - offsets[d])
    topics = estimate.shares.size
    most = min(longest, estimate.rows.size // topics)
    words, times = np.empty(most, np.uint32), np.empty(most, np.float32)
    work = np.empty((2 * most + 3, -(-topics // LANES) * LANES), np.float32)
    for d in range(first, last):
        size = 0
        for token in range(offsets[d], offsets[d + 1]):
            word = words_at[positions[token]]
            if size and words[size - 1] == word:
                times[size - 1] += np.float32(1.0)
            else:
                words[size], times[size] = word, np.float32(1.0)
                size += 1
        mine = work[: 2 * size + 3]
        _prepare(mine, words[:size], estimate)
        for _ in range(_SWEEPS):
            sweep(mine, work.shape[1], times[:size])
        _store_mixture(mine[-3], d, offsets[d], offsets[d + 1], mixtures)


@unmanaged_kernel
def _prepare(work, words, estimate):
    """Set what `sweep` takes, float32 (2U + 3, W), for words, uint32 (U,): phi of each, alpha, and no counts yet."""
    topics, rows = estimate.shares.size, estimate.rows
    scale, beta = np.float32(estimate.scale), np.float32(estimate.beta)
    for j in range(words.size):
        row, ahead = np.int64(words[j]) * topics, np.int64(words[min(j + _AHEAD, words.size - 1)]) * topics
        for k in range(0, topics, 16):
            prefetch(rows, ahead + k)
        for k in range(topics):
            work[j, k] = (rows[row + k] * scale + beta) * estimate.shares[k]
        work[j, topics:] = np.float32(0.0)
    work[words.size :] = np.float32(0.0)
    for k in range(topics):
        work[work.shape[0] - 2, k] = estimate.alpha[k]


@unmanaged_kernel
def _store_mixture(expected, d, start, end, mixtures):
    """Store the counts of a document with tokens from start to end, but for those with too small a share.

    expected: float32 (W,). A document has room for no more topics than tokens: the smallest are left out.
    """
    largest = np.float32(0.0)
    for count in expected:
        largest = max(largest, count)
    share = np.float32(_LEAST_SHARE)
    while share < 1 and _above(expected, share * largest) > end - start:
        share = min(share * np.float32(1.25), np.float32(1.0))
    place = start
    for k in range(expected.size):
        if (expected[k] > 0) & (expected[k] >= share * largest) & (place < end):  # the largest may be several
            mixtures.topics[place] = k
            mixtures.counts[place] = expected[k]
            place += 1
    mixtures.sizes[d] = place - start


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
def count_words(
    state,
    base,
    words,
    word_offsets,
    offsets,
    first,
    last,
    estimate,
    mixtures,
    added,
    scratch,
    totals,
    drawn,
    key,
):
    """Add to the rows of some words what the documents from first to last say, and draw the topics of their tokens.

    state: topic type (rows, columns), set; base: row of position 0. words: uint32 (n,); word_offsets: int64 (n+1,),
    their word-major positions. offsets: int64 (D+1,). added: to a row, for a token. totals: float64 (K,), sums of
    gamma, added to. drawn: int64 (K,), how often each topic was, added to. key: the random stream; a draw for each
    position.
    """
    expected, seen, gammas = scratch.expected, scratch.seen, scratch.gammas
    topics = estimate.shares.size
    for i in range(words.size):
        row, size = np.int64(words[i]) * topics, 0
        begin = first_above(mixtures.documents, word_offsets[i], word_offsets[i + 1], np.int64(first) - 1)
        end = first_above(mixtures.documents, begin, word_offsets[i + 1], np.int64(last) - 1)
        for position in range(begin, end):
            d = mixtures.documents[position]
            start, several = offsets[d], np.int64(mixtures.sizes[d])
            total = _find_gammas(estimate, row, mixtures, start, several, gammas)
            x, one = np.float32(uniform(key, np.uint64(position))) * total, np.float32(1.0) / total
            chosen = np.int64(0)
            for a in range(several):
                k = np.int64(mixtures.topics[start + a])
                seen[size] = k  # kept if it is new
                size += expected[k] == 0
                expected[k] += gammas[a] * one
                x -= gammas[a]
                chosen += (x >= 0) & (a < several - 1)
            topic = mixtures.topics[start + chosen]
            drawn[topic] += 1
            for column in range(state.shape[1]):
                state[base + position, column] = topic
        for place in range(size):
            k = seen[place]
            estimate.rows[row + k] += expected[k] * np.float32(added)
            totals[k] += expected[k]
            expected[k] = 0


@inlined
def _find_gammas(estimate, row, mixtures, start, size, gammas):
    """Set `gammas` to those of a token over the topics of its document, up to a factor; returns their sum."""
    scale, beta = np.float32(estimate.scale), np.float32(estimate.beta)
    total = np.float32(0.0)
    for a in range(size):
        k = np.int64(mixtures.topics[start + a])
        phi = (estimate.rows[row + k] * scale + beta) * estimate.shares[k]
        gammas[a] = (mixtures.counts[start + a] + estimate.alpha[k]) * phi
        total += gammas[a]
    own, total = np.float32(1.0) / total, np.float32(0.0)
    for a in range(size):
        count, alpha = mixtures.counts[start + a], estimate.alpha[np.int64(mixtures.topics[start + a])]
        gammas[a] *= (max(count - gammas[a] * own, np.float32(0.0)) + alpha) / (count + alpha)
        total += gammas[a]
    return total
