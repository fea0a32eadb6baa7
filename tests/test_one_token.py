"""Whole iterations of programs on one document of one token, as the engine runs them, against the posterior.

Nothing is delayed there, and the word says nothing: topic k has the probability alpha_k / sum(alpha). Priors, tables
and rows are those that the program makes itself.
"""

from __future__ import annotations

import numpy as np
import pytest
from corpora import InProcessProgram, program_spec, tiny_dataset

from ooc.program import Phase
from samplers.lda.hyperparameters import histogram

TOPICS, ITERATIONS = 4, 1_500
ALPHA = [0.05, 0.15, 0.3, 1.5]  # of which the token has topic 3 in 3 of 4 states
NEVER = 1 << 30  # iterations
KINDS = {
    "symmetric": {"alpha": 0.5},
    "asymmetric": {"alpha": ALPHA},
    "optimised": {"alpha": 0.5, "optimize_every": 1, "burn_in": NEVER},
}
UPDATES = ["delayed", "data-parallel", "rotation", "immediate"]
OTHERS = ["Gibbs", "SparseGibbs", "SparseLda", "AliasLda", "LightLda"]
QUICK = [
    *(("programs", "TwoPhase", {"mh_steps": steps}) for steps in (1, 2)),
    ("ring_programs", "RingTwoPhase", {"mh_steps": 1}),
    ("programs", "LightLda", {"update": "delayed"}),
]
LONG = [
    *(("programs", sampler, {"update": update}) for sampler in OTHERS for update in UPDATES),
    *(("ring_programs", f"Ring{sampler}", {}) for sampler in OTHERS),
]


def estimate(chain: InProcessProgram) -> None:
    """Have the program estimate alpha from the counts of other documents, drawn from an asymmetric prior."""
    rng = np.random.default_rng(6)
    counts = np.array([rng.multinomial(20, rng.dirichlet(ALPHA)) for _ in range(200)])
    documents, topics = np.nonzero(counts)
    rows = topics.astype(np.uint64) << np.uint64(32) | counts[documents, topics].astype(np.uint64)
    lengths, words = np.full(200, 20, np.uint64), np.ones(1, np.uint64)
    chain.program.adapt([[*histogram(rows), *histogram(lengths), *histogram(words)]], chain.shared)


def check(tmp_path, module: str, sampler: str, options: dict, kind: str) -> None:
    """Total variation below 0.06 after each phase; chance leaves 0.01 to 0.03, words with the prior of documents made
    0.16 and 0.19 of it."""
    dataset = tiny_dataset(tmp_path / "dataset", [[1]], 3)
    spec = program_spec(sampler, topics=TOPICS, beta=0.3, **KINDS[kind], **options)
    if sampler == "SparseGibbs":
        spec.options["start"] = "random"
    with InProcessProgram(dataset, spec._replace(target=f"samplers.lda.{module}:{sampler}")) as chain:
        if kind == "optimised":
            estimate(chain)
        alpha = np.broadcast_to(chain.shared["alpha"], TOPICS)
        expected = alpha / alpha.sum()
        visits = {phase.name: np.zeros(TOPICS) for phase in chain.program.phases}

        def count(phase: Phase) -> None:
            visits[phase.name][chain.state[0, 0]] += 1

        chain.iterate(ITERATIONS, count)
    if kind != "symmetric":
        np.testing.assert_allclose(expected, [0.025, 0.075, 0.15, 0.75], atol=1e-12 if kind == "asymmetric" else 0.03)
    for phase, found in visits.items():
        assert 0.5 * np.abs(found / ITERATIONS - expected).sum() < 0.06, (phase, found / ITERATIONS)


by_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.few(2)
@pytest.mark.parametrize(("module", "sampler", "options"), QUICK, ids=str)
@by_kind
def test_a_token_has_the_shares_of_alpha(tmp_path, module, sampler, options, kind):
    check(tmp_path, module, sampler, options, kind)


@pytest.mark.long
@pytest.mark.parametrize(("module", "sampler", "options"), LONG, ids=str)
@by_kind
def test_a_token_has_the_shares_of_alpha_whatever_the_sampler(tmp_path, module, sampler, options, kind):
    check(tmp_path, module, sampler, options, kind)
