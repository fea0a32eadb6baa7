"""Kernels that infer the topics of documents under a trained model.

The words of topics are fixed, phi_kw = (n_kw + beta) / (n_k + V*beta). The expected counts of a document are found by
the zero-order collapsed variational update (CVB0: Asuncion, Welling, Smyth and Teh, UAI 2009, eq. 18) with fixed phi:

    gamma_jk ~ phi_kj * (n_k^- + alpha_k),   n_k = sum_j c_j * gamma_jk

for the document's distinct words j with counts c_j, swept one after another from n = 0. No random numbers are drawn.
Few topics matter to a document, so most are dropped early. Dropped topics keep n_k = 0, but their full prior is
included wherever a probability is computed. These topics are dropped:

- before the first sweep, topics with less than LEAST_EVIDENCE times the largest evidence. The evidence is n_k after one
step from n = 0, for each word separately: sum_j c_j * alpha_k * n_kw_j / (n_k + V*beta) / prior_j, where prior_j is
  sum_k alpha_k * phi_kj. It is 0 for topics in which none of the words has been seen;
- after FIRST_SWEEPS sweeps, topics with less than LEAST_SHARE times the largest n_k.

A word prior can keep a word out of most topics. If a document has such a word, the topics in which the word has been
seen are never dropped, as its tokens can be in no other topic.

The sweeps end when a sweep has moved less than TOLERANCE of the tokens. These values were chosen by held-out
likelihood, which is a little lower with more topics and sweeps (docs/benchmarks.md has the measurements).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel, reordered_kernel
from ooc.rng import random_bits

LEAST_EVIDENCE = 0.05
FIRST_SWEEPS = 2
LEAST_SHARE = 0.01
TOLERANCE = 0.1
MOST_SWEEPS = 100
LANES = 32  # the number of columns is a multiple of this, so that loops over columns consist of full vectors only


class FoldInModel(NamedTuple):
    """A trained model in the form that the kernels use. offsets, topics, counts: sparse rows n_kw, one per word. scale:
    float64 (K,), 1 / (n_k + V*beta). alpha: float64 (K,). beta: scalar. prior: float64 (V,), sum_k alpha_k * phi_kw.
    restricted: bool (V,), words whose prior in some topic is less than beta; (0,) if there are none.
    """

    offsets: np.ndarray
    topics: np.ndarray
    counts: np.ndarray
    scale: np.ndarray
    alpha: np.ndarray
    beta: float
    prior: np.ndarray
    restricted: np.ndarray = np.zeros(0, np.bool_)


class FoldInScratch(NamedTuple):
    """Working memory of `fold_in`, which restores it on return. place: int32 (K,), all -1. evidence: float32 (K,), all
    0."""

    place: np.ndarray
    evidence: np.ndarray


@kernel
def new_scratch(topics):
    """Return working memory for K topics."""
    return FoldInScratch(np.full(topics, -1, np.int32), np.zeros(topics, np.float32))


@kernel
def prior_of_words(offsets, topics, counts, scale, alpha, beta):
    """Return sum_k alpha_k * phi_kw, float64 (V,): abar times the probability of each word before any is observed."""
    rest = beta * (alpha * scale).sum()
    prior = np.full(offsets.size - 1, rest)
    for word in range(offsets.size - 1):
        for entry in range(offsets[word], offsets[word + 1]):
            k = topics[entry]
            prior[word] += alpha[k] * counts[entry] * scale[k]
        prior[word] = max(prior[word], 1e-12 * rest)  # positive also where counts below 0 cancel the rest
    return prior


@kernel
def has_restricted(words, model):
    """Return whether one of the words is restricted to some topics."""
    if model.restricted.size:
        for word in words:
            if model.restricted[word]:
                return True
    return False


@inlined
def require_topic(k, evidence, seen, size):
    seen[size] = k  # overwritten by the next topic unless this one is new
    size += evidence[k] == 0
    evidence[k] = np.inf
    return size


@kernel
def require_topics(words, model, evidence, seen, size):
    """Give infinite evidence to the topics in which restricted words have been seen, and append new ones to `seen`.

    If such a word has not been seen, these are all topics whose prior for it is at least beta. Returns the number of
    topics in `seen`, int64 (K+1,), of which there are `size` before.
    """
    for word in words:
        if not model.restricted[word]:
            continue
        row, is_seen = range(model.offsets[word], model.offsets[word + 1]), False
        for entry in row:
            if model.counts[entry] > 0:
                size, is_seen = require_topic(model.topics[entry], evidence, seen, size), True
        if not is_seen:
            excluded = np.zeros(evidence.size, np.bool_)
            for entry in row:
                excluded[model.topics[entry]] = model.counts[entry] < 0
            for k in range(evidence.size):
                if not excluded[k]:
                    size = require_topic(k, evidence, seen, size)
    return size


@kernel
def likely_topics(words, times, model, scratch):
    """Return the topics with enough evidence, int64 (A,), ascending; sets `scratch.place` to the index of each."""
    place, evidence = scratch
    restricted = has_restricted(words, model)
    entries = 0
    for word in words:
        entries += model.offsets[word + 1] - model.offsets[word]
    seen = np.empty(place.size + 1 if restricted else min(entries, place.size) + 1, np.int64)
    size = 0
    for j in range(words.size):
        weight = np.float32(times[j] / model.prior[words[j]])
        for entry in range(model.offsets[words[j]], model.offsets[words[j] + 1]):
            if model.counts[entry] > 0:  # not if the prior of the word is less than beta
                k = model.topics[entry]
                seen[size] = k  # overwritten by the next topic unless this one is new
                size += evidence[k] == 0
                evidence[k] += weight * np.float32(model.counts[entry])
    largest = np.float32(0.0)
    for k in seen[:size]:
        evidence[k] *= np.float32(model.alpha[k] * model.scale[k])
        largest = max(largest, evidence[k])
    if restricted:
        size = require_topics(words, model, evidence, seen, size)
    seen, likely = seen[:size], np.empty(size, np.int64)
    size = 0
    for k in seen:
        likely[size] = k  # overwritten by the next topic unless this one has enough evidence
        size += evidence[k] >= np.float32(LEAST_EVIDENCE) * largest
        evidence[k] = 0
    likely = np.sort(likely[:size])
    for a in range(size):
        place[likely[a]] = a
    return likely


@kernel
def document_arrays(words, model, active, place):
    """Return the initial array for `sweep`: float32 (2U + 3, W), where W > A is a multiple of LANES.

    words: uint32 (U,). active: int64 (A,). place: int32 (K,), index in `active` of each topic; -1 for all other topics,
    so that their expected counts go to the last column, which has no topic and a scale of 0.
    """
    work = np.zeros((2 * words.size + 3, (active.size // LANES + 1) * LANES), np.float32)
    alpha, scale, beta = work[-2], work[-1], np.float32(model.beta)
    for a in range(active.size):
        alpha[a] = model.alpha[active[a]]
        scale[a] = model.scale[active[a]]
    for j in range(words.size):
        phi = work[j]
        row = slice(model.offsets[words[j]], model.offsets[words[j] + 1])
        topics, counts = model.topics[row], model.counts[row]
        for entry in range(topics.size):
            phi[place[topics[entry]]] = counts[entry]
        for a in range(phi.size):
            phi[a] = (phi[a] + beta) * scale[a]
    return work


@kernel
def drop_topics(work, active):
    """Drop the topics whose counts are too small, and move the columns of the other topics to the left.

    work: float32 (2U + 3, W), array of `sweep`, changed. active: int64 (A,). Returns the remaining `active`, and the
    number of columns now in use, a multiple of LANES.
    """
    expected = work[-3]
    least = np.float32(LEAST_SHARE) * expected.max()
    keep = np.empty(active.size, np.int64)
    size = 0
    for a in range(active.size):
        keep[size] = a
        size += expected[a] >= least
    width = -(-size // LANES) * LANES
    for row in work:
        for a in range(size):
            row[a] = row[keep[a]]
        row[size:width] = 0
    return active[keep[:size]], width


@kernel
def folded_in(words, times, model, scratch):
    """Infer the topics of a document.

    words: uint32 (U,), its distinct words. times: int64 (U,), their counts. model: FoldInModel. scratch: FoldInScratch.
    Returns the topics that were not dropped, int64 (A,), ascending, and the array of `sweep`, float32 (2U + 3, W),
    whose first A columns are those of the topics.
    """
    active = likely_topics(words, times, model, scratch)
    work = document_arrays(words, model, active, scratch.place)
    scratch.place[active] = -1
    if active.size:
        repeats = times.astype(np.float32)
        for _ in range(FIRST_SWEEPS):
            sweep(work, work.shape[1], repeats)
        width = work.shape[1]
        if not has_restricted(words, model):
            active, width = drop_topics(work, active)
        enough = np.float32(TOLERANCE) * repeats.sum()
        for _ in range(MOST_SWEEPS):
            if sweep(work, width, repeats) < enough:
                break
    return active, work


@kernel
def fold_in(words, times, model, scratch):
    """Return the topics of a document that were not dropped, int64 (A,), ascending, and their expected counts n_k,
    float64 (A,), which sum to the number of tokens of the document (or to 0 if A is 0); see `folded_in`."""
    active, work = folded_in(words, times, model, scratch)
    return active, work[-3, : active.size].astype(np.float64)


@reordered_kernel
def sweep(work, width, times):
    """Do one CVB0 update of each word of a document; returns the L1 change of the expected topic counts, in tokens.

    work: float32 (2U + 3, W), of which the first `width` columns are in use. Its rows are phi (U rows), gamma (U rows)
    and n_k, both updated, alpha, and a row of working memory. times: float32 (U,). Everything is in one array because
    the compiler tests at run time whether arrays overlap: with separate arrays, their distance would decide whether a
    loop is vectorized, and so the order of its sums.
    """
    expected, alpha, fresh = work[-3], work[-2], work[-1]
    moved = np.float32(0.0)
    for j in range(times.size):
        phi, gamma, repeats = work[j], work[times.size + j], times[j]
        total = np.float32(0.0)
        for a in range(width):
            fresh[a] = phi[a] * (max(expected[a] - gamma[a], np.float32(0.0)) + alpha[a])
            total += fresh[a]
        if total == 0.0:  # all topics in which the word can occur were dropped: its tokens are left out
            continue
        factor = np.float32(1.0) / total
        change = np.float32(0.0)
        for a in range(width):
            difference = fresh[a] * factor - gamma[a]
            gamma[a] += difference
            expected[a] += repeats * difference
            change += abs(difference)
        moved += repeats * change
    return moved


@kernel
def different_words(ranks, word_ids, words, times):
    """Find the distinct words of a document from the sorted ranks of its tokens, and count their tokens.

    ranks: uint32 (n,). word_ids: uint32 (V,), word of each rank. words: uint32 (n,), set to the distinct words. times:
    int64 (n,), set to their counts. Returns the number of distinct words.
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
def trained_mixtures(offsets, topics, counts, alpha, mixtures):
    """Compute the topic mixtures theta_k = (n_k + alpha_k) / (N + abar) of D documents from known counts.

    offsets: int64 (D+1,), topics and counts: sparse rows n_kd. alpha: float64 (K,). mixtures: float32 (D, K), set.
    """
    mass = alpha.sum()
    for d in range(offsets.size - 1):
        mine = slice(offsets[d], offsets[d + 1])
        set_mixture(mixtures[d], topics[mine], counts[mine], alpha, counts[mine].sum() + mass)


