"""Kernels of the left-to-right estimator of the probability of documents under a trained topic model.

Wallach, Murray, Salakhutdinov and Mimno, "Evaluation methods for topic models" (ICML 2009), section 3.4 and algorithm
3. p(w) = prod_n p(w_n | w_<n) is estimated with R particles z^(r). At position n each particle redraws the topics of
all positions before n, one after another, from

    p(z_i = k | w_i, z_-i) ~ phi_kw_i * (n_k^- + alpha_k),   n_k over the positions before n

as in Buntine ("Estimating likelihoods for topic models", ACML 2009). The weight of the particle is then

    p_n^(r) = sum_k phi_kw_n * (n_k + alpha_k) / (n - 1 + abar),

the topic of position n is drawn from the terms of this sum, and log p(w) increases by log (1/R sum_r p_n^(r)).

Deviation: after each position the particles are resampled in proportion to p_n^(r) (systematic resampling). Without
resampling, the next mean is over particles with wrong weights, and the product of the means is biased for any number of
particles: by 12 percent of p with 20 particles on the document of six tokens in `tests/test_left_to_right.py`. With
resampling, the estimate of p(w) is unbiased for any R (Del Moral, "Feynman-Kac formulae", 2004, section 7.4), and that
of log p(w) is too low by about half its variance. Averaging the products of the particles is unbiased, too, but their
logarithms vary by 4 to 8 nats on documents of 50 to 400 tokens: log p(w) was too low by 2 to 16 nats there, against
about 1.

A bag of words has no order, so the tokens are taken in a random order, which does not affect p(w).

phi_kw = (n_kw + beta) / (n_k + V*beta). The cost of drawing a topic is the number of the document's topics: their terms
n_k * phi_kw are summed, whereas the sum of the prior's terms, alpha_k * phi_kw, does not change, and is cumulated once.
A document of N tokens takes R * N * (N + 1) / 2 draws.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, kernel
from ooc.rng import random_bits, uniform
from samplers.topics.fold_in import different_words


class TopicPrior(NamedTuple):
    """Word-independent parts of a model.

    base: float64 (K,), beta / (n_k + V*beta), which is phi of words never seen in the topic.
    cumulated: float64 (K,), cumulative sums of alpha_k * base_k.
    mass: abar.
    """

    base: np.ndarray
    cumulated: np.ndarray
    mass: float


class DocumentTables(NamedTuple):
    """A document with N tokens, U distinct words, and A topics in which some of these words were seen.

    tokens: int64 (N,), index in 0..U-1 of each token's word.
    active: int64 (A,), the topics, ascending.
    column: int32 (K,), index of a topic in `active`, or -1.
    seen: float64 (U, A+1), phi_kw minus base_k; the last column, for all topics not in `active`, is 0.
    cumulated: float64 (U, A+1), cumulative sums of alpha_k * seen, starting from 0.
    """

    tokens: np.ndarray
    active: np.ndarray
    column: np.ndarray
    seen: np.ndarray
    cumulated: np.ndarray


class LeftToRightParticles(NamedTuple):
    """R particles; each keeps the S <= min(N, K) topics of its tokens in slots, some of which may be empty.

    slots: uint32 (R, N), slot of each position before the current position.
    sizes: int64 (R,), number of slots in use.
    topics, columns: uint32 (R, S), and base, counts: float64 (R, S), values of each slot; counts are n_k.
    """

    slots: np.ndarray
    sizes: np.ndarray
    topics: np.ndarray
    columns: np.ndarray
    base: np.ndarray
    counts: np.ndarray


@kernel
def active_topics(words, model, place):
    """Return the topics that occur in the rows of some words, int64 (A,), ascending.

    place: int32 (K,), all -1; set to each topic's index in the result.
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
def prior_of_topics(model):
    """Return the TopicPrior of a model (`samplers.topics.fold_in.FoldInModel`)."""
    base = model.beta * model.scale
    return TopicPrior(base, np.cumsum(model.alpha * base), model.alpha.sum())


@kernel
def word_tables(words, model, active, place):
    """Return `seen` and `cumulated` of DocumentTables for the distinct words of a document, uint32 (U,)."""
    seen = np.zeros((words.size, active.size + 1))
    cumulated = np.zeros((words.size, active.size + 1))
    for j in range(words.size):
        for entry in range(model.offsets[words[j]], model.offsets[words[j] + 1]):
            k = model.topics[entry]
            seen[j, place[k]] = model.counts[entry] * model.scale[k]
        for a in range(active.size):
            cumulated[j, a + 1] = cumulated[j, a] + model.alpha[active[a]] * seen[j, a]
    return seen, cumulated


@kernel
def shuffled_tokens(times, key):
    """Return int64 (N,), in which each j of 0..U-1 occurs `times[j]` times, in random order (Fisher-Yates)."""
    tokens = np.repeat(np.arange(times.size), times)
    for i in range(tokens.size - 1, 0, -1):
        j = random_bits(key, np.uint64(i)) % np.uint64(i + 1)
        tokens[i], tokens[j] = tokens[j], tokens[i]
    return tokens


@inlined
def draw_of_prior(x, j, document, prior):
    """Return the topic at which the cumulative sum of alpha_k * phi_kw of distinct word j reaches x, with the seen
    part before the base."""
    seen = document.cumulated[j, document.active.size]
    if x < seen:
        return document.active[np.searchsorted(document.cumulated[j], x, side="right") - 1]
    return min(np.searchsorted(prior.cumulated, x - seen, side="right"), prior.cumulated.size - 1)


