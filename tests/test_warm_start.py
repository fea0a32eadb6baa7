"""Learned start of the samplers: the same bytes for every memory limit, number of workers, and after kills."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import psutil
import pytest
from corpora import (
    InProcessProgram,
    model_bytes,
    names_of_words,
    new_run,
    open_engine,
    plan,
    planted_documents,
    program_spec,
    recount,
)
from long_mark import long_but
from minibatches import planted, share_found

from blocks import Dataset, write_corpus
from blocks.memory import held_memory
from samplers.lda import topic_tree, warm_start
from samplers.lda.document_fold_in import NO_ROW
from samplers.lda.programs import sampler_spec

SAMPLERS = ("two-phase", "gibbs", "sparse-gibbs", "sparselda", "aliaslda", "lightlda")
CLASSES = ("TwoPhase", "Gibbs", "SparseGibbs", "SparseLda", "AliasLda", "LightLda")
OOC = [sys.executable, "-m", "ooc"]
TOPICS, WORDS = 10_400, 30_000  # 650 topics that are split twice: dense rows of 78 MB


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a corpus of so many words that the rows of the start are most of a training's memory."""
    path, rng = tmp_path_factory.mktemp("wide") / "corpus", np.random.default_rng(2)
    offsets = np.arange(0, 60_001, 30)
    words = (rng.random(offsets[-1]) ** 4 * WORDS).astype(np.uint32)
    words[:WORDS] = np.arange(WORDS)
    write_corpus(path, offsets, words, [f"w{word}" for word in range(WORDS)], block_tokens=30_000)
    return path


def training(corpus: Path, run: str, *options: str) -> list[str]:
    return [*OOC, *f"train lda {corpus} {run} --topics {TOPICS} --iterations 1 --seed 3".split(), *options]


def most_held(command: list[str], cwd: Path) -> int:
    """Run a command; returns the largest number of bytes that its processes held."""
    most = 0
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            most = max(most, held_memory([watched.pid, *(child.pid for child in watched.children(recursive=True))]))
            time.sleep(0.01)
    assert process.returncode == 0
    return most


@pytest.mark.long
def test_rows_lie_in_a_file_where_memory_does_not_hold_them(wide, tmp_path):
    """Train with the least memory limit, and compare the model's bytes with a run in memory.

    The limit is read from an error message, and the processes must not hold more. The training in memory has two
    workers.
    """
    common = ("--sampler", "two-phase", "--quiet")
    refused = subprocess.run(
        training(wide, "none", "--workers", "1", "--memory", "1MB", *common),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    least = re.search(r"at least (\d+) MB", refused.stderr)
    assert least, refused.stderr
    planned = f"plan {wide} --topics {TOPICS} --cores 1 --speed 1e6 --json --sampler two-phase --memory {least[1]}MB"
    facts = json.loads(subprocess.check_output([*OOC, *planned.split()], cwd=tmp_path))
    assert any("are kept in a file" in reason for reason in facts["residency"])
    large = training(wide, "large", "--workers", "2", *common)
    assert most_held(large, tmp_path) > 1e6 * int(least[1])  # compiling kernels takes memory of its own
    small = training(wide, "small", "--workers", "1", "--memory", f"{least[1]}MB", *common)
    assert most_held(small, tmp_path) <= 1e6 * int(least[1])
    assert model_bytes(tmp_path / "small") == model_bytes(tmp_path / "large")


KILLED = """
import os, signal, sys
from ooc import engine
from ooc.cli import main

begun, aggregate = [], engine.StaticEngine._aggregate

def kill_while_topics_are_split(engine, phase, answers):
    begun.extend([phase] * phase.name.startswith("splitting"))
    if len(begun) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return aggregate(engine, phase, answers)

engine.StaticEngine._aggregate = kill_while_topics_are_split
main()
"""


@pytest.mark.long
def test_a_kill_during_the_start_changes_nothing(wide, tmp_path):
    options = ("--workers", "1", "--sampler", "two-phase", "--quiet")
    subprocess.run(training(wide, "whole", *options), cwd=tmp_path, check=True)
    command = [sys.executable, "-c", KILLED, *training(wide, "killed", *options)[3:]]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "state" / "manifest.json").exists()
    subprocess.run([*OOC, "resume", "killed", "--quiet"], cwd=tmp_path, check=True)
    assert model_bytes(tmp_path / "killed") == model_bytes(tmp_path / "whole")
    assert sorted(os.listdir(tmp_path / "killed")) == sorted(os.listdir(tmp_path / "whole"))  # noqa: PTH208


@pytest.mark.parametrize("name", long_but(["TwoPhase"], CLASSES))
def test_planted_topics_are_there_before_the_first_iteration(tmp_path, name):
    """Take the best of three starts, and include words without rows, which get the topics of their documents."""
    dataset, shares = planted(tmp_path / "dataset"), []
    for seed in range(3):
        with InProcessProgram(dataset, program_spec(name, topics=5, alpha=0.1, seed=seed, start="scvb0")) as chain:
            shares.append(share_found(chain))
            assert chain.shared["topic_counts"].sum() == dataset.tokens
            assert len({tuple(column) for column in chain.state.T.tolist()}) == 1  # proposals equal topics
    assert max(shares) > 0.95


