"""What is inferred of single documents: log-likelihood, posterior spread, topics of words, unknown tokens."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from commands import run_all
from folded_documents import bag, dense_phi, documents_of

from blocks import Dataset
from samplers import LatentDirichletAllocation
from samplers.topics import fold_in
from samplers.topics.infer_kernels import infer_documents
from samplers.topics.inference import DocumentResultChoice, infer, inferred_arrays
from samplers.topics.model import SavedTopicModel
from samplers.topics.token_topics import read_assignments
from tests.corpora import new_documents, trained_model

TOPICS = 7


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SavedTopicModel:
    alpha = [0.1 * (k + 1) for k in range(TOPICS)]
    return trained_model(tmp_path_factory.mktemp("model"), topics=TOPICS, alpha=alpha)


@pytest.fixture(scope="module")
def held_out(model: SavedTopicModel, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return new_documents(tmp_path_factory.mktemp("held-out") / "data", model)


@pytest.fixture(scope="module")
def found(model: SavedTopicModel, held_out: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    wanted = DocumentResultChoice(spread=True, likelihood=True, words=True)
    return infer(model, held_out, tmp_path_factory.mktemp("all"), workers=2, wanted=wanted)


def test_likelihoods_are_those_of_the_mixtures(
    model: SavedTopicModel, held_out: Dataset, found: dict[str, np.ndarray]
) -> None:
    phi = dense_phi(model)
    for document, words in enumerate(documents_of(held_out)):
        expected = np.log(found["mixtures"][document].astype(float) @ phi[:, words]).sum()
        assert found["likelihoods"][document] == pytest.approx(expected, rel=1e-5)


def test_word_topics_and_deviations_follow_from_the_mixture(
    model: SavedTopicModel, held_out: Dataset, found: dict[str, np.ndarray]
) -> None:
    """gamma of a converged document is that of its mixture without the token; here with it, so only nearly."""
    phi, mass = dense_phi(model), model.alpha.sum()
    agreed = total = 0
    for document, words in enumerate(documents_of(held_out)):
        different, times = bag(held_out, words)
        mine = slice(*found["starts"][document : document + 2])
        listed = found["counts"][mine] > 0
        assert found["words"][mine][listed].tolist() == different.tolist()
        assert found["counts"][mine][listed].tolist() == times.tolist()
        share = found["mixtures"][document].astype(float)
        gamma = share[:, None] * phi[:, different]
        gamma /= gamma.sum(axis=0)
        agreed += int((gamma.argmax(axis=0) == found["word_topics"][mine][listed]).sum())
        total += different.size
        size = times.sum() + mass
        variance = (gamma * (1 - gamma)) @ times / size**2
        deviation = np.sqrt(variance + (share * (1 - share) - variance) / (size + 1))
        np.testing.assert_allclose(found["deviations"][document], deviation, rtol=0.35, atol=0.01)
    assert agreed > 0.9 * total


def test_deviations_of_the_largest_topics_are_those_of_all(
    model: SavedTopicModel, held_out: Dataset, found: dict[str, np.ndarray], tmp_path: Path
) -> None:
    some = infer(model, held_out, tmp_path, workers=1, top=3, wanted=DocumentResultChoice(spread=True))
    expected = np.take_along_axis(np.asarray(found["deviations"]), some["topics"].astype(np.int64), 1)
    np.testing.assert_allclose(some["deviations"], expected, rtol=1e-4)


def exact(phi: np.ndarray, alpha: np.ndarray, words: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the mixture of a document, by enumeration of the topics of its tokens."""
    mass, moments, evidence = alpha.sum() + len(words), np.zeros((2, alpha.size)), 0.0
    for topics in itertools.product(range(alpha.size), repeat=len(words)):
        counts = np.bincount(topics, minlength=alpha.size)
        weight = math.prod(phi[k, word] for k, word in zip(topics, words, strict=True))
        weight *= math.exp(sum(math.lgamma(a + n) - math.lgamma(a) for a, n in zip(alpha, counts, strict=True)))
        mean = (alpha + counts) / mass
        moments += weight * np.stack((mean, mean * (mean * mass + 1) / (mass + 1)))
        evidence += weight
    mean, square = moments / evidence
    return mean, np.sqrt(square - mean**2)


