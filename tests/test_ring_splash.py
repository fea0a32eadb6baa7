"""Factorizations and topics by the stochastic engine on a ring: what the workers of all machines come to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import factorizations as factors
import numpy as np
import pytest
from corpora import model_bytes, names_of_words, plan, random_documents
from factorizations import planted, written
from launches import LaunchProcess, nobody_left, rank_in, serving
from rings import mpiexec, on_ring
from stochastic_programs import Naive

from blocks import RequestError, write_corpus
from blocks.corpus.dataset import Dataset
from blocks.design.row_shards import row_bounds
from blocks.ratings.matrix import Matrix
from blocks.shards.document_distribution import Runs
from blocks.shards.splitting import make_shards
from ooc.ring.ring import Ring
from ooc.runs.dataset_entries import dataset_entry
from ooc.runs.new_run import create_run
from ooc.runs.run import Run
from ooc.training import train
from ooc.workers.worker import ProgramSpec
from samplers.factorization.model import FactorModel
from samplers.lda.observer import LdaObserver
from samplers.lda.programs import sampler_spec
from samplers.topics.model import SavedTopicModel

WORDS, TOPICS = 90, 5


# Factorization


def halves(matrix: Matrix, shards: int) -> list[dict[int, Runs]]:
    """Rows dealt so that a shard is a run of those of the whole: see
    `blocks.shards.document_distribution.deal_documents`."""
    runs = list(enumerate(pairwise(row_bounds(matrix.rows, shards).tolist())))
    return [
        {
            shard: [(max(begin, first) - first, min(end, last) - first)]
            for shard, (begin, end) in runs
            if begin < last and first < end
        }
        for first, last in pairwise(matrix.index.block_bounds.tolist())
    ]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return written(tmp_path_factory.mktemp("matrix"), *planted(120, 30, 2, 0.5), grid=6)


@pytest.fixture(scope="module")
def runs_of_rows(matrix: Matrix, tmp_path_factory: pytest.TempPathFactory) -> list[Matrix]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blocks.shards.splitting.deal_documents", halves)
        return make_shards(matrix.path, str(tmp_path_factory.mktemp("halves") / "out"), 2)  # type: ignore[return-value]


@pytest.mark.long
@pytest.mark.parametrize("degree", [2, 6])
def test_factors_are_those_that_as_many_workers_find_on_one_machine(matrix, runs_of_rows, tmp_path, degree):
    """Bit for bit where each machine has one worker, as sums are then added up in the same order."""
    runs = factors.new_runs(tmp_path / "ring", runs_of_rows, "splash", parallelism=degree)
    factors.train_all(runs)
    one = factors.one_machine(tmp_path / "one", matrix, "splash", 4, parallelism=degree)
    here, there = (FactorModel(run.path / "model") for run in (runs[0], one))
    assert here.rows.names == there.rows.names
    for mine, other in ((here.rows, there.rows), (here.columns, there.columns)):
        assert np.array_equal(mine.entries, other.entries)
        np.testing.assert_allclose(mine.factors, other.factors, rtol=1e-4, atol=1e-5)
        assert degree > 2 or np.array_equal(mine.factors, other.factors)
    for name in ("objective", "rmse"):
        assert factors.told(runs[0], name) == pytest.approx(factors.told(one, name), rel=1e-5)
        assert factors.told(runs[0], name) == factors.told(runs[1], name)


def test_machines_choose_how_many_workers_factorize(runs_of_rows, tmp_path):
    """Groups are of all machines; a trial changes nothing that users have."""
    options = {"parallelism": "auto", "most_parallelism": 7, "sync_per_pass": 2, "rate": 0.2}
    runs = factors.new_runs(tmp_path / "ring", runs_of_rows, "splash", iterations=8, **options)
    factors.train_all(runs)
    assert {name for name in runs[0].metrics()[0] if "loss" in name} == {"held_out_loss_of_2", "held_out_loss_of_6"}
    assert {degree for run in runs for degree in factors.told(run, "parallelism")} <= {2, 6}
    assert factors.told(runs[0], "parallelism") == factors.told(runs[1], "parallelism")
    assert factors.told(runs[0], "rmse")[-1] < 0.2 * runs_of_rows[0].whole.deviation


# Topics


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    offsets, words = random_documents(np.random.default_rng(2), 60, WORDS, 20)
    grid: dict[str, Any] = {"block_tokens": 150, "part_tokens": 60, "slices": 4}
    names = [f"document {number}" for number in range(60)]
    return write_corpus(
        tmp_path_factory.mktemp("corpus") / "whole", offsets, words, names_of_words(WORDS), names=names, **grid
    )


@pytest.fixture(scope="module")
def shards(corpus: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[Dataset]:
    return make_shards(corpus.path, str(tmp_path_factory.mktemp("shards") / "out"), 2)  # type: ignore[return-value]


def lda(**options: object) -> ProgramSpec:
    return sampler_spec("splash", {"topics": TOPICS, "alpha": 0.1, "beta": 0.05, "seed": 3}, options, on_ring=True)


def trained(
    root: Path, shards: list[Dataset], passes: int, held_out: Dataset | None = None, **options: Any
) -> list[Run]:
    """The runs of all machines."""
    root.mkdir()
    settings = {"staleness": 0, "stop_when_converged": False, "average": 1}
    settings["held_out"] = held_out and dataset_entry(held_out)
    length: dict[str, Any] = {"iterations": passes, "evaluate_every": 1, "settings": settings}
    runs = [create_run(root / f"{rank}", shard, lda(**options), **length) for rank, shard in enumerate(shards)]

    def train_one(ring: Ring) -> None:
        run = runs[ring.rank]
        train(run, plan(1), quiet=True, observer=LdaObserver(run, 1, first=ring.rank == 0), ring=ring)

    on_ring(len(runs), train_one)
    return runs


def documents_of(naive: Naive, shards: list[Dataset]) -> Iterator[tuple[int, np.ndarray]]:
    """The number in the whole of each document, and the first of the ten topics of each of its tokens."""
    numbers = [shard.originals()[shard.block(b).documents] for shard in shards for b in range(shard.block_count)]
    for number, local in zip(np.concatenate(numbers).tolist(), naive.locals, strict=True):
        yield number, local.z[:, 0]


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [{}, {"parallelism": 6, "sync_per_pass": 2}], ids=str)
def test_topics_are_those_of_the_formulas(corpus, shards, tmp_path, options):
    """Equation 9 over the workers of all machines, token by token in plain Python: every topic of every document, and
    all counts, exactly, as these are whole."""
    runs = trained(tmp_path / "runs", shards, 3, held_out=corpus, **options)
    naive = Naive(*(lda(**options).build(shard) for shard in shards))  # type: ignore[arg-type]
    for _ in range(3):
        naive.run(options.get("parallelism", 2))
    model = SavedTopicModel(runs[0].path / "model")
    dense = np.zeros((WORDS, TOPICS), np.float32)
    dense[np.repeat(np.arange(WORDS), np.diff(model.words.offsets)), model.words.topics] = model.words.counts
    assert np.array_equal(dense[shards[0].index.word_ids], (naive.values["word_topics"] / 10).astype(np.float32))
    assert np.array_equal(model.topic_counts, naive.values["topics"][0] / 10)
    assert model.topic_counts.sum() == pytest.approx(corpus.tokens, rel=1e-12)
    for number, z in documents_of(naive, shards):
        mine = slice(*model.documents.offsets[number : number + 2])
        found = np.repeat(model.documents.topics[mine], model.documents.counts[mine])
        assert found.tolist() == np.sort(z).tolist()
    assert model.document_names() == corpus.document_names()
    for name in ("log_likelihood_per_token", "held_out_log_likelihood_per_token", "parallelism"):
        assert [line[name] for line in runs[0].metrics()] == [line[name] for line in runs[1].metrics()]
    assert not (runs[1].path / "model").exists()


def test_what_cannot_be_trained_is_told(corpus, shards):
    with pytest.raises(RequestError, match="--parallelism must be a multiple of 2, the number of machines; got 3"):
        lda(parallelism=3).build(shards[0])
    with pytest.raises(RequestError, match="--parallelism must be at least 1"):
        lda(parallelism=0).build(shards[0])
    with pytest.raises(RequestError, match="is a whole dataset; expected a shard"):
        lda().build(corpus)
    with pytest.raises(RequestError, match="--mh-steps cannot be used with --sampler splash"):
        lda(mh_steps=2)


# Processes

COMMON = ("--parallelism", 4, "--seed", 3, "--workers", 1)
FACTORIZE = ("train", "mf", "rows-{rank}", "mf-run-{rank}", "--method", "splash", "--rank", 2, *COMMON)
FIND_TOPICS = ("train", "lda", "shard-{rank}", "lda-run-{rank}", "--sampler", "splash", "--topics", TOPICS, *COMMON)


@pytest.fixture(scope="module")
def place(matrix, corpus, tmp_path_factory) -> Iterator[Path]:
    """A directory with the shards, and with hosts.txt for two ranks behind a real sshd."""
    folder = tmp_path_factory.mktemp("launch")
    make_shards(matrix.path, f"{folder}/rows-{{rank}}", 2)
    make_shards(corpus.path, f"{folder}/shard-{{rank}}", 2)
    with serving(folder, 2):
        yield folder


def expected(root: Path, place: Path, command: str, passes: int) -> dict[str, bytes]:
    """The model that engines in one process come to, whose ranks are threads."""
    if command == "lda":
        shards = [Dataset(place / f"shard-{rank}") for rank in range(2)]
        return model_bytes(trained(root, shards, passes, parallelism=4)[0].path)
    rows = [Matrix(place / f"rows-{rank}") for rank in range(2)]
    options = {"rank": 2, "regularization": 0.03, "seed": 3, "parallelism": 4}
    runs = factors.new_runs(root, rows, "splash", iterations=passes, **options)
    factors.train_all(runs)
    return model_bytes(runs[0].path)


@pytest.mark.long
@pytest.mark.parametrize("command", [pytest.param(FACTORIZE, id="mf"), pytest.param(FIND_TOPICS, id="lda")])
def test_a_launch_goes_on_after_a_rank_is_killed(place, tmp_path, command):
    """To fewer passes than were planned."""
    run = f"{command[1]}-run"
    with nobody_left(place):
        launch = LaunchProcess(place, "--", *command, "--iterations", 9**6, "--evaluate-every", 1)
        launch.until_trained(place / f"{run}-0", 1)
        rank_in(place).kill()
        done = launch.done()
    assert done.returncode == 1
    assert "was killed by SIGKILL" in done.stderr
    passes = max(len(Run(place / f"{run}-{rank}").metrics()) for rank in range(2)) + 2
    done = LaunchProcess(place, "--", "resume", f"{run}-{{rank}}", "--workers", 2, "--iterations", passes).done()
    assert done.returncode == 0, done.stderr
    assert model_bytes(place / f"{run}-0") == expected(tmp_path / "expected", place, command[1], passes)


@pytest.mark.long
@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
@pytest.mark.parametrize("command", [FACTORIZE, FIND_TOPICS], ids=["mf", "lda"])
def test_ranks_that_mpi_starts(place, tmp_path, command):
    pytest.importorskip("mpi4py")
    made = [str(word).replace("run-{rank}", "mpi-{rank}") for word in command]
    words = [str(mpiexec()), "-n", "2", sys.executable, "-m", "ooc", *made, "--transport", "mpi"]
    common: dict[str, Any] = {"cwd": place, "capture_output": True, "text": True, "timeout": 240}
    done = subprocess.run([*words, "--iterations", "3", "--json"], check=False, **common)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["iteration"] == 3
    assert model_bytes(place / f"{command[1]}-mpi-0") == expected(tmp_path / "expected", place, command[1], 3)
