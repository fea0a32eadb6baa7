"""Run one rank in a Dask task: a separate process, whose log and metrics are sent to the client."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from ooc.launch.supervised_command import run_supervised
from ooc.runs.metrics import parse_metrics_line
from ooc.runs.start_command import run_identity

_TRANSIENT = re.compile(  # messages of `RingFailed`, of `RunInUse`, and of a port that was taken since it was chosen
    r"rank \d+ \([^)]*\) |.* is in use by process \d+$|--rendezvous .* rank 0 cannot listen on this port"
)
_LAST_WORDS = 2.0  # seconds to read the output of a process that has ended
_NEW_LINES = 1.0  # seconds between checks for new metrics


class RankTask(NamedTuple):
    """Description of the rank that a task runs.

    topic: topic of the Dask events that the client receives.
    run: run directory, with the placeholder {rank}.
    key: shared key of all ranks, as hexadecimal digits.
    """

    topic: str
    words: Sequence[str]
    run: str
    rank: int
    ranks: int
    meeting: str
    key: str
    patience: float
    join_timeout: float

    def __repr__(self) -> str:
        return f"RankTask({self.rank} of {self.ranks})"  # keep the key out of logs


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


def run_rank(task: RankTask) -> dict[str, Any]:
    """Run a rank to its end; returns its exit code, and its error or, on rank 0, its result.

    "transient" says whether a restart may succeed: another rank caused the error, an earlier process has not exited, or
    the port was taken. "begun" says whether there is a run that can be continued.
    """
    from distributed import Event, get_worker

    worker, stop = get_worker(), Event(f"{task.topic}-stop")
    ended: dict[str, Any] = {"what": "", "remedy": "", "transient": False, "result": None}

    def tell(**event: Any) -> None:
        worker.log_event(task.topic, {"rank": task.rank, **event})

    def hear(line: str) -> None:
        tell(line=line)
        with suppress(ValueError, KeyError, TypeError):
            said = json.loads(line)
            if said["level"] == "error":
                ended.update(what=said["message"], remedy=said["remedy"])
                ended["transient"] = bool(_TRANSIENT.match(said["message"]))

    out: list[str] = []
    readers: list[threading.Thread] = []
    with _key_file(task.key) as key_file:
        told = {"rendezvous": task.meeting, "key-file": key_file, "ring-rank": task.rank, "ring-size": task.ranks}
        told |= {"join-timeout": task.join_timeout, "patience": task.patience}
        words = [*task.words, *(f"--{name}={value}" for name, value in told.items()), "--log-format=json", "--json"]
        run = Path(task.run.replace("{rank}", str(task.rank)))
        before = None if "--resume" in task.words else run_identity(run)
        metrics = (lambda line: tell(metrics=line)) if task.rank == 0 else None
        with _following(run / "metrics.jsonl", metrics):
            ended["code"] = run_supervised(
                words,
                started=lambda process: readers.extend(_read(process, out.append, hear)),
                is_stopped=stop.is_set,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[int(Path(key_file).name)],
            )
    ended["begun"] = run_identity(run) not in (None, before)
    for thread in readers:
        thread.join(_LAST_WORDS)
    tell(end=True)
    if task.rank == 0 and ended["code"] == 0:
        ended["result"] = json.loads("".join(out))
    return ended


def _read(
    process: subprocess.Popen[str], out: Callable[[str], None], log: Callable[[str], None]
) -> list[threading.Thread]:
    """Start threads that read the output of a process line by line, and return them."""

    def read(stream: Any, take: Callable[[str], None]) -> None:
        for line in stream:
            take(line.rstrip("\n"))

    pairs = ((process.stdout, out), (process.stderr, log))
    threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    return threads


@contextmanager
def _key_file(key: str) -> Iterator[str]:
    """Yield the path of a pipe from which a process that inherits its file descriptor can read the key once."""
    reading, writing = os.pipe()
    try:
        os.write(writing, key.encode())
        os.close(writing)
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)


@contextmanager
def _following(path: Path, tell: Callable[[dict[str, Any]], None] | None) -> Iterator[None]:
    """Call `tell` with each line that is added to the metrics file within the context."""
    over = threading.Event()
    before = path.stat().st_size if path.exists() else 0

    def follow(tell: Callable[[dict[str, Any]], None]) -> None:
        at, is_last = before, False
        while not is_last:
            is_last = over.wait(_NEW_LINES)
            with suppress(FileNotFoundError), path.open("rb") as file:
                at = min(at, os.fstat(file.fileno()).st_size)  # a resume drops the lines of iterations that it repeats
                file.seek(at)
                for line in file:
                    if line.endswith(b"\n"):
                        at += len(line)
                        if (values := parse_metrics_line(line)) is not None:
                            tell(values)

    if tell is None:
        yield
        return
    thread = threading.Thread(target=follow, args=[tell], daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
