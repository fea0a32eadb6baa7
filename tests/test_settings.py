"""What gives options their values: the command line, variables, a pipeline's file, the default: `ooc config show`."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Ooc
from corpora import tiny_dataset
from typer.main import get_command

from blocks.cache_directory import CHOSEN
from ooc.cli.app import app
from ooc.cli.command import command_options
from ooc.cli.session import choose
from ooc.cli.variables import forget_options, variable

PIPELINE = """
workers = 1
run = "run"
quiet = true
[ingest.jsonl]
inputs = ["texts.jsonl"]
out = "corpus"
stop-words = "none"
[train]
seed = 3
iterations = 9
[train.lda]
data = "corpus"
topics = 2
iterations = 2
[topics]
top = 1
[report]
output = "run.html"
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """But those that a test sets; where kernels are, stays."""
    for name in [name for name in os.environ if name.startswith("OOC_") and name != CHOSEN]:
        monkeypatch.delenv(name)


def shown(ooc: Ooc, *words: object, **variables: str) -> dict[str, Any]:
    """What `ooc config show` says of each option: its value, and where that comes from."""
    done = ooc("config", "show", *words, "--json", env=os.environ | variables)
    assert (done.returncode, done.stderr) == (0, "")
    return {
        name: (told["value"], told["where"] or told["source"])
        for name, told in json.loads(done.stdout)["options"].items()
    }


@pytest.mark.long
def test_one_file_serves_all_steps_of_a_pipeline(tmp_path: Path, ooc: Ooc) -> None:
    """Each takes its own options and arguments, and those of all that it knows."""
    (tmp_path / "texts.jsonl").write_text('{"text": "pear apple"}\n{"text": "ball goal ball"}\n' * 9)
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    for step in ("ingest jsonl", "train lda", "report"):
        done = ooc(*step.split(), "--config", "pipeline.toml")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), step
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["options"]["topics"], config["options"]["seed"], config["iterations"]) == (2, 3, 2)
    topics = json.loads(ooc("topics", "--config", "pipeline.toml", "--json").stdout)
    assert [len(topic["words"]) for topic in topics] == [1, 1]
    assert (tmp_path / "run.html").exists()
    done = ooc("resume", "run", "--config", "pipeline.toml", "--iterations", 3, "--json")
    assert json.loads(done.stdout)["iteration"] == 3


@pytest.mark.long
def test_the_nearest_counts(tmp_path: Path, ooc: Ooc) -> None:
    (tmp_path / "a.toml").write_text(PIPELINE)
    file = ("--config", "a.toml")
    assert shown(ooc, "train", "lda")["iterations"] == (100, "default")
    assert shown(ooc, "train", "mf", *file)["iterations"] == (9, "a.toml [train]")
    told = shown(ooc, "train", "lda", *file)
    assert told["iterations"] == (2, "a.toml [train.lda]")
    assert told["data"] == ("corpus", "a.toml [train.lda]")
    assert told["workers"] == (1, "a.toml")
    assert told["quiet"] == (True, "a.toml")
    assert told["beta"] == (None, "default")
    set_ = {"OOC_ITERATIONS": "7", "OOC_QUIET": "0", "OOC_CONFIG": "a.toml"}
    told = shown(ooc, "train", "lda", "--seed", 5, **set_)
    assert told["iterations"] == (7, "OOC_ITERATIONS")
    assert told["quiet"] == (False, "OOC_QUIET")
    assert told["seed"] == (5, "command line")
    assert told["topics"] == (2, "a.toml [train.lda]")
    assert shown(ooc, "train", "lda", "--iterations", 5, **set_)["iterations"] == (5, "command line")
    assert shown(ooc, "report", "mine", "-o", "x", *file)["run"] == ("mine", "command line")
    assert shown(ooc, "train", "lda", "--config", "a.toml", OOC_CONFIG="nowhere")["topics"][0] == 2


