"""The contestants of the benchmark of rings: how each is started, and what it leaves."""

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
from benchmarks.namespaces import Machines
from benchmarks.ring_corpora import OOC, Data
from benchmarks.ring_transport import mpiexec
from blocks.memory import held

RUN = "run-{rank}"


class Contestant(NamedTuple):
    """way: "train", without a ring; "launch", a machine for each rank; "loopback", all at one machine; or "mpi"."""

    name: str
    way: str
    one: bool = False  # rank
    insecure: bool = False
    staleness: int = 1


CONTESTANTS = {
    "machine": Contestant("one machine", "train", one=True),
    "one": Contestant("a ring of one", "launch", one=True),
    "ring": Contestant("a ring", "launch"),
    "bulk": Contestant("a ring, staleness 0", "launch", staleness=0),
    "tcp": Contestant("TCP on loopback", "loopback"),
    "plain": Contestant("plain TCP on loopback", "loopback", insecure=True),
    "mpi": Contestant("MPI on loopback", "mpi"),
}


class Settings(NamedTuple):
    """What every contestant is told. ranks: of those that have several. memory: of a rank."""

    ranks: int
    topics: int
    iterations: int
    memory: str


class Runs:
    """Trainings of the same documents. Rank r is pinned to core r, with all its processes."""

    def __init__(self, machines: Machines, data: Data, settings: Settings) -> None:
        self._machines, self._data, self._settings = machines, data, settings
        self._cores = sorted(os.sched_getaffinity(0))[: settings.ranks]
        self._log = machines.folder / "log.txt"
        self._pythons = [self._python(core) for core in self._cores]
        for way in ("launch", "loopback"):
            self._write_hosts(way)

    def _python(self, core: int) -> Path:
        """An interpreter with these sources that stays on a core."""
        path = self._machines.folder / f"python-{core}"
        path.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec taskset -c {core} {sys.executable} "$@"\n')
        path.chmod(0o755)
        return path

    def _write_hosts(self, way: str) -> None:
        lines = []
        for rank, python in enumerate(self._pythons):
            number, address = (0, "address=127.0.0.1") if way == "loopback" else (rank, "")
            name, place = self._machines.names[number], self._machines.places[number]
            lines.append(f"{name} python={python} dir={place} {address}\n")
        for ranks in (1, len(lines)):
            (self._machines.folder / f"{way}-{ranks}.txt").write_text("".join(lines[:ranks]))

    def run(self, contestant: Contestant) -> dict[str, Any]:
        """Train and evaluate; returns lines of the metrics, the most that each rank held, the held-out likelihood."""
        ranks, home = 1 if contestant.one else self._settings.ranks, self._machines.places[0]
        with self._log.open("wb") as log:
            command = self._command(contestant, ranks)
            process = subprocess.Popen(command, cwd=home, env=os.environ | ONE_THREAD, stdout=log, stderr=log)
            try:
                held_bytes = watch_ranks(process, self._cores[:ranks])
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

    def _command(self, contestant: Contestant, ranks: int) -> list[str]:
        train = self._train(contestant)
        if contestant.way == "train":
            return [str(self._pythons[0]), "-m", "cli", *train]
        if contestant.way == "mpi":
            each = [["-n", "1", str(python), "-m", "cli", *train, "--transport", "mpi"] for python in self._pythons]
            return [str(mpiexec()), *each[0], *(word for rank in each[1:] for word in (":", *rank))]
        folder = self._machines.folder
        hosts = ["--hosts", str(folder / f"{contestant.way}-{ranks}.txt"), "--ssh-config", str(folder / "config")]
        secure = ["--insecure"] if contestant.insecure else []
        return [*self._machines.launcher, *OOC, "launch", *hosts, *secure, "--", *train]

    def _train(self, contestant: Contestant) -> list[str]:
        settings = self._settings
        data, run = (self._data.whole, RUN.format(rank=0)) if contestant.one else (self._data.shards, RUN)
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


def watch_ranks(process: subprocess.Popen[bytes], cores: list[int]) -> list[int]:
    """Wait for a process; returns the most bytes that those below this one held which are pinned to each core."""
    most = [0] * len(cores)
    while process.poll() is None:
        began = time.monotonic()
        pinned = _pinned()
        sizes = [held(pinned.get(core, [])) for core in cores]
        if pinned == _pinned():  # see benchmarks.measure.watch
            most = [max(pair) for pair in zip(most, sizes, strict=True)]
        time.sleep(max(SAMPLE_S, 30 * (time.monotonic() - began)))
    return most


def _pinned() -> dict[int, list[int]]:
    """The processes below this one that are pinned to a core, by core."""
    found: dict[int, list[int]] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            cores = process.cpu_affinity()
            if len(cores) == 1 and process.status() != psutil.STATUS_ZOMBIE:
                found.setdefault(cores[0], []).append(process.pid)
        except psutil.Error:
            continue
    return found
