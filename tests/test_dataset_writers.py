"""Datasets written piece by piece from Python equal the datasets that `ooc ingest` makes of equal files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import tree
from scipy import sparse

from blocks import CorpusRequest, Dataset, Design, DesignRequest, Matrix, Samples, ingest, ingest_design
from blocks.ratings.ingestion import ingest_ratings
from blocks.ratings.request import RatingsRequest
from blocks.samples.ingestion import ingest_samples

WORDS = [f"{letter}{number}" for letter in "abcdefgh" for number in range(20)]


def written(path: Path) -> dict[str, Any]:
    """Return the contents of a dataset, except for how it was made."""
    found: dict[str, Any] = tree(path)
    manifest = json.loads(found.pop("manifest.json"))
    return found | {name: value for name, value in manifest.items() if name not in ("made", "checksum")}


def random_documents(count: int = 300) -> list[str | list[str]]:
    """Return texts with stop words and capitals, and lists of words, which are kept unchanged."""
    random = np.random.default_rng(0)
    found: list[str | list[str]] = []
    for number, length in enumerate(random.integers(0, 30, count)):
        tokens = [WORDS[place] for place in random.integers(0, len(WORDS), length)]
        found.append(tokens if number % 3 else f"The {' and '.join(tokens).upper()}.")
    return found


def ingested_documents(path: Path, documents: list[Any], **options: Any) -> Path:
    lines = [json.dumps({"id": f"d {number}", "text": text}) + "\n" for number, text in enumerate(documents)]
    (path / "documents.jsonl").write_text("".join(lines))
    request = CorpusRequest(
        "jsonl", [str(path / "documents.jsonl")], str(path / "ingested"), block_tokens=700, **options
    )
    return ingest(request, workers=1).path


def test_documents_in_pieces_are_those_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write named documents as one chunk or many, from a list and a generator."""
    documents = random_documents()
    expected = written(ingested_documents(tmp_path, documents))
    names = [f"d {number}" for number in range(len(documents))]
    for size in (300, 1 << 21):
        monkeypatch.setattr("blocks.corpus.incremental_writer.CHUNK", size)
        with Dataset.create(tmp_path / f"{size}", block_tokens=700) as writer:
            writer.add(documents[:5], names[:5])
            writer.add([], [])
            writer.add((document for document in documents[5:]), (name for name in names[5:]))
        assert written(tmp_path / f"{size}") == expected
    assert Dataset(tmp_path / "300").block_count > 3


def test_documents_of_frames_and_with_filters(tmp_path: Path) -> None:
    documents = [text for text in random_documents() if isinstance(text, str)]
    table = {"body": documents, "key": [f"d {number}" for number in range(len(documents))]}
    reference = ingested_documents(tmp_path, documents, vocab_from=None, lower=False, stop_words="none")
    frames = (pd.DataFrame(table), pl.DataFrame(table), pa.table(table), pa.record_batch(table))
    columns = {"text_column": "body", "name_column": "key", "block_tokens": 700}
    for number, frame in enumerate(frames):
        with Dataset.create(tmp_path / f"{number}", lower=False, stop_words="none", **columns) as writer:
            writer.add(frame)
        assert written(tmp_path / f"{number}") == written(reference)
    with Dataset.create(tmp_path / "few", max_vocab=3) as writer:
        writer.add(pd.Series(documents))
    assert Dataset(tmp_path / "few").vocabulary_size == 3
    with Dataset.create(tmp_path / "other", vocab_from=tmp_path / "few") as writer:
        writer.add(pa.chunked_array([documents[:2], documents[2:]]))
    assert Dataset(tmp_path / "other").vocabulary() == Dataset(tmp_path / "few").vocabulary()


def test_matrices_of_counts_are_bags_of_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    counts = random.poisson(0.1, (60, len(WORDS)))
    rows, columns = np.nonzero(counts)
    lines = [f"{row + 1} {column + 1} {counts[row, column]}\n" for row, column in zip(rows, columns, strict=True)]
    (tmp_path / "bags.txt").write_text(f"60\n{len(WORDS)}\n{len(lines)}\n" + "".join(lines))
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n")
    request = CorpusRequest(
        "uci",
        [str(tmp_path / "bags.txt")],
        str(tmp_path / "ingested"),
        vocab=str(tmp_path / "words.txt"),
        block_tokens=50,
    )
    expected = written(ingest(request, workers=1).path)
    monkeypatch.setattr("blocks.corpus.incremental_writer._BATCH", 70)
    for number, matrix in enumerate((counts, sparse.csr_array(counts), sparse.coo_matrix(counts.astype(float)))):
        with Dataset.create(tmp_path / f"{number}", vocabulary=WORDS, block_tokens=50) as writer:
            writer.add(matrix[:7] if number < 2 else matrix.tocsr()[:7])
            writer.add(matrix[7:] if number < 2 else matrix.tocsr()[7:].tocoo())
        assert written(tmp_path / f"{number}") == expected