def test_filters_of_a_file_give_way_to_a_vocabulary(tmp_path: Path, ooc: Ooc) -> None:
    """They chose the vocabulary of the first dataset; with both on the command line, neither is left out."""
    (tmp_path / "texts.jsonl").write_text('{"text": "pear apple"}\n{"text": "apple"}\n')
    (tmp_path / "a.toml").write_text("min-df = 2\nmax-vocab = 3\n")
    ingest = ("ingest", "jsonl", "texts.jsonl")
    assert ooc(*ingest, "corpus", "--config", "a.toml").returncode == 0
    done = ooc(*ingest, "new", "--config", "a.toml", "--vocab-from", "corpus", "--json")
    assert (done.returncode, json.loads(done.stdout)["vocabulary"]) == (0, 1), done.stderr
    (tmp_path / "both.toml").write_text('min-df = 2\nvocab-from = "corpus"\n')
    for both in (["--vocab-from", "corpus", "--min-df", "2"], ["--config", "both.toml"]):
        refused = ooc(*ingest, "other", *both)
        assert (refused.returncode, "when the vocabulary is given" in refused.stderr) == (2, True)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "command", ["train lda --alpha 0.5,0.25 --topics 2", "ingest csv a b --drop x --drop y", "demo"]
)
def test_what_is_shown_is_a_file_of_options(command: str, tmp_path: Path, ooc: Ooc) -> None:
    """The same options count where it is given; and one can be put after the other."""
    words = command.split()
    text = ooc("config", "show", *words).stdout + ooc("config", "show", "topics", "run").stdout
    name = [word for word in words[:2] if word.isalpha()][: 1 if words == ["demo"] else 2]
    assert tomllib.loads(text)["topics"]["run"] == "run"
    (tmp_path / "shown.toml").write_text(text)
    before, after = shown(ooc, *words), shown(ooc, *name, "--config", "shown.toml")
    assert {key: value for key, (value, _) in after.items()} == {key: value for key, (value, _) in before.items()}


def test_what_is_shown_says_what_holds_without_a_value(ooc: Ooc) -> None:
    lines = ooc("config", "show", "train", "lda", "--seed", 3).stdout.splitlines()
    assert lines[0] == "[train.lda]"
    told = {line.rpartition("  # ")[0].strip(): line.rpartition("  # ")[2] for line in lines[1:]}
    assert told["seed = 3"] == "command line"
    assert told["# workers ="] == "default: all cores, or the CPU quota"
    assert told["# topics ="] == "not given"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("config show trian lda", "Did you mean 'train'?"),
        ("config show train ldo", "Did you mean 'lda'"),
        ("config show train", "ooc train: missing command"),
        ("config show train lda --topcs 3", "did you mean --topics?"),
        ("config show train lda --workers 0", "--workers"),
    ],
)
def test_what_cannot_be_shown(words: str, said: str, ooc: Ooc) -> None:
    done = ooc(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def run(directory: Path, ooc: Ooc, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    if not (directory / "corpus").exists():
        tiny_dataset(directory / "corpus", [[0, 1, 2, 2]] * 5, 3)
    return ooc(*words, env=os.environ | variables)


def test_variables_are_options(tmp_path: Path, ooc: Ooc) -> None:
    """Of every command that has them; an empty one is none."""
    set_ = {"OOC_MEMORY": "1GB", "OOC_TOPICS": "2", "OOC_ITERATIONS": "1", "OOC_JSON": "yes", "OOC_SEED": ""}
    done = run(tmp_path, ooc, "train", "lda", "corpus", "run", **set_)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["budget_bytes"] == 10**9
    assert json.loads(run(tmp_path, ooc, "info", "corpus", **set_).stdout)["tokens"] == 20


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OOC_WORKERS", "0", "Invalid value for OOC_WORKERS: "),
        ("OOC_QUIET", "maybe", "Invalid value for OOC_QUIET: "),
        ("OOC_MEMORY", "much", "OOC_MEMORY: 'much' is not a size"),
        ("OOC_CONFIG", "nowhere.toml", "nowhere.toml: there is no such file"),
        ("OOC_CONFIG", "wrong.toml", "OOC_CONFIG wrong.toml: unknown option --topcs; did you mean topics?"),
    ],
)
def test_a_wrong_value_names_its_variable(name: str, value: str, said: str, tmp_path: Path, ooc: Ooc) -> None:
    (tmp_path / "wrong.toml").write_text("topcs = 3")
    done = run(tmp_path, ooc, "train", "lda", "corpus", "run", "--topics", 2, **{name: value})
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "--memory" not in done.stderr
    assert not (tmp_path / "run").exists()
    counts = {"OOC_MEMORY": ["--memory", "1GB"], "OOC_WORKERS": ["--workers", 1]}.get(name)
    if counts:
        words = ["train", "lda", "corpus", "run", "--topics", 2, "--iterations", 1, *counts]
        assert run(tmp_path, ooc, *words, **{name: value}).returncode == 0


