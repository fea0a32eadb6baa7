"""A prior for each topic and word: the samplers' shares, what a run writes, seed words, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from commands import Ooc
from corpora import InProcessProgram, names_of_words, program_spec, small_dataset
from long_mark import long_but
from rings import on_ring
from scipy.special import gammaln
from scipy.stats import rankdata

from blocks import write_corpus
from blocks.errors import RequestError
from blocks.shards.splitting import make_shards
from ooc.runs.run import Run
from samplers.estimators.lda import LatentDirichletAllocation
from samplers.lda.training import train_lda
from samplers.lda.word_prior import pack_pairs
from samplers.options import ResumeOptions, TrainingResources
from samplers.resume import resume_run
from samplers.topics.frex import ranked_words
from samplers.topics.inference import DocumentResultChoice, infer
from samplers.topics.labels import labels_of
from samplers.topics.model import SavedTopicModel, TopicModel, row_numbers
from samplers.topics.model_view import write_view
from samplers.topics.relevance import word_totals
from samplers.topics.token_topics import read_assignments

TOPICS, BETA = 4, 0.05

# If every document is one token, and the prior of words is far larger than their counts, the topic of a token of word w
# is k with probability alpha_k beta_kw / sum_v beta_kv, divided by the sum over k.
ALPHA = np.array([0.5, 1.0, 2.0])
WEIGHTS = 2e5 * np.array([[0.0, 1.0, 1.0], [3.0, 1.0, 0.5], [1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.2, 4.0, 1.0]])
EACH = 600  # documents of a word
SAMPLERS = [
    *(("TwoPhase", start) for start in ("random", "scvb0")),
    *((name, update) for name in ("Gibbs", "SparseGibbs") for update in ("delayed", "immediate", "rotation")),
    ("SparseGibbs", "data-parallel"),
    *((name, "") for name in ("RingTwoPhase", "RingGibbs", "RingSparseGibbs")),
]
QUICK = [("TwoPhase", "scvb0"), ("SparseGibbs", "delayed"), ("RingTwoPhase", "")]


def spec_of(sampler: str, how: str):
    words, topics = np.nonzero(WEIGHTS != 2e5)
    options = {"topics": 3, "alpha": ALPHA.tolist(), "beta": 2e5, "seed": 5}
    options["word_prior"] = pack_pairs(words, topics, WEIGHTS[words, topics])
    options |= {"start": how} if how in ("random", "scvb0") else {"update": how} if how else {}
    spec = program_spec(sampler, **options)
    return spec._replace(target=f"samplers.lda.ring_programs:{sampler}") if sampler.startswith("Ring") else spec


@pytest.mark.parametrize(("sampler", "how"), long_but(QUICK, SAMPLERS))
def test_the_topics_of_a_word_have_the_shares_of_its_prior(tmp_path, sampler, how):
    """Within 5 standard deviations; none in a topic in which the word has the weight 0."""
    words = np.random.default_rng(3).permutation(np.repeat(np.arange(5, dtype=np.uint32), EACH))
    dataset = write_corpus(tmp_path / "data", np.arange(words.size + 1), words, names_of_words(5), slices=2)
    shares = ALPHA * WEIGHTS / WEIGHTS.sum(axis=0)
    shares /= shares.sum(axis=1, keepdims=True)
    with InProcessProgram(dataset, spec_of(sampler, how)) as chain:
        chain.iterate(20)
        counts = chain.counts()[1]
    assert (counts.sum(axis=1) == EACH).all()
    assert not counts[WEIGHTS == 0.0].any()
    assert (np.abs(counts / EACH - shares) <= 5 * np.sqrt(shares * (1 - shares) / EACH)).all()


def prior_of(words: list[str]) -> np.ndarray:
    """(V, K): a heavy word in a topic, a word kept out of a topic, a lighter one."""
    weights = np.full((len(words), TOPICS), BETA)
    weights[3, 0], weights[4, 1], weights[5, 2], weights[5, 0] = 12.5, 0.0, 0.001, 2.0
    return weights


def write_table(path: Path, words: list[str], weights: np.ndarray) -> Path:
    """A CSV file of all weights that differ from BETA."""
    rows = [f"{k},{words[w]},{weights[w, k]!r}\n" for w, k in np.argwhere(weights != BETA)]
    path.write_text("topic,word,weight\n" + "".join(rows).replace("np.float64(", "").replace(")", ""))
    return path


def counts_of(run: Path, size: int) -> np.ndarray:
    """(V, K), tokens of the run's last state."""
    tokens, counts = read_assignments(run), np.zeros((size, TOPICS))
    np.add.at(counts, (tokens.words, tokens.topics), 1)
    return counts