def test_ratings_are_those_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check, for any chunk size, that the last of repeated ratings counts, and that 7 and "7" are the same user."""
    random = np.random.default_rng(2)
    users, items = random.integers(0, 50, 2_000), random.integers(0, 40, 2_000)
    ratings = random.integers(1, 11, 2_000) / 2
    table = {"userId": users, "movie": [f"film {item}" for item in items], "stars": ratings}
    pd.DataFrame(table).to_csv(tmp_path / "ratings.csv", index=False)
    request = RatingsRequest([str(tmp_path / "ratings.csv")], str(tmp_path / "ingested"), grid=3)
    expected = written(ingest_ratings(request, workers=1).path)
    triples = list(zip(users.tolist(), table["movie"], ratings.tolist(), strict=True))
    ways: list[Callable[[Any], None]] = [
        lambda writer: writer.add(users, table["movie"], ratings),
        lambda writer: writer.add(iter(triples)),
        lambda writer: (
            [writer.add(*([value] for value in triple)) for triple in triples[:300]]
            and writer.add(users[300:].astype(str).tolist(), np.array(table["movie"][300:]), list(ratings[300:]))
        ),
        lambda writer: writer.add(pd.DataFrame(table)),
        lambda writer: writer.add(pa.table(table)),
        lambda writer: [writer.add(batch) for batch in pa.table(table).to_batches(max_chunksize=700)],
        lambda writer: writer.add(pl.DataFrame(table)),
    ]
    monkeypatch.setattr("blocks.ratings.incremental_writer._BATCH", 256)
    for number, add in enumerate(ways):
        with Matrix.create(tmp_path / f"{number}", grid=3) as writer:
            add(writer)
        assert written(tmp_path / f"{number}") == expected


def test_a_sparse_matrix_is_ratings_of_numbers(tmp_path: Path) -> None:
    matrix = sparse.random_array((30, 20), density=0.2, rng=0, format="csr")
    with Matrix.create(tmp_path / "sparse") as writer:
        writer.add(matrix)
    entries = matrix.tocoo()
    with Matrix.create(tmp_path / "arrays") as writer:
        writer.add(entries.row, entries.col, entries.data)
    assert written(tmp_path / "sparse") == written(tmp_path / "arrays")
    assert Matrix(tmp_path / "sparse").row_names() == [str(row) for row in np.unique(entries.row)]


def test_entries_of_one_cell_of_a_sparse_matrix_are_summed(tmp_path: Path) -> None:
    twice = sparse.coo_array(([1.0, 2.0, 4.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    for number, matrix in enumerate((twice, sparse.csr_array(twice.toarray()))):
        with Matrix.create(tmp_path / f"{number}") as writer:
            writer.add(matrix)
    assert twice.nnz == 3
    assert written(tmp_path / "0") == written(tmp_path / "1")


def test_pairs_are_ratings_of_1(tmp_path: Path) -> None:
    with Matrix.create(tmp_path / "pairs") as writer:
        writer.add([(1, "a"), (2, "b")])
    with Matrix.create(tmp_path / "triples") as writer:
        writer.add([(1, "a", 1), (2, "b", 1)])
    assert written(tmp_path / "pairs") == written(tmp_path / "triples")


def random_design(density: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    x = random.normal(size=(200, 30)) * (random.random((200, 30)) < density)
    return x, random.normal(size=200)


@pytest.mark.parametrize("density", [0.1, 1.0])
def test_designs_are_those_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, density: float) -> None:
    x, y = random_design(density)
    rows = sparse.csr_array(x)
    sparse.save_npz(tmp_path / "sparse.npz", rows)
    np.savez(tmp_path / "dense.npz", X=x)
    np.save(tmp_path / "y.npy", y)
    expected = {}
    for name in ("sparse", "dense"):
        inputs, options = [str(tmp_path / f"{name}.npz")], {"target": str(tmp_path / "y.npy"), "block_bytes": 9_000}
        request = DesignRequest("npz", inputs, str(tmp_path / name), **options)
        expected[name] = written(ingest_design(request, workers=1).path)
    shuffled = rows.copy()
    shuffled.indices[: rows.indptr[1]] = rows.indices[: rows.indptr[1]][::-1]
    shuffled.data[: rows.indptr[1]] = rows.data[: rows.indptr[1]][::-1]
    shuffled.has_sorted_indices = False
    monkeypatch.setattr("blocks.design.incremental_writer._CELLS", 500)
    ways: list[tuple[str, Callable[[Any], None]]] = [
        ("dense", lambda writer: writer.add(x, y)),
        ("sparse", lambda writer: writer.add(shuffled, y)),
        ("sparse", lambda writer: writer.add((rows.data, rows.indices, rows.indptr), list(y))),
        ("dense", lambda writer: writer.add(iter(x), iter(y))),
        ("dense", lambda writer: [writer.add(x[row : row + 1], y[row : row + 1]) for row in range(200)]),
        ("dense", lambda writer: writer.add(x[:50], y[:50]) or writer.add(rows[50:], y[50:])),
        ("sparse", lambda writer: writer.add(rows[:50], y[:50]) or writer.add(x[50:].tolist(), y[50:])),
    ]
    for number, (kind, add) in enumerate(ways):
        with Design.create(tmp_path / f"{number}", block_bytes=9_000) as writer:
            add(writer)
        assert written(tmp_path / f"{number}") == expected[kind]


def test_designs_of_frames_are_those_of_tables(tmp_path: Path) -> None:
    x, y = random_design(1.0)
    table = {"when": ["x"] * 200} | {f"column {number}": x[:, number] for number in range(30)} | {"y": y}
    pq.write_table(pa.table(table), tmp_path / "table.parquet")
    request = DesignRequest(
        "csv", [str(tmp_path / "table.parquet")], str(tmp_path / "ingested"), target="y", drop=["when"]
    )
    expected = written(ingest_design(request, workers=1).path) | {"first_column": 0}
    frame = pd.DataFrame(table)
    for number, frames in enumerate(([frame[:70], frame[70:]], [pl.DataFrame(table)], pa.table(table).to_batches(90))):
        with Design.create(tmp_path / f"{number}", target="y", drop=["when"]) as writer:
            for each in frames:
                writer.add(each)
        assert written(tmp_path / f"{number}") == expected
    with Design.create(tmp_path / "other", target="y", columns_from=tmp_path / "0") as writer:
        writer.add(frame[list(reversed(frame.columns))])
    assert written(tmp_path / "other") == expected


def test_columns_from_a_design_go_by_their_names_whatever_these_are(tmp_path: Path) -> None:
    frame = pd.DataFrame(random_design(1.0)[0][:, :3], columns=[0, 1, "a  b"])
    for name, columns_from in (("first", None), ("second", tmp_path / "first")):
        with Design.create(tmp_path / name, columns_from=columns_from) as writer:
            writer.add(frame if columns_from is None else frame[["a  b", 1, 0]])
    assert written(tmp_path / "second") == written(tmp_path / "first")


def test_samples_are_those_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = random_design(0.2)
    x, labels = x.astype(np.float32), np.sign(y)
    x[:, -1] = 1
    lines = [
        " ".join([f"{label:g}", *(f"{k + 1}:{row[k]:.9g}" for k in np.flatnonzero(row))])
        for label, row in zip(labels, x, strict=True)
    ]
    (tmp_path / "x.svm").write_text("\n".join(lines) + "\n")
    expected = written(ingest_samples([str(tmp_path / "x.svm")], str(tmp_path / "file"), block_entries=300).path)
    rows = sparse.csr_array(x)
    monkeypatch.setattr("blocks.samples.incremental_writer.RUN", 200)
    frame = pd.DataFrame(x).rename(columns=str).assign(label=labels)
    ways: list[tuple[str | None, Callable[[Any], None]]] = [
        (None, lambda writer: writer.add(x, labels)),
        (None, lambda writer: writer.add(rows, labels)),
        (None, lambda writer: writer.add((rows.data, rows.indices, rows.indptr), labels)),
        (
            None,
            lambda writer: (
                [writer.add(x[k : k + 1], labels[k : k + 1]) for k in range(50)]
                and writer.add(iter(x[50:]), iter(labels[50:]))
            ),
        ),
        ("label", lambda writer: writer.add(pa.Table.from_pandas(frame))),
        ("label", lambda writer: writer.add(frame[:9]) or writer.add(frame[9:])),
    ]
    for number, (target, add) in enumerate(ways):
        with Samples.create(tmp_path / f"{number}", target=target, block_entries=300) as writer:
            add(writer)
        assert written(tmp_path / f"{number}") == expected
    assert Samples(tmp_path / "0").block_count > 3


MEMORY = """
import resource, sys
import blocks.ingestion.pipeline
from blocks import Dataset

blocks.ingestion.pipeline.RUN = 1 << 17

def documents(number):
    for document in range(number):
        yield " ".join(f"w{(document * place) % 503}" for place in range(1, 41))

for number in (10_000, 50_000):
    with Dataset.create(f"{sys.argv[1]}-{number}", block_tokens=400_000) as writer:
        writer.add(documents(number))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_documents(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", MEMORY, str(tmp_path / "out")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    few, many = map(int, done.stdout.split())
    assert many - few < 10_000  # kB: measured 3,600; the texts have 12,000, and to sort all tokens at once takes 30,000
