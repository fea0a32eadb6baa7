"""Synthetic corpora: drawn from the distribution that is claimed, the same for any workers, and found again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from corpora import tree
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.stats import chisquare, norm

from blocks import Dataset, RequestError, Synthetic, synthesize
from blocks.corpus.synthetic import plant_topics
from blocks.corpus.synthetic_worker import generate, stick_tables
from samplers.lda.training import train_lda
from samplers.topics.model import SavedTopicModel

FALSE_ALARM = 1e-3  # of a test below, were its seed not fixed


def draw(lengths, alpha_total, offsets, words, probabilities):
    lengths = np.asarray(lengths, np.int64)
    tokens = np.empty(lengths.sum(), np.uint32)
    topics = np.empty(lengths.max(), np.int32)
    random = np.random.default_rng(7)
    generate(random, lengths, alpha_total, offsets, words, *stick_tables(offsets, probabilities), topics, tokens)
    return tokens


def phi(topics, vocabulary):
    """float64 (K, V) of planted topics."""
    numbers = np.repeat(np.arange(topics["offsets"].size - 1), np.diff(topics["offsets"]))
    dense = np.zeros((numbers[-1] + 1, vocabulary))
    np.add.at(dense, (numbers, topics["words"]), topics["probabilities"])
    return dense


@given(st.lists(st.lists(st.floats(2.0**-20, 1.0, width=32), min_size=1, max_size=9), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_stick_tables_hold_the_probabilities(topics):
    offsets = np.cumsum([0, *map(len, topics)])
    probabilities = np.concatenate([np.array(topic) / sum(topic) for topic in topics]).astype(np.float32)
    cut, alias = stick_tables(offsets, probabilities)
    for first, last in pairwise(offsets):
        held = cut[first:last].astype(np.float64)
        np.add.at(held, alias[first:last], 1.0 - cut[first:last])
        assert held / (last - first) == pytest.approx(probabilities[first:last], abs=2e-6)


def test_words_are_those_of_the_topics():
    """Documents of one token: its word is drawn from the mean of all topics."""
    request = Synthetic(documents=1, vocabulary=30, topics=4, concentration=10.0, seed=3)
    topics = plant_topics(request)
    expected = phi(topics, 30).mean(axis=0)
    found = np.bincount(draw(np.ones(40_000), 1.0, **topics), minlength=30)
    occurring = expected > 0
    assert found[~occurring].sum() == 0
    assert chisquare(found[occurring], expected[occurring] * 40_000).pvalue > FALSE_ALARM


def test_the_mean_of_topics_is_the_power_law():
    request = Synthetic(documents=1, vocabulary=20, topics=4000, concentration=5.0, seed=4)
    means = phi(plant_topics(request), 20)
    law = (np.arange(20) + 1 + 2.7) ** -1.1
    errors = (means.mean(axis=0) - law / law.sum()) / (means.std(axis=0) / np.sqrt(4000))
    assert np.abs(errors).max() < norm.isf(FALSE_ALARM / 40)


def test_sticks_are_those_of_a_dirichlet_process():
    """The expected sum of squares of their lengths is 1 / (c + 1), of what is left out next to nothing."""
    request = Synthetic(documents=1, vocabulary=20, topics=4000, concentration=5.0, seed=4)
    squares = (plant_topics(request)["probabilities"].reshape(4000, -1).astype(np.float64) ** 2).sum(axis=1)
    assert abs(squares.mean() - 1 / 6) / (squares.std() / np.sqrt(4000)) < norm.isf(FALSE_ALARM / 2)


@pytest.mark.parametrize("alpha", [0.1, 2.0])
def test_topics_of_a_document_are_dirichlet_multinomial(alpha):
    """Topics of one word each: two tokens of a document are alike with probability (alpha + 1) / (K * alpha + 1)."""
    count, documents = 5, 20_000
    one = {"offsets": np.arange(count + 1), "words": np.arange(count, dtype=np.uint32)}
    tokens = draw(np.full(documents, 3), count * alpha, **one, probabilities=np.ones(count, np.float32)).reshape(-1, 3)
    alike = (alpha + 1) / (count * alpha + 1)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        error = np.mean(tokens[:, first] == tokens[:, second]) - alike
        assert abs(error) / np.sqrt(alike * (1 - alike) / documents) < norm.isf(FALSE_ALARM / 6)
    assert chisquare(np.bincount(tokens[:, 2], minlength=count)).pvalue > FALSE_ALARM


def test_the_same_bytes_for_any_workers(tmp_path):
    request = Synthetic(documents=900, vocabulary=500, topics=7, length=20.0, block_tokens=3000, seed=5)
    datasets = [synthesize(request, tmp_path / f"{workers}", workers=workers) for workers in (1, 3)]
    assert tree(datasets[0].path) == tree(datasets[1].path)
    dataset = datasets[0]
    assert (dataset.documents, dataset.block_count, dataset.vocabulary_size) == (900, 6, 500)
    assert sorted(path.name for path in dataset.path.iterdir()) == [
        "blocks", "index.h5", "manifest.json", "slices", "topics.h5", "vocabulary.txt",
    ]  # fmt: skip
    seen = np.concatenate([dataset.block(number).documents for number in range(6)])
    assert np.array_equal(np.sort(seen), np.arange(900))
    assert dataset.tokens == dataset.index.frequencies.sum() == dataset.block_tokens().sum()
    other = synthesize(Synthetic(**{**request.__dict__, "seed": 6}), tmp_path / "other", workers=1)
    assert other.identity != dataset.identity


def test_more_documents_of_the_same_topics(tmp_path):
    request = Synthetic(documents=30, vocabulary=50, topics=3, length=20.0, seed=5)
    more = replace(request, seed=6, topics_seed=5)
    first, second = (synthesize(each, tmp_path / str(each.seed), workers=1) for each in (request, more))
    for mine, theirs in zip(first.planted_topics().values(), second.planted_topics().values(), strict=True):
        assert np.array_equal(mine, theirs)
    assert not np.array_equal(first.block(0).offsets, second.block(0).offsets)


@pytest.mark.long
def test_planted_topics_are_found_again(tmp_path):
    request = Synthetic(documents=3000, vocabulary=400, topics=6, length=60.0, concentration=20.0, seed=1)
    planted = phi(synthesize(request, tmp_path / "data").planted_topics(), 400)
    options = {"alpha": 0.1, "beta": 20.0 / 400, "workers": 1, "sampler": "two-phase", "quiet": True}
    train_lda(tmp_path / "data", tmp_path / "run", topics=6, iterations=100, **options)
    rows = SavedTopicModel(tmp_path / "run" / "model").words
    found = np.zeros((400, 6))
    found[np.repeat(np.arange(400), np.diff(rows.offsets)), rows.topics] = rows.counts
    distances = 0.5 * np.abs(planted[:, None] - (found / found.sum(axis=0)).T[None]).sum(axis=2)
    pairs = linear_sum_assignment(distances)
    assert distances[pairs].max() < 0.1  # total variation; of two planted topics it is 0.5 and more


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--documents", 0], "--documents must be at least 1, got 0"),
        (["--vocabulary", -5], "--vocabulary must be"),
        (["--topics", 0], "--topics must be"),
        (["--length", "nan"], "--length must be"),
        (["--alpha", 0], "--alpha must be"),
        (["--zipf", 11], "--zipf must be above 0 and at most 10, got 11"),
        (["--concentration", -1], "--concentration must be"),
        (["--topics", 10_000_000], "it must be at least"),
        (["--memory", "1MB"], "--memory 0MiB is too small"),
    ],
)
def test_wrong_requests_are_refused(tmp_path, ooc, options, said):
    needed = ["--documents", 10, "--vocabulary", 10, "--topics", 2]
    done = ooc("ingest", "synthetic", "out", *needed, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[0]
    assert list(tmp_path.iterdir()) == []


def test_from_the_command_line(tmp_path, ooc):
    options = ["--documents", 50, "--vocabulary", 40, "--topics", 3, "--length", 9, "--seed", 2]
    assert ooc("ingest", "synthetic", "out", *options).returncode == 0
    assert "synthetic" in ooc("info", "out").stdout
    assert ooc("verify", "out").returncode == 0
    (tmp_path / "more.txt").write_text("w1 w2 w3\n")
    assert ooc("ingest", "text", "--lines", "more.txt", "out", "--append").returncode == 0
    assert ooc("verify", "out").returncode == 0
    dataset = Dataset(tmp_path / "out")
    assert dataset.documents == 51
    assert dataset.planted_topics()["offsets"].size == 4
    with pytest.raises(RequestError, match="already exists"):
        synthesize(Synthetic(10, 10, 2), tmp_path / "out")
