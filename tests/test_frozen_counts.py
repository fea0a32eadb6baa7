"""One token's transition while the counts of its word are frozen: it leaves the target invariant, whatever the tables.

The target is p(k) ~ (n_kd^- + alpha_k) * (n_kw^- + beta) / (n_k^- + V*beta). The tables hold the word's frozen row with
weights from another time, here numbers that have nothing to do with n_k.
"""

# ruff: noqa: RUF005  (Numba joins tuples by + only)

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from long_mark import long_but
from scipy import stats
from token_chains import EXACT, PROPOSING, SamplerKernel, TokenCorpus, derive

from ooc.rng import random_bits, stream_key
from samplers.lda.document_kernels import order_tokens
from samplers.lda.word_topic_rows import decrease, increase

ALARM = 1e-6  # chance that one chi-square test fails though the kernel is right


def metropolis_hastings(target: np.ndarray, proposal: np.ndarray) -> np.ndarray:
    """Exact K x K transition matrix of one independent proposal."""
    ratio = np.outer(1 / target, target) * np.outer(proposal, 1 / proposal)
    matrix = proposal * np.minimum(1.0, ratio)
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(matrix, 1.0 - matrix.sum(axis=1))
    return matrix


def transition(kernel: SamplerKernel, document, word, summary, weights, alpha, beta) -> np.ndarray:
    """The matrix that the equations of the samplers give; all counts, float64 (K,), without the token itself."""
    target = (document + alpha) * (word + beta) / summary
    target /= target.sum()
    if kernel in EXACT:
        return np.broadcast_to(target, (target.size, target.size))

    def step(proposal):
        return metropolis_hastings(target, proposal / proposal.sum())

    if kernel.sampler == "aliaslda":
        cycle = step(document * (word + beta) / summary + weights * (word + beta))
    else:
        of_word, of_document = step((word + beta) * weights), step(document + alpha)
        cycle = {"word": of_word, "doc": of_document, "cycle": of_word @ of_document}[kernel.proposal]
    return np.linalg.matrix_power(cycle, kernel.steps)


@st.composite
def frozen_tokens(draw):
    """Arguments of `transition` after the kernel."""
    topics = draw(st.integers(2, 6))

    def numbers(values):
        return np.array(draw(st.lists(values, min_size=topics, max_size=topics)), float)

    document, word, elsewhere = numbers(st.integers(0, 5)), numbers(st.integers(0, 5)), numbers(st.integers(0, 50))
    beta = draw(st.floats(0.01, 2))
    summary = np.maximum(document, word) + elsewhere + draw(st.integers(1, 30)) * beta
    return document, word, summary, numbers(st.floats(1e-3, 1e3)), numbers(st.floats(0.01, 5)), beta


@given(frozen_tokens(), st.sampled_from(PROPOSING))
def test_what_the_equations_say_leaves_the_target_invariant(token, kernel):
    """pi P = pi to 1e-12, for any counts, any weights of the tables and asymmetric alpha."""
    document, word, summary, _, alpha, beta = token
    target = (document + alpha) * (word + beta) / summary
    target /= target.sum()
    assert np.abs(target @ transition(kernel, *token) - target).max() < 1e-12


DOCUMENT = [1, 0, 3, 1]  # topics of the other tokens of its document, words of which are sampled nowhere else
WORD = np.array([2, 0, 1, 4])  # and of the other tokens of its word
ELSEWHERE = np.array([3.0, 6.0, 1.0, 2.0])  # tokens of other documents and words
ALPHA, BETA = np.array([0.4, 0.9, 0.2, 0.6]), 0.3
WEIGHTS = np.array([0.4, 0.05, 0.9, 0.3])


@numba.njit
def drawn(cell, words, sample, arguments, rows, derived, counts, word, draws, key):
    """How often the token at the cell's first position goes from each topic to each other, int64 (K, K)."""
    found = np.zeros((rows.topics, rows.topics), np.int64)
    summary = counts.summary.copy()
    row = cell.first
    n = np.uint64(0)
    for start in range(rows.topics):
        increase(rows, word, start)
        counts.summary[:] = summary
        counts.summary[start] += 1.0
        derive(derived, rows, word)
        for _ in range(draws):
            cell.state[row, 0] = start
            order_tokens(cell.state, cell.base, cell.positions, words, cell.topics, cell.words, derived.counted)
            counts.summary[:] = summary
            counts.summary[start] += 1.0
            sample(*((cell,) + arguments + (False, random_bits(key, n))))
            found[start, np.int64(cell.state[row, 0])] += 1
            n += np.uint64(1)
        decrease(rows, word, start)
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("word", [0, 1], ids=["dense", "table"])
@pytest.mark.parametrize(
    "kernel", long_but([*EXACT, *PROPOSING[1::2]], [*EXACT, *PROPOSING]), ids=lambda kernel: kernel.name
)
def test_the_kernel_moves_as_the_equations_say(kernel, word):
    """40,000 draws from each of 4 topics, against the matrix of the equations: 80 chi-square tests, false alarm of any
    below 1e-4. The token stands in the middle of its document; its word's row is dense or a table, and counts it."""
    words = np.array([2, 2, word, 2, 2], np.uint32)
    tokens = TokenCorpus(np.array([0, 5]), np.array([0, 1, 2, 3, 4], np.uint32), words, 3, ALPHA, BETA, WEIGHTS)
    tokens.cell.state[[0, 1, 3, 4], 0] = DOCUMENT
    decrease(tokens.rows, word, 0)
    for topic, count in enumerate(WORD):
        for _ in range(count):
            increase(tokens.rows, word, topic)
    document = np.bincount(DOCUMENT, minlength=4)
    summary = document + WORD + ELSEWHERE + tokens.mass
    tokens.counts.summary[:] = summary
    cell = tokens.cell._replace(first=2, last=3)
    sample, arguments = tokens.kernel(kernel)
    known = (tokens.rows, tokens.derived, tokens.counts)
    found = drawn(cell, words, sample, arguments, *known, word, 40_000, stream_key(7, word))
    expected = transition(kernel, document, WORD, summary, WEIGHTS, ALPHA, BETA)
    for row, p in zip(found, expected, strict=True):
        assert stats.chisquare(row, p * row.sum()).pvalue > ALARM
    assert np.array_equal(tokens.counts.topics, np.zeros(4))  # the document was closed


@pytest.mark.parametrize(
    "kernel",
    [SamplerKernel("aliaslda"), SamplerKernel("lightlda", 1, "word"), SamplerKernel("lightlda", 1, "doc")],
    ids=str,
)
def test_a_ratio_without_the_weights_or_with_the_token_would_be_found_out(kernel):
    """What the kernel would do if its ratio had the target's weights for the table's, or counted the token, lies so far
    from the equations that 40,000 draws would tell: expected chi-square above 100 with 3 degrees of freedom."""
    document, word = np.bincount(DOCUMENT, minlength=4), WORD
    summary = document + word + ELSEWHERE + 3 * BETA
    right = transition(kernel, document, word, summary, WEIGHTS, ALPHA, BETA)
    if kernel.proposal == "doc":
        wrong = transition(kernel, document, word + np.eye(4)[2], summary, WEIGHTS, ALPHA, BETA)
    else:
        wrong = transition(kernel, document, word, summary, 1 / summary, ALPHA, BETA)
    assert (40_000 * (wrong - right) ** 2 / right).sum(axis=1).max() > 100
