"""A file system that is full: commands that write say so in a line, with exit code 1, and leave nothing on it."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_all
from long_mark import long_but

MOUNTED = 'mount -t tmpfs -o size=48k tmpfs "$0" && { "$@"; code=$?; ls -A "$0" >&3; exit $code; } 3>"$0.left"'
SHORT = """
import sys
from pathlib import Path
import numpy as np
from blocks.files import publish_file
from ooc.cli.console import explain_error
try:
    with publish_file(Path("full/out")) as beside:
        np.zeros(1 << 20).tofile(beside)
except Exception as error:
    print(*explain_error(error)[:2], sep="\\n", file=sys.stderr)
    sys.exit(explain_error(error).code)
"""
EXPORTS = ["npz", "scipy", "parquet", "pyldavis", "gensim"]
COMMANDS = {
    **{f"export {name}": f"export model full/out --format {name}" for name in EXPORTS},
    **{f"mixtures {ending}": f"export model full/out.{ending} --format mixtures" for ending in ("npz", "csv", "jsonl")},
    "import": "import mallet state.gz full/out",
    "ingest": "ingest text --lines texts.txt full/out --workers 1",
    "shard": "shard corpus full/out --shards 2",
    "train": "train lda corpus full/out --topics 40 --iterations 1 --workers 1 --sampler gibbs",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, ooc_in) -> Path:
    """A directory with a model of 40 topics and a corpus of its words."""
    path = tmp_path_factory.mktemp("full")
    words = [[f"word{(31 * document + 7 * place) % 5000}" for place in range(20)] for document in range(800)]
    (path / "texts.txt").write_text("".join(" ".join(line) + "\n" for line in words))
    lines = ["#doc source pos typeindex type topic", f"#alpha : {'0.1 ' * 40}", "#beta : 0.01"]
    numbers: dict[str, int] = {}
    for document, line in enumerate(words):
        for at, word in enumerate(line):
            lines.append(f"{document} NA {at} {numbers.setdefault(word, len(numbers))} {word} {(document + at) % 40}")
    with gzip.open(path / "state.gz", "wt") as file:
        file.write("\n".join([*lines, ""]))
    run_all(ooc_in(path), ("import mallet state.gz model", "ingest text --lines texts.txt corpus --stop-words none"))
    (path / "full").mkdir()
    return path


@pytest.fixture
def full(place: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program with a tmpfs of 48 kB at `full`."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNTED, str(place / "full"), *words]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, env=environment)

    if not shutil.which("unshare") or run("true").returncode != 0:
        pytest.skip("NO DISK IS FULL: this user may not mount here")
    return run


def check_told(done: subprocess.CompletedProcess[str], where: str) -> None:
    assert done.returncode == 1, done.stderr
    what, remedy = done.stderr.splitlines()[-2:]
    assert where in what
    assert "the disk is full" in what
    assert "run the same command again" in remedy or "ooc resume" in remedy


@pytest.mark.few(1)
@pytest.mark.parametrize("name", long_but(["ingest", "train", "shard", "export npz"], COMMANDS))
def test_it_is_told_and_nothing_is_left(place: Path, full, name: str) -> None:
    if name == "export gensim":
        pytest.importorskip("gensim")
    check_told(full(sys.executable, "-m", "ooc", *COMMANDS[name].split()), "full/")
    assert (place / "full.left").read_text() == ("out\n" if name == "train" else "")  # a run, to go on with


def test_a_library_that_does_not_say_why_it_wrote_less(place: Path, full) -> None:
    """numpy's `tofile`, by which gensim saves large arrays: "1048576 requested and 12288 written"."""
    check_told(full(sys.executable, "-c", SHORT), "full/out")
    assert (place / "full.left").read_text() == ""


@pytest.mark.few(2)
@pytest.mark.parametrize("command", ["info corpus", "topics model", "topics model --json"])
def test_standard_output_on_a_full_disk(place: Path, command: str) -> None:
    with Path("/dev/full").open("w") as output:
        words = [sys.executable, "-m", "ooc", *command.split()]
        done = subprocess.run(
            words, cwd=place, stdout=output, stderr=subprocess.PIPE, text=True, check=False, env=os.environ
        )
    check_told(done, "standard output")
