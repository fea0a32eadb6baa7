"""Topics of documents under a trained model: kernels.

The topics' words are fixed, phi_kw = (n_kw + beta) / (n_k + V*beta). A document's expected counts are found by the
zero-order collapsed variational update (CVB0: Asuncion, Welling, Smyth and Teh, UAI 2009, eq. 18) with fixed phi:

    gamma_jk ~ phi_kj * (n_k^- + alpha_k),   n_k = sum_j c_j * gamma_jk

over the document's different words j, c_j times each, until the counts move by less than a tolerance. It draws no
random numbers. Only topics that some word of the document has been seen in take part; the others keep n_k = 0 (their
phi is below beta / (n_k + V*beta)), but their prior counts in full wherever a probability is computed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel, reordered_kernel
from samplers.streams import bits

MOST_ROUNDS = 100
TOLERANCE = 1e-3  # of a document's tokens


class Topics(NamedTuple):
    """A trained model as the kernels read it.

    offsets, topics, counts: sparse rows n_kw, a row for each word. scale: float64 (K,), 1 / (n_k + V*beta).
    alpha: float64 (K,). beta. prior: float64 (V,), sum_k alpha_k * phi_kw.
    """

    offsets: np.ndarray
    topics: np.ndarray
    counts: np.ndarray
    scale: np.ndarray
    alpha: np.ndarray
    beta: float
    prior: np.ndarray


@kernel
def prior_of_words(offsets, topics, counts, scale, alpha, beta):
    """float64 (V,): sum_k alpha_k * phi_kw, the probability of each word before any is observed, times abar."""
    rest = beta * (alpha * scale).sum()
    prior = np.full(offsets.size - 1, rest)
    for word in range(offsets.size - 1):
        for entry in range(offsets[word], offsets[word + 1]):
            k = topics[entry]
            prior[word] += alpha[k] * counts[entry] * scale[k]
    return prior


@kernel
def active_topics(words, model, place):
    """The topics that occur in the rows of some words, ascending: int64 (A,).

    place: int32 (K,), all -1; set to each topic's place in the result.
    """
    entries = 0
    for word in words:
        entries += model.offsets[word + 1] - model.offsets[word]
    active = np.empty(min(entries, model.scale.size), np.int64)
    size = 0
    for word in words:
        for entry in range(model.offsets[word], model.offsets[word + 1]):
            k = model.topics[entry]
            if place[k] < 0:
                place[k] = 0
                active[size] = k
                size += 1
    active = active[:size]
    active.sort()
    for a in range(size):
        place[active[a]] = a
    return active


@kernel
def fold_in(words, times, model, place):
    """Expected topic counts of a document.

    words: uint32 (U,), its different words. times: int64 (U,), how often each occurs. model: Topics. place: int32
    (K,), all -1, as it is again afterwards. Returns the topics that take part, int64 (A,) ascending, and their counts
    n_k, float64 (A,), which sum to the document's tokens (to 0 if A is 0).
    """
    active = active_topics(words, model, place)
    work = np.zeros((2 * words.size + 3, active.size), np.float32)
    phi, expected, alpha = work[: words.size], work[-3], work[-2]
    for j in range(words.size):
        for a in range(active.size):
            phi[j, a] = model.beta * model.scale[active[a]]
        for entry in range(model.offsets[words[j]], model.offsets[words[j] + 1]):
            k = model.topics[entry]
            phi[j, place[k]] = (model.counts[entry] + model.beta) * model.scale[k]
    place[active] = -1
    for a in range(active.size):
        alpha[a] = model.alpha[active[a]]
    if active.size:
        _iterate(work, times.astype(np.float32))
    return active, expected.astype(np.float64)


@reordered_kernel
def _iterate(work, times):
    """CVB0 to convergence.

    work: float32 (2U + 3, A): phi (U rows), gamma (U rows, zero), n_k (zero), alpha, and one to work in; gamma and n_k
    are set. All in one array: whether a loop runs as vectors, and so the order of its sums, depends on how far its
    arrays are from one another (the compiler tests at run time whether they overlap), which must not be chance.
    """
    expected, alpha, fresh = work[-3], work[-2], work[-1]
    tolerance = np.float32(TOLERANCE) * times.sum()
    for sweep in range(MOST_ROUNDS):
        moved = np.float32(0.0)
        for j in range(times.size):
            phi, gamma, repeats = work[j], work[times.size + j], times[j]
            total = np.float32(0.0)
            for a in range(alpha.size):
                fresh[a] = phi[a] * (max(expected[a] - gamma[a], np.float32(0.0)) + alpha[a])
                total += fresh[a]
            factor = np.float32(1.0) / total
            change = np.float32(0.0)
            for a in range(alpha.size):
                difference = fresh[a] * factor - gamma[a]
                gamma[a] += difference
                expected[a] += repeats * difference
                change += abs(difference)
            moved += repeats * change
        if sweep and moved < tolerance:
            break


@kernel
def different_words(ranks, word_ids, words, times):
    """The different words of a document, whose tokens' ranks come sorted; returns how many.

    ranks: uint32 (n,). word_ids: uint32 (V,), word of each rank. words: uint32 (n,) and times: int64 (n,), set.
    """
    size = 0
    for i in range(ranks.size):
        if i and ranks[i] == ranks[i - 1]:
            times[size - 1] += 1
        else:
            words[size] = word_ids[ranks[i]]
            times[size] = 1
            size += 1
    return size


@kernel
def document_mixtures(offsets, ranks, word_ids, model, mixtures, rows):
    """Topic mixtures theta_k = (n_k + alpha_k) / (N + abar) of the documents of a part.

    offsets: int64 (D+1,), where each document begins in `ranks`, uint32. mixtures: float32 (all documents, K), set in
    the rows that `rows`, uint64 (D,), names.
    """
    place = np.full(model.scale.size, -1, np.int32)
    words = np.empty(ranks.size, np.uint32)
    times = np.empty(ranks.size, np.int64)
    mass = model.alpha.sum()
    for d in range(offsets.size - 1):
        size = different_words(ranks[offsets[d] : offsets[d + 1]], word_ids, words, times)
        active, expected = fold_in(words[:size], times[:size], model, place)
        total = expected.sum() + mass
        row = mixtures[rows[d]]
        for k in range(row.size):
            row[k] = model.alpha[k] / total
        for a in range(active.size):
            row[active[a]] += expected[a] / total


@kernel
def document_top_topics(offsets, ranks, word_ids, model, topics, weights, rows):
    """The largest entries of the topic mixtures, as `document_mixtures` computes them, largest first.

    topics: uint32 (all documents, T) and weights: float32 (all documents, T), set in the rows that `rows` names.
    """
    place = np.full(model.scale.size, -1, np.int32)
    words = np.empty(ranks.size, np.uint32)
    times = np.empty(ranks.size, np.int64)
    mass = model.alpha.sum()
    by_prior = np.argsort(-model.alpha, kind="mergesort")
    top = topics.shape[1]
    for d in range(offsets.size - 1):
        size = different_words(ranks[offsets[d] : offsets[d + 1]], word_ids, words, times)
        active, expected = fold_in(words[:size], times[:size], model, place)
        total = expected.sum() + mass
        # A topic with no count of its own can only be among the first T by its prior.
        place[active] = 0
        rest = np.array([k for k in by_prior[: top + active.size] if place[k] < 0])[:top]
        place[active] = -1
        candidates = np.concatenate((active, rest))
        share = model.alpha[candidates]
        share[: active.size] += expected
        order = np.argsort(-share, kind="mergesort")[:top]
        for t in range(top):
            topics[rows[d], t] = candidates[order[t]]
            weights[rows[d], t] = share[order[t]] / total


@kernel
def completion_likelihood(offsets, ranks, word_ids, model, numbers, key):
    """Document completion: predict half of each document's different words from the other half.

    numbers: uint64 (D,), original number of each document: with `key` it decides which words are observed. Returns
    the log-likelihood of the predicted tokens, and their number.
    """
    place = np.full(model.scale.size, -1, np.int32)
    words = np.empty(ranks.size, np.uint32)
    times = np.empty(ranks.size, np.int64)
    mixture = np.zeros(model.scale.size)
    mass = model.alpha.sum()
    likelihood, predicted = 0.0, 0
    for d in range(offsets.size - 1):
        size = different_words(ranks[offsets[d] : offsets[d + 1]], word_ids, words, times)
        observed = (size + 1) // 2
        for i in range(size - 1, 0, -1):  # Fisher and Yates
            j = bits(bits(key, numbers[d]), np.uint64(i)) % np.uint64(i + 1)
            words[i], words[j] = words[j], words[i]
            times[i], times[j] = times[j], times[i]
        active, expected = fold_in(words[:observed], times[:observed], model, place)
        total = expected.sum() + mass
        mixture[active] = expected
        for i in range(observed, size):
            probability = model.prior[words[i]]
            for entry in range(model.offsets[words[i]], model.offsets[words[i] + 1]):
                k = model.topics[entry]
                probability += mixture[k] * model.counts[entry] * model.scale[k]
            probability += model.beta * (expected * model.scale[active]).sum()
            likelihood += times[i] * math.log(probability / total)
            predicted += times[i]
        mixture[active] = 0.0
    return likelihood, predicted
