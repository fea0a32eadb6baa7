"""Command line in tests: type of the fixture `ooc`, and checks of success and refusals."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable

Ooc = Callable[..., subprocess.CompletedProcess[str]]

INGEST = [  # the inputs of `make_old_files.write_inputs`
    "ingest jsonl texts.jsonl corpus --workers 1",
    "ingest ratings ratings.tsv ratings --workers 1",
    "ingest svmlight numbers.svm design",
    "ingest svmlight numbers.svm samples --by-rows",
]


def run_all(ooc: Ooc, commands: Iterable[str]) -> None:
    """Run commands one after the other, and check that each succeeds."""
    for command in commands:
        done = ooc(*command.split())
        assert done.returncode == 0, (command, done.stderr)


def assert_refused(done: subprocess.CompletedProcess[str], said: str) -> None:
    """Check exit code 2, one line with the problem, at most one line with a remedy, and no traceback."""
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
