"""What is shown and exported of a trained model."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from blocks import RequestError, write_corpus
from samplers.topics.document_files import check_format
from samplers.topics.mixtures import write_mixtures
from samplers.topics.model import SavedTopicModel
from samplers.topics.results import describe_topics, export_npz, topics_table
from tests.corpora import InProcessProgram, program_spec, random_documents

NAMES = [f'naïve, "document" {number}' for number in range(80)]


@pytest.fixture(scope="module")
def program_and_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, np.ndarray, SavedTopicModel]:
    """Counts of documents (D, K) and words (V, K), and the model that was written of them."""
    root = tmp_path_factory.mktemp("model")
    offsets, words = random_documents(np.random.default_rng(2), 80, 60, 40)
    vocabulary = [f"wört{word}" for word in range(60)]
    dataset = write_corpus(root / "data", offsets, words, vocabulary, names=NAMES, block_tokens=300, slices=3)
    with InProcessProgram(dataset, program_spec(topics=4)) as program:
        program.iterate(5)
        program.export(root / "model")
        return *program.counts(), SavedTopicModel(root / "model")


def test_topics_are_described_by_their_counts(
    program_and_model: tuple[np.ndarray, np.ndarray, SavedTopicModel],
) -> None:
    """Largest first; top words by phi and top documents by theta, as the definitions say."""
    documents, words, model = program_and_model
    described = describe_topics(model, top=5, documents=3)
    sizes = words.sum(axis=0)
    assert [topic["topic"] for topic in described] == np.argsort(-sizes, kind="stable").tolist()
    theta = (documents + 0.3) / (documents.sum(axis=1, keepdims=True) + 4 * 0.3)
    for topic in described:
        k = topic["topic"]
        best = np.argsort(-words[:, k], kind="stable")[:5]
        assert [entry["word"] for entry in topic["words"]] == [f"wört{word}" for word in best]
        phi = (words[best, k] + model.beta) / (sizes[k] + 60 * model.beta)
        np.testing.assert_allclose([entry["weight"] for entry in topic["words"]], phi)
        shown = [entry["document"] for entry in topic["documents"]]
        np.testing.assert_allclose([entry["weight"] for entry in topic["documents"]], -np.sort(-theta[:, k])[:3])
        assert [entry["name"] for entry in topic["documents"]] == [NAMES[document] for document in shown]
        assert topic["live"] == (10 * 4 * sizes[k] >= sizes.sum())
    assert sum(topic["share"] for topic in described) == pytest.approx(1)
    assert "wört" in topics_table(described)


def test_the_export_holds_the_counts_and_no_pickles(
    program_and_model: tuple[np.ndarray, np.ndarray, SavedTopicModel], tmp_path: Path
) -> None:
    documents, words, model = program_and_model
    for name in ("first.npz", "second.npz"):
        export_npz(model, tmp_path / name)
    assert (tmp_path / "first.npz").read_bytes() == (tmp_path / "second.npz").read_bytes()
    with np.load(tmp_path / "first.npz", allow_pickle=False) as found:
        for name, dense in (("word", words), ("document", documents)):
            rows = np.repeat(np.arange(dense.shape[0]), np.diff(found[f"{name}_offsets"]))
            again = np.zeros_like(dense)
            again[rows, found[f"{name}_topics"]] = found[f"{name}_counts"]
            np.testing.assert_array_equal(again, dense)
        assert found["vocabulary"].tolist() == [f"wört{word}" for word in range(60)]
        assert found["document_names"].tolist() == NAMES
        np.testing.assert_array_equal(found["topic_tokens"], words.sum(axis=0))
        assert float(found["beta"]) == model.beta


def test_mixtures_are_written_alike_in_every_format(tmp_path: Path) -> None:
    mixtures, tokens = np.array([[0.25, 0.75], [1.0, 4.5e-8]], np.float32), np.array([7, 0])
    names = ["a, b", "c"]
    for suffix in (".npz", ".csv", ".jsonl", ".parquet"):
        write_mixtures(tmp_path / f"out{suffix}", suffix, {"mixtures": mixtures}, tokens, names)
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_array_equal(found["mixtures"], mixtures)
        assert found["names"].tolist() == names
        assert found["tokens"].tolist() == [7, 0]
    rows = list(csv.reader((tmp_path / "out.csv").read_text().splitlines()))
    assert rows[0] == ["name", "tokens", "topic_0", "topic_1"]
    assert rows[1:] == [["a, b", "7", "0.25", "0.75"], ["c", "0", "1.0", "4.5e-08"]]
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines == [
        {"name": "a, b", "tokens": 7, "mixture": [0.25, 0.75]},
        {"name": "c", "tokens": 0, "mixture": [1.0, 4.5e-8]},
    ]
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row | {"mixture": pytest.approx(row["mixture"])} for row in table] == lines


def test_top_topics_are_written_with_their_weights_and_the_rest(tmp_path: Path) -> None:
    topics, weights = np.array([[3, 1]], np.uint32), np.array([[0.5, 0.125]], np.float32)
    result, tokens = {"topics": topics, "weights": weights}, np.array([4])
    write_mixtures(tmp_path / "out.csv", ".csv", result, tokens, None)
    assert (tmp_path / "out.csv").read_text().splitlines() == [
        "name,tokens,topic_1,weight_1,topic_2,weight_2,rest",
        "1,4,3,0.5,1,0.125,0.375",
    ]
    line = {"name": "1", "tokens": 4, "topics": [3, 1], "weights": [0.5, 0.125], "rest": 0.375}
    write_mixtures(tmp_path / "out.jsonl", ".jsonl", result, tokens, None)
    assert json.loads((tmp_path / "out.jsonl").read_text()) == line
    write_mixtures(tmp_path / "out.parquet", ".parquet", result, tokens, None)
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist() == [line]
    write_mixtures(tmp_path / "out.npz", ".npz", result, tokens, None)
    with np.load(tmp_path / "out.npz") as found:
        assert found["rest"].tolist() == [0.375]


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="ending"):
        check_format(tmp_path / "out.xyz")