def test_a_misspelt_variable_is_told_of(tmp_path: Path, ooc: Ooc) -> None:
    """In one line; those of other commands, and of the cache of kernels, are known."""
    known = {"OOC_TOPICS": "3", "OOC_EXCLUDE_SEEN": "1", "OOC_DEBUG": "", CHOSEN: os.environ.get(CHOSEN, "")}
    assert run(tmp_path, ooc, "info", "corpus", "--quiet", **known).stderr == ""
    done = run(tmp_path, ooc, "info", "corpus", "--quiet", "--json", **known, OOC_MEMROY="1GB")
    assert (done.returncode, json.loads(done.stdout)["tokens"]) == (0, 20)
    assert (
        done.stderr
        == "warning: the environment variable OOC_MEMROY does not set any option of ooc; did you mean OOC_MEMORY?\n"
    )


def test_a_file_of_a_variable_is_for_all_commands(tmp_path: Path, ooc: Ooc) -> None:
    """Though it has no table; the same file of one command has to be right for this."""
    (tmp_path / "mine.toml").write_text("json = true\ntopics = 3\n")
    done = run(tmp_path, ooc, "info", "corpus", OOC_CONFIG="mine.toml")
    assert json.loads(done.stdout)["tokens"] == 20
    done = run(tmp_path, ooc, "info", "corpus", "--config", "mine.toml")
    assert (done.returncode, "unknown option --topics" in done.stderr) == (2, True)


def every(command: Any) -> Iterator[Any]:
    for below in getattr(command, "commands", {}).values():
        yield from every(below)
    yield command


def test_variables_of_options_are_no_others() -> None:
    commands = [each for each in every(get_command(app)) if not hasattr(each, "commands")]
    options = {name: option for each in commands for name, option in command_options(each).items()}
    assert {"quiet", "config", "memory", "watch"} <= options.keys()
    assert CHOSEN not in map(variable, options)
    assert {name for name, option in options.items() if option.envvar is None} == {
        "program",
        "ssh-config",
        "trust-pickle",
    }


def test_other_machines_are_asked_for_what_counts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their own variables do not count: all ranks train the same."""
    (tmp_path / "mine.toml").write_text("[train.lasso]\nunpenalized = ['a b', 'c']\ndata = 'data'\nrun = 'run'\n")
    monkeypatch.setenv("OOC_SEED", "5")
    monkeypatch.setenv("OOC_QUIET", "1")
    monkeypatch.setenv(CHOSEN, "here")
    chosen = choose(["train", "lasso", "--config", str(tmp_path / "mine.toml"), "--path", "7"], 2)
    assert sorted(chosen.rest[:-3]) == ["--path=7", "--quiet", "--seed=5", "--unpenalized=a b", "--unpenalized=c"]
    assert chosen.rest[-3:] == ["--", "data", "run"]
    monkeypatch.setenv("OOC_SEED", "6")
    monkeypatch.setenv("OOC_TOLERANCE", "0.5")
    forget_options()
    assert os.environ[CHOSEN] == "here"
    assert choose(chosen.arguments, 2).parameters == chosen.parameters
