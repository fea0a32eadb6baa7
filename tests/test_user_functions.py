"""The functions of programs are read by ranks in threads of one process."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
from rings import in_all

from ooc.user_functions import read
from samplers.lda.splash import SplashLda

THREADS, TIMES = 4, 60


class CollectedObject:
    """What only the collector removes, in whose last moments another thread may go on."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(200):
            pass


@pytest.fixture
def threads_take_turns_often() -> Iterator[None]:
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


@pytest.mark.long
def test_threads_read_functions_at_the_same_time(threads_take_turns_often):
    """Each as deep in calls as no other: so Python can tell that it has mixed up their trees, with a SystemError."""

    def found_below(deeper: int) -> set[str]:
        if deeper:
            return found_below(deeper - 1)
        found = set()
        for _ in range(TIMES):
            _ = [CollectedObject() for _ in range(30)]
            found.add(read(SplashLda, "process").name)
        return found

    assert in_all([lambda n=n: found_below(n) for n in range(THREADS)]) == [{"process"}] * THREADS
