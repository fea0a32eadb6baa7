"""A start for the samplers by stochastic collapsed variational inference: kernels.

SCVB0 (Foulds, Boyles, DuBois, Smyth and Welling, KDD 2013, algorithm 1) keeps expected counts N_kw of words, and
replaces a part of them by what one minibatch of documents says:

    N_kw = (1 - rho_t) * N_kw + rho_t * (C / |M|) * sum over the minibatch's tokens of w of gamma_k

C being the tokens of the corpus and |M| those of the minibatch. Here a minibatch takes two steps. Its documents are
folded in, n_kd being found by the CVB0 update of `samplers.fold_in`; then, word by word, so that a row has one writer,

    gamma_k ~ (n_kd^- + alpha_k) * (N_kw + beta) / (N_k + V*beta)

is summed over the word's tokens. In `^-` the token's own gamma, as it would be if it were not taken out, is taken out.
In the end every document is folded in once more, and a topic is drawn from gamma for each of its tokens: the state with
which sampling starts.

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
_LEAST_FIRST_SHARE = 0.01  # of the largest n_kd after the first sweep: topics with less take part in no more
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
    memory = _memory(offsets, first, last, estimate)
    for d in range(first, last):
        work, _, active = _fold(positions[offsets[d] : offsets[d + 1]], words_at, estimate, memory)
        _store_mixture(work[-3], active, d, offsets[d], offsets[d + 1], mixtures)


@kernel
def draw_documents(state, base, offsets, positions, words_at, first, last, estimate, drawn, key):
    """Draw the topics of the tokens of the documents from first to last, of a block, given the estimate.

    state: topic type (rows, columns), set; base: row of position 0. drawn: int64 (K,), how often each topic was, added
    to. key: the random stream; a draw for each position. For the others see `fold_documents`.
    """
    memory = _memory(offsets, first, last, estimate)
    for d in range(first, last):
        mine = positions[offsets[d] : offsets[d + 1]]
        work, words, active = _fold(mine, words_at, estimate, memory)
        several = _drop(work, active, memory.work, _LEAST_SHARE)
        active, work = active[:several], _room(memory.work, words.size, several)
        sweep(work, work.shape[1], memory.times[: words.size])
        j = 0
        for position in mine:
            while words[j] != words_at[position]:
                j += 1
            gamma = work[words.size + j]
            x, chosen = np.float32(uniform(key, np.uint64(position))), np.int64(0)
            for a in range(active.size):
                x -= gamma[a]
                chosen += (x >= 0) & (a < active.size - 1)
            drawn[active[chosen]] += 1
            for column in range(state.shape[1]):
                state[base + position, column] = active[chosen]


class Memory(NamedTuple):
    """What documents are folded in with. words: uint32 (U,) and times: float32 (U,), of the different words of one.
    active: int64 (K,), topics. work: float32, for `_room`."""

    words: np.ndarray
    times: np.ndarray
    active: np.ndarray
    work: np.ndarray


@kernel
def _memory(offsets, first, last, estimate):
    """Room for the longest of the documents from first to last."""
    longest = 0
    for d in range(first, last):
        longest = max(longest, offsets[d + 1] - offsets[d])
    topics = estimate.shares.size
    most = min(longest, estimate.rows.size // topics)
    work = np.empty((2 * most + 3) * _columns(topics), np.float32)
    return Memory(np.empty(most, np.uint32), np.empty(most, np.float32), np.empty(topics, np.int64), work)


@kernel
def _fold(positions, words_at, estimate, memory):
    """Fold in a document with tokens at some positions; returns what `sweep` left, its words, and the topics left."""
    size, topics = 0, estimate.shares.size
    for position in positions:
        word = words_at[position]
        if size and memory.words[size - 1] == word:
            memory.times[size - 1] += np.float32(1.0)
        else:
            memory.words[size], memory.times[size] = word, np.float32(1.0)
            size += 1
    words, times, active = memory.words[:size], memory.times[:size], memory.active
    for k in range(topics):
        active[k] = k
    work, several = _room(memory.work, size, topics), topics
    _prepare(work, words, estimate)
    sweep(work, work.shape[1], times)
    if topics > LANES:
        several = _drop(work, active, memory.work, _LEAST_FIRST_SHARE)
        work = _room(memory.work, size, several)
    for _ in range(_SWEEPS - 1):
        sweep(work, work.shape[1], times)
    return work, words, active[:several]


@inlined
def _columns(topics):
    return -(-topics // LANES) * LANES


@inlined
def _room(memory, words, topics):
    """What `sweep` takes for so many words and topics."""
    rows, columns = 2 * words + 3, _columns(topics)
    return memory[: rows * columns].reshape(rows, columns)


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
def _drop(work, active, memory, share):
    """Drop the topics with too small a share after a sweep; returns how many of `active` are left, its first ones.

    What is kept of `work` moves to the beginning of `memory`, in which it lies, as `_room` has it for so many.
    """
    expected = work[work.shape[0] - 3]
    least = np.float32(share) * _largest(expected)
    places, size = memory[work.size - work.shape[1] :], 0
    for a in range(active.size):
        places[size] = a  # in the row that is free to work in
        size += expected[a] >= least
    columns = _columns(size)
    for j in range(work.shape[0] - 1):
        for a in range(size):
            memory[j * columns + a] = work[j, np.int64(places[a])]
        memory[j * columns + size : (j + 1) * columns] = np.float32(0.0)
    for a in range(size):
        active[a] = active[np.int64(places[a])]
    return size


@unmanaged_kernel
def _store_mixture(expected, active, d, start, end, mixtures):
    """Store the counts of a document with tokens from start to end, but for those with too small a share.

    expected: float32 (W,), of the topics `active`, int64 (A,). A document has room for no more topics than tokens: the
    smallest are left out.
    """
    largest, share = _largest(expected), np.float32(_LEAST_SHARE)
    while share < 1 and _above(expected, share * largest) > end - start:
        share = min(share * np.float32(1.25), np.float32(1.0))
    place = start
    for a in range(active.size):
        if (expected[a] > 0) & (expected[a] >= share * largest) & (place < end):  # the largest may be several
            mixtures.topics[place] = active[a]
            mixtures.counts[place] = expected[a]
            place += 1
    mixtures.sizes[d] = place - start


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
def count_words(words, word_offsets, offsets, first, last, estimate, mixtures, added, scratch, totals):
    """Add to the rows of some words what the documents from first to last say.

    words: uint32 (n,); word_offsets: int64 (n+1,), their word-major positions. offsets: int64 (D+1,). added: to a row,
    for a token. totals: float64 (K,), sums of gamma, added to.
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
            one = np.float32(1.0) / _find_gammas(estimate, row, mixtures, start, several, gammas)
            for a in range(several):
                k = np.int64(mixtures.topics[start + a])
                seen[size] = k  # kept if it is new
                size += expected[k] == 0
                expected[k] += gammas[a] * one
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
