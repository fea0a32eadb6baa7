"""Topic mixtures of documents, trained and folded-in, as commands write them, against counts of `--format mallet`."""

from __future__ import annotations

import csv
import gzip
import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from commands import Ooc

from samplers import LatentDirichletAllocation

THEMES = ["ball goal match team player", "planet comet moon orbit star", "flour oven bread yeast salt"]
ALPHA = [0.1, 0.6, 0.3]
UNKNOWN = ["the zebra", "a quagga and an okapi", ""]  # of a batch without a word that is known


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, ooc_in: Callable[[Path], Ooc]) -> Path:
    """A dataset `corpus`, two documents of which are empty, and a run over it."""
    directory, draw = tmp_path_factory.mktemp("mixtures"), random.Random(3)
    texts = [" ".join(draw.choices([*THEMES[n % 3].split(), "the"], k=n % 9)) for n in range(58)] + ["", "the"]
    write_jsonl(directory / "texts.jsonl", texts)
    options = ["--sampler", "two-phase", "--alpha", ",".join(map(str, ALPHA)), "--workers", 1, "--quiet"]
    do(ooc_in(directory), "ingest", "jsonl", "texts.jsonl", "corpus", "--workers", 1)
    do(ooc_in(directory), "train", "lda", "corpus", "run", "--topics", 3, "--iterations", 10, *options)
    return directory


@pytest.fixture
def ooc(place: Path, ooc_in: Callable[[Path], Ooc]) -> Ooc:
    return ooc_in(place)


def write_jsonl(path: Path, texts: list[str]) -> None:
    path.write_text("".join(json.dumps({"id": f"doc {n}", "text": text}) + "\n" for n, text in enumerate(texts)))


def do(ooc: Ooc, *arguments: Any) -> subprocess.CompletedProcess[str]:
    done = ooc(*arguments)
    assert done.returncode == 0, done.stderr
    return done


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def expected(place: Path, ooc_in: Callable[[Path], Ooc]) -> dict[str, tuple[int, list[float]]]:
    """Tokens and trained mixture of each document, by the topics of its tokens that `--format mallet` writes."""
    do(ooc_in(place), "export", "run", "mallet", "--format", "mallet")
    counts = {f"doc {n}": Counter[int]() for n in range(60)}
    for line in gzip.decompress((place / "mallet" / "state.gz").read_bytes()).decode().splitlines()[3:]:
        _, name, *_, topic = line.split(" ")
        counts[name.replace("_", " ")][int(topic)] += 1
    return {
        name: (n.total(), [(n[k] + ALPHA[k]) / (n.total() + sum(ALPHA)) for k in range(3)])
        for name, n in counts.items()
    }


def test_trained_mixtures_are_those_of_the_tokens(place: Path, expected: dict, ooc: Ooc) -> None:
    """In every format, from the command and from the estimator, with names and tokens, in the original order."""
    for suffix in ("csv", "jsonl", "npz", "parquet"):
        do(ooc, "export", "run", f"all.{suffix}", "--format", "mixtures")
    lines = [json.loads(line) for line in (place / "all.jsonl").read_text().splitlines()]
    found = {
        "csv": [
            (row.pop("name"), int(row.pop("tokens")), [*map(float, row.values())])
            for row in read_csv(place / "all.csv")
        ],
        "jsonl": [(line["name"], line["tokens"], line["mixture"]) for line in lines],
        "parquet": [tuple(row.values()) for row in pyarrow.parquet.read_table(place / "all.parquet").to_pylist()],
    }
    with np.load(place / "all.npz") as arrays:
        columns = (arrays[name].tolist() for name in ("names", "tokens", "mixtures"))
        found["npz"] = list(zip(*columns, strict=True))
    for rows in found.values():
        assert [row[0] for row in rows] == list(expected)
        assert [row[1] for row in rows] == [tokens for tokens, _ in expected.values()]
        np.testing.assert_allclose([row[2] for row in rows], [theta for _, theta in expected.values()], rtol=1e-5)
    model = LatentDirichletAllocation.from_run(place / "run")
    np.testing.assert_allclose(model.doc_topic_, [theta for _, theta in expected.values()])
    model.write_doc_topic(place / "python.csv")
    assert (place / "python.csv").read_bytes() == (place / "all.csv").read_bytes()


def test_the_largest_topics_come_with_the_rest(place: Path, expected: dict, ooc: Ooc) -> None:
    do(ooc, "export", "run", "top.csv", "--format", "mixtures", "--top", 2)
    for row, (tokens, theta) in zip(read_csv(place / "top.csv"), expected.values(), strict=True):
        weights = [float(row["weight_1"]), float(row["weight_2"])]
        assert weights == pytest.approx(sorted(theta, reverse=True)[:2], rel=1e-5)
        assert [theta[int(row[f"topic_{place}"])] for place in (1, 2)] == pytest.approx(weights, rel=1e-5)
        assert float(row["rest"]) == pytest.approx(min(theta), abs=2e-6)
        assert int(row["tokens"]) == tokens
    refused = ooc("export", "run", "top.npz", "--top", 2)
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (2, "ooc: --top cannot be used with --format npz")