@inlined
def slot_for(topic, topics, counts, size):
    """Return the slot of a topic, or else the first empty slot, which may be a new slot."""
    empty, slot = size, 0
    while slot < size and topics[slot] != topic:
        if empty == size and counts[slot] == 0.0:
            empty = slot
        slot += 1
    return slot if slot < size else empty


@kernel
def advance(n, particles, r, document, prior, weights, key):
    """Advance particle r to position n, counted from 0: redraw the topics of all positions before n, then draw that of
    n.

    Returns p_n.

    weights: float64 (S,), working memory.
    key: key of the particle's stream, of which n + 1 draws are used, starting at n*(n+1)/2.
    """
    slots, topics, columns = particles.slots[r], particles.topics[r], particles.columns[r]
    base, counts, size = particles.base[r], particles.counts[r], particles.sizes[r]
    likelihood = 0.0
    for i in range(n + 1):
        if i < n:
            counts[slots[i]] -= 1.0
        j = document.tokens[i]
        total = 0.0
        for s in range(size):
            total += counts[s] * (base[s] + document.seen[j, columns[s]])
            weights[s] = total
        mass = total + document.cumulated[j, document.active.size] + prior.cumulated[-1]
        if i == n:
            likelihood = mass / (n + prior.mass)
        x = uniform(key, np.uint64(n * (n + 1) // 2 + i)) * mass
        slot = 0
        if x < total:
            while weights[slot] <= x:
                slot += 1
        else:
            topic = draw_of_prior(x - total, j, document, prior)
            slot = slot_for(topic, topics, counts, size)
            if slot == size:
                counts[slot] = 0.0
                size += 1
            topics[slot], base[slot] = topic, prior.base[topic]
            columns[slot] = document.column[topic] if document.column[topic] >= 0 else document.active.size
        counts[slot] += 1.0
        slots[i] = slot
    particles.sizes[r] = size
    return likelihood


@kernel
def offspring(likelihoods, u):
    """Return the number of offspring of each particle by systematic resampling, int64 (R,), which sum to R.

    likelihoods: float64 (R,).
    u: uniform in [0, 1). Its mean over u is R * likelihoods / likelihoods.sum().
    """
    cumulated = np.cumsum(likelihoods)
    numbers = np.zeros(likelihoods.size, np.int64)
    r = 0
    for step in range(likelihoods.size):
        x = (step + u) / likelihoods.size * cumulated[-1]
        while cumulated[r] <= x and r < likelihoods.size - 1:
            r += 1
        numbers[r] += 1
    return numbers


@kernel
def resample(particles, numbers, n):
    """Replace the particles without offspring by copies of particles with several.

    numbers: int64 (R,), number of offspring of each particle.
    n: number of positions that have topics.
    """
    parent = 0
    for r in range(numbers.size):
        if numbers[r]:
            continue
        while numbers[parent] < 2:
            parent += 1
        numbers[parent] -= 1
        size = particles.sizes[parent]
        particles.sizes[r] = size
        particles.slots[r, :n] = particles.slots[parent, :n]
        particles.topics[r, :size] = particles.topics[parent, :size]
        particles.columns[r, :size] = particles.columns[parent, :size]
        particles.base[r, :size] = particles.base[parent, :size]
        particles.counts[r, :size] = particles.counts[parent, :size]


@kernel
def document_log_likelihood(document, prior, count, key):
    """Return an estimate of log p(w) of a document with `count` particles.

    key: key of the document's stream.
    """
    length = document.tokens.size
    most = min(length, prior.base.size)
    particles = LeftToRightParticles(
        np.empty((count, length), np.uint32),
        np.zeros(count, np.int64),
        np.empty((count, most), np.uint32),
        np.empty((count, most), np.uint32),
        np.empty((count, most)),
        np.empty((count, most)),
    )
    weights, likelihoods = np.empty(most), np.empty(count)
    resampling = random_bits(key, np.uint64(1))
    total = 0.0
    for n in range(length):
        for r in range(count):
            stream = random_bits(key, np.uint64(r + 2))
            likelihoods[r] = advance(n, particles, r, document, prior, weights, stream)
        total += math.log(likelihoods.sum() / count)
        resample(particles, offspring(likelihoods, uniform(resampling, np.uint64(n))), n + 1)
    return total


@kernel
def left_to_right_likelihood(offsets, ranks, word_ids, model, numbers, particles, key):
    """Estimate log p(w) of the documents of a part.

    offsets: int64 (D+1,), start of each document in `ranks`, uint32, sorted within a document.
    word_ids: uint32 (V,), word of each rank.
    model: `samplers.topics.fold_in.FoldInModel`.
    numbers: uint64 (D,), original index of each document, which together with `key` determines its random stream.
    particles: R.
    Returns float64 (D,).
    """
    place = np.full(model.scale.size, -1, np.int32)
    words = np.empty(ranks.size, np.uint32)
    times = np.empty(ranks.size, np.int64)
    prior = prior_of_topics(model)
    likelihoods = np.empty(offsets.size - 1)
    for d in range(offsets.size - 1):
        size = different_words(ranks[offsets[d] : offsets[d + 1]], word_ids, words, times)
        active = active_topics(words[:size], model, place)
        stream = random_bits(key, numbers[d])
        tokens = shuffled_tokens(times[:size], random_bits(stream, np.uint64(0)))
        seen, cumulated = word_tables(words[:size], model, active, place)
        document = DocumentTables(tokens, active, place, seen, cumulated)
        likelihoods[d] = document_log_likelihood(document, prior, particles, stream)
        place[active] = -1
    return likelihoods