@kernel
def trained_top_topics(offsets, topics, counts, alpha, top_topics, weights):
    """Compute the largest entries of the topic mixtures (see `trained_mixtures`), in descending order.

    top_topics: uint32 (D, T) and weights: float32 (D, T), set.
    """
    mass = alpha.sum()
    by_prior = np.argsort(-alpha, kind="mergesort")
    place = np.full(alpha.size, -1, np.int32)
    for d in range(offsets.size - 1):
        mine = slice(offsets[d], offsets[d + 1])
        active, known = topics[mine].astype(np.int64), counts[mine].astype(np.float64)
        set_top_topics((top_topics[d], weights[d]), active, known, alpha, known.sum() + mass, by_prior, place)


@inlined
def set_mixture(mixture, active, counts, alpha, total):
    """Set a document's mixture, float32 (K,). active, counts: (A,), topics and their counts. total: N + abar."""
    for k in range(mixture.size):
        mixture[k] = alpha[k] / total
    for a in range(active.size):
        mixture[active[a]] += counts[a] / total


@kernel
def set_top_topics(best, active, counts, alpha, total, by_prior, place):
    """Set a document's largest topics, uint32 (T,), and their shares, float32 (T,), the two arrays in `best`.

    active: int64 (A,), counts: float64 (A,), total: see `set_mixture`. by_prior: int64 (K,), all topics by descending
    alpha. place: int32 (K,), all -1, restored on return.
    """
    topics, weights = best
    top = topics.size
    # A topic without counts can be among the largest T only if it is among the first T by prior.
    place[active] = 0
    rest = np.array([k for k in by_prior[: top + active.size] if place[k] < 0])[:top]
    place[active] = -1
    candidates = np.concatenate((active, rest))
    share = alpha[candidates]
    share[: active.size] += counts
    order = np.argsort(-share, kind="mergesort")[:top]
    for t in range(top):
        topics[t] = candidates[order[t]]
        weights[t] = share[order[t]] / total