def test_documents_of_a_topic_have_the_shares_of_trained_mixtures(expected: dict, ooc: Ooc) -> None:
    told = json.loads(do(ooc, "topics", "run", "--documents", 4, "--json").stdout)
    for topic in told:
        best = sorted((theta[topic["topic"]] for _, theta in expected.values()), reverse=True)[:4]
        assert [entry["weight"] for entry in topic["documents"]] == pytest.approx(best)
        assert all(entry["tokens"] == expected[entry["name"]][0] for entry in topic["documents"])


def test_tables_of_arrow_hold_whole_mixtures(place: Path, expected: dict, ooc: Ooc) -> None:
    """Shares and topic -1, the rest, sum to 1; with alpha, every share and so the mean of a group can be told."""
    do(ooc, "export", "run", "tables", "--format", "parquet")
    documents = pyarrow.parquet.read_table(place / "tables" / "documents.parquet")
    alpha = pyarrow.parquet.read_table(place / "tables" / "topics.parquet")["alpha"].to_pylist()
    found: dict[str, dict[int, float]] = {name: {} for name in expected}
    for row in documents.to_pylist():
        found[row["document"]][row["topic"]] = row["share"]
        assert row["tokens"] == expected[row["document"]][0]
    for name, shares in found.items():
        tokens, theta = expected[name]
        assert sum(shares.values()) == pytest.approx(1)
        assert [shares.get(k, alpha[k] / (tokens + sum(alpha))) for k in range(3)] == pytest.approx(theta)


@pytest.mark.long
def test_an_average_over_states_has_the_tokens_of_one(place: Path, expected: dict, ooc: Ooc) -> None:
    options = ["--topics", 3, "--iterations", 4, "--evaluate-every", 2, "--average", 2, "--workers", 1, "--quiet"]
    do(ooc, "train", "lda", "corpus", "averaged", *options)
    do(ooc, "export", "averaged", "averaged.csv", "--format", "mixtures")
    rows = read_csv(place / "averaged.csv")
    assert [int(row["tokens"]) for row in rows] == [tokens for tokens, _ in expected.values()]
    shares = np.array([[float(row[f"topic_{k}"]) for k in range(3)] for row in rows])
    np.testing.assert_allclose(shares, LatentDirichletAllocation.from_run(place / "averaged").doc_topic_, rtol=1e-5)


def test_infer_tells_stop_words_from_unknown_ones_and_counts_empty_documents(place: Path, ooc: Ooc) -> None:
    write_jsonl(place / "new.jsonl", ["the ball and the goal of a zebra", "the zebra", "comet"])
    told = do(ooc, "ingest", "jsonl", "new.jsonl", "new", "--vocab-from", "corpus").stderr
    assert "dropped 2 tokens of words that are not in the vocabulary and 5 stop words\n" in told
    counted = {"documents": 3, "empty_documents": 1, "tokens": 3, "unknown_tokens": 2, "stop_words": 5}
    assert json.loads(do(ooc, "infer", "run", "new", "new.csv", "--json").stdout) == {"path": "new.csv", **counted}
    rows = read_csv(place / "new.csv")
    assert [(row["name"], row["tokens"]) for row in rows] == [("doc 0", "2"), ("doc 1", "0"), ("doc 2", "1")]
    assert [float(rows[1][f"topic_{k}"]) for k in range(3)] == pytest.approx(ALPHA)
    said = do(ooc, "infer", "run", "new", "new.csv", "--overwrite").stdout
    left_out = "left out 2 unknown words and 5 stop words"
    assert said == f"new.csv: topic mixtures of 3 documents, 3 tokens (1 document empty); {left_out}\n"


def test_infer_says_that_documents_of_the_training_have_other_mixtures(ooc: Ooc) -> None:
    done = do(ooc, "infer", "run", "corpus", "folded.csv")
    assert "Write the mixtures at the end of training with: ooc export run OUT --format mixtures\n" in done.stderr


def test_a_batch_without_a_known_word_is_answered_by_the_prior(place: Path, ooc: Ooc) -> None:
    write_jsonl(place / "unknown.jsonl", UNKNOWN)
    made = do(ooc, "ingest", "jsonl", "unknown.jsonl", "unknown", "--vocab-from", "corpus").stdout
    assert "unknown: 3 documents, 0 tokens, vocabulary of 15 words (3 documents empty)" in made
    assert "no damage found" in do(ooc, "verify", "unknown").stdout
    do(ooc, "infer", "run", "unknown", "prior.jsonl")
    lines = [json.loads(line) for line in (place / "prior.jsonl").read_text().splitlines()]
    assert [line["tokens"] for line in lines] == [0, 0, 0]
    np.testing.assert_allclose([line["mixture"] for line in lines], [ALPHA] * 3, rtol=1e-5)
    model = LatentDirichletAllocation.from_run(place / "run")
    np.testing.assert_allclose(model.transform(UNKNOWN), [ALPHA] * 3, rtol=1e-5)
    refused = ooc("train", "lda", "unknown", "other", "--topics", 3)
    assert (refused.returncode, refused.stderr.splitlines()[0][:26]) == (2, "ooc: unknown has no tokens")