def test_deviations_are_near_those_of_the_exact_posterior() -> None:
    """They lie between half of it and 1.1 times it: topics of tokens are not independent, as they are taken to be."""
    rng, topics, vocabulary = np.random.default_rng(0), 3, 8
    ratios = []
    for _ in range(12):
        counts = rng.integers(0, 30, (vocabulary, topics)).astype(np.uint32) + np.uint32(1)
        totals, alpha, beta = counts.sum(axis=0), np.array([0.2, 0.4, 0.6]), 0.1
        offsets = np.arange(0, vocabulary * topics + 1, topics)
        rows = offsets, np.tile(np.arange(topics, dtype=np.uint8), vocabulary), counts.ravel()
        scale = 1.0 / (totals + vocabulary * beta)
        form = fold_in.FoldInModel(*rows, scale, alpha, beta, fold_in.prior_of_words(*rows, scale, alpha, beta))
        words = np.sort(rng.integers(0, vocabulary, 6)).astype(np.uint32)
        arrays = {name: np.zeros((1, topics), np.float32) for name in ("mixtures", "deviations")}
        infer_documents(
            np.array([0, 6]),
            words,
            np.arange(vocabulary, dtype=np.uint32),
            form,
            inferred_arrays(arrays, form),
            np.zeros(1, np.uint64),
        )
        mean, deviation = exact((counts + beta).T * scale[:, None], alpha, words.tolist())
        np.testing.assert_allclose(arrays["mixtures"][0], mean, atol=0.15)
        ratios.append(arrays["deviations"][0] / deviation)
    assert np.min(ratios) > 0.5
    assert np.max(ratios) < 1.1


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, ooc_in: Any) -> Path:
    """A run over 120 documents, and a dataset `new` of documents with unknown words."""
    directory, ooc = tmp_path_factory.mktemp("place"), None
    ooc = ooc_in(directory)
    themes = ["ball goal team match", "moon star comet orbit"]
    texts = [" ".join(themes[n % 2].split()[: 2 + n % 3] * 3) for n in range(120)]
    (directory / "texts.txt").write_text("\n".join(texts))
    with (directory / "new.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerows([["id", "text"], ["a", "goal ball zebra the"], ["b", "okapi the quagga"], ["c", ""]])
        rows.writerow(["d", "moon goal moon"])
    train = "train lda corpus run --topics 2 --iterations 20 --sampler two-phase --workers 1 --quiet"
    new = "ingest csv new.csv new --vocab-from corpus --name-column id --keep unknown_tokens --workers 1 --quiet"
    run_all(ooc, ("ingest text texts.txt corpus --lines --workers 1 --quiet", train, new))
    return directory


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_infer_writes_statistics_of_each_document(place: Path, ooc_in: Any) -> None:
    """Beside the unknown tokens that ingestion counted; in all formats, and as the estimator."""
    ooc = ooc_in(place)
    more = ["--spread", "--log-likelihood", "--workers", "1"]
    done = ooc("infer", "run", "new", "m.csv", "--assignments", "w.csv", *more)
    assert done.returncode == 0, done.stderr
    rows = rows_of(place / "m.csv")
    assert list(rows[0]) == [
        *("name", "tokens", "unknown_tokens", "log_likelihood", "topic_0", "topic_1", "sd_0", "sd_1"),
    ]
    assert [(row["name"], row["tokens"], row["unknown_tokens"]) for row in rows] == [
        ("a", "2", "1"),
        ("b", "0", "2"),
        ("c", "0", "0"),
        ("d", "3", "0"),
    ]
    estimator = LatentDirichletAllocation.from_run(place / "run")
    mixtures, deviations = estimator.transform(place / "new", return_std=True)
    likelihoods = estimator.score_samples(place / "new")
    written = np.array([[float(row[name]) for name in list(row)[3:]] for row in rows])
    np.testing.assert_allclose(written, np.column_stack((likelihoods, mixtures, deviations)), rtol=1e-5)
    assert ooc("infer", "run", "new", "m.jsonl", "--top", 1, *more).returncode == 0
    line = json.loads((place / "m.jsonl").read_text().splitlines()[3])
    assert list(line) == [
        *("name", "tokens", "unknown_tokens", "log_likelihood", "topics", "weights", "rest", "deviations"),
    ]
    assert [(row["name"], row["word"], row["tokens"]) for row in rows_of(place / "w.csv")] == [
        *(("a", "ball", "1"), ("a", "goal", "1"), ("d", "goal", "1"), ("d", "moon", "2")),
    ]


def test_words_are_exported_with_the_topics_of_their_tokens(place: Path, ooc_in: Any) -> None:
    for name in ("words.csv", "words.parquet"):
        done = ooc_in(place)("export", "run", name, "--format", "words")
        assert done.returncode == 0, done.stderr
    tokens, vocabulary = read_assignments(place / "run"), Dataset(place / "corpus").vocabulary()
    documents = np.repeat(np.arange(tokens.offsets.size - 1), np.diff(tokens.offsets))
    words = (vocabulary[word] for word in tokens.words.tolist())
    expected = Counter(zip(map(str, (documents + 1).tolist()), words, tokens.topics.tolist(), strict=True))
    rows = rows_of(place / "words.csv")
    assert {(row["name"], row["word"], int(row["topic"])): int(row["tokens"]) for row in rows} == expected
    table = pyarrow.parquet.read_table(place / "words.parquet").to_pylist()
    assert [{name: str(value) for name, value in row.items()} for row in table] == rows


def test_evaluate_writes_metrics_of_each_document(place: Path, ooc_in: Any) -> None:
    ooc = ooc_in(place)
    chosen = ["--metrics", "completion,left-to-right", "--documents", "e.csv", "--workers", "1"]
    done = ooc("evaluate", "run", "new", *chosen, "--json")
    assert done.returncode == 0, done.stderr
    told, rows = json.loads(done.stdout), rows_of(place / "e.csv")
    assert [row["name"] for row in rows] == list("abcd")
    assert [row["unknown_tokens"] for row in rows] == ["1", "2", "0", "0"]
    predicted = sum(int(row["predicted_tokens"]) for row in rows)
    likelihood = sum(float(row["predictive_log_likelihood"]) for row in rows)
    assert told["predicted_tokens"] == predicted
    assert told["predictive_log_likelihood_per_token"] == pytest.approx(likelihood / predicted, rel=1e-5)
    left = sum(float(row["left_to_right_log_likelihood"]) for row in rows)
    assert told["left_to_right_log_likelihood_per_token"] == pytest.approx(left / 5, rel=1e-5)
    done = ooc("evaluate", "run", "new", "--metrics", "diversity", "--documents", "f.csv")
    assert (done.returncode, done.stderr) == (
        2,
        "ooc: --documents: diversity cannot be computed for a single document\n"
        "Add to --metrics one of: completion, left-to-right.\n",
    )


def test_unknown_tokens_need_a_vocabulary(place: Path, ooc_in: Any) -> None:
    done = ooc_in(place)("ingest", "csv", "new.csv", "other", "--keep", "unknown_tokens")
    assert (done.returncode, done.stderr) == (
        2,
        "ooc: --keep unknown_tokens needs a given vocabulary: without one, no token is unknown\n"
        "Add --vocab-from DATASET, or omit unknown_tokens.\n",
    )


def test_trained_mixtures_have_the_deviations_of_their_dirichlet(place: Path, ooc_in: Any) -> None:
    done = ooc_in(place)("export", "run", "trained.npz", "--format", "mixtures", "--spread")
    assert done.returncode == 0, done.stderr
    found, model = np.load(place / "trained.npz"), SavedTopicModel(place / "run" / "model")
    share, size = found["mixtures"].astype(float), found["tokens"] + model.alpha.sum()
    np.testing.assert_allclose(found["deviations"], np.sqrt(share * (1 - share) / (size + 1)[:, None]), rtol=1e-5)