@pytest.mark.parametrize(
    ("sampler", "start"), long_but([("two-phase", "scvb0")], [("two-phase", "scvb0"), ("sparse-gibbs", "random")])
)
def test_a_run_has_the_prior_of_its_file_in_its_likelihood_and_its_model(tmp_path, sampler, start):
    """Likelihood and phi by the formulas, from the topics of the tokens; the same after a resume, and from an .npz."""
    dataset = small_dataset(tmp_path / "data", documents=80, vocabulary=40, longest=30)
    words = dataset.vocabulary()
    weights = prior_of(words)
    np.savez(tmp_path / "prior.npz", weights.T)
    options = {"topics": TOPICS, "beta": BETA, "alpha": 0.2, "sampler": sampler, "start": start, "average": 1}
    options |= {"workers": 1, "quiet": True, "evaluate_every": 2}
    table = write_table(tmp_path / "prior.csv", words, weights)
    last = train_lda(dataset.path, tmp_path / "run", iterations=4, topic_word_prior=table, **options)
    train_lda(dataset.path, tmp_path / "npz", iterations=2, topic_word_prior=tmp_path / "prior.npz", **options)
    resume_run(tmp_path / "npz", ResumeOptions(iterations=4), TrainingResources(workers=1, quiet=True))
    counts, model = counts_of(tmp_path / "run", len(words)), SavedTopicModel(tmp_path / "run" / "model")
    assert not counts[weights == 0.0].any()
    masses = weights.sum(axis=0)
    possible = weights > 0.0
    word_part = (gammaln(masses) - gammaln(masses + counts.sum(axis=0))).sum()
    word_part += (gammaln(counts + weights)[possible] - gammaln(weights)[possible]).sum()
    assert last["word_log_likelihood_per_token"] == pytest.approx(word_part / counts.sum(), rel=1e-10)
    phi = (counts + weights) / (counts + weights).sum(axis=0)
    np.testing.assert_allclose(model.word_shares(), phi.T, rtol=1e-6)
    assert (model.word_shares()[weights.T == 0.0] == 0.0).all()
    np.testing.assert_allclose(model.topic_tokens, counts.sum(axis=0), atol=1e-4)
    np.testing.assert_allclose(word_totals(model), counts.sum(axis=1), atol=1e-4)
    np.testing.assert_array_equal(SavedTopicModel(tmp_path / "npz" / "model").words.counts, model.words.counts)


