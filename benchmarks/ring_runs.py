"""Contestants of the ring benchmark: how each is started, and the results that are collected."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.measure import ONE_THREAD, ROOT, SAMPLE_S
from benchmarks.namespaces import NamespaceMachines
from benchmarks.ring_corpora import OOC, CorporaDirectory
from benchmarks.ring_transport import mpiexec
from blocks.memory import held_memory

RUN = "run-{rank}"
FOUR = 4  # ranks, for what they hold: where there are fewer cores some share one


class RingContestant(NamedTuple):
    """A way to train.

    way: "train" for no ring; "launch" for one machine per rank; "loopback" for all ranks on one machine; or "mpi".
    ranks: number of ranks; 0 for the requested number.
    """

    name: str
    way: str
    ranks: int = 0
    insecure: bool = False
    staleness: int = 1


CONTESTANTS = {
    "machine": RingContestant("one machine", "train", ranks=1),
    "one": RingContestant("a ring of one", "launch", ranks=1),
    "ring": RingContestant("a ring", "launch"),
    "four": RingContestant("a ring of four", "launch", ranks=FOUR),
    "bulk": RingContestant("a ring, staleness 0", "launch", staleness=0),
    "tcp": RingContestant("TCP on loopback", "loopback"),
    "plain": RingContestant("plain TCP on loopback", "loopback", insecure=True),
    "mpi": RingContestant("MPI on loopback", "mpi"),
}


OF_RANK = "BENCHMARK_RANK"  # in the environment of a rank's processes


class RingRunSettings(NamedTuple):
    """Settings of every contestant.

    ranks: number of ranks of contestants with several.
    memory: memory limit of a rank.
    """

    ranks: int
    topics: int
    iterations: int
    memory: str


class RingRuns:
    """Trainings on the same documents. Each rank is pinned to a core, with all its processes."""

    def __init__(self, machines: NamespaceMachines, data: CorporaDirectory, settings: RingRunSettings) -> None:
        self._machines, self._data, self._settings = machines, data, settings
        self._log = machines.folder / "log.txt"
        self._pythons = [self._python(rank) for rank in range(machines.count)]

    def _python(self, rank: int) -> Path:
        """Return an interpreter with these sources that is pinned to the core of a rank and marks its processes with
        the rank.
        """
        cores = sorted(os.sched_getaffinity(0))
        path = self._machines.folder / f"python-{rank}"
        start = f"PYTHONPATH={ROOT} {OF_RANK}={rank} exec taskset -c {cores[rank % len(cores)]} {sys.executable}"
        path.write_text(f'#!/bin/sh\n{start} "$@"\n')
        path.chmod(0o755)
        return path

    def _write_hosts(self, way: str, ranks: int) -> Path:
        lines = []
        for rank, python in enumerate(self._pythons[:ranks]):
            number, address = (0, "address=127.0.0.1") if way == "loopback" else (rank, "")
            name, place = self._machines.names[number], self._machines.places[number]
            lines.append(f"{name} python={python} dir={place} {address}\n")
        path = self._machines.folder / "contestant.txt"
        path.write_text("".join(lines))
        return path

    def run(self, contestant: RingContestant) -> dict[str, Any]:
        """Train and evaluate; returns the lines of the metrics, the peak memory of each rank, and the held-out
        likelihood.
        """
        ranks, home = contestant.ranks or self._settings.ranks, self._machines.places[0]
        with self._log.open("wb") as log:
            command = self._command(contestant, ranks)
            process = subprocess.Popen(command, cwd=home, env=os.environ | ONE_THREAD, stdout=log, stderr=log)
            try:
                held_bytes = watch_ranks(process, ranks)
            finally:
                process.terminate()
                process.wait()
        if process.returncode:
            raise SystemExit(f"{contestant.name}: exit code {process.returncode}\n{self._log.read_text()}")
        run = home / RUN.format(rank=0)
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found = {
            **contestant._asdict(),
            "ranks": ranks,
            "lines": [json.loads(line) for line in lines],
            "held_bytes": held_bytes,
            "held_out": self._held_out(run),
        }
        for left in self._machines.folder.glob("*/run-*"):
            shutil.rmtree(left)
        return found

    def _command(self, contestant: RingContestant, ranks: int) -> list[str]:
        train = self._train(contestant, ranks)
        if contestant.way == "train":
            return [str(self._pythons[0]), "-m", "ooc", *train]
        if contestant.way == "mpi":
            pythons = self._pythons[:ranks]
            each = [["-n", "1", str(python), "-m", "ooc", *train, "--transport", "mpi"] for python in pythons]
            return [str(mpiexec()), *each[0], *(word for rank in each[1:] for word in (":", *rank))]
        config = self._machines.folder / "config"
        hosts = ["--hosts", str(self._write_hosts(contestant.way, ranks)), "--ssh-config", str(config)]
        secure = ["--insecure"] if contestant.insecure else []
        return [*self._machines.launcher, *OOC, "launch", *hosts, *secure, "--", *train]

    def _train(self, contestant: RingContestant, ranks: int) -> list[str]:
        settings = self._settings
        data, run = (self._data.whole, RUN.format(rank=0)) if ranks == 1 else (self._data.shards(ranks), RUN)
        options: dict[str, Any] = {"sampler": "two-phase", "workers": 1, "memory": settings.memory}
        options |= {name: getattr(settings, name) for name in ("topics", "iterations")}
        options["evaluate-every"] = settings.iterations
        if contestant.way != "train":
            options["staleness"] = contestant.staleness
        told = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return ["train", "lda", str(data), run, *told]

    def _held_out(self, run: Path) -> float:
        command = [*OOC, "evaluate", str(run), str(self._data.held_out), "--json"]
        told = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        return float(json.loads(told)["predictive_log_likelihood_per_token"])


def watch_ranks(process: subprocess.Popen[bytes], ranks: int) -> list[int]:
    """Wait for a process; returns the peak memory of each rank's processes among its descendants."""
    most = [0] * ranks
    while process.poll() is None:
        began = time.monotonic()
        known = _of_ranks()
        sizes = [held_memory(known.get(rank, [])) for rank in range(ranks)]
        if known == _of_ranks():  # see benchmarks.measure.watch
            most = [max(pair) for pair in zip(most, sizes, strict=True)]
        time.sleep(max(SAMPLE_S, 30 * (time.monotonic() - began)))
    return most


def _of_ranks() -> dict[int, list[int]]:
    """Return the descendants of this process that were started by the interpreter of each rank."""
    found: dict[int, list[int]] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            rank = process.environ().get(OF_RANK)
            if rank is not None and process.status() != psutil.STATUS_ZOMBIE:
                found.setdefault(int(rank), []).append(process.pid)
        except psutil.Error:
            continue
    return found
