"""Pipes and standard streams as inputs and outputs of the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest
from long_mark import long_but

from blocks import Dataset


def test_pipes_are_read_by_the_process_that_has_them(tmp_path):
    """`<(command)` of a shell is a path that no other process can open."""
    (tmp_path / "in.txt").write_text("fig pear\nplum\n")
    for kind in (["text", "--lines"], ["text"]):
        words = [sys.executable, "-m", "ooc", "ingest", *kind, "<(cat in.txt)", "out", "--overwrite"]
        done = subprocess.run(
            ["bash", "-c", " ".join(words)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert f"out: {'2 documents' if '--lines' in kind else '1 document'}, " in done.stdout


@pytest.mark.parametrize("closed", long_but(["<&- >&- 2>&-"], ["<&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"]))
def test_standard_streams_may_be_closed(tmp_path, closed):
    (tmp_path / "in.txt").write_text("fig pear\nplum\n")
    words = f"{sys.executable} -m ooc ingest text in.txt out --lines {closed}"
    done = subprocess.run(["bash", "-c", words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert Dataset(tmp_path / "out").documents == 2
    assert ("2 documents" in done.stdout) == (">&- 2" not in closed)


def test_standard_input_may_be_closed(tmp_path):
    words = f"{sys.executable} -m ooc ingest text - out <&-"
    done = subprocess.run(["bash", "-c", words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "ooc: standard input is closed")
