"""Samplers against the exact posterior of corpora so small that every assignment of topics can be listed."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numba
import numpy as np
import pytest
from corpora import make_prior, make_totals
from long import long_but
from scipy import stats
from scipy.special import gammaln
from token_chains import EXACT, FROZEN, IMMEDIATE, KERNELS, OWN_LEFT_IN, Kernel, Tokens, count_visits, tokens_of

from ooc.rng import stream_key
from samplers.lda import two_phase

CORPORA = {  # documents, vocabulary, alpha (asymmetric, so that no relabelling of topics hides a mistake), beta
    "2 topics": ([[0, 1, 1], [0, 2], [2, 2]], 3, [0.4, 0.9], 0.3),
    "3 topics": ([[0, 1, 0], [1], [1]], 2, [0.3, 0.9, 0.5], 0.4),
}
ALARM = 1e-6  # chance that one chi-square test fails though the chain is right
BATCHES, SWEEPS = 250, 400


def posterior(tokens: Tokens, alpha: np.ndarray | None = None, beta: float | None = None) -> np.ndarray:
    """p(z | w) of every z, in the order of `product`: the joint formula, normalised over all K^N assignments."""
    alpha, beta = tokens.alpha if alpha is None else alpha, beta or tokens.beta
    assignments = np.array(list(product(range(alpha.size), repeat=tokens.words.size)))
    log_joint = np.zeros(len(assignments))
    for k in range(alpha.size):
        here = (assignments == k).astype(int)
        of_document = here @ np.eye(tokens.documents.max() + 1, dtype=int)[tokens.documents]
        of_word = here @ np.eye(tokens.vocabulary, dtype=int)[tokens.words]
        log_joint += gammaln(of_document + alpha[k]).sum(axis=1) + gammaln(of_word + beta).sum(axis=1)
        log_joint -= gammaln(of_word.sum(axis=1) + tokens.vocabulary * beta)
    weights = np.exp(log_joint - log_joint.max())
    return weights / weights.sum()


def p_value(visits: np.ndarray, expected: np.ndarray) -> float:
    """Chi-square test of the visits of a chain, int64 (batches, S), after Rao and Scott (1981).

    The chain's autocorrelation widens the frequencies of the states, and of some more than of others: the statistic and
    its degrees of freedom are corrected by trace and squared norm of its covariance, estimated from the batches. States
    expected less than 1,000 times are taken together: a chain visits them in clumps that no normal law describes. So
    corrected, the smallest of 40 p-values of the stickiest chains was 0.01 to 0.06; without, 1e-4 and less.
    """
    common = expected * visits.sum() >= 1000
    visits, expected = _with_rest(visits, common), _with_rest(expected, common)
    frequencies = visits / visits.sum(axis=-1, keepdims=True)
    covariance = np.cov((frequencies / np.sqrt(expected)).T) / len(visits)
    trace = np.trace(covariance)
    squares = (covariance**2).sum() - trace**2 / (len(visits) - 1)  # less what the noise of the estimate adds
    freedom = min(trace**2 / squares, expected.size - 1)
    misfit = ((frequencies.mean(axis=0) - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(misfit * freedom / trace, freedom))


def _with_rest(values: np.ndarray, common: np.ndarray) -> np.ndarray:
    """The common states, and the sum of all others as one."""
    return np.concatenate((values[..., common], values[..., ~common].sum(axis=-1, keepdims=True)), axis=-1)


def total_variation(visits: np.ndarray, expected: np.ndarray) -> float:
    frequencies = visits.sum(axis=0) / visits.sum()
    return 0.5 * float(np.abs(frequencies - expected).sum())


def visits_of(tokens: Tokens, kernel: Kernel, how: int, sweeps: int = SWEEPS, thin: int = 1) -> np.ndarray:
    """Visits after 1,000 sweeps that do not count. A chain of one kind of proposal moves slowly: it has three times the
    sweeps."""
    thin *= 1 if kernel.proposal == "cycle" else 3
    count_visits(*tokens.driven(kernel, how), 1, 1000, thin, stream_key(2))
    return count_visits(*tokens.driven(kernel, how), BATCHES, sweeps, thin, stream_key(1))


def tokens_for(tmp_path: Path, corpus: str) -> Tokens:
    return tokens_of(tmp_path / "dataset", *CORPORA[corpus])


QUICK = [("2 topics", IMMEDIATE), ("3 topics", FROZEN)]
LONG = [(corpus, how) for corpus in CORPORA for how in (IMMEDIATE, FROZEN)]
SOME = [EXACT[0], EXACT[1], Kernel("lightlda", 2)]
by_name = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)


def named(value: object) -> str:
    return value if isinstance(value, str) else ("immediate", "frozen")[value]


@pytest.mark.few(2)
@pytest.mark.parametrize(("corpus", "how"), long_but(QUICK[1:], QUICK), ids=named)
@pytest.mark.parametrize("kernel", long_but(SOME, KERNELS), ids=lambda kernel: kernel.name)
def test_a_chain_visits_what_the_posterior_says(tmp_path, corpus, how, kernel):
    """128 or 243 assignments, 100,000 sweeps in 250 batches: 20 chi-square tests, false alarm of any below 1e-4, and a
    total variation below 0.025 (floor: 0.009 to 0.02).

    Rows updated in place, as `--update immediate` does it; and frozen while one token is sampled, from tables made with
    weights that have nothing to do with the summary row: what Metropolis-Hastings has to correct.
    """
    tokens = tokens_for(tmp_path, corpus)
    visits, expected = visits_of(tokens, kernel, how), posterior(tokens)
    assert p_value(visits, expected) > ALARM
    assert total_variation(visits, expected) < 0.025


@pytest.mark.long
@pytest.mark.parametrize(("corpus", "how"), LONG, ids=named)
@by_name
def test_a_long_chain_visits_what_the_posterior_says(tmp_path, corpus, how, kernel):
    """The same with 500,000 sweeps, every other one counted, on both corpora; false alarm of any below 1e-4."""
    tokens = tokens_for(tmp_path, corpus)
    visits, expected = visits_of(tokens, kernel, how, 1000, 2), posterior(tokens)
    assert p_value(visits, expected) > ALARM
    assert total_variation(visits, expected) < 0.02


@pytest.mark.few(1)
@pytest.mark.parametrize("kernel", [*EXACT, Kernel("aliaslda"), Kernel("lightlda")], ids=str)
def test_a_token_left_in_the_row_of_its_word_is_found_out(tmp_path, kernel):
    """The mistake that no likelihood shows: the same chi-square test rejects it, whatever the sampler."""
    tokens = tokens_for(tmp_path, "3 topics")
    assert p_value(visits_of(tokens, kernel, OWN_LEFT_IN), posterior(tokens)) < ALARM


def test_another_prior_is_found_out(tmp_path):
    """A chain with an alpha or a beta that is 10% off would be rejected."""
    tokens = tokens_for(tmp_path, "2 topics")
    visits = visits_of(tokens, Kernel("gibbs"), IMMEDIATE)
    assert p_value(visits, posterior(tokens)) > ALARM
    assert p_value(visits, posterior(tokens, alpha=tokens.alpha * [1.1, 1.0])) < ALARM
    assert p_value(visits, posterior(tokens, beta=tokens.beta * 1.1)) < ALARM


@numba.njit
def two_phase_visits(document, word, priors, mass, totals, proposals, sweeps, batches, key):
    """Visits of each z, int64 (batches, K^N), by the two-phase kernels on one token at a time, counted afresh.

    For each token in turn: `draw_group` proposes in its document and `accept_token` judges in its word, then the other
    way round. Nothing is delayed, so the posterior must come out.
    """
    topics, tokens = priors[0].topics, word.size
    state = np.zeros((tokens, 1 + proposals), np.uint16)
    summary = np.full(topics, mass)
    summary[0] += tokens
    totals.topics["summary"][:] = summary
    visits = np.zeros((batches, topics**tokens), np.int64)
    draw = np.uint64(0)
    for batch in range(batches):
        for _ in range(sweeps // batches):
            for i in range(tokens):
                for side in range(2):
                    drawn_from, judged_in = (document, word) if side == 0 else (word, document)
                    rows = np.flatnonzero(drawn_from == drawn_from[i])
                    two_phase.draw_group(state, 0, rows, state[rows, 0].copy(), priors[side], totals.topics, key, draw)
                    draw += np.uint64(rows.size * proposals)
                    for row in np.flatnonzero(judged_in == judged_in[i]):
                        totals.topics[np.int64(state[row, 0])]["count"] += 1
                    new = two_phase.accept_token(state, i, priors[1 - side], totals.topics, totals.topics, key, draw)
                    draw += np.uint64(proposals)
                    totals.topics["count"][:] = 0
                    summary[state[i, 0]] -= 1
                    state[i, 0] = new
                    summary[state[i, 0]] += 1
                    totals.topics["summary"][:] = summary
            code = 0
            for i in range(tokens):
                code = code * topics + state[i, 0]
            visits[batch, code] += 1
    return visits


@pytest.mark.parametrize("proposals", long_but([2], [1, 2]))
def test_the_two_phase_kernels_without_delay_visit_what_the_posterior_says(tmp_path, proposals):
    """128 assignments, 100,000 sweeps: 2 tests, false alarm below 1e-5; total variation below 0.025. So the only error
    of the two-phase sampler is that its counts are delayed."""
    tokens = tokens_for(tmp_path, "2 topics")
    expected = posterior(tokens)
    priors = make_prior(2, tokens.alpha), make_prior(2, np.array([tokens.beta]))
    visits = two_phase_visits(
        tokens.documents, tokens.words.astype(np.int64), priors, tokens.mass, make_totals(np.ones(2)),
        proposals, 100_000, BATCHES, stream_key(3),
    )  # fmt: skip
    assert p_value(visits, expected) > ALARM
    assert total_variation(visits, expected) < 0.025
