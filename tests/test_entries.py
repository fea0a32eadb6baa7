"""Static programs on documents and samples: compare the results of `job.entries()` with a dense matrix."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from blocks import Dataset, RequestError, Samples
from blocks.corpus.bags import document_counts
from ooc import fit

PROGRAM = """
import numpy as np
from ooc import Field, Phase, StaticProgram


class Sums(StaticProgram):
    order: str = "block"
    labels: int = 0

    rows = Field("row")
    columns = Field("column")
    targets = Field("row")

    @property
    def phases(self):
        return (Phase("add", self.order),)

    def update(self, job):
        offsets, columns, values = job.entries()
        rows, mine = job.own("rows"), slice(offsets[0], offsets[-1])
        np.add.at(rows, np.repeat(np.arange(rows.size), np.diff(offsets)), values[mine])
        if self.labels:
            job.own("targets")[:] = job.labels()
        return np.bincount(columns[mine], values[mine], job.shared["columns"].size)

    def aggregate(self, phase, shared, deltas, answers):
        shared["columns"] += sum(answers)
        return {}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sums.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_entries_of_documents_are_counts_of_words(here: Path) -> None:
    """Use several blocks and parts, empty documents, and documents that begin with the previous one's last word."""
    random = np.random.default_rng(0)
    counts = random.poisson(0.3, (200, 12)) * (random.random((200, 1)) < 0.8)
    words = [f"w{number:02}" for number in range(12)]
    with Dataset.create("corpus", vocabulary=words, block_tokens=200, part_tokens=30, slices=2) as writer:
        writer.add(counts)
    corpus = Dataset("corpus")
    assert corpus.block_count > 2
    run = fit("sums:Sums", corpus, "run", iterations=1, workers=2, quiet=True)
    documents = np.concatenate([corpus.block(number).documents for number in range(corpus.block_count)])
    assert np.array_equal(run["rows"], counts.sum(axis=1)[documents])
    assert np.array_equal(run["columns"], counts.sum(axis=0)[corpus.index.word_ids])
    block = corpus.block(1)
    offsets, found, values = document_counts(block, 3, block.documents.size - 1)
    dense = np.zeros((offsets.size - 1, 12))
    dense[np.repeat(np.arange(offsets.size - 1), np.diff(offsets)), corpus.index.word_ids[found]] = values
    assert np.array_equal(dense, counts[block.documents[3:-1]])
    with pytest.raises(RequestError, match="the phase 'add' goes through slices, which a corpus does not store"):
        fit("sums:Sums", corpus, "slices", options={"order": "slice"}, workers=1, quiet=True)


def test_entries_of_samples_are_those_of_their_rows(here: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(200, 6)) * (random.random((200, 6)) < 0.5), random.normal(size=200)
    with Samples.create("samples", block_entries=150) as writer:
        writer.add(x, y)
    samples = Samples("samples")
    order = np.concatenate([samples.block(number).rows for number in range(samples.block_count)])
    run = fit("sums:Sums", samples, "run", options={"labels": 1}, iterations=1, workers=2, quiet=True)
    assert np.allclose(run["rows"], x.astype(np.float32).astype(float).sum(axis=1)[order], rtol=1e-12)
    assert np.allclose(run["columns"], x.astype(np.float32).astype(float).sum(axis=0), rtol=1e-12)
    assert np.array_equal(run["targets"], y[order])
    with pytest.raises(RequestError, match="the phase 'add' goes through slices of columns, but samples"):
        fit("sums:Sums", samples, "slices", options={"order": "slice"}, workers=1, quiet=True)
