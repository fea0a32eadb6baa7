"""Kernels that initialize the samplers by stochastic collapsed variational inference (SCVB0).

SCVB0 (Foulds, Boyles, DuBois, Smyth and Welling, KDD 2013, algorithm 1) maintains expected word counts N_kw, and
replaces a fraction of them by the counts of one minibatch of documents:

    N_kw = (1 - rho_t) * N_kw + rho_t * (C / |M|) * sum over the minibatch's tokens of w of gamma_k

where C is the number of tokens in the corpus and |M| the number of tokens in the minibatch. Here a minibatch takes two
steps. First, its documents are folded in, with phi_kw = (N_kw + beta) / (N_k + V*beta):

- one sweep over at most _EVIDENCE of a document's words, evenly spread, four at a time, adds up over all K topics

      n_kd = n_kd + c * gamma_k,   gamma_k ~ (n_kd + alpha_k) * phi_kw

  for a word with c tokens, and finds the likely topics;
- further sweeps over all of its words, restricted to the likely topics, start from these n_kd, scaled to the document's
  number of tokens N_d, and replace c tokens for a word with c tokens:

      n_kd = (1 - c / N_d) * n_kd + c * gamma_k

Second, word by word, so that each row has one writer,

    gamma_k ~ (n_kd^- + alpha_k) * phi_kw

is summed over the word's tokens. `^-` means n_kd without the token's own gamma, where this gamma is computed with the
token included. At the end every document is folded in once more, and a topic is drawn from this gamma for each of its
tokens: the state with which sampling starts.

Rows hold N_kw / `scale`, so that only the rows of the minibatch's words are written. Infrequent words may have no row:
documents are folded in without these words, C and |M| count the tokens of the other words, and V stays the number of
all words. The topic of a token of such a word is drawn from n_kd, or from the prior if the document has no other words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel, unmanaged_kernel
from ooc.rng import uniform
from samplers.lda.document_fold_in import NO_ROW, different_words, fold, new_memory, store_mixture
from samplers.lda.token_kernels import draw_prior
from samplers.lda.topic_tree import place_of_topic, topic_of_entry

_LEAST_TOTAL = np.float32(1e-30)  # minimum sum of gammas that is used as a divisor


class DocumentMixtures(NamedTuple):
    """Expected topic counts n_kd of the documents of a block.

    sizes: uint32 (D,), number of topics of document d.
    topics: topic type (N,) and counts: float32 (N,), a document's topics, stored at the positions of its tokens.
    documents: uint32 (N,), the document at each word-major position.
    """

    sizes: np.ndarray
    topics: np.ndarray
    counts: np.ndarray
    documents: np.ndarray


@unmanaged_kernel
def find_documents(offsets, positions, first, last, documents):
    """Set documents[p] to the index of the document at position p, for the documents from first to last."""
    for d in range(first, last):
        for token in range(offsets[d], offsets[d + 1]):
            documents[positions[token]] = d


@kernel
def fold_documents(offsets, positions, position_rows, first, last, estimate, mixtures):
    """Set the mixtures of the documents from first to last of a block; returns the number of their tokens with rows.

    offsets: int64 (D+1,), start of each document in `positions`, uint32 (N,).
    position_rows: uint32 (N,), row of the word at each position, or NO_ROW.
    """
    memory, tokens = new_memory(offsets, first, last, estimate), np.int64(0)
    for d in range(first, last):
        mine = slice(offsets[d], offsets[d + 1])
        size = different_words(positions[mine], position_rows, memory)
        found = fold(size, estimate, memory)
        mixtures.sizes[d] = store_mixture(found, memory, mixtures.topics[mine], mixtures.counts[mine])
        for j in range(size):
            tokens += np.int64(memory.times[j])
    return tokens


@kernel
def draw_documents(state, base, offsets, positions, position_rows, first, last, estimate, prior, drawn, key):
    """Draw the topics of all tokens of the documents from first to last of a block, given the estimate.

    state: topic type (rows, columns), set.
    base: row of position 0.
    prior: GroupPrior of the K topics.
    drawn: int64 (K,), incremented by the number of draws of each topic.
    key: key of the random stream; one draw per position. For the other arrays see `fold_documents`.
    """
    memory = new_memory(offsets, first, last, estimate)
    width = memory.likely.size
    gammas, counts, topics = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.uint32)
    for d in range(first, last):
        mine = positions[offsets[d] : offsets[d + 1]]
        found = fold(different_words(mine, position_rows, memory), estimate, memory)
        size = store_mixture(found, memory, topics[: mine.size], counts[: mine.size])
        word, j, total = np.int64(-1), -1, np.float32(0.0)
        for position in mine:
            if position_rows[position] != word:
                word = np.int64(position_rows[position])
                j += word != np.int64(NO_ROW)
                total = _set_gammas(word, j, counts[:size], memory, gammas)
            u, chosen = uniform(key, np.uint64(position)), np.int64(0)
            x = np.float32(u) * total
            for a in range(size):
                x -= gammas[a]
                chosen += (x >= 0) & (a < size - 1)
            topic = np.int64(topics[chosen]) if size else draw_prior(prior, u)
            drawn[topic] += 1
            for column in range(state.shape[1]):
                state[base + position, column] = topic


@inlined
def _set_gammas(word, j, counts, memory, gammas):
    """Set `gammas` to the unnormalized gamma of a token over the kept topics of its document; returns their sum.

    word: row of the word, or NO_ROW.
    j: index of the word among the document's words with rows.
    counts: counts of the kept topics.
    """
    total = np.float32(0.0)
    if word == np.int64(NO_ROW):
        for a in range(counts.size):
            gammas[a] = counts[a]
            total += counts[a]
        return total
    for a in range(counts.size):
        gammas[a] = memory.phi[j, memory.kept[a]] * (counts[a] + memory.alpha[memory.kept[a]])
        total += gammas[a]
    own, total = np.float32(1.0) / total, np.float32(0.0)
    for a in range(counts.size):
        gammas[a] = _without_own(gammas[a], own, counts[a], memory.alpha[memory.kept[a]])
        total += gammas[a]
    return total


@inlined
def _without_own(gamma, own, count, alpha):
    """Return an unnormalized gamma as if the token were not in its document.

    own: normalizing factor of the gammas.
    """
    return gamma * ((max(count - gamma * own, np.float32(0.0)) + alpha) / (count + alpha))


class Scvb0Scratch(NamedTuple):
    """Working memory of `count_words`, for K topics at the depth that is learned, and K_0 topics at depth 0.

    expected: float32 (K,), 0 between words.
    seen: int64 (K+1,), starts with the topics that are not 0.
    gammas: float32 (K+1,).
    ancestors: int64 (K_0,), 1 + the word's entry for each topic, 0 between words.
    """

    expected: np.ndarray
    seen: np.ndarray
    gammas: np.ndarray
    ancestors: np.ndarray


def new_scratch(topics: int, first_topics: int) -> Scvb0Scratch:
    seen, gammas = np.zeros(topics + 1, np.int64), np.zeros(topics + 1, np.float32)
    return Scvb0Scratch(np.zeros(topics, np.float32), seen, gammas, np.zeros(first_topics, np.int64))


@unmanaged_kernel
def count_words(words, ends, nexts, last, offsets, estimate, mixtures, added, scratch, totals):
    """Add the expected counts of the documents before `last` that have not been counted yet to the rows of words.

    words: uint32 (n,), rows of the words, or NO_ROW.
    ends: int64 (n,), end of each word's word-major positions.
    nexts: uint32 (n,), first position of each word that has not been counted yet, advanced.
    offsets: int64 (D+1,).
    added: amount that a token adds to a count.
    totals: float64 (K,), incremented by the sums of gamma.
    Returns the lowest and the highest index of the arena that changed; if none changed, the size of the arena and -1.
    """
    expected, seen, documents = scratch.expected, scratch.seen, mixtures.documents
    lowest, highest = np.int64(estimate.rows.size), np.int64(-1)
    for i in range(words.size):
        position, end, size = np.int64(nexts[i]), ends[i], 0
        if words[i] == NO_ROW or position == end or documents[position] >= last:
            continue
        _mark_entries(words[i], estimate.tree, scratch.ancestors)
        while position < end and documents[position] < last:
            d, times = documents[position], np.float32(0.0)
            while position < end and documents[position] == d:
                times += np.float32(1.0)
                position += 1
            mine = slice(offsets[d], offsets[d] + np.int64(mixtures.sizes[d]))
            of_document = mixtures.topics[mine]
            total = _find_gammas(words[i], of_document, mixtures.counts[mine], estimate, scratch)
            for a in range(of_document.size):
                gamma = scratch.gammas[a] * (times / total) if total > 0 else np.float32(0.0)
                k = np.uint64(of_document[a])
                seen[size] = k  # overwritten by the next topic unless this one is new
                size += (expected[k] == 0) & (gamma > 0)
                expected[k] += gamma
        nexts[i] = position
        for n in range(size):
            k = np.uint64(seen[n])
            place = _place(words[i], seen[n], estimate, scratch.ancestors)
            estimate.rows[place] += expected[k] * np.float32(added)
            lowest, highest = min(lowest, place), max(highest, place)
            totals[k] += expected[k]
            expected[k] = 0
        _clear_entries(words[i], estimate.tree, scratch.ancestors)
    return lowest, highest


@inlined
def _mark_entries(word, tree, ancestors):
    """Store the index of each of a word's entries under its topic, if topics were split."""
    if tree.depth:
        for entry in range(tree.entries[word], tree.entries[np.int64(word) + 1]):
            ancestors[topic_of_entry(tree, entry)] = entry + 1


