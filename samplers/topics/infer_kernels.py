"""Kernels that infer documents under a trained model: mixtures and, where they are wanted, their posterior standard
deviations, the log-likelihood of each document, and the topics of its words.

The posterior variance of a share theta_k has two parts, by the law of total variance: the variance of m_k = (n_k +
alpha_k) / T, T = N + abar, over the topics of the tokens, and that of theta_k for given topics, Dirichlet(n + alpha).
The topics of tokens have the probabilities gamma of `samplers.topics.fold_in`, independently of each other, so that

    var m_k = sum_j c_j gamma_jk (1 - gamma_jk) / T^2
    var theta_k = var m_k + (E m_k (1 - E m_k) - var m_k) / (T + 1)

The independence is an approximation: the topics of tokens of a document agree more often.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel
from samplers.topics.fold_in import (
    different_words,
    folded_in,
    new_scratch,
    set_mixture,
    set_top_topics,
    words_likelihood,
)


class InferredArrays(NamedTuple):
    """Results for n documents with N tokens; an array that is not wanted has no rows."""

    mixtures: np.ndarray  # float32 (n, K)
    topics: np.ndarray  # uint32 (n, T), largest topics in descending order
    weights: np.ndarray  # float32 (n, T), their shares
    deviations: np.ndarray  # float32 (n, K) or (n, T), posterior standard deviations of the shares
    likelihoods: np.ndarray  # float64 (n,), log-likelihood of each document's tokens under its mixture
    starts: np.ndarray  # int64 (n+1,), start of each document in the arrays below; given
    words: np.ndarray  # uint32 (N,), distinct words
    counts: np.ndarray  # uint32 (N,), number of tokens of each; 0 after the last word of a document
    word_topics: np.ndarray  # uint32 (N,), most probable topic of the tokens of each
    probabilities: np.ndarray  # float32 (N,), posterior probability of this topic


@kernel
def infer_documents(offsets, ranks, word_ids, model, found, rows):
    """Infer the documents of a part.

    offsets: int64 (D+1,), start of each document in `ranks`, uint32, sorted within a document.
    word_ids: uint32 (V,), word of each rank.
    model: FoldInModel.
    found: InferredArrays, set in the rows given by `rows`, uint64 (D,).
    """
    topics = model.scale.size
    scratch = new_scratch(topics)
    words, times = np.empty(ranks.size, np.uint32), np.empty(ranks.size, np.int64)
    mixture, variances = np.zeros(topics), np.zeros(topics)
    mass = model.alpha.sum()
    by_prior = np.argsort(-model.alpha, kind="mergesort")
    for d in range(offsets.size - 1):
        size = different_words(ranks[offsets[d] : offsets[d + 1]], word_ids, words, times)
        active, work = folded_in(words[:size], times[:size], model, scratch)
        expected = work[-3, : active.size].astype(np.float64)
        total = expected.sum() + mass
        row = rows[d]
        if found.mixtures.shape[0]:
            set_mixture(found.mixtures[row], active, expected, model.alpha, total)
        if found.topics.shape[0]:
            best = found.topics[row], found.weights[row]
            set_top_topics(best, active, expected, model.alpha, total, by_prior, scratch.place)
        if found.deviations.shape[0]:
            add_variances(variances, work, times[:size], active, total)
            set_deviations(found, row, variances, total)
            variances[active] = 0.0
        if found.likelihoods.size:
            found.likelihoods[row] = words_likelihood(
                words[:size], times[:size], active, expected, model, mixture, total
            )
        if found.starts.size:
            set_word_topics(found, found.starts[row], words[:size], times, active, work, model)


@kernel
def add_variances(variances, work, times, active, total):
    """Add var m_k of the topics of a document.

    variances: float64 (K,), all 0.
    work, active: see `folded_in`.
    """
    for j in range(times.size):
        gamma = work[times.size + j]
        for a in range(active.size):
            variances[active[a]] += times[j] * gamma[a] * (1.0 - gamma[a]) / (total * total)


@kernel
def set_deviations(found, row, variances, total):
    """Set the standard deviations of the shares in a row of `found.mixtures` or `found.weights`."""
    if found.mixtures.shape[0]:
        for k in range(variances.size):
            found.deviations[row, k] = deviation(found.mixtures[row, k], variances[k], total)
    else:
        for t in range(found.topics.shape[1]):
            found.deviations[row, t] = deviation(found.weights[row, t], variances[found.topics[row, t]], total)


@inlined
def deviation(share, variance, total):
    """Return the posterior standard deviation of a share.

    variance: var m_k.
    total: N + abar.
    """
    return np.sqrt(max(variance + (share * (1.0 - share) - variance) / (total + 1.0), 0.0))


@kernel
def set_word_topics(found, start, words, times, active, work, model):
    """Set the most probable topic of each distinct word of a document, from index `start` on."""
    for j in range(words.size):
        found.words[start + j], found.counts[start + j] = words[j], times[j]
        gamma = work[words.size + j, : active.size]
        if gamma.any():
            best = gamma.argmax()
            found.word_topics[start + j], found.probabilities[start + j] = active[best], gamma[best]
        else:  # the word can be in none of the remaining topics, or no word of the document occurs in the model
            share = model.alpha * model.scale * model.beta
            for entry in range(model.offsets[words[j]], model.offsets[words[j] + 1]):
                k = model.topics[entry]
                share[k] += model.alpha[k] * model.scale[k] * model.counts[entry]
            found.word_topics[start + j], found.probabilities[start + j] = share.argmax(), share.max() / share.sum()


@kernel
def set_trained_deviations(offsets, counts, mass, states, shares, deviations):
    """Set the posterior standard deviations of trained shares, given the topics of all tokens.

    offsets: int64 (n+1,), start of each document in `counts`, uint32, sums over `states` states.
    mass: sum of alpha over these.
    shares: float32 (n, C).
    deviations: float32 (n, C), set to the standard deviations of Dirichlet(n + alpha) of a single state.
    """
    for d in range(offsets.size - 1):
        total = mass
        for entry in range(offsets[d], offsets[d + 1]):
            total += counts[entry]
        for c in range(shares.shape[1]):
            deviations[d, c] = deviation(shares[d, c], 0.0, total / states)
