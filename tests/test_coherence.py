"""Coherence and diversity against slow twins and gensim; what `ooc evaluate --metrics` accepts and prints."""

from __future__ import annotations

import json
import math
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from commands import Ooc

from blocks import Dataset, RequestError
from samplers.topics.coherence import EPSILON, coherence, diversity
from samplers.topics.metrics import METRICS, TopicMetricsRequest, evaluate_metrics, parse_metrics
from samplers.topics.model import SavedTopicModel
from samplers.topics.results import top_entries
from tests.corpora import InProcessProgram, names_of_words, program_spec, random_documents, small_dataset, tiny_dataset

TOPICS = 7


@pytest.fixture(scope="module")
def documents() -> list[list[int]]:
    offsets, words = random_documents(np.random.default_rng(8), 150, 60, 12)
    return [words[first:last].tolist() for first, last in pairwise(offsets)]


@pytest.fixture(scope="module")
def dataset(documents: list[list[int]], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Some documents are empty; there are several blocks and parts."""
    path = tmp_path_factory.mktemp("corpus") / "data"
    return tiny_dataset(path, documents, 60, block_tokens=300, part_tokens=100)


@pytest.fixture(scope="module")
def words(documents: list[list[int]]) -> np.ndarray:
    """Top words of six topics: frequent and rare ones, in no order; the last topics have fewer, down to one."""
    rng = np.random.default_rng(2)
    seen = np.array(sorted({word for document in documents for word in document}))
    chosen = np.array([rng.choice(seen, 5, replace=False) for _ in range(6)])
    chosen[4, 3:] = -1
    chosen[5, 1:] = -1
    return chosen


def slow_npmi(documents: list[list[int]], first: int, second: int) -> float:
    """NPMI of two words, from sets of documents."""
    with_first = {d for d, document in enumerate(documents) if first in document}
    with_second = {d for d, document in enumerate(documents) if second in document}
    if not with_first or not with_second:
        return 0.0
    if len(with_first & with_second) == len(documents):
        return 1.0
    joint = len(with_first & with_second) / len(documents) + EPSILON
    independent = len(with_first) / len(documents) * len(with_second) / len(documents)
    return math.log(joint / independent) / -math.log(joint)


def slow_c_v(documents: list[list[int]], topic: list[int]) -> float:
    vectors = np.array([[slow_npmi(documents, first, second) for second in topic] for first in topic])
    whole = vectors.sum(axis=0)
    norms = [(vector @ vector) ** 0.5 * (whole @ whole) ** 0.5 for vector in vectors]
    cosines = [vector @ whole / norm if norm else 0.0 for vector, norm in zip(vectors, norms, strict=True)]
    return float(np.mean(cosines))


def check_against_twins(documents: list[list[int]], words: np.ndarray, dataset: Dataset) -> None:
    found = coherence(words, dataset, workers=2)
    topics = [[word for word in row if word >= 0] for row in words.tolist()]
    for k, topic in enumerate(topics):
        if len(topic) < 2:
            assert found["npmi_of_topics"][k] is None
            assert found["c_v_of_topics"][k] is None
            continue
        pairs = [slow_npmi(documents, a, b) for i, a in enumerate(topic) for b in topic[:i]]
        assert found["npmi_of_topics"][k] == pytest.approx(np.mean(pairs), rel=1e-12, abs=1e-12)
        assert found["c_v_of_topics"][k] == pytest.approx(slow_c_v(documents, topic), rel=1e-12, abs=1e-12)
    for name in ("npmi", "c_v"):
        values = [value for value in found[f"{name}_of_topics"] if value is not None]
        assert found[name] == pytest.approx(np.mean(values), rel=1e-12)


def test_coherence_agrees_with_the_twins(documents: list[list[int]], words: np.ndarray, dataset: Dataset) -> None:
    check_against_twins(documents, words, dataset)
    assert coherence(words, dataset, workers=2)["unseen_top_words"] == 0


def test_words_in_all_documents_and_in_none(tmp_path: Path) -> None:
    """Where the formula has no value; no warning of a division by zero, no nan."""
    documents = [[0, 0, 1, 2], [0, 1], [1, 3, 0], [0, 1, 2]]
    words = np.array([[0, 1, 2], [4, 0, 1], [2, 3, 5], [4, 5, 6]])
    dataset = tiny_dataset(tmp_path / "data", documents, 7)
    check_against_twins(documents, words, dataset)
    found = coherence(words, dataset, workers=1)
    assert found["npmi_of_topics"][3] == found["c_v_of_topics"][3] == 0.0
    assert found["unseen_top_words"] == 3


def test_coherence_does_not_depend_on_the_workers(words: np.ndarray, dataset: Dataset) -> None:
    assert coherence(words, dataset, workers=1) == coherence(words, dataset, workers=2)


def test_coherence_agrees_with_gensim(documents: list[list[int]], dataset: Dataset, tmp_path: Path) -> None:
    """A window longer than any document makes a document one window; gensim leaves documents without top words out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = pytest.importorskip("gensim.models", reason="gensim is absent: coherence is not compared with it")
        dictionaries = pytest.importorskip("gensim.corpora")
    frequent = np.argsort(-np.bincount(np.concatenate([np.array(d, int) for d in documents]), minlength=60))[:15]
    words = frequent[np.random.default_rng(4).permutation(15)].reshape(3, 5)
    documents = [document for document in documents if set(document) & set(words.ravel().tolist())]
    found = coherence(words, tiny_dataset(tmp_path / "data", documents, 60), workers=1)
    names = names_of_words(60)
    texts = [[names[word] for word in document] for document in documents]
    topics = [[names[word] for word in topic] for topic in words.tolist()]
    for name in ("npmi", "c_v"):
        theirs = models.CoherenceModel(
            topics=topics,
            texts=texts,
            dictionary=dictionaries.Dictionary(texts),
            coherence=name if name == "c_v" else "c_npmi",
            window_size=1000,
            topn=5,
            processes=1,
        )
        np.testing.assert_allclose(found[f"{name}_of_topics"], theirs.get_coherence_per_topic(), rtol=1e-9)


def test_diversity_is_the_share_of_different_words() -> None:
    assert diversity(np.array([[0, 1, 2], [3, 4, 5]])) == 1.0
    assert diversity(np.array([[0, 1, 2], [2, 1, 0]])) == 0.5
    assert diversity(np.array([[0, 1, -1], [1, -1, -1]])) == pytest.approx(2 / 3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SavedTopicModel:
    root = tmp_path_factory.mktemp("model")
    with InProcessProgram(small_dataset(root / "data"), program_spec(topics=TOPICS)) as program:
        program.iterate(5)
        program.export(root / "model")
    return SavedTopicModel(root / "model")


def test_metrics_are_those_asked_for(model: SavedTopicModel) -> None:
    """Each metric has the value it has with all others, and no keys of others."""
    dataset = Dataset(model.path.parent / "data")
    everything = evaluate_metrics(model, dataset, TopicMetricsRequest(METRICS, particles=2), workers=2)
    own = {
        "completion": {"predictive_log_likelihood_per_token", "perplexity", "predicted_tokens"},
        "left-to-right": {
            "left_to_right_log_likelihood_per_token",
            "left_to_right_perplexity",
            "left_to_right_tokens",
            "particles",
        },
        "npmi": {"top", "topics", "npmi", "npmi_of_topics", "unseen_top_words"},
        "c_v": {"top", "topics", "c_v", "c_v_of_topics", "unseen_top_words"},
        "diversity": {"top", "topics", "diversity"},
    }
    assert everything.keys() == set.union(*own.values()) | {"documents"}
    for name, keys in own.items():
        found = evaluate_metrics(model, dataset, TopicMetricsRequest((name,), particles=2), workers=1)
        assert found.keys() == keys | {"documents"}
        assert found == {key: everything[key] for key in found}
    words, _ = top_entries(model.words, model.alpha, 10, per_row=False)
    assert everything["diversity"] == diversity(words)
    assert len(everything["npmi_of_topics"]) == TOPICS


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (TopicMetricsRequest(("completion", "magic")), "unknown metric 'magic'"),
        (TopicMetricsRequest(parse_metrics("")), "unknown metric ''"),
        (TopicMetricsRequest(()), "unknown metric none"),
        (TopicMetricsRequest(("left-to-right",), particles=0), "--particles must be"),
        (TopicMetricsRequest(("npmi",), top=1), "--top must be"),
        (TopicMetricsRequest(("npmi",), top=101), "--top must be"),
    ],
)
def test_wrong_requests_are_refused(model: SavedTopicModel, request_: TopicMetricsRequest, said: str) -> None:
    with pytest.raises(RequestError) as refused:
        evaluate_metrics(model, Dataset(model.path.parent / "data"), request_, workers=1)
    assert said in refused.value.what