@inlined
def _clear_entries(word, tree, ancestors):
    if tree.depth:
        for entry in range(tree.entries[word], tree.entries[np.int64(word) + 1]):
            ancestors[topic_of_entry(tree, entry)] = 0


@inlined
def _place(word, topic, estimate, ancestors):
    """Return the index in the arena of a word's count for a topic, or -1 if there is no such count."""
    if estimate.tree.depth == 0:
        return np.int64(word) * estimate.topics + np.int64(topic)
    entry = ancestors[np.int64(topic) // estimate.tree.descendants] - 1
    return place_of_topic(estimate.tree, entry, np.int64(topic)) if entry >= 0 else np.int64(-1)


@unmanaged_kernel
def _find_gammas(word, topics, counts, estimate, scratch):
    """Set the unnormalized gammas of a token over the topics of its document; returns their sum.

    word: row of the word. The gamma of a topic is 0 if the arena has no count of the word for the topic.
    """
    gammas, first = scratch.gammas, estimate.tree.topics[estimate.tree.depth]
    scale, beta, total = np.float32(estimate.scale), np.float32(estimate.beta), np.float32(0.0)
    for a in range(topics.size):
        place, k = _place(word, topics[a], estimate, scratch.ancestors), first + np.int64(topics[a])
        gammas[a] = np.float32(0.0)
        if place >= 0:
            gammas[a] = (counts[a] + estimate.alpha[k]) * ((estimate.rows[place] * scale + beta) * estimate.shares[k])
        total += gammas[a]
    own, total = np.float32(1.0) / max(total, _LEAST_TOTAL), np.float32(0.0)
    for a in range(topics.size):
        gammas[a] = _without_own(gammas[a], own, counts[a], estimate.alpha[first + np.int64(topics[a])])
        total += gammas[a]
    return total