def test_views_rankings_and_mixtures_follow_the_prior(tmp_path):
    """FREX by its definition on dense phi; a merged topic has the tokens and the additions of its topics; documents of
    words that some topics cannot have."""
    dataset = small_dataset(tmp_path / "data", documents=80, vocabulary=40, longest=30)
    words = dataset.vocabulary()
    weights = prior_of(words)
    weights[6, [1, 2]], weights[7, [0, 3]] = 0.0, [0.0, 3.0]
    table = write_table(tmp_path / "prior.csv", words, weights)
    options = {"topics": TOPICS, "beta": BETA, "sampler": "two-phase", "iterations": 4, "workers": 1, "quiet": True}
    train_lda(dataset.path, tmp_path / "run", topic_word_prior=table, **options)
    counts, model = counts_of(tmp_path / "run", len(words)), SavedTopicModel(tmp_path / "run" / "model")
    phi = (counts + weights) / (counts + weights).sum(axis=0)
    ranks = [rankdata(np.round(each, 12), axis=0) / len(words) for each in (phi, phi / phi.sum(axis=1, keepdims=True))]
    listed = np.where((phi > 0) & ((counts > 0) | (weights != BETA)), 1 / (0.5 / ranks[0] + 0.5 / ranks[1]), 0.0)
    for k, scores in enumerate(ranked_words(model, "frex", len(words))[2]):
        expected = np.sort(listed[:, k][listed[:, k] > 0])[::-1]
        np.testing.assert_allclose(scores[~np.isnan(scores)], expected, rtol=1e-6)
    view = write_view(model, tmp_path / "view", merged=[[1, 2], [0, 3]])
    added = weights - BETA
    merged = [
        np.maximum(added[:, group], 0.0).sum(axis=1) + np.minimum(added[:, group], 0.0).max(axis=1) + BETA
        for group in ([0, 3], [1, 2])
    ]
    sums = np.stack(
        [counts[:, group].sum(axis=1) + prior for group, prior in zip(([0, 3], [1, 2]), merged, strict=True)]
    )
    np.testing.assert_allclose(view.word_shares(), sums / sums.sum(axis=1, keepdims=True), rtol=1e-5)
    assert view.word_shares()[1, 6] == 0.0 < view.word_shares()[0, 7]
    np.testing.assert_allclose(view.topic_tokens, [counts[:, [0, 3]].sum(), counts[:, [1, 2]].sum()], atol=1e-3)
    found = infer(model, dataset, tmp_path, workers=1, wanted=DocumentResultChoice(likelihood=True, words=True))
    assert np.isfinite(found["mixtures"]).all()
    assert np.isfinite(found["likelihoods"]).all()
    given = found["counts"] > 0
    assert (phi[found["words"][given], found["word_topics"][given]] > 0).all()


@pytest.mark.long
def test_averaged_states_have_the_mean_of_their_priors(tmp_path):
    """phi of three states is the ratio of the sums of counts and priors, and 0 where the prior is."""
    dataset = small_dataset(tmp_path / "data", documents=80, vocabulary=40, longest=30)
    words = dataset.vocabulary()
    weights = prior_of(words)
    table = write_table(tmp_path / "prior.csv", words, weights)
    options = {"topics": TOPICS, "beta": BETA, "topic_word_prior": table, "evaluate_every": 2, "sampler": "two-phase"}
    options |= {"workers": 1, "quiet": True}
    sums = np.zeros_like(weights)
    for iterations in (2, 4, 6):
        train_lda(dataset.path, tmp_path / f"run-{iterations}", iterations=iterations, **options)
        sums += counts_of(tmp_path / f"run-{iterations}", len(words)) + weights
    train_lda(dataset.path, tmp_path / "run", iterations=6, average=3, **options)
    shares = SavedTopicModel(tmp_path / "run" / "model").word_shares()
    np.testing.assert_allclose(shares, (sums / sums.sum(axis=0)).T, rtol=1e-6)
    assert (shares[weights.T == 0.0] == 0.0).all()


@pytest.mark.parametrize("sampler", long_but(["sparse-gibbs"], ["two-phase", "sparse-gibbs"]))
def test_several_machines_take_the_files_of_the_first(tmp_path, sampler):
    """Same prior in the configuration of both; the labels are those of the seeds; nothing in a topic with weight 0."""
    whole = small_dataset(tmp_path / "data", documents=80, vocabulary=40, longest=30)
    words = whole.vocabulary()
    write_table(tmp_path / "prior-0.csv", words, prior_of(words))
    (tmp_path / "seeds-0.csv").write_text(f"first,{words[7]}\nsecond,{words[8]},{words[9]}\n")
    paths = [shard.path for shard in make_shards(whole.path, str(tmp_path / "shards"), 2, workers=1)]

    def train(ring):
        files = {
            "topic_word_prior": tmp_path / f"prior-{ring.rank}.csv",
            "seed_words": tmp_path / f"seeds-{ring.rank}.csv",
        }
        run = tmp_path / f"run-{ring.rank}"
        options = {"topics": TOPICS, "beta": BETA, "iterations": 4, "sampler": sampler, "workers": 1, "quiet": True}
        train_lda(paths[ring.rank], run, ring=ring, **files, **options)

    on_ring(2, train)
    assert Run(tmp_path / "run-0").config["options"] == Run(tmp_path / "run-1").config["options"]
    model = SavedTopicModel(tmp_path / "run-0" / "model")
    assert labels_of(model) == {0: "first", 1: "second"}
    assert model.word_shares()[1, 4] == 0.0
    assert word_totals(model).sum() == pytest.approx(whole.tokens)


