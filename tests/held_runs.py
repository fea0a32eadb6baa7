"""A training that is stopped within an iteration, and checks of commands run meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from processes import until
from sudden_ends import OocProcess

ITERATIONS = 60
TRAIN = f"train lda corpus run --topics 3 --sampler two-phase --workers 1 --iterations {ITERATIONS} --seed"


def stopped(group: int) -> bool:
    """Return whether all processes of a group are stopped."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, leader = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [state] if int(leader) == group else []
    return all(state in "TZ" for state in found)


@contextmanager
def held(place: Path) -> Iterator[OocProcess]:
    """Yield a run that is stopped within an iteration until the end of the context."""
    process = OocProcess(place, f"{TRAIN} 5")
    try:
        until((place / "run" / "metrics.jsonl").exists)
        os.killpg(process.pid, signal.SIGSTOP)
        until(lambda: stopped(process.pid))
        assert len((place / "run" / "metrics.jsonl").read_bytes().splitlines()) < ITERATIONS
        yield process
    finally:
        os.killpg(process.pid, signal.SIGCONT)
        process.code = process.wait()
        process.end()


def assert_plain(what: object, code: int | None, message: str) -> None:
    """Check that a command has succeeded, or has printed one line with the problem and one with a remedy."""
    assert code in (0, 1, 2), (what, code, message)
    assert "Traceback" not in message and "bug in ooc" not in message, (what, message)
    lines = [line for line in message.splitlines() if line.startswith("ooc: ")]
    assert len(lines) == bool(code), (what, code, message)
    assert not code or len(message[message.index("ooc: ") :].splitlines()) >= 2, (what, code, message)
