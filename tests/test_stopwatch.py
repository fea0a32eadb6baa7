"""Seconds by their purpose."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ooc.workers import stopwatch
from ooc.workers.stopwatch import Stopwatch


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let so many seconds pass, and none otherwise."""
    now = [100.0]
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: now[0])

    def passing(seconds: float) -> None:
        now[0] += seconds

    return passing


def test_the_innermost_purpose_counts(passes):
    """Also after an error, and across `take`, in the middle of a purpose."""
    watch = Stopwatch()
    passes(1)
    with pytest.raises(ValueError), watch.on("outer"):
        passes(2)
        with watch.on("inner"):
            passes(4)
            assert watch.take() == {"outer": 2, "inner": 4}
            with watch.rather("innermost"):
                passes(8)
            raise ValueError
    passes(16)
    assert watch.take() == {"inner": 0, "innermost": 8, "outer": 0}


def test_nothing_is_counted_instead_of_nothing(passes):
    watch = Stopwatch()
    with watch.rather("waiting"):
        passes(1)
    assert watch.take() == {}


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not tell how long it waited")
def test_a_process_stands_still_while_it_sleeps_and_not_while_it_computes():
    program = """
import time
from ooc.workers.stopwatch import still_seconds

start = still_seconds()
time.sleep(0.3)
slept = still_seconds()
until = time.process_time() + 0.3
while time.process_time() < until:
    pass
print(slept - start, still_seconds() - slept)
"""
    asleep, computing = map(float, subprocess.check_output([sys.executable, "-c", program]).split())
    assert asleep >= 0.29
    assert computing < 0.29