def seeded(tmp_path: Path, text: str, name: str = "seeds.csv", **options) -> TopicModel:
    dataset = small_dataset(tmp_path / "data", documents=80, vocabulary=40, longest=30)
    (tmp_path / name).write_text(text)
    options = {"topics": TOPICS, "iterations": 2, "workers": 1, "quiet": True, "sampler": "two-phase"} | options
    train_lda(dataset.path, tmp_path / "run", seed_words=tmp_path / name, **options)
    return SavedTopicModel(tmp_path / "run" / "model")


def test_seed_words_have_prior_counts_and_names(tmp_path, capfd):
    """Half a count for each token of the word, in the topic of its row; an unknown word is told by name."""
    words = names_of_words(40)
    model = seeded(tmp_path, f"Climate change,{words[1]},{words[2]},nowhere\nTrade,{words[3]}\n", seed_weight=0.5)
    assert "not in the vocabulary and are left out: nowhere" in capfd.readouterr().err
    assert labels_of(model) == {0: "Climate change", 1: "Trade"}
    assert model.prior is not None
    rows, tokens = row_numbers(model.prior), word_totals(model)
    assert list(zip(rows.tolist(), model.prior.topics.tolist(), strict=True)) == [(1, 0), (2, 0), (3, 1)]
    np.testing.assert_allclose(model.prior.counts, 0.5 * tokens[[1, 2, 3]], rtol=1e-5)


