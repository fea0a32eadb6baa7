"""The command line in tests: the type of the fixture `ooc`, and what a refusal looks like."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Ooc = Callable[..., subprocess.CompletedProcess[str]]


def assert_refused(done: subprocess.CompletedProcess[str], said: str) -> None:
    """Exit code 2, one line that says what is wrong, at most one more that says what to do, no traceback."""
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
