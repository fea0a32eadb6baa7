"""What scripts and schedulers need of commands: exit codes, JSON, silence, and pipes whose reader has enough;
words and names in any language, whatever the locale."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import INGEST, Ooc, run_all
from long_mark import long_but
from make_old_files import write_inputs

TRAIN = {
    "lda": "train lda corpus run --topics 3 --sampler two-phase --workers 1 --iterations",
    "mf": "train mf ratings run --rank 2 --workers 1 --iterations",
    "softmax": "train softmax samples run --parallelism 1 --workers 1 --passes",
    "chains": "train lda corpus run --topics 3 --sampler gibbs --workers 1 --chains 2 --evaluate-every 4 --iterations",
}
QUIET = [
    *INGEST,
    "train lda corpus run --topics 3 --iterations 3 --workers 1",
    "train lasso design lasso --path 3 --workers 1",
    "train mf ratings mf --rank 2 --iterations 2 --workers 1",
    "resume run --iterations 4 --workers 1",
    "ingest text --lines strange.txt new --vocab-from corpus --workers 1",
    "infer run new new.csv --workers 1",
    "infer run corpus corpus.csv --workers 1",
    "predict lasso design y.csv",
    "export run run.npz --format npz",
    "curves run --output run.svg",
    "report run --output run.html",
    "verify run",
    "verify corpus",
    "shard corpus shards --shards 2 --workers 1",
    "clean run --state",
    "clean .",
]


@pytest.mark.few(1)
@pytest.mark.parametrize("model", TRAIN)
def test_time_that_is_over_has_an_exit_code_of_its_own(model: str, datasets: Path, tmp_path: Path, ooc: Ooc) -> None:
    """75, not that of an interrupt; JSON says how far the run is, and `resume` goes on to the end."""
    for each in datasets.iterdir():
        (tmp_path / each.name).symlink_to(each)
    done = ooc(*TRAIN[model].split(), 40, "--max-time", 1e-6, "--json")
    assert done.returncode == 75, done
    told = json.loads(done.stdout)
    assert (told["run"], told["stopped"]) == ("run", "--max-time")
    assert 0 <= told["iteration"] < 40
    assert told.get("chain") == ("chain-1" if model == "chains" else None)
    assert done.stderr.splitlines()[-1] == "Continue with: ooc resume run"
    again = ooc("resume", "run", "--max-time", 1e-6, "--json")
    assert (again.returncode, json.loads(again.stdout)["stopped"]) == (75, "--max-time")
    done = ooc("resume", "run", "--json")
    assert (done.returncode, json.loads(done.stdout)["iteration"]) == (0, 40), done


@pytest.mark.long
def test_what_succeeds_can_be_silent(tmp_path: Path, ooc: Ooc) -> None:
    write_inputs(tmp_path)
    (tmp_path / "strange.txt").write_text("zzyzx apple the\n\n")
    for command in QUIET:
        done = ooc(*command.split(), "--quiet")
        told = done.stderr.replace("warning: column 2 has the same value in all rows and the coefficient 0\n", "")
        assert (done.returncode, done.stdout, told) == (0, "", ""), command


@pytest.mark.parametrize("command", ["info corpus", "info corpus --json", "verify corpus"])
def test_a_reader_that_has_enough_is_no_failure(command: str, datasets: Path) -> None:
    script = f"{sys.executable} -m ooc {command} | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script], cwd=datasets, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def foreign(made_once, ooc_in) -> Path:
    """A corpus and a run whose words and names are not ASCII."""

    def make(directory: Path) -> None:
        (directory / "täxte.txt").write_text("größe café 日本 мир\nêtre größe naïve\n" * 9, encoding="utf-8")
        train = "train lda übung lauf-é --topics 2 --iterations 2 --workers 1"
        run_all(ooc_in(directory), ("ingest text --lines täxte.txt übung --workers 1 --stop-words none", train))

    return made_once("foreign", make)


LOCALES = {
    "POSIX": {"LC_ALL": "POSIX", "PYTHONUTF8": "0"},
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
}
PRINTED = {
    "--help": "",
    "train lda --help": "",
    "config show topics lauf-é": "lauf-é",
    "topics lauf-é": "größe",
    "topics läuf-é": "läuf-é: there is no such file or directory",
    "info übung": "übung",
    "verify lauf-é": "lauf-é",
    "train lda übung lauf-é --topics 2": "the run lauf-é already exists",
    "report lauf-é -o bericht-é.html --overwrite": "bericht-é.html",
    "infer lauf-é übung mischung-é.csv --overwrite --workers 1": "mischung-é.csv",
    "ingest text --lines täxte.txt übung --workers 1 --overwrite --quiet --nonsense-é": "nonsense-é",
}


def printed(command: str, directory: Path, **environment: str) -> tuple[int, list[str]]:
    """The exit code of a command, and what it printed, but that kernels are compiled, as they are once."""
    usual = {name: os.environ[name] for name in os.environ if not name.startswith(("LC_", "PYTHONUTF8", "PYTHONIO"))}
    words = [sys.executable, "-m", "ooc", *command.split()]
    done = subprocess.run(words, cwd=directory, env=usual | environment, capture_output=True, check=False)
    lines = ([*text.decode().splitlines(keepends=True)] for text in (done.stdout, done.stderr))
    return done.returncode, ["".join(line for line in each if "compiling kernels" not in line) for each in lines]


@pytest.fixture(scope="module")
def expected(foreign: Path) -> dict[str, tuple[int, list[str]]]:
    """The same of each command where the locale is UTF-8."""
    found = {command: printed(command, foreign, LC_ALL="C.UTF-8") for command in PRINTED}
    for command, said in PRINTED.items():
        assert said in "".join(found[command][1]), command
    return found


@pytest.mark.long
@pytest.mark.parametrize("locale", long_but(["POSIX"], LOCALES))
def test_any_word_is_printed_in_any_locale(
    locale: str, foreign: Path, expected: dict[str, tuple[int, list[str]]]
) -> None:
    """As it is where the locale says no encoding; escaped where there is one that has not its letters."""
    for command, (code, texts) in expected.items():
        escaped = [text.encode("ascii", "backslashreplace").decode() for text in texts]
        assert printed(command, foreign, **LOCALES[locale]) == (code, escaped if locale == "ascii" else texts), command


@pytest.mark.long
@pytest.mark.parametrize("locale", long_but(["POSIX"], ["POSIX", "C"]))
def test_files_are_found_in_any_locale(locale: str, foreign: Path, tmp_path: Path) -> None:
    """By workers, too, and those that a run names."""
    shutil.copytree(foreign, tmp_path / "kopie-ü")
    resume = "resume lauf-é --iterations 3 --workers 2 --json"
    code, told = printed(resume, tmp_path / "kopie-ü", **LOCALES[locale])
    assert (code, json.loads(told[0])["iteration"]) == (0, 3), told
    ingest = "ingest text --lines täxte.txt neu-é --vocab-from übung --workers 2 --json"
    code, told = printed(ingest, tmp_path / "kopie-ü", **LOCALES[locale])
    assert (code, json.loads(told[0])["documents"]) == (0, 18), told
