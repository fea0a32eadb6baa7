"""Labelled samples: read row by row, dealt to blocks, shuffled; the same from files and from arrays, in any chunks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sample_sets import read_back

from blocks import RequestError
from blocks.dataset_description import describe, description_lines
from blocks.kinds import open_any
from blocks.progress_bar import no_bar
from blocks.samples.ingestion import ingest_samples, write_samples
from blocks.verify import verify_dataset

LINES = [
    (3.0, {0: 1.5, 7: -2.0}),
    (1.0, {}),
    (2.0, {4: 0.25}),
    (3.0, {0: 1.0, 1: 2.0, 2: 3.0}),
]


def many(samples: int) -> list[tuple[float, dict[int, float]]]:
    """Labels and entries, a few of them in each sample."""
    random = np.random.default_rng(0)
    return [
        (float(label), dict(zip(sorted(random.choice(30, size, replace=False).tolist()), range(1, 9), strict=False)))
        for label, size in zip(random.integers(0, 5, samples), random.integers(0, 8, samples), strict=True)
    ]


def text(lines: list[tuple[float, dict[int, float]]]) -> str:
    return "".join(
        f"{label:g} " + " ".join(f"{column + 1}:{value!r}" for column, value in row.items()) + "\n"
        for label, row in lines
    )


def test_samples_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "few.svm").write_text("# a comment\n" + text(LINES))
    samples = ingest_samples([str(tmp_path / "few.svm")], str(tmp_path / "samples"))
    assert read_back(samples) == LINES
    assert (samples.rows, samples.columns, samples.entries) == (4, 8, 6)
    assert samples.index.labels.tolist() == [1, 2, 3]
    facts = describe(open_any(samples.path))
    assert facts["labels"] == 3
    assert "samples     4, 3 labels" in list(description_lines(facts))
    assert verify_dataset(samples, no_bar).problems == []


@pytest.mark.parametrize("block_entries", [50, 1 << 20])
def test_chunks_and_files_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_entries: int
) -> None:
    """From a file in one chunk or in many, or from arrays: the same bytes; every sample is in one block."""
    lines = many(300)
    (tmp_path / "many.svm").write_text(text(lines))
    lengths = [len(row) for _, row in lines]
    arrays = (
        np.concatenate(([0], np.cumsum(lengths))),
        np.array([column for _, row in lines for column in row]),
        np.array([value for _, row in lines for value in row.values()]),
        np.array([label for label, _ in lines]),
    )
    sets = [write_samples(tmp_path / "arrays", *arrays, seed=4, block_entries=block_entries)]
    for size in (100, 1 << 20):
        monkeypatch.setattr("blocks.text_inputs.TextInput.chunks.__defaults__", (size,))
        out = str(tmp_path / f"file{size}")
        sets.append(ingest_samples([str(tmp_path / "many.svm")], out, seed=4, block_entries=block_entries))
    assert len({samples.identity for samples in sets}) == 1
    assert read_back(sets[0]) == lines
    assert (sets[0].block_count > 5) == (block_entries == 50)
    order = np.concatenate([sets[0].block(number).rows for number in range(sets[0].block_count)])
    assert not np.array_equal(order, np.sort(order))


def test_other_samples_get_the_same_columns(tmp_path: Path) -> None:
    (tmp_path / "few.svm").write_text(text(LINES))
    samples = ingest_samples([str(tmp_path / "few.svm")], str(tmp_path / "samples"))
    (tmp_path / "other.svm").write_text("1 3:1\n")
    other = ingest_samples([str(tmp_path / "other.svm")], str(tmp_path / "other"), columns_from=str(samples.path))
    assert other.columns == 8
    (tmp_path / "wide.svm").write_text("1 9:1\n")
    with pytest.raises(RequestError, match="line 1: index 9 is above 8"):
        ingest_samples([str(tmp_path / "wide.svm")], str(tmp_path / "wide"), columns_from=str(samples.path))
    assert not (tmp_path / "wide").exists()


def test_what_is_no_set_of_samples_is_refused(tmp_path: Path) -> None:
    one = np.ones(1)
    for arrays in ([np.array([0, 2]), one, one, one], [np.array([0, 1]), one, one, np.ones(2)]):
        with pytest.raises(RequestError):
            write_samples(tmp_path / "samples", *arrays)
    with pytest.raises(RequestError, match="no samples"):
        write_samples(tmp_path / "samples", np.zeros(1, int), one[:0], one[:0], one[:0])
    with pytest.raises(RequestError, match="columns must be from 0 to 2, got 3 to 3"):
        write_samples(tmp_path / "samples", np.array([0, 1]), np.array([3]), one, one, width=3)
    assert not (tmp_path / "samples").exists()
