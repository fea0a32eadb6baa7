"""What all commands share: help with examples that work, options in files, completion, answers to what is misspelt."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from commands import Ooc
from corpora import tiny_dataset
from typer.main import get_command

from blocks.errors import RequestError
from ooc.cli.app import app
from ooc.cli.app import commands as made
from ooc.cli.config import read_config
from ooc.cli.session import choose


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All that are not hidden, by what is typed to call them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        elif not command.hidden:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example_that_can_be_typed(name: str) -> None:
    """Parsed as the command line parses it, with no argument missing and no option unknown."""
    command = COMMANDS[name]
    examples = re.findall(rf"ooc ({name}(?: .*|$))", command.help, re.MULTILINE)
    assert examples, command.help
    for example in examples:
        words = shlex.split(example)[len(name.split()) :]
        command.make_context(name, list(words))
        if name == "launch":
            choose(words[words.index("--") + 1 :], 2)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_quiet_and_speak_json(name: str) -> None:
    options = {option for param in COMMANDS[name].params for option in param.opts}
    assert "--quiet" in options
    assert "--json" in options or name in ("demo", "launch")  # which run other commands


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_the_same_where_no_other_is_made(name: str) -> None:
    """As when the command line begins with its name."""
    alone, whole = dict(commands(made(*name.split()))), COMMANDS[name]
    assert alone.keys() == {name}
    assert (alone[name].help, type(alone[name])) == (whole.help, type(whole))
    assert [(param.name, param.opts, param.required) for param in alone[name].params] == [
        (param.name, param.opts, param.required) for param in whole.params
    ]


def test_the_version_is_told(ooc: Ooc) -> None:
    assert ooc("--version").stdout == f"ooc {version('ooc')}\n"


def test_the_command_line_starts_without_what_takes_long_to_import() -> None:
    script = "import sys; import ooc.cli.app; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "numba", "h5py", "rich", "tqdm", "jinja2", "psutil", "tomllib"} & set(loaded)


def test_what_a_dataset_holds_is_said_without_kernels(corpus: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from ooc.cli.inspect import info; "
        "info(Path(sys.argv[1])); print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, corpus], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    tiny_dataset(tmp_path / "corpus", [[0, 1, 2, 2]] * 5, 3)
    return tmp_path / "corpus"


def test_options_from_a_file(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    """Of any type, with dashes or without; those of the command line count before them. What a run notes makes the same
    run again."""
    lines = (
        "topics = 2",
        "iterations = 3",
        'memory = "1GB"',
        "evaluate-every = 1",
        "quiet = true",
        "alpha = [0.5, 0.25]",
    )
    (tmp_path / "mine.toml").write_text("\n".join(lines))
    done = ooc("train", "lda", "corpus", "run", "--config", "mine.toml", "--iterations", 2, "--json")
    assert done.returncode == 0, done.stderr
    assert "training on" not in done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["options"]["topics"] == 2
    assert config["options"]["alpha"] == [0.5, 0.25]
    assert (config["iterations"], config["evaluate_every"]) == (2, 1)
    assert json.loads(done.stdout)["budget_bytes"] == 10**9
    noted = (tmp_path / "run" / "options.toml").read_text()
    assert noted.splitlines()[1].startswith("# ooc train lda")
    assert 'memory = "1GB"' in noted
    assert "evaluate-every = 1" in noted
    again = ooc("train", "lda", "corpus", "again", "--config", "run/options.toml")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again" / "options.toml").read_text() == noted
    assert (tmp_path / "again" / "model" / "words.h5").read_bytes() == (tmp_path / "run/model/words.h5").read_bytes()


def test_a_rank_of_several_machines_notes_its_options_too(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    chosen = choose(["train", "lda", str(corpus), str(run), "--topics", "2", "--iterations", "1", "--quiet"], 2)
    chosen.call()
    noted = (run / "options.toml").read_text().splitlines()
    assert noted[1].startswith("# ooc train lda ...")
    assert {"topics = 2", "iterations = 1"} <= set(noted)


def test_other_machines_need_not_have_the_file(tmp_path: Path) -> None:
    """What they are asked for has the options of the file, which those of the command line come after."""
    (tmp_path / "mine.toml").write_text("topics = 2\nalpha = [0.5, 0.25]\nstop-when-converged = true\nseed = 4\n")
    words = ["train", "lda", "data", "run", "--seed", "3", "--config"]
    for given in ([*words, str(tmp_path / "mine.toml")], [*words[:-1], f"--config={tmp_path}/mine.toml"]):
        chosen = choose(given, 2)
        assert chosen.parameters["seed"] == 3
        told = choose(chosen.arguments, 2)
        assert told == chosen
        assert not any("config" in word or "mine.toml" in word for word in chosen.arguments)
        assert chosen.arguments[-3:] == ["--", "data", "run"]
    assert {"topics": 2, "alpha": "0.5,0.25", "stop_when_converged": True}.items() <= chosen.parameters.items()


def test_a_file_can_say_what_several_machines_ingest(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("lower = false\nngrams = 2\n")
    chosen = choose(["ingest", "text", "a", "out", "--config", str(tmp_path / "mine.toml")], 2)
    assert chosen.arguments == ["ingest", "text", "--no-lower", "--ngrams=2", "--", "a", "out"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topcs = 2", "unknown option --topcs; did you mean topics?"),
        ("no-such-thing = 2", "unknown option --no-such-thing"),
        ("config = 'x.toml'", "unknown option --config"),
        ("[lda]\ntopics = 2", "the table [lda] is not named after a command; did you mean [train.lda]?"),
        ("[train.lda]\ntopcs = 2", "mine.toml [train.lda]: unknown option --topcs; did you mean topics?"),
        ("[report]\nouput = 'x.html'", "mine.toml [report]: unknown option --ouput; did you mean output?"),
        ("[train.lad]\ntopics = 2", "the table [train.lad] is not named after a command; did you mean [train.lda]?"),
        ("[train.lda.topics]\nmany = 2", "the table [train.lda.topics] is not named after a command"),
        ("wrokers = 2\n[train.lda]\ntopics = 2", "unknown option --wrokers; did you mean workers?"),
        ("[train]\nouput = 'x'", "--config mine.toml [train]: unknown option --ouput"),
        ("topics.many = 2", "--config mine.toml [topics]: unknown option --many"),
        ("[import]\ntrust-pickle = true", "--trust-pickle cannot be set in a file"),
        ("program = 'mine:Own'", "--program cannot be set in a file"),
        ("topics = ", "mine.toml"),
        ("topics = 2\ntopics = 3", "mine.toml"),
        ("topics = 2.5", "--topics"),
        ("topics = 'many'", "--topics"),
        ("topics = 2\nworkers = 0", "--workers"),
        ("[train.lda]\ntopics = 0.5", "'--topics' in mine.toml [train.lda]"),
    ],
)
def test_a_wrong_file_of_options_is_refused(corpus: Path, tmp_path: Path, ooc: Ooc, text: str, said: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    done = ooc("train", "lda", "corpus", "run", "--config", "mine.toml")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_lists_are_for_options_that_are_given_several_times(tmp_path: Path) -> None:
    options = {param.opts[0].lstrip("-"): param for param in COMMANDS["ingest csv"].params}
    (tmp_path / "x.toml").write_text("drop = ['a', 'b']\nshards = 2\nlower = false\nexclude-seen = true\n[topics]\n")
    found = read_config(tmp_path / "x.toml", ["ingest", "csv"], options)
    values = {name: value.value for name, value in found.items()}
    assert values == {"drop": ["a", "b"], "shards": "2", "lower": False}
    with pytest.raises(RequestError, match=r"y\.toml: there is no such file"):
        read_config(tmp_path / "y.toml", ["ingest", "csv"], options)


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("trian",), "Did you mean 'train'?"),
        (("tran",), "Did you mean 'train'?"),
        (("train", "ldo", "corpus", "run"), "Did you mean 'lda'"),
        (("train", "lda", "corpus", "run", "--topcs", 3), "did you mean --topics?"),
        (("info", "corpsu"), "Did you mean corpus?"),
        (("train", "lda", "corpu", "run", "--topics", 3), "Did you mean corpus?"),
        (("ingest", "text", "texts.tx", "out"), "Did you mean texts.txt?"),
        (("report", "corpuss"), "Did you mean corpus?"),
        (("watch", "elsewhere/run"), "Check the name."),
    ],
)
def test_what_is_misspelt_is_answered_with_what_is_meant(
    corpus: Path, tmp_path: Path, ooc: Ooc, words: tuple[object, ...], meant: str
) -> None:
    (tmp_path / "texts.txt").write_text("some words")
    done = ooc(*words)
    assert done.returncode == 2
    assert meant in done.stderr
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ooc tra", {"train"}),
        ("ooc train ", {"lda", "mf"}),
        ("ooc train lda --sampler sp", {"sparselda", "sparse-gibbs", "splash"}),
        ("ooc train lda --st", {"--stop-when-converged", "--start", "--staleness"}),
        ("ooc ingest text --on-error ", {"fail", "skip"}),
        ("ooc ingest text --stop-words ", {"english", "none"}),
    ],
)
def test_the_shell_completes(typed: str, offered: set[str]) -> None:
    """What bash is answered; there are no more than are offered, but that trainings of other models may join."""
    script = "import sys; sys.argv = ['ooc']; from ooc.cli import main; main()"
    words = {"_OOC_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split(" ")) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | words, capture_output=True, text=True, check=False
    )
    found = set(done.stdout.split())
    assert offered <= found, done
    assert typed.endswith("train ") or found == offered