@pytest.mark.parametrize("name", METRICS)
def test_another_vocabulary_is_refused(model: SavedTopicModel, dataset: Dataset, name: str) -> None:
    with pytest.raises(RequestError, match="different vocabularies"):
        evaluate_metrics(model, dataset, TopicMetricsRequest((name,)), workers=1)


def test_the_command_line(tmp_path: Path, ooc: Ooc) -> None:
    """A line for each metric, or JSON; exit code 2 and one message for what is wrong."""
    texts = ["apple pear plum fruit apple", "goal team ball match", "pear plum fruit", "team ball goal goal"] * 20
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert ooc("ingest", "jsonl", "texts.jsonl", "corpus").returncode == 0
    assert ooc("train", "lda", "corpus", "run", "--topics", 2, "--iterations", 30, "--workers", 1).returncode == 0
    everything = ("--metrics", ",".join(METRICS), "--top", 4, "--particles", 3)
    done = ooc("evaluate", "run", "corpus", *everything)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(METRICS)
    assert "boolean co-occurrence in 80 documents" in done.stdout
    found = json.loads(ooc("evaluate", "run", "corpus", *everything, "--json").stdout)
    assert found["diversity"] == 1.0
    assert found["npmi"] > 0.3
    assert found["perplexity"] < 6
    assert found["left_to_right_perplexity"] < 6
    for wrong, said in (
        (("--metrics", "npmi,no"), "unknown metric 'no'"),
        (("--metrics", ""), "unknown metric ''"),
        (("--particles", 0), "--particles must be"),
        (("--top", 0), "--top must be"),
        (("--metrics", "c_v"), "--top must be at most 8, the size of the vocabulary; got 10"),
    ):
        done = ooc("evaluate", "run", "corpus", *wrong)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) <= 2
