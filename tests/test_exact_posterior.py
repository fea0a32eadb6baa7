"""Samplers against the exact posterior of corpora so small that every assignment of topics can be listed."""

from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
import pytest
from corpora import make_prior, make_totals
from exact_posteriors import CORPORA, posterior, total_variation
from long_mark import long_but
from scipy import stats
from token_chains import (
    EXACT,
    FROZEN,
    IMMEDIATE,
    KERNELS,
    OWN_LEFT_IN,
    SamplerKernel,
    TokenCorpus,
    count_visits,
    tokens_of,
)

from ooc.rng import stream_key
from samplers.lda import two_phase
from samplers.lda.word_prior import WordPrior, pack_pairs, prior_of_word, word_prior

ALARM = 1e-6  # chance that one chi-square test fails though the chain is right
BATCHES, SWEEPS = 250, 400


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


def visits_of(tokens: TokenCorpus, kernel: SamplerKernel, how: int, sweeps: int = SWEEPS, thin: int = 1) -> np.ndarray:
    """Visits after 1,000 sweeps that do not count. A chain of one kind of proposal moves slowly: it has three times the
    sweeps."""
    thin *= 1 if kernel.proposal == "cycle" else 3
    count_visits(*tokens.driven(kernel, how), 1, 1000, thin, stream_key(2))
    return count_visits(*tokens.driven(kernel, how), BATCHES, sweeps, thin, stream_key(1))


def tokens_for(tmp_path: Path, corpus: str) -> TokenCorpus:
    return tokens_of(tmp_path / "dataset", *CORPORA[corpus])


QUICK = [("2 topics", IMMEDIATE), ("3 topics", FROZEN)]
LONG = [(corpus, how) for corpus in CORPORA for how in (IMMEDIATE, FROZEN)]
SOME = [EXACT[0], EXACT[1], SamplerKernel("lightlda", 2)]
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
@pytest.mark.parametrize("kernel", [*EXACT, SamplerKernel("aliaslda"), SamplerKernel("lightlda")], ids=str)
def test_a_token_left_in_the_row_of_its_word_is_found_out(tmp_path, kernel):
    """The mistake that no likelihood shows: the same chi-square test rejects it, whatever the sampler."""
    tokens = tokens_for(tmp_path, "3 topics")
    assert p_value(visits_of(tokens, kernel, OWN_LEFT_IN), posterior(tokens)) < ALARM


def test_another_prior_is_found_out(tmp_path):
    """A chain with an alpha or a beta that is 10% off would be rejected."""
    tokens = tokens_for(tmp_path, "2 topics")
    visits = visits_of(tokens, SamplerKernel("gibbs"), IMMEDIATE)
    assert p_value(visits, posterior(tokens)) > ALARM
    assert p_value(visits, posterior(tokens, alpha=tokens.alpha * [1.1, 1.0])) < ALARM
    assert p_value(visits, posterior(tokens, beta=tokens.beta * 1.1)) < ALARM


