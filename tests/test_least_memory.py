"""The least memory that `ooc ingest` names suffices: the same command with it succeeds, and holds no more."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow
import pyarrow.parquet
import pytest
from long_mark import long_but

from blocks.memory import held_memory

WORDS = 90_000


def write_text(path: Path) -> None:
    """Documents of 100 words, each of which is another one."""
    path.write_text("".join(f"word{number}{' ' if (number + 1) % 100 else chr(10)}" for number in range(WORDS)))


def write_records(path: Path) -> None:
    texts = (" ".join(f"word{number}" for number in range(first, first + 100)) for first in range(0, WORDS, 100))
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def write_table(path: Path) -> None:
    write_text(path)
    path.write_text(f"text\n{path.read_text()}")


def write_bags(path: Path) -> None:
    lines = [f"{number // 100 + 1} {number + 1} 2\n" for number in range(WORDS)]
    path.write_text("".join([f"{WORDS // 100}\n{WORDS}\n{WORDS}\n", *lines]))


def write_ratings(path: Path) -> None:
    lines = (f"u{number},i{number % (WORDS // 2)},{number % 5 + 1}\n" for number in range(WORDS))
    path.write_text("".join(["userId,movieId,rating\n", *lines]))


def write_svmlight(path: Path) -> None:
    """A design of many columns: a count of each stands in every worker."""
    path.write_text("".join(f"{row % 2} {100 * row + 1}:1.5 {100 * row + 7}:2\n" for row in range(6000)))


def write_market(path: Path) -> None:
    lines = "".join(f"{row} {100 * row} 1.5\n" for row in range(1, 6001))
    path.write_text(f"%%MatrixMarket matrix coordinate real general\n6000 600000 6000\n{lines}")


def write_numbers(path: Path) -> None:
    rows = "".join(f"{row % 7}.5{',1.25' * 40}\n" for row in range(5000))
    path.write_text(f"y{''.join(f',x{column}' for column in range(40))}\n{rows}")


def write_arrays(path: Path) -> None:
    np.savez(path, X=np.random.default_rng(0).normal(size=(100, 30_000)))


def write_parquet(path: Path, **columns: Any) -> None:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def write_rating_rows(path: Path) -> None:
    numbers = np.arange(10 * WORDS)
    users = np.char.add("user ", (numbers % WORDS).astype(str))
    write_parquet(path, user=users, item=numbers * 7 % (WORDS // 2), rating=numbers % 5 + 0.5)


def write_text_rows(path: Path) -> None:
    write_parquet(path, text=[" ".join(f"word{first + word}" for word in range(100)) for first in range(0, WORDS, 100)])


def write_number_rows(path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(400, 5000))
    write_parquet(path, y=values[0], **{f"x{number}": column for number, column in enumerate(values)})


SOURCES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "text": ("text --lines in.txt out", write_text),
    "jsonl": ("jsonl in.jsonl out", write_records),
    "csv": ("csv in.csv out", write_table),
    "uci": ("uci docword.txt out", write_bags),
    "ratings": ("ratings in.csv out", write_ratings),
    "svmlight": ("svmlight in.svm out", write_svmlight),
    "mtx": ("mtx in.mtx out", write_market),
    "table": ("csv in.csv out --target y", write_numbers),
    "npz": ("npz in.npz out", write_arrays),
    "rows of ratings": ("ratings in.parquet out", write_rating_rows),
    "rows of text": ("csv in.parquet out", write_text_rows),
    "rows of numbers": ("csv in.parquet out --target y", write_number_rows),
    "synthetic": ("synthetic out --documents 2000 --vocabulary 5000 --topics 10", lambda _: None),
}


def stated(refused: subprocess.CompletedProcess[str]) -> str:
    """The memory that suffices, as a refusal names it."""
    assert refused.returncode == 2, refused.stderr
    found = re.search(r"it must be at least (\d+MiB)", refused.stderr)
    assert found, refused.stderr
    return found[1]


def most_held(command: list[str], cwd: Path) -> tuple[int, str]:
    """Run a command that must succeed; returns the most bytes that its processes held, and standard error."""
    most = 0
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            tree = [watched, *watched.children(recursive=True)]
            most = max(most, held_memory([one.pid for one in tree]))
            time.sleep(0.01)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 0, said
    return most, said


EVERY = [*((source, 1) for source in SOURCES), ("text", 2), ("ratings", 2)]
QUICK = [("text", 2), ("svmlight", 1)]


@pytest.mark.few(1)
@pytest.mark.parametrize(("source", "workers"), long_but(QUICK, EVERY))
def test_the_least_memory_that_is_named_suffices(tmp_path: Path, ooc, source: str, workers: int) -> None:
    arguments, write = SOURCES[source]
    command = ["ingest", *arguments.split(), "--workers", str(workers), "--memory"]
    write(tmp_path / next((word for word in command if "." in word), "none"))
    least = stated(ooc(*command, "1MB"))
    most, _ = most_held([sys.executable, "-m", "ooc", *command, least], tmp_path)
    assert most < int(least.removesuffix("MiB")) << 20


@pytest.mark.long
@pytest.mark.parametrize("kind", long_but(["text --lines"], ["text --lines", "svmlight"]))
def test_what_names_or_columns_take_is_told_once_they_are_read(tmp_path: Path, ooc, kind: str) -> None:
    """So much suffices: nobody has to try one size after the other."""
    lines = (f"1 {2500 * row + 2500}:1\n" for row in range(1000))
    words = (f"w{number:x}{' ' if (number + 1) % 100 else chr(10)}" for number in range(400_000))
    (tmp_path / "in").write_text("".join(lines if kind == "svmlight" else words))
    command = ["ingest", *kind.split(), "in", "out", "--workers", "1", "--memory"]
    first = stated(ooc(*command, "1MB"))
    second = stated(ooc(*command, first))
    assert second != first
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]
    most, _ = most_held([sys.executable, "-m", "ooc", *command, second], tmp_path)
    assert most < int(second.removesuffix("MiB")) << 20
