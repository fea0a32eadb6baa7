"""LDA programs, run in this process: counts that always add up, the objective, and topics that are found again."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from corpora import (
    InProcessProgram,
    corpora,
    names_of_words,
    planted_documents,
    program_spec,
    recount,
    small_dataset,
    written,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

from blocks import RequestError, write_corpus
from samplers.lda.doc_major import UPDATES
from samplers.lda.program import topic_type
from samplers.lda.programs import SAMPLERS as ALL_SAMPLERS
from samplers.lda.programs import auto_samplers, sampler_spec
from samplers.topics.model import SavedTopicModel, TopicCountRows

SAMPLERS = ["TwoPhase", "Gibbs", "SparseGibbs", "SparseLda", "AliasLda", "LightLda"]
slow_disk = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def dense(rows: TopicCountRows, topics: int) -> np.ndarray:
    """Sparse rows as int64 (n, K), after checking that they are well-formed."""
    matrix = np.zeros((rows.offsets.size - 1, topics), np.int64)
    for row in range(matrix.shape[0]):
        found = slice(rows.offsets[row], rows.offsets[row + 1])
        assert (np.diff(rows.topics[found].astype(np.int64)) > 0).all()
        assert (rows.counts[found] > 0).all()
        matrix[row, rows.topics[found]] = rows.counts[found]
    assert rows.offsets[-1] == rows.topics.size == rows.counts.size
    return matrix


def check_counts(chain: InProcessProgram, corpus: dict) -> None:
    """Everything that is counted equals a count of z itself, made from the blocks alone."""
    topics = chain.program.topics  # type: ignore[attr-defined]
    assert int(chain.state.max()) < topics
    documents, words = chain.counts()
    assert np.array_equal(documents.sum(axis=1), np.diff(corpus["offsets"]))
    assert np.array_equal(words.sum(axis=1), np.bincount(corpus["words"], minlength=len(corpus["vocabulary"])))
    assert np.array_equal(chain.shared["topic_counts"], words.sum(axis=0))
    assert np.array_equal(documents.sum(axis=0), words.sum(axis=0))


def check_model(chain: InProcessProgram, directory: Path, alpha: float) -> None:
    """The exported model, read again, holds the counts of z."""
    chain.export(directory)
    model = SavedTopicModel(directory)
    documents, words = chain.counts()
    mass = chain.dataset.vocabulary_size * float(chain.shared["beta"][0])
    assert np.allclose(chain.shared["summary"], words.sum(axis=0) + mass, rtol=1e-15)
    assert np.array_equal(model.topic_counts, words.sum(axis=0))
    assert np.array_equal(dense(model.words, model.topics), words)
    assert np.array_equal(dense(model.documents, model.topics), documents)
    assert np.array_equal(model.alpha, np.full(model.topics, alpha))
    assert model.dataset == chain.dataset.identity
    assert not list(model.problems())
    assert sorted(file.name for file in directory.iterdir()) == sorted(
        ["documents.h5", "model.json", "topics.h5", "vocabulary.txt", "words.h5"]
    )


@slow_disk
@given(
    corpora(),
    st.sampled_from([1, 2, 3, 17, 1000, 20_000, 70_000]),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(0, 1 << 60),
)
def test_two_phase_counts_always_equal_a_recount(corpus, topics, mh_steps, iterations, seed):
    """Any grid, any number of topics (dense rows; hash rows of 16 and 32 bits), before and after iterations."""
    with (
        written(corpus) as dataset,
        InProcessProgram(dataset, program_spec(topics=topics, mh_steps=mh_steps, seed=seed)) as chain,
        tempfile.TemporaryDirectory() as directory,
    ):
        check_counts(chain, corpus)
        chain.iterate(iterations)
        check_counts(chain, corpus)
        check_model(chain, Path(directory) / "model", 0.3)


@settings(slow_disk, max_examples=15)
@given(
    corpora(),
    st.sampled_from(SAMPLERS[1:]),
    st.sampled_from([1, 2, 5, 300]),
    st.integers(0, 2),
    st.integers(0, 1 << 60),
)
def test_counts_of_other_samplers_always_equal_a_recount(corpus, sampler, topics, iterations, seed):
    last_state = {"running_mean": False} if sampler == "SparseGibbs" else {}
    with (
        written(corpus) as dataset,
        InProcessProgram(dataset, program_spec(sampler, topics=topics, seed=seed, **last_state)) as chain,
        tempfile.TemporaryDirectory() as directory,
    ):
        chain.iterate(iterations)
        check_counts(chain, corpus)
        check_model(chain, Path(directory) / "model", 0.3)


def joint_log_likelihood(documents, words, alpha, beta):
    """(document part, word part), by SciPy's gammaln on dense counts, from the formula in `samplers.lda.program`."""
    abar, vocabulary = alpha.sum(), words.shape[0]
    document_part = (
        gammaln(abar)
        - gammaln(abar + documents.sum(axis=1))
        + (gammaln(documents + alpha) - gammaln(alpha)).sum(axis=1)
    ).sum()
    word_part = (gammaln(vocabulary * beta) - gammaln(vocabulary * beta + words.sum(axis=0))).sum()
    return document_part, word_part + (gammaln(words + beta) - gammaln(beta)).sum()


