"""What scripts and schedulers need of commands: exit codes, JSON, silence, and pipes whose reader has enough."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Ooc
from make_old_files import write_inputs

TRAIN = {
    "lda": "train lda corpus run --topics 3 --sampler two-phase --workers 1 --iterations",
    "mf": "train mf ratings run --rank 2 --workers 1 --iterations",
    "softmax": "train softmax samples run --parallelism 1 --workers 1 --passes",
    "chains": "train lda corpus run --topics 3 --sampler gibbs --workers 1 --chains 2 --evaluate-every 4 --iterations",
}
INGEST = [
    "ingest jsonl texts.jsonl corpus --workers 1",
    "ingest ratings ratings.tsv ratings --workers 1",
    "ingest svmlight numbers.svm design",
    "ingest svmlight numbers.svm samples --by-rows",
]
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


@pytest.fixture(scope="module")
def made(made_once, ooc_in) -> Path:
    def make(directory: Path) -> None:
        write_inputs(directory)
        for command in INGEST:
            done = ooc_in(directory)(*command.split())
            assert done.returncode == 0, done.stderr

    return made_once("scripts", make)


@pytest.mark.parametrize("model", TRAIN)
def test_time_that_is_over_has_an_exit_code_of_its_own(model: str, made: Path, tmp_path: Path, ooc: Ooc) -> None:
    """75, not that of an interrupt; JSON says how far the run is, and `resume` goes on to the end."""
    for each in made.iterdir():
        (tmp_path / each.name).symlink_to(each)
    done = ooc(*TRAIN[model].split(), 40, "--max-time", 1e-6, "--json")
    assert done.returncode == 75, done
    told = json.loads(done.stdout)
    assert (told["run"], told["stopped"]) == ("run", "--max-time")
    assert 0 <= told["iteration"] < 40
    assert told.get("chain") == ("chain-1" if model == "chains" else None)
    assert done.stderr.splitlines()[-1] == "Go on with: ooc resume run"
    again = ooc("resume", "run", "--max-time", 1e-6, "--json")
    assert (again.returncode, json.loads(again.stdout)["stopped"]) == (75, "--max-time")
    done = ooc("resume", "run", "--json")
    assert (done.returncode, json.loads(done.stdout)["iteration"]) == (0, 40), done


def test_what_succeeds_can_be_silent(tmp_path: Path, ooc: Ooc) -> None:
    write_inputs(tmp_path)
    (tmp_path / "strange.txt").write_text("zzyzx apple the\n\n")
    for command in QUIET:
        done = ooc(*command.split(), "--quiet")
        told = done.stderr.replace("warning: column 2 has the same value in all rows and the coefficient 0\n", "")
        assert (done.returncode, done.stdout, told) == (0, "", ""), command


@pytest.mark.parametrize("command", ["info corpus", "info corpus --json", "verify corpus"])
def test_a_reader_that_has_enough_is_no_failure(command: str, made: Path) -> None:
    script = f"{sys.executable} -m cli {command} | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script], cwd=made, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
