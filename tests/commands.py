"""Command line in tests: type of the fixture `ooc`, and checks of refusals."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Ooc = Callable[..., subprocess.CompletedProcess[str]]


def assert_refused(done: subprocess.CompletedProcess[str], said: str) -> None:
    """Check exit code 2, one line with the problem, at most one line with a remedy, and no traceback."""
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