@pytest.mark.parametrize(("topics", "same"), [(7, True), (7, False), (20_000, True)])
def test_the_objective_is_the_joint_log_likelihood(tmp_path, topics, same):
    """Both parts agree with an independent dense computation to 1e-10, relative; so do the non-zeros."""
    alpha = 0.2 if same else np.random.default_rng(3).uniform(0.05, 2, topics).tolist()
    dataset = small_dataset(tmp_path / "dataset", documents=60, vocabulary=50, longest=30)
    with InProcessProgram(dataset, program_spec(topics=topics, alpha=alpha, beta=0.07)) as chain:
        chain.iterate(2)
        documents, words = chain.counts()
        objective = chain.objective()
    expected = joint_log_likelihood(documents, words, np.broadcast_to(alpha, topics), 0.07)
    found = objective["doc_log_likelihood_per_token"], objective["word_log_likelihood_per_token"]
    assert np.allclose(np.array(found) * dataset.tokens, expected, rtol=1e-10, atol=0)
    assert np.isclose(objective["log_likelihood_per_token"] * dataset.tokens, sum(expected), rtol=1e-10, atol=0)
    assert objective["nonzeros"] == np.count_nonzero(words)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        ("TwoPhase", {"mh_steps": 1}),
        ("TwoPhase", {"mh_steps": 2}),
        ("Gibbs", {}),
        ("SparseLda", {"update": "rotation"}),
        pytest.param("AliasLda", {"update": "data-parallel"}, marks=pytest.mark.long),
        ("LightLda", {}),
        pytest.param("LightLda", {"mh_steps": 4, "proposal": "word"}, marks=pytest.mark.long),
        pytest.param("LightLda", {"mh_steps": 4, "proposal": "doc", "update": "immediate"}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_planted_topics_are_found_again(tmp_path, sampler, options):
    """Five topics without a common word, mixed in pairs: some chain of three ends with them, word for word.

    Every chain may end in a local optimum (two topics merged, one split): that is LDA's, not the sampler's. The best of
    three by likelihood must have 99% of its tokens in the topic that planted them, matched one to one.
    """
    planted = planted_documents(np.random.default_rng(4), topics=5, words_each=12, documents=300, length=40)
    offsets = np.arange(0, planted.size + 1, planted.shape[1])
    dataset = write_corpus(
        tmp_path / "dataset",
        offsets,
        planted.reshape(-1),
        names_of_words(60),
        block_tokens=3000,
        part_tokens=800,
        slices=3,
    )
    results = []
    for seed in range(3):
        with InProcessProgram(dataset, program_spec(sampler, topics=5, alpha=0.1, seed=seed, **options)) as chain:
            chain.iterate(120)
            found = chain.counts()[1].reshape(5, 12, 5).sum(axis=1)
            results.append((chain.objective()["log_likelihood_per_token"], found))
    found = max(results, key=lambda result: result[0])[1]
    rows, columns = linear_sum_assignment(-found)
    assert found[rows, columns].sum() > 0.99 * dataset.tokens


WARM_UP = """
import sys
from pathlib import Path
from corpora import InProcessProgram, program_spec
from blocks import Dataset
from samplers.lda import aliaslda, document_kernels, gibbs, token_kernels, lightlda, word_topic_rows
from samplers.lda import sparse_gibbs, sparselda, two_phase, word_tables

options = {"update": sys.argv[3]} if len(sys.argv) > 3 else {}
dataset, spec = Dataset(sys.argv[1]), program_spec(sys.argv[2], topics=11, **options)
spec.build(dataset).warm_up()
modules = (aliaslda, document_kernels, gibbs, lightlda, sparse_gibbs, sparselda, token_kernels, two_phase)
modules += (word_tables, word_topic_rows)
items = [item for module in modules for item in vars(module).values()]
kernels = [item for item in items if hasattr(item, "signatures")]
before = [list(kernel.signatures) for kernel in kernels]
with InProcessProgram(dataset, spec) as chain:
    chain.iterate()
    chain.objective()
    chain.export(Path(sys.argv[1]) / "model")
for kernel, compiled in zip(kernels, before, strict=True):
    late = [signature for signature in kernel.signatures if signature not in compiled]
    assert not late, (kernel.__name__, late)
"""


WARM_UPS = [("TwoPhase",), *((sampler, "delayed") for sampler in SAMPLERS[1:])]
WARM_UPS += [("LightLda", update) for update in UPDATES[1:]]
QUICK = ("TwoPhase",), ("Gibbs", "delayed"), ("LightLda", "rotation")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "arguments",
    [pytest.param(each, marks=[] if each in QUICK else pytest.mark.long) for each in WARM_UPS],
    ids="-".join,
)
def test_warming_up_compiles_all_that_updating_calls(tmp_path, arguments):
    """Workers are forked after `warm_up`: a kernel compiled later would be compiled in each of them."""
    small_dataset(tmp_path / "dataset", documents=20)
    script = [sys.executable, "-W", "error", "-c", WARM_UP, str(tmp_path / "dataset"), *arguments]
    done = subprocess.run(script, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_chain_depends_on_its_seed_and_nothing_else(tmp_path):
    dataset = small_dataset(tmp_path / "dataset", documents=50)
    states = []
    for seed in (1, 1, 2):
        with InProcessProgram(dataset, program_spec(seed=seed)) as chain:
            chain.iterate(2)
            states.append(chain.state.copy())
    assert np.array_equal(states[0], states[1])
    assert np.mean(states[0] == states[2]) < 0.5


def test_topics_are_kept_in_the_narrowest_type():
    sizes = (2, 1 << 8, (1 << 8) + 1, 1 << 16, (1 << 16) + 1)
    assert [topic_type(topics) for topics in sizes] == ["uint8", "uint8", "uint16", "uint16", "uint32"]


@pytest.mark.parametrize(
    ("sampler", "options", "named"),
    [
        ("TwoPhase", {"topics": 0}, "--topics must be"),
        ("TwoPhase", {"topics": 1_000_001}, "--topics must be"),
        ("TwoPhase", {"alpha": 0.0}, "--alpha"),
        ("TwoPhase", {"alpha": [0.1, 0.2]}, "--alpha must have 1 or"),
        ("TwoPhase", {"beta": float("nan")}, "--beta"),
        ("TwoPhase", {"beta": -1.0}, "--beta"),
        ("TwoPhase", {"mh_steps": 0}, "--mh-steps must be"),
        ("TwoPhase", {"mh_steps": 65}, "--mh-steps must be"),
        ("AliasLda", {"mh_steps": 0}, "--mh-steps must be"),
        ("LightLda", {"mh_steps": 65}, "--mh-steps must be"),
        ("LightLda", {"proposal": "both"}, "--proposal: unknown proposal 'both'"),
        ("Gibbs", {"update": "later"}, "--update: unknown update 'later'"),
    ],
)
def test_impossible_options_are_refused_by_name(tmp_path, sampler, options, named):
    dataset = small_dataset(tmp_path / "dataset", documents=5)
    with pytest.raises(RequestError, match=named):
        program_spec(sampler, **options).build(dataset)


def test_an_unknown_sampler_is_refused():
    with pytest.raises(RequestError, match="simplex"):
        sampler_spec("simplex", {}, {})


@pytest.mark.parametrize(
    ("option", "samplers"),
    [
        ("mh_steps", {"two-phase", "aliaslda", "lightlda"}),
        ("proposal", {"lightlda"}),
        ("update", {"gibbs", "sparse-gibbs", "sparselda", "aliaslda", "lightlda"}),
        ("start", {"two-phase", "gibbs", "sparse-gibbs", "sparselda", "aliaslda", "lightlda"}),
    ],
)
def test_options_are_for_the_samplers_that_have_them(tmp_path, option, samplers):
    """Given to any other they are refused, and the message says whose they are; not given they are for all."""
    dataset = small_dataset(tmp_path / "dataset", documents=5)
    value = {"mh_steps": 3, "proposal": "doc", "update": "rotation", "start": "random"}[option]
    every = {"topics": 5, "alpha": 0.3, "beta": 0.05, "seed": 7}
    for name in ALL_SAMPLERS:
        sampler_spec(name, every, {option: None}).build(dataset)
        if name in samplers:
            assert sampler_spec(name, every, {option: value}).build(dataset)
        else:
            with pytest.raises(RequestError, match=f"--{option.replace('_', '-')} cannot be used with") as refused:
                sampler_spec(name, every, {option: value})
            assert all(taker in (refused.value.remedy or "") for taker in samplers)


def test_auto_is_sparse_gibbs_for_small_models_and_what_takes_the_options():
    nothing = dict.fromkeys(("mh_steps", "proposal", "update", "start"))
    assert auto_samplers(100, 80_000, nothing) == ["sparse-gibbs", "two-phase"]
    assert auto_samplers(1000, 80_000, nothing) == ["sparse-gibbs", "two-phase"]
    assert auto_samplers(2000, 80_000, nothing) == ["two-phase"]
    assert auto_samplers(100, 80_000, nothing | {"mh_steps": 1}) == ["two-phase"]
    assert auto_samplers(2000, 80_000, nothing | {"update": "rotation"}) == ["sparse-gibbs"]
    with pytest.raises(RequestError, match="--proposal cannot be used with --sampler sparse-gibbs"):
        sampler_spec(auto_samplers(100, 80_000, nothing | {"proposal": "doc"})[0], {}, nothing | {"proposal": "doc"})


def test_a_recount_sees_a_wrong_topic(tmp_path):
    """The oracle of the tests above looks at every token."""
    dataset = small_dataset(tmp_path / "dataset", documents=10)
    with InProcessProgram(dataset, program_spec()) as chain:
        before = recount(dataset, chain.state[:, 0], 5)
        chain.state[3, 0] = (chain.state[3, 0] + 1) % 5
        after = recount(dataset, chain.state[:, 0], 5)
    assert all(np.abs(new - old).sum() == 2 for new, old in zip(after, before, strict=True))
