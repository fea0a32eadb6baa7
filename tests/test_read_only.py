"""Commands that only read write nothing: on a file system that is read-only, whatever they find."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Ooc
from corpora import tree
from long_mark import long_but

READING = [
    "info corpus",
    "info run --json",
    "verify corpus",
    "verify run",
    "topics run --documents 2",
    "evaluate run corpus",
    "plan corpus --topics 5",
    "report run -o ../page.html",
    "curves run -o ../curves.svg",
    "infer run corpus ../mixtures.npz",
    "export run ../model.npz --format npz",
    "watch run",
]
WRITING = [
    "resume run --iterations 8",
    "train lda corpus new --topics 2 --iterations 2",
    "train lda corpus run --topics 2 --iterations 2 --overwrite",
    "ingest text texts.txt new --lines",
    "ingest text texts.txt corpus --lines --append",
    "ingest text texts.txt corpus --lines --overwrite",
    "export run model.npz --format npz",
    "infer run corpus mixtures.csv",
    "report run -o page.html",
    "curves run -o curves.svg",
    "shard corpus shards --shards 2",
    "clean run --state",
]
ONLY_READ = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && shift 0 && cd "$0" && exec "$@"'


@pytest.fixture
def place(tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> Path:
    """A directory with a dataset and a run that has a state."""
    folder = tmp_path / "mount"
    folder.mkdir()
    (folder / "texts.txt").write_text("apple pear plum apple pear plum\nball goal team ball goal team\n" * 20)
    for command in (
        "ingest text texts.txt corpus --lines",
        "train lda corpus run --topics 2 --iterations 4 --workers 1",
    ):
        done = ooc_in(folder)(*command.split())
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def read_only(place: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """The command line where the directory is mounted read-only."""

    def run(command: str) -> subprocess.CompletedProcess[str]:
        words = ["unshare", "--map-root-user", "--mount", "sh", "-c", ONLY_READ, str(place), *command.split()]
        environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
        return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)

    if not shutil.which("unshare") or run("true").returncode != 0:
        pytest.skip("NOTHING IS MOUNTED READ-ONLY: this user may not mount here")
    assert run("touch file").returncode != 0
    return run


@pytest.mark.long
def test_they_work_where_nothing_can_be_written(
    place: Path, read_only: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    before = tree(place)
    for command in READING:
        done = read_only(f"{sys.executable} -m ooc {command}")
        assert done.returncode == 0, (command, done.stderr)
    assert tree(place) == before


@pytest.mark.long
def test_what_writes_says_in_a_line_that_it_cannot(
    place: Path, read_only: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    before = tree(place)
    for command in WRITING:
        done = read_only(f"{sys.executable} -m ooc {command}")
        assert done.returncode == 2, (command, done.stderr)
        what, remedy = done.stderr.splitlines()[-2:]
        assert what.startswith("ooc: "), (command, done.stderr)
        assert what.endswith(": the file system is read-only"), (command, done.stderr)
        assert remedy == "Choose a directory on another file system, or mount this one writable."
        assert "Traceback" not in done.stderr
    assert tree(place) == before


@pytest.mark.long
@pytest.mark.parametrize(
    "lost",
    long_but(
        ["state/manifest.json"],
        ["state/manifest.json", "state/000001.json", "state/000001.cells", "state", "metrics.jsonl"],
    ),
)
def test_they_leave_what_is_damaged_as_it_is(place: Path, ooc_in: Callable[[Path], Ooc], lost: str) -> None:
    """Found or not: deciding what to do about it is another command's."""
    victim = place / "run" / lost
    shutil.rmtree(victim) if victim.is_dir() else victim.unlink(missing_ok=True)
    before = tree(place)
    for command in READING:
        done = ooc_in(place)(*command.split())
        assert done.returncode in (0, 1, 2), (command, done.stderr)
        assert "bug in ooc" not in done.stderr, (command, done.stderr)
    assert tree(place) == before
