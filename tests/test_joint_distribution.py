"""Geweke's joint distribution test (JASA 2004): words and topics drawn together, in two ways that must agree.

Forward: each topic from its document's Polya urn, each word from its topic's, all independent from draw to draw.
Successive: a sweep of the sampler over the topics, then every word drawn anew given the topics and the other words.
Both have the distribution p(z, w) if and only if the sampler leaves p(z | w) invariant, for all w at once.
"""

from __future__ import annotations

import numba
import numpy as np
import pytest
from long_mark import long_but
from token_chains import (
    EXACT,
    FROZEN,
    IMMEDIATE,
    KERNELS,
    OWN_LEFT_IN,
    SamplerKernel,
    TokenCorpus,
    sweep,
)

from ooc.rng import random_bits, stream_key, uniform
from samplers.lda.word_topic_rows import decrease, increase, row_count

OFFSETS, VOCABULARY = np.array([0, 3, 4, 6]), 3
ALPHA, BETA = np.array([0.3, 0.6, 0.2]), 0.4
BATCHES, SWEEPS = 200, 1000
QUICK = [*EXACT, SamplerKernel("aliaslda", 2), SamplerKernel("lightlda"), SamplerKernel("lightlda", 2)]
ALARM = 5.5  # standard errors; 10 functions: false alarm of a test about 4e-7


@numba.njit
def measure(state, words, documents, topics, vocabulary):
    """Functions of (z, w), float64 (10,): what the counts of topics, documents and words have in common."""
    of_topic, of_word = np.zeros(topics), np.zeros(vocabulary)
    in_document, on_word = np.zeros((documents[-1] + 1, topics)), np.zeros((vocabulary, topics))
    for p in range(words.size):
        k = np.int64(state[p, 0])
        of_topic[k] += 1
        of_word[words[p]] += 1
        in_document[documents[p], k] += 1
        on_word[words[p], k] += 1
    values = np.empty(10)
    values[0] = of_topic[0]
    values[1] = of_topic[1] ** 2
    values[2] = (of_topic**2).sum()
    values[3] = (in_document**2).sum()
    values[4] = (on_word**2).sum()
    values[5] = (of_word**2).sum()
    values[6] = of_word[1]
    values[7] = on_word[1, 0]
    values[8] = in_document[0, 1] * on_word[words[0], 1]
    values[9] = (in_document[documents[-1]] * on_word[words[-1]]).sum()
    return values


@numba.njit
def urn(weights, u):
    """The first whose cumulated weight is above a share of the sum."""
    x = u * weights.sum()
    for k in range(weights.size - 1):
        x -= weights[k]
        if x < 0.0:
            return k
    return weights.size - 1


@numba.njit
def forward(documents, alpha, beta, vocabulary, batches, draws, key):
    """Means of the functions over independent draws, float64 (batches, 10)."""
    topics, tokens = alpha.size, documents.size
    state, words = np.zeros((tokens, 2), np.uint8), np.zeros(tokens, np.uint32)
    means = np.zeros((batches, 10))
    n = np.uint64(0)
    for batch in range(batches):
        for _ in range(draws):
            in_document = np.zeros((documents[-1] + 1, topics)) + alpha
            on_word = np.zeros((topics, vocabulary)) + beta
            for p in range(tokens):
                state[p, 0] = k = urn(in_document[documents[p]], uniform(key, n))
                words[p] = word = urn(on_word[k], uniform(key, n + np.uint64(1)))
                in_document[documents[p], k] += 1
                on_word[k, word] += 1
                n += np.uint64(2)
            means[batch] += measure(state, words, documents, topics, vocabulary) / draws
    return means


@numba.njit
def redraw_words(cell, words, rows, beta, vocabulary, key):
    """Draw each word given all topics and the other words."""
    weights = np.empty(vocabulary)
    for p in range(words.size):
        k = np.int64(cell.state[p, 0])
        decrease(rows, words[p], k)
        for word in range(vocabulary):
            weights[word] = row_count(rows, word, k) + beta
        words[p] = urn(weights, uniform(key, np.uint64(p)))
        increase(rows, words[p], k)


@numba.njit
def successive(how, cell, words, sample, arguments, rows, derived, documents, beta, vocabulary, length, key):
    """Means of the functions over a chain, float64 (batches, 10).

    length: numbers of batches, and of sweeps in each.
    """
    batches, sweeps = length
    means = np.zeros((batches, 10))
    n = np.uint64(0)
    for batch in range(batches):
        for _ in range(sweeps):
            sweep(how, cell, words, sample, arguments, rows, derived, random_bits(key, n))
            redraw_words(cell, words, rows, beta, vocabulary, random_bits(key, n + np.uint64(1)))
            n += np.uint64(2)
            means[batch] += measure(cell.state, words, documents, rows.topics, vocabulary) / sweeps
    return means


def largest_z(chain: np.ndarray, independent: np.ndarray) -> float:
    """Largest difference of the means in standard errors, these from the spread of the batches."""
    difference = chain.mean(axis=0) - independent.mean(axis=0)
    variance = chain.var(axis=0, ddof=1) / len(chain) + independent.var(axis=0, ddof=1) / len(independent)
    return float((np.abs(difference) / np.sqrt(variance)).max())


@pytest.fixture(scope="module")
def independent() -> np.ndarray:
    documents = np.repeat(np.arange(3), np.diff(OFFSETS))
    return forward(documents, ALPHA, BETA, VOCABULARY, BATCHES, 5000, stream_key(11))


def chain_means(kernel: SamplerKernel, how: int, sweeps: int, alpha: np.ndarray = ALPHA) -> np.ndarray:
    """A chain that begins with all tokens under topic 0, 1,000 sweeps before it is measured."""
    positions = np.arange(6, dtype=np.uint32)
    tokens = TokenCorpus(OFFSETS.copy(), positions, positions % VOCABULARY, VOCABULARY, alpha, BETA)
    arguments = (*tokens.driven(kernel, how), tokens.documents, BETA, VOCABULARY)
    successive(*arguments, (1, 1000), stream_key(12))
    return successive(*arguments, (BATCHES, sweeps), stream_key(13))


@pytest.mark.long
@pytest.mark.parametrize("kernel", long_but([QUICK[-1]], QUICK), ids=lambda kernel: kernel.name)
def test_a_sweep_and_new_words_leave_the_joint_distribution_as_it_is(independent, kernel):
    """200,000 sweeps with rows updated in place against 1,000,000 forward draws: 10 functions within 5.5 standard
    errors, 5 tests; false alarm of any below 1e-5. 6 tokens, 3 topics, 3 words; a document has one token."""
    assert largest_z(chain_means(kernel, IMMEDIATE, SWEEPS), independent) < ALARM


@pytest.mark.long
@pytest.mark.parametrize("how", [IMMEDIATE, FROZEN], ids=["immediate", "frozen"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_long_chain_leaves_the_joint_distribution_as_it_is(independent, kernel, how):
    """1,000,000 sweeps, all kernels, also with rows frozen while a token is sampled and stale weights; false alarm
    below 1e-4."""
    assert largest_z(chain_means(kernel, how, 5 * SWEEPS), independent) < ALARM


@pytest.mark.long
def test_mistakes_are_found_out(independent):
    """A token's own count left in the row of its word, and a sampler that believes in another alpha."""
    kernel = SamplerKernel("sparselda")
    assert largest_z(chain_means(kernel, OWN_LEFT_IN, SWEEPS), independent) > ALARM
    assert largest_z(chain_means(kernel, IMMEDIATE, SWEEPS, ALPHA[::-1].copy()), independent) > ALARM