def test_words_without_rows_take_the_topics_of_their_documents(tmp_path, monkeypatch):
    """Keep rows for 40 of 60 words: two thirds of the tokens get their own topic, others a topic of their document."""
    monkeypatch.setattr(warm_start, "ROWS", 4 * 5 * 40)
    dataset, shares = planted(tmp_path / "dataset"), []
    for seed in range(3):
        with InProcessProgram(dataset, program_spec(topics=5, alpha=0.1, seed=seed, start="scvb0")) as chain:
            with_rows = chain.program._row_of != NO_ROW
            assert with_rows.sum() == 40
            frequencies = dataset.index.frequencies
            assert frequencies[with_rows].min() >= frequencies[~with_rows].max()
            assert chain.shared["expected_totals"].sum() == pytest.approx(frequencies[with_rows].sum())
            shares.append(share_found(chain))
    assert max(shares) > 0.8


@pytest.mark.parametrize(("at_once", "topics"), [(5, 15), (5, 20), (3, 40)])
def test_split_topics_divide_planted_ones(tmp_path, monkeypatch, at_once, topics):
    """Split few topics once or several times: nearly all tokens of a topic are of one planted topic.

    Take the best of three starts. All topics have their numbers below K, and rows and totals agree at every depth.
    """
    monkeypatch.setattr(topic_tree, "AT_ONCE", at_once)
    monkeypatch.setattr(topic_tree, "_PARENTS", at_once)
    monkeypatch.setattr(topic_tree, "_MOST_FANOUT", 4)
    dataset, pure = planted(tmp_path / "dataset"), []
    for seed in range(3):
        with InProcessProgram(dataset, program_spec(topics=topics, alpha=0.1, seed=seed, start="scvb0")) as chain:
            phases = [phase.name for phase in chain.program.initial]
            assert "splitting 1" in phases
            assert ("splitting 2" in phases) == (topics == 40)
            counts = chain.counts()[1]
            assert counts.shape == (60, topics)
            assert chain.shared["topic_counts"].sum() == dataset.tokens
            pure.append(counts.reshape(5, 12, topics).sum(axis=1).max(axis=0).sum() / dataset.tokens)
            program, shared = chain.program, chain.shared
            for depth in range(len(program._sizes)):
                assert program._totals_at(shared, depth).sum() == pytest.approx(dataset.tokens, rel=0.02)
    assert max(pure) > 0.9


def test_documents_longer_than_a_minibatch_keep_what_was_learned(tmp_path, monkeypatch):
    """One in four minibatches has a document; the others, without any, replace nothing."""
    monkeypatch.setattr(warm_start, "LEAST_TOKENS", 500)
    documents = planted_documents(np.random.default_rng(4), topics=5, words_each=12, documents=40, length=2000)
    offsets = np.arange(0, documents.size + 1, 2000)
    dataset = write_corpus(tmp_path / "dataset", offsets, documents.reshape(-1), names_of_words(60))
    with InProcessProgram(dataset, program_spec(topics=5, alpha=0.1, start="scvb0")) as chain:
        assert chain.shared["estimate"][0] == 40 * warm_start.MOST_TIMES
        assert chain.shared["expected_totals"].sum() == pytest.approx(dataset.tokens)


def test_documents_without_learned_words_draw_from_the_prior(tmp_path, monkeypatch):
    monkeypatch.setattr(warm_start, "ROWS", 4 * 2)
    words = np.array([0] * 3000 + [1] * 2000, np.uint32)
    dataset = write_corpus(tmp_path / "dataset", np.arange(0, 5001, 10), words, ["a", "b"])
    with InProcessProgram(dataset, program_spec(topics=2, alpha=[0.1, 0.3], start="scvb0")) as chain:
        counts = recount(dataset, chain.state[:, 0], 2)[1]
    assert counts[1, 1] == pytest.approx(1500, abs=6 * np.sqrt(2000 * 0.25 * 0.75))


def test_what_the_start_alone_uses_is_freed_after_it(tmp_path):
    """Check that memory is freed, and that blocks of the file are returned to the disk."""
    dataset = planted(tmp_path / "dataset")
    spec = program_spec("SparseGibbs", topics=5, start="scvb0")
    for name, start_mapped in (("memory", False), ("file", True)):
        run = new_run(tmp_path / name, dataset, spec, 1)
        with open_engine(run, plan(start_mapped=start_mapped)) as engine:
            start, filed, later = (descriptor for _, descriptor in engine._engine_arrays.start.known)
            assert not any(os.fstat(each).st_blocks for each in (start, later))
            assert engine.start()
            assert not any(os.fstat(each).st_blocks for each in (start, filed))
            assert os.fstat(later).st_blocks
            engine.step()


@pytest.mark.parametrize("name", long_but(["two-phase", "gibbs"], SAMPLERS))
def test_compiling_needs_no_rows_of_all_words(wide, name):
    """On one machine and on a ring, the arrays of one word: far from the 78 MB of rows that the start has."""
    options = {"topics": TOPICS, "alpha": 0.1, "beta": 0.05, "seed": 0}
    for on_ring in (False, True):
        program = sampler_spec(name, options, {"start": "scvb0"}, on_ring=on_ring).build(Dataset(wide))
        tracemalloc.start()
        program.warm_up()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 30e6


def test_a_ring_keeps_as_many_rows_as_one_machine(tmp_path):
    """Plan a model whose rows do not fit: 512 MiB of rows are kept for any vocabulary and number of topics."""
    common = "plan --tokens 1e9 --vocabulary 1e6 --topics 10000 --memory 256GB --cores 2 --speed 1e6 --disk 500MB/s"
    told = []
    for machines in ("", "--machines 8 --network 1Gbps"):
        facts = json.loads(subprocess.check_output([*OOC, *common.split(), *machines.split(), "--json"], cwd=tmp_path))
        told += [
            float(found[1].replace(",", ""))
            for reason in facts["residency"]
            if (found := re.search(r"initial topics \(([\d,.]+) MB", reason))
        ]
    assert len(told) == 2
    assert told[0] == pytest.approx(told[1], rel=0.1)
