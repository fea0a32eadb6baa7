"""Seconds by their purpose."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ooc import stopwatch
from ooc.stopwatch import Stopwatch


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