REFUSED = {
    "topics": ("a,{0}\nb,{1}\n", {"topics": 1}, "has 2 topics, but --topics is 1"),
    "sampler": ("a,{0}\n", {"sampler": "lightlda"}, "--seed-words cannot be used with --sampler lightlda"),
    "unknown": ("a,{0}\nb,nowhere\n", {}, "no seed word of the topic 'b' is in the vocabulary"),
    "twice": ("a,{0}\na,{1}\n", {}, "row 2: the topic 'a' occurs twice"),
    "empty": ("a\n", {}, "the topic 'a' has no seed words"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_seed_words_that_cannot_be_used_are_refused(tmp_path, case):
    text, options, message = REFUSED[case]
    with pytest.raises(RequestError, match=message):
        seeded(tmp_path, text.format(*names_of_words(40)), **options)
    assert not (tmp_path / "run").exists()


TABLES = {
    "0,{0},x\n": "row 1: '0,.*,x' is not a topic number, a word and a weight",
    "4,{0},1\n": "has weights for topic 4",
    "0,{0},-1\n": "has the weight -1",
    "0,{0},1\n0,{0},2\n": "row 2: the word .* is listed twice for topic 0",
    "0,nowhere,1\n": "contains no word of the vocabulary",
    "0,{0},0\n1,{0},0\n2,{0},0\n3,{0},0\n": "has the prior weight 0 in all 4 topics",
}


@pytest.mark.parametrize("text", TABLES)
def test_tables_that_cannot_be_used_are_refused(tmp_path, text):
    dataset = small_dataset(tmp_path / "data", documents=20, vocabulary=10, longest=10)
    (tmp_path / "prior.csv").write_text(text.format(*dataset.vocabulary()))
    with pytest.raises(RequestError, match=TABLES[text]):
        train_lda(dataset.path, tmp_path / "run", topics=TOPICS, topic_word_prior=tmp_path / "prior.csv")


def test_the_estimator_takes_an_array_and_seed_words():
    """components_ are counts plus the given array; a warm start with another array begins anew."""
    texts = [f"wood tree {word}" for word in ("leaf", "root", "bark")] * 20
    vocabulary = LatentDirichletAllocation(2, max_iter=1, random_state=0).fit(texts).vocabulary_.tolist()
    prior = np.full((2, len(vocabulary)), 0.5)
    prior[0, vocabulary.index("tree")], prior[1, vocabulary.index("wood")] = 0.0, 0.0
    options = {"max_iter": 3, "random_state": 0, "n_jobs": 1, "warm_start": True}
    found = LatentDirichletAllocation(2, topic_word_prior=prior, **options).fit(texts)
    np.testing.assert_allclose(found.components_.sum(), 180 + prior.sum(), rtol=1e-6)
    assert (found.components_[prior == 0.0] == 0.0).all()
    assert np.isfinite(found.transform(texts)).all()
    assert np.isfinite(found.perplexity(texts))
    found.set_params(topic_word_prior=2 * prior).fit(texts)
    assert found.n_iter_ == 3
    seeds = LatentDirichletAllocation(2, seed_words={"a": ["leaf"], "b": ["bark"]}, max_iter=3).fit(texts)
    assert json.dumps(seeds.topic_word_[:, vocabulary.index("leaf")].argmax().item()) == "0"


def test_mixtures_have_the_only_topic_of_each_word(ooc: Ooc, tmp_path: Path) -> None:
    """A word that can occur in a single topic gives its tokens to this topic, however few they are beside others: the
    log-likelihood of a document is that of the converged variational update, in numpy."""
    rng, words = np.random.default_rng(5), np.array([[f"{theme}{n}" for n in range(5)] for theme in "abcdef"])
    texts = []
    for _ in range(120):
        first, *others = rng.permutation(6)[:4]
        texts.append(" ".join([*rng.choice(words[first], 80), *(rng.choice(words[other]) for other in others)]))
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    barred = [f"{topic},{word},0" for topic in range(6) for word in np.delete(words, topic, axis=0).ravel()]
    (tmp_path / "prior.csv").write_text("\n".join(["topic,word,weight", *barred]))
    assert ooc("ingest", "text", "--lines", "texts.txt", "corpus", "--stop-words", "none").returncode == 0
    how = ("--topics", 6, "--iterations", 10, "--workers", 1, "--topic-word-prior", "prior.csv")
    assert ooc("train", "lda", "corpus", "run", *how).returncode == 0
    assert ooc("infer", "run", "corpus", "mixtures.csv", "--log-likelihood", "--workers", 1).returncode == 0
    assert ooc("export", "run", "run.npz").returncode == 0
    with np.load(tmp_path / "run.npz") as found:
        counts = np.zeros((found["word_offsets"].size - 1, 6))
        counts[np.repeat(np.arange(len(counts)), np.diff(found["word_offsets"])), found["word_topics"]] = found[
            "word_counts"
        ]
        phi, alpha = np.maximum(counts + found["beta"], 0), found["alpha"]
        place = {word: number for number, word in enumerate(found["vocabulary"].tolist())}
    phi /= phi.sum(axis=0)
    with (tmp_path / "mixtures.csv").open() as file:
        told = [float(row["log_likelihood"]) for row in csv.DictReader(file)]
    for text, likelihood in zip(texts, told, strict=True):
        rows, times = np.unique([place[word] for word in text.split()], return_counts=True)
        gamma = phi[rows] / phi[rows].sum(axis=1, keepdims=True)
        for _ in range(200):
            gamma = (times @ gamma - gamma + alpha) * phi[rows]
            gamma /= gamma.sum(axis=1, keepdims=True)
        mixture = (times @ gamma + alpha) / (times.sum() + alpha.sum())
        assert likelihood > times @ np.log(phi[rows] @ mixture) - 0.1
