"""Shards, commands, processes and expected models for tests of launches."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
from corpora import model_bytes, names_of_words, random_documents
from rings import on_ring

from benchmarks.sshd import SSHD, client_config, free_port, make_keys, serve, wait_for
from blocks import write_corpus
from blocks.corpus.dataset import Dataset
from blocks.shards.splitting import make_shards
from ooc.runs.run import Run
from samplers.lda.training import train_lda

TOPICS, ITERATIONS, WORDS = 6, 60, 90
LONG = 240.0  # seconds until something that must happen is taken not to
PRIORS = {"alpha": 0.2, "seed": 3}
OPTIONS = ("--topics", TOPICS, "--iterations", ITERATIONS, "--alpha", 0.2, "--seed", 3, "--workers", 1)


def shards_of(folder: Path, count: int) -> list[Dataset]:
    """Write shards of a small corpus to `folder`/shard-0, ..."""
    offsets, words = random_documents(np.random.default_rng(2), 240, WORDS, 60)
    grid = {"block_tokens": 900, "part_tokens": 300, "slices": 4}
    write_corpus(folder / "whole", offsets, words, names_of_words(WORDS), **grid)
    return make_shards(folder / "whole", f"{folder}/shard-{{rank}}", count, workers=1)  # type: ignore[return-value]


def expected(folder: Path, shards: Sequence[Dataset], iterations: int = ITERATIONS) -> dict[str, bytes]:
    """Return the model that a ring of threads in one process trains."""
    folder.mkdir()
    options = {"topics": TOPICS, "iterations": iterations, **PRIORS, "workers": 1, "quiet": True}
    runs = [folder / f"run-{rank}" for rank in range(len(shards))]
    on_ring(len(runs), lambda ring: train_lda(shards[ring.rank].path, runs[ring.rank], ring=ring, **options))
    return model_bytes(runs[0])


class LaunchProcess:
    """`ooc launch` as a process."""

    def __init__(self, folder: Path, *arguments: object, prefix: Sequence[str] = ()) -> None:
        """folder: where it runs; `hosts.txt`, and what ssh needs in `config`, are there."""
        command = [*prefix, sys.executable, "-m", "ooc", "launch", "--hosts", "hosts.txt", "--ssh-config", "config"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([*command, *map(str, arguments)], cwd=folder, text=True, **pipes)  # type: ignore[call-overload]

    def done(self) -> subprocess.CompletedProcess[str]:
        out, err = self.process.communicate(timeout=LONG)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess([], self.process.returncode, out, err)

    def until_trained(self, run: Path, iterations: int = 3) -> None:
        """Wait until a number of iterations are done."""
        self.until(lambda: (run / "config.json").exists() and len(Run(run).metrics()) >= iterations)

    def until(self, happens) -> None:
        deadline = time.monotonic() + LONG
        while not happens():
            assert self.process.poll() is None, self.done()
            assert time.monotonic() < deadline
            time.sleep(0.02)


@contextmanager
def serving(folder: Path, ranks: int) -> Iterator[None]:
    """Write hosts.txt for a number of ranks on this machine, behind a real sshd, within the context."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("NO LAUNCH IS TESTED: there is no sshd on this machine")
    make_keys(folder)
    port = free_port()
    (folder / "hosts.txt").write_text("one\n" * ranks)
    with serve(folder, "127.0.0.1", port), nobody_left(folder):
        wait_for(client_config(folder, {"one": ("127.0.0.1", port)}), ["one"])
        yield


def processes_in(folder: Path) -> list[psutil.Process]:
    """Return the processes whose working directory is this directory or below."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def rank_in(folder: Path) -> psutil.Process:
    """Return the process of the rank that works in a directory, which its supervisor watches."""
    ranks = [process for process in processes_in(folder) if process.cmdline()[-2:] == ["ooc", "rank"]]
    return next(process for process in ranks if process.ppid() in [other.pid for other in ranks])


@contextmanager
def nobody_left(folder: Path, within: float = 30.0) -> Iterator[None]:
    """Check that no process works below a directory soon after the end of the context."""
    yield
    deadline = time.monotonic() + within
    while left := [process for process in processes_in(folder) if process.pid != psutil.Process().pid]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def interrupt(launch: LaunchProcess) -> None:
    launch.process.send_signal(signal.SIGINT)


def copy_shards(shards: Sequence[Dataset], places: Sequence[Path]) -> None:
    """Copy to each machine its own shard, as `data`."""
    for shard, place in zip(shards, places, strict=True):
        shutil.copytree(shard.path, place / "data")
