"""`ooc sweep`: the metrics of each number of topics, and the matching of topics between seeds."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import scipy.optimize
from commands import Ooc
from processes import gone, until

from samplers.models import open_model
from samplers.topics.sweep import advice
from samplers.topics.topic_matching import best_matching, shared_words


def test_topics_are_matched_best() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 40):
        for similarities in (rng.random((size, size)), rng.integers(0, 3, (size, size)).astype(float)):
            rows, columns = scipy.optimize.linear_sum_assignment(similarities, maximize=True)
            found = best_matching(similarities)
            assert sorted(found.tolist()) == list(range(size))
            assert similarities[rows, found].sum() == pytest.approx(similarities[rows, columns].sum())
    first, second = rng.permuted(np.tile(np.arange(30), (5, 1)), axis=1)[:, :8], np.arange(40).reshape(5, 8)
    second[2, 3:] = -1
    expected = [[len({*a} & {*b} - {-1}) / 8 for b in second.tolist()] for a in first.tolist()]
    np.testing.assert_allclose(shared_words(first, second), expected)


@pytest.mark.long
def test_a_sweep_has_the_numbers_of_its_runs(tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """Those of `ooc evaluate`, and of numpy; the same command with more topics trains only what is missing."""
    ooc = ooc_in(tmp_path)
    drawn = ("--vocabulary", 60, "--topics", 3, "--length", 30)
    assert ooc("ingest", "synthetic", "data", "--documents", 300, *drawn).returncode == 0
    held = ("--documents", 40, "--seed", 1, "--topics-seed", 0)
    assert ooc("ingest", "synthetic", "data-held-out", *held, *drawn).returncode == 0
    command = ("sweep", "data", "out", "--seeds", 2, "--iterations", 8, "--workers", 1, "--json", "--quiet")
    assert ooc("train", "lda", "data", "out/topics-3-seed-1", "--topics", 3, "--seed", 1, *command[5:9]).returncode == 0
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").glob("*/model/*")}
    done = ooc(*command, "--topics", "3,2", "--plot", "plot.png")
    assert done.returncode == 0, done.stderr
    assert before
    told = json.loads(done.stdout)
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert [row["topics"] for row in told["rows"]] == [2, 3]
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    runs = [f"out/topics-3-seed-{seed}" for seed in range(2)]
    metrics = [json.loads(ooc("evaluate", run, "data-held-out", "--workers", 1, "--json").stdout) for run in runs]
    row = told["rows"][1]
    perplexities = [each["perplexity"] for each in metrics]
    assert row["perplexity"] == pytest.approx(np.mean(perplexities))
    assert row["perplexity_sd"] == pytest.approx(np.std(perplexities, ddof=1))
    shares = [open_model(tmp_path / run).word_shares() for run in runs]
    tops = [np.argsort(-phi, axis=1, kind="stable")[:, :10] for phi in shares]
    expected = [
        (phi / phi.sum(axis=0))[np.arange(3)[:, None], top].mean() for phi, top in zip(shares, tops, strict=True)
    ]
    assert row["exclusivity"] == pytest.approx(np.mean(expected), rel=0.02)  # of equal words others may be chosen
    with (tmp_path / "out" / "sweep.csv").open() as file:
        assert [int(each["topics"]) for each in csv.DictReader(file)] == [2, 3]
    stored = {file: file.stat().st_mtime_ns for file in (tmp_path / "out" / "evaluations").iterdir()}
    assert len(stored) == 4
    assert json.loads(ooc(*command, "--topics", "3,2").stdout) == told
    assert {file: file.stat().st_mtime_ns for file in stored} == stored
    done = ooc("sweep", "data", "data", "--topics", 3)
    assert (done.returncode, "data exists and is not a directory made by `ooc sweep`" in done.stderr) == (2, True)
    done = ooc("sweep", "data", "out", "--topics", "3,x")
    assert (done.returncode, "--topics must be numbers" in done.stderr) == (2, True)


def test_a_training_ends_with_its_sweep(tmp_path: Path, ooc: Ooc) -> None:
    drawn = ("--documents", 80, "--vocabulary", 40, "--topics", 3, "--length", 20)
    assert ooc("ingest", "synthetic", "data", *drawn).returncode == 0
    command = [sys.executable, "-m", "ooc", "sweep", "data", "out", "--topics", "2", "--iterations", "1000000"]
    with subprocess.Popen([*command, "--quiet"], cwd=tmp_path) as process:
        until((tmp_path / "out" / "topics-2-seed-0" / "metrics.jsonl").exists)
        trained = [each.pid for each in psutil.Process(process.pid).children(recursive=True)]
        process.kill()
    assert trained
    until(lambda: gone(trained))


def test_a_later_sweep_adds_rows_to_the_table(tmp_path: Path, ooc: Ooc) -> None:
    drawn = ("--documents", 80, "--vocabulary", 40, "--topics", 3, "--length", 20)
    assert ooc("ingest", "synthetic", "data", *drawn).returncode == 0
    how = ("--iterations", 3, "--workers", 1, "--quiet", "--json")
    for topics, seeds, expected in ((2, 2, [(2, 2)]), (3, 1, [(2, 2), (3, 1)])):
        done = ooc("sweep", "data", "out", "--topics", topics, "--seeds", seeds, *how)
        assert done.returncode == 0, done.stderr
        assert [(row["topics"], row["seeds"]) for row in json.loads(done.stdout)["rows"]] == expected
    with (tmp_path / "out" / "sweep.csv").open() as file:
        assert [(int(row["topics"]), int(row["seeds"])) for row in csv.DictReader(file)] == expected


def test_advice_says_what_the_numbers_allow() -> None:
    def row(topics: int, perplexity: float | None, sd: float | None) -> dict[str, float | None]:
        return {"topics": topics, "perplexity": perplexity, "perplexity_sd": sd}

    assert "use --held-out" in advice([row(5, None, None)])
    assert "the most that were tried" in advice([row(5, 200, 1), row(9, 100, 1)])
    said = advice([row(5, 200, 1), row(9, 101, 1), row(20, 100.5, 1), row(50, 120, 1)])
    assert "that of 20 topics; 9 topics are within a standard deviation" in said
    assert "Use --seeds 3" in advice([row(5, 100, None), row(9, 200, None)])