@kernel
def words_likelihood(words, times, active, expected, model, mixture, total):
    """Return the log-likelihood of words under a document's mixture.

    words: uint32 (U,), distinct words. times: int64 (U,), their counts. active, expected, total: see `set_mixture`.
    mixture: float64 (K,), all 0, restored.
    """
    mixture[active] = expected
    likelihood = 0.0
    for j in range(words.size):
        probability = model.prior[words[j]]
        for entry in range(model.offsets[words[j]], model.offsets[words[j] + 1]):
            k = model.topics[entry]
            probability += mixture[k] * model.counts[entry] * model.scale[k]
        probability += model.beta * (expected * model.scale[active]).sum()
        likelihood += times[j] * math.log(probability / total)
    mixture[active] = 0.0
    return likelihood


@kernel
def completion_likelihood(offsets, ranks, word_ids, model, numbers, key):
    """Predict half of each document's distinct words from the other half (document completion).

    numbers: uint64 (D,), original index of each document, which together with `key` determines the observed words.
    Returns the log-likelihood of the predicted tokens of each document, float64 (D,), and their number, int64 (D,).
    """
    scratch = new_scratch(model.scale.size)
    words = np.empty(ranks.size, np.uint32)
    times = np.empty(ranks.size, np.int64)
    mixture = np.zeros(model.scale.size)
    mass = model.alpha.sum()
    likelihoods, predicted = np.zeros(offsets.size - 1), np.zeros(offsets.size - 1, np.int64)
    for d in range(offsets.size - 1):
        size = different_words(ranks[offsets[d] : offsets[d + 1]], word_ids, words, times)
        observed = (size + 1) // 2
        for i in range(size - 1, 0, -1):  # Fisher-Yates shuffle
            j = random_bits(random_bits(key, numbers[d]), np.uint64(i)) % np.uint64(i + 1)
            words[i], words[j] = words[j], words[i]
            times[i], times[j] = times[j], times[i]
        active, expected = fold_in(words[:observed], times[:observed], model, scratch)
        total = expected.sum() + mass
        likelihoods[d] = words_likelihood(
            words[observed:size], times[observed:size], active, expected, model, mixture, total
        )
        predicted[d] = times[observed:size].sum()
    return likelihoods, predicted
