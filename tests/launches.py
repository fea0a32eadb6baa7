"""What tests of launches share: shards to train on, the command, its processes, and the model it has to come to."""

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
    """Shards of a small corpus, in `folder`/shard-0, ..."""
    offsets, words = random_documents(np.random.default_rng(2), 240, WORDS, 60)
    grid = {"block_tokens": 900, "part_tokens": 300, "slices": 4}
    write_corpus(folder / "whole", offsets, words, names_of_words(WORDS), **grid)
    return make_shards(folder / "whole", f"{folder}/shard-{{rank}}", count, workers=1)  # type: ignore[return-value]


def expected(folder: Path, shards: Sequence[Dataset], iterations: int = ITERATIONS) -> dict[str, bytes]:
    """The model that one process comes to, whose ranks are threads."""
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
        """Wait until so many iterations are done."""
        self.until(lambda: (run / "config.json").exists() and len(Run(run).metrics()) >= iterations)

    def until(self, happens) -> None:
        deadline = time.monotonic() + LONG
        while not happens():
            assert self.process.poll() is None, self.done()
            assert time.monotonic() < deadline
            time.sleep(0.02)


@contextmanager
def serving(folder: Path, ranks: int) -> Iterator[None]:
    """hosts.txt is there for so many ranks on this machine, behind a real sshd."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("NO LAUNCH IS TESTED: there is no sshd on this machine")
    make_keys(folder)
    port = free_port()
    (folder / "hosts.txt").write_text("one\n" * ranks)
    with serve(folder, "127.0.0.1", port), nobody_left(folder):
        wait_for(client_config(folder, {"one": ("127.0.0.1", port)}), ["one"])
        yield


def processes_in(folder: Path) -> list[psutil.Process]:
    """Those that work in a directory, or below."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def rank_in(folder: Path) -> psutil.Process:
    """The process of the rank that works in a directory: the one that another one like it guards."""
    ranks = [process for process in processes_in(folder) if process.cmdline()[-2:] == ["ooc", "rank"]]
    return next(process for process in ranks if process.ppid() in [other.pid for other in ranks])


@contextmanager
def nobody_left(folder: Path, within: float = 30.0) -> Iterator[None]:
    """No process works below a directory soon after what is done meanwhile."""
    yield
    deadline = time.monotonic() + within
    while left := [process for process in processes_in(folder) if process.pid != psutil.Process().pid]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def interrupt(launch: LaunchProcess) -> None:
    launch.process.send_signal(signal.SIGINT)


def copy_shards(shards: Sequence[Dataset], places: Sequence[Path]) -> None:
    """Give each machine its own, as `data`."""
    for shard, place in zip(shards, places, strict=True):
        shutil.copytree(shard.path, place / "data")