@numba.njit
def two_phase_visits(document, word, priors, own, mass, totals, proposals, sweeps, batches, key):
    """Visits of each z, int64 (batches, K^N), by the two-phase kernels on one token at a time, counted afresh.

    For each token in turn: `draw_group` proposes in its document and `accept_token` judges in its word, then the other
    way round. Nothing is delayed, so the posterior must come out. own: a WordPrior or None.
    """
    topics, tokens = priors[0].topics, word.size
    state = np.zeros((tokens, 1 + proposals), np.uint16)
    summary = mass.copy()
    summary[0] += tokens
    totals.topics["summary"][:] = summary
    visits = np.zeros((batches, topics**tokens), np.int64)
    draw = np.uint64(0)
    for batch in range(batches):
        for _ in range(sweeps // batches):
            for i in range(tokens):
                priors_here = priors
                if own is not None:
                    priors_here = (priors[0], prior_of_word(own, word[i], priors[1]))
                for side in range(2):
                    drawn_from, judged_in = (document, word) if side == 0 else (word, document)
                    rows = np.flatnonzero(drawn_from == drawn_from[i])
                    new = state[rows, 0].copy()
                    two_phase.draw_group(state, 0, rows, new, priors_here[side], totals.topics, key, draw)
                    draw += np.uint64(rows.size * proposals)
                    for row in np.flatnonzero(judged_in == judged_in[i]):
                        totals.topics[np.int64(state[row, 0])]["count"] += 1
                    judge = priors_here[1 - side]
                    new = two_phase.accept_token(state, i, judge, totals.topics, totals.topics, key, draw)
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


def visits_of_two_phase(tokens: TokenCorpus, proposals: int) -> np.ndarray:
    priors = make_prior(2, tokens.alpha), make_prior(2, np.array([tokens.beta]))
    return two_phase_visits(
        tokens.documents, tokens.words.astype(np.int64), priors, tokens.own, np.full(2, tokens.mass),
        make_totals(np.ones(2)), proposals, 100_000, BATCHES, stream_key(3),
    )  # fmt: skip


@pytest.mark.parametrize("proposals", long_but([2], [1, 2]))
def test_the_two_phase_kernels_without_delay_visit_what_the_posterior_says(tmp_path, proposals):
    """128 assignments, 100,000 sweeps: 2 tests, false alarm below 1e-5; total variation below 0.025. So the only error
    of the two-phase sampler is that its counts are delayed."""
    tokens = tokens_for(tmp_path, "2 topics")
    visits, expected = visits_of_two_phase(tokens, proposals), posterior(tokens)
    assert p_value(visits, expected) > ALARM
    assert total_variation(visits, expected) < 0.025


# Prior of each word in each topic, (V, K): more than beta, less, and 0; some words have beta everywhere.
WEIGHTS = {
    "2 topics": np.array([[0.3, 0.3], [1.7, 0.3], [0.3, 0.05]]),
    "2 topics, one barred": np.array([[0.3, 0.0], [0.3, 0.3], [2.5, 0.1]]),
    "3 topics": np.array([[0.4, 0.4, 2.0], [1.5, 0.1, 0.4]]),
    "3 topics, one barred": np.array([[0.4, 1.2, 0.0], [0.4, 0.4, 0.4]]),
}


def with_own_prior(tmp_path: Path, case: str) -> tuple[TokenCorpus, np.ndarray]:
    """A corpus whose words have the weights of a case, and the weights."""
    corpus, weights = case.split(",", maxsplit=1)[0], WEIGHTS[case]
    documents, vocabulary, alpha, beta = CORPORA[corpus]
    words, topics = np.nonzero(weights != beta)
    pairs = pack_pairs(words, topics, weights[words, topics])
    own: WordPrior = word_prior(pairs, np.arange(vocabulary, dtype=np.uint32), len(alpha), beta)
    plain = tokens_of(tmp_path / "dataset", documents, vocabulary, alpha, beta)
    return TokenCorpus(plain.offsets, plain.positions, plain.words, vocabulary, plain.alpha, beta, own=own), weights


OWN_QUICK = [
    (SamplerKernel("sparse_gibbs"), FROZEN, "2 topics, one barred"),
    (SamplerKernel("gibbs"), IMMEDIATE, "3 topics"),
]
OWN = [
    (SamplerKernel(name), how, case)
    for name in ("gibbs", "sparse_gibbs")
    for how in (IMMEDIATE, FROZEN)
    for case in WEIGHTS
]


@pytest.mark.parametrize(("kernel", "how", "case"), long_but(OWN_QUICK, OWN))
def test_a_chain_with_a_word_prior_visits_what_its_posterior_says(tmp_path, kernel, how, case):
    """100,000 sweeps: 16 tests, false alarm below 1e-4, of the posterior with a weight for each word and topic, which
    differs from the one without; assignments that a weight of 0 rules out are never visited."""
    tokens, weights = with_own_prior(tmp_path, case)
    visits, expected = visits_of(tokens, kernel, how), posterior(tokens, weights=weights)
    assert not visits[:, expected == 0.0].any()
    assert p_value(visits, expected) > ALARM
    assert total_variation(visits, expected) < 0.025
    assert p_value(visits, posterior(tokens)) < ALARM


@pytest.mark.parametrize("case", long_but(["2 topics, one barred"], ["2 topics", "2 topics, one barred"]))
def test_the_two_phase_kernels_with_a_word_prior_visit_what_the_posterior_says(tmp_path, case):
    """As without such a prior: 2 tests, false alarm below 1e-5."""
    tokens, weights = with_own_prior(tmp_path, case)
    visits, expected = visits_of_two_phase(tokens, 2), posterior(tokens, weights=weights)
    assert not visits[:, expected == 0.0].any()
    assert p_value(visits, expected) > ALARM
    assert total_variation(visits, expected) < 0.025
    assert p_value(visits, posterior(tokens)) < ALARM
