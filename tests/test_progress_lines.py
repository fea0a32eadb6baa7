"""What commands say on standard error while they work: lines where there is no terminal, as text and as JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import termios
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import Ooc
from long_mark import long_but
from make_old_files import write_inputs

# Lines come more often, so that short commands have some.
OFTEN = """
import sys
import blocks.progress_bar
blocks.progress_bar.INTERVAL = 0.001
import ooc.cli
ooc.cli.main()
"""
LINE = re.compile(
    r"(?P<step>[a-z ]+): (?P<done>[\d,]+)(?: of (?P<total>[\d,]+))? (?P<units>[a-zA-Z]+)(?: \((?P<share>\d+)%\))?"
    r"(?:, [\d,.]+ [\w/]+)?, \d+:\d\d:\d\d so far(?:, \d+:\d\d:\d\d left)?(?:; .*)?"
)
INGEST = ["ingest jsonl texts.jsonl corpus --workers 1", "ingest svmlight numbers.svm design"]
LDA = "train lda corpus run --topics 3 --workers 1 --sampler two-phase --iterations 300"


def often(directory: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """A command that tells of its progress a thousand times a second."""
    command = [sys.executable, "-c", OFTEN, *map(str, words)]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def progress(lines: list[str]) -> dict[str, list[re.Match[str]]]:
    """The lines that tell of progress, by their step, in the order of the steps."""
    found: dict[str, list[re.Match[str]]] = {}
    for match in filter(None, map(LINE.fullmatch, lines)):
        found.setdefault(match["step"], []).append(match)
    return found


def count(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.fixture(scope="module")
def made(made_once, ooc_in) -> Path:
    def make(directory: Path) -> None:
        write_inputs(directory)
        for command in [*INGEST, LDA]:
            done = ooc_in(directory)(*command.split())
            assert done.returncode == 0, done.stderr
            assert not progress(done.stderr.splitlines()), "a command of less than a minute"
        assert not re.search("so far", (directory / "run" / "log.txt").read_text())

    return made_once("progress-lines", make)


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """What was made, and room for more."""
    for each in made.iterdir():
        (tmp_path / each.name).symlink_to(each)
    return tmp_path


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("command", "step", "units"),
    [
        ("ingest jsonl texts.jsonl new --workers 1", "writing", "blocks"),
        pytest.param("ingest svmlight numbers.svm new", "reading", "MB", marks=pytest.mark.long),
        (LDA.replace("run", "new"), "training", "iterations"),
        pytest.param("train lasso design new --path 30 --workers 1", "training", "lambdas", marks=pytest.mark.long),
        pytest.param(
            "train lasso design new --lambda-ratio 0.1 --schedule cyclic --workers 1",
            "training",
            "passes",
            marks=pytest.mark.long,
        ),
        pytest.param("infer run corpus mixtures.csv --workers 1", "infer", "parts", marks=pytest.mark.long),
        ("evaluate run corpus --workers 1", "evaluate", "parts"),
    ],
)
def test_long_steps_are_told_of(command: str, step: str, units: str, place: Path) -> None:
    done = often(place, *command.split())
    assert done.returncode == 0, done.stderr
    told = progress(done.stderr.splitlines())
    assert step in told, done.stderr
    for line in told[step]:
        assert line["units"] in (units, units.removesuffix("s"))  # of one there is "1 of 1 part"
        if line["total"]:
            assert 0 <= count(line["done"]) <= count(line["total"])
    amounts = [count(line["done"]) for line in told[step]]
    assert amounts == sorted(amounts)
    silent = often(place, *command.replace("new", "other").replace("mixtures", "more").split(), "--quiet")
    assert silent.returncode == 0
    assert all(line.startswith("warning: ") for line in silent.stderr.splitlines())


@pytest.mark.long
@pytest.mark.parametrize("quiet", long_but([["--quiet"]], [[], ["--quiet"]]))
def test_the_log_of_a_run_has_the_same_lines(quiet: list[str], place: Path) -> None:
    done = often(place, *LDA.replace("run", "new").split(), *quiet)
    assert done.returncode == 0, done.stderr
    logged = [line.partition(" ") for line in (place / "new" / "log.txt").read_text().splitlines()]
    told = progress([line for _, _, line in logged])
    assert told["training"][-1]["total"] == "300"
    assert all(datetime.fromisoformat(time).tzinfo for time, _, _ in logged)
    said = [line for line in done.stderr.splitlines() if LINE.fullmatch(line) and not line.startswith("start")]
    assert said == ([] if quiet else [line[0] for line in told["training"]])


def test_a_terminal_has_a_bar_and_the_log_has_lines(place: Path) -> None:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    command = [sys.executable, "-c", OFTEN, *LDA.replace("run", "new").split()]
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        with subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=theirs) as process:
            os.close(theirs)
            shown = b""
            while chunk := read(terminal):
                shown += chunk
        assert process.returncode == 0, shown
    assert b"training: 100%" in shown
    assert b"so far" not in shown
    assert "so far" in (place / "new" / "log.txt").read_text()


def read(terminal: Any) -> bytes:
    """What comes next; nothing once the other side has closed it."""
    try:
        return terminal.read(4096)
    except OSError:
        return b""


def objects(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """Standard error, of which each line is to be a JSON object with what all have."""
    found = [json.loads(line) for line in done.stderr.splitlines()]
    for said in found:
        assert datetime.fromisoformat(said["time"]).utcoffset() is not None
        assert said["level"] in ("info", "warning", "error")
        assert said["message"]
    return found


def test_all_that_is_said_can_be_json(place: Path) -> None:
    done = often(place, *LDA.replace("run", "new").split(), "--log-format", "json")
    assert done.returncode == 0, done.stderr
    said = objects(done)
    assert any(each["message"].startswith("training on ") for each in said)
    training = [each for each in said if each.get("step") == "training"]
    assert {each["level"] for each in training} == {"info"}
    for each in training:
        assert (each["total"], each["unit"]) == (300, "iteration")
        assert LINE.fullmatch(each["message"])
        if each["left_s"]:
            most = (each["total"] - each["done"]) / each["rate"]
            assert 0 <= each["left_s"] <= most + 0.1  # rounded
    assert any(each["rate"] for each in training)


def test_warnings_and_failures_are_json(made: Path, ooc_in: Any) -> None:
    ooc = ooc_in(made)
    warned = ooc("train", "lasso", "design", made / "lasso", "--path", 3, "--log-format=json", "--overwrite")
    assert warned.returncode == 0, warned.stderr
    assert [each["message"] for each in objects(warned) if each["level"] == "warning"] == [
        "column 2 has the same value in all rows and the coefficient 0"
    ]
    text = ooc("info", "nowhere")
    for words in (["info", "nowhere"], ["--debug", "info", "nowhere"]):
        failed = ooc(*words, "--log-format", "json")
        (said,) = objects(failed)
        assert (said["level"], said["exit_code"], failed.returncode) == ("error", 2, 2)
        assert text.stderr.splitlines() == [f"ooc: {said['message']}", said["remedy"]]
        assert ("Traceback" in said.get("traceback", "")) == (words[0] == "--debug")
    (said,) = objects(ooc("train", "lda", "corpus", "x", "--topcs", 3, "--log-format", "json"))
    assert "did you mean --topics?" in said["message"]
    refused = ooc("info", "corpus", "--log-format", "xml")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        2,
        "ooc: --log-format must be text or json, got 'xml'",
    )


def test_the_format_can_come_from_a_file(place: Path, ooc: Ooc) -> None:
    (place / "mine.toml").write_text('log-format = "json"\ntopics = 3\niterations = 2\n')
    done = ooc("train", "lda", "corpus", "new", "--config", "mine.toml")
    assert done.returncode == 0
    assert objects(done)
    assert "log-format" not in (place / "new" / "options.toml").read_text()


@pytest.mark.long
def test_what_workers_say_is_json(place: Path, tmp_path: Path) -> None:
    """That kernels are compiled, in a cache without any; by an interpreter that is started before options are read."""
    command = [sys.executable, "-m", "ooc", "ingest", "jsonl", "texts.jsonl", "json", "--log-format", "json"]
    environment = {**os.environ, "OOC_CACHE_DIR": str(tmp_path / "kernels"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=True)
    assert [said["message"] for said in map(json.loads, done.stderr.splitlines())] == [
        "compiling kernels; the first run of each command on this machine takes up to a minute longer"
    ]
