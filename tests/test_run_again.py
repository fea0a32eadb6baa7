"""The same command again, after whatever has happened: it comes to the same, or says what differs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import INGEST, Ooc, run_all
from corpora import tree
from long_mark import long_but
from make_old_files import write_inputs

TRAIN = {
    "lda": "train lda corpus run --topics 3 --sampler two-phase --iterations 30",
    "lda splash": "train lda corpus run --topics 3 --sampler splash --parallelism 2 --iterations 30",
    "chains": "train lda corpus run --topics 3 --sampler gibbs --chains 2 --evaluate-every 3 --iterations 30",
    "mf": "train mf ratings run --rank 2 --iterations 30 --held-out ratings",
    "als": "train mf ratings run --rank 2 --method als --iterations 30",
    "softmax": "train softmax samples run --parallelism 1 --passes 30",
    "lasso": "train lasso design run --path 30",
    "rounds": "train lasso design run --lambda-ratio 0.1 --schedule cyclic --parallelism 1",
}
OTHER = {  # options that make it another training, and what is said of that
    "lda": ("--topics 4 --seed 7", "seed is 0, not 7; topics is 3, not 4"),
    "lda splash": ("--sync-per-pass 2", "sync-per-pass is"),
    "chains": ("--chains 3", "--chains 3: run has 2 chains"),
    "mf": ("--rate 0.3", "rate is none, not 0.3"),
    "als": ("--regularization 9", "regularization is"),
    "softmax": ("--passes 31", "iterations is 30, not 31"),
    "lasso": ("--no-standardize", "standardize is true, not false"),
    "rounds": ("--parallelism 2", "rounds is"),
}


@pytest.fixture(scope="module")
def made(made_once: Callable[[str, Callable[[Path], None]], Path], ooc_in: Callable[[Path], Ooc]) -> Path:
    """Datasets, and in a directory for each training the model that it comes to undisturbed."""

    def make(directory: Path) -> None:
        write_inputs(directory)
        run_all(ooc_in(directory), INGEST)
        for name, command in TRAIN.items():
            done = ooc_in(directory)(*command.replace(" run ", f" {name.replace(' ', '-')} ").split(), "--workers", 1)
            assert done.returncode == 0, done.stderr

    return made_once("again", make)


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    for name in ("corpus", "ratings", "design", "samples"):
        shutil.copytree(made / name, tmp_path / name)
    return tmp_path


def models(run: Path) -> dict[str, bytes]:
    """Of a run, or of all chains."""
    return {str(path.relative_to(run)): content for path, content in _files(run)}


def _files(run: Path) -> list[tuple[Path, bytes]]:
    return [(path, path.read_bytes()) for path in run.rglob("model/**/*") if path.is_file()]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", long_but(["lda", "chains", "mf", "softmax", "lasso"], TRAIN))
def test_a_training_is_created_or_goes_on(name: str, made: Path, place: Path, ooc: Ooc) -> None:
    """Time that is over, a kill, another option, and all that after it is done."""
    command, expected = [*TRAIN[name].split(), "--workers", "1", "--resume"], models(made / name.replace(" ", "-"))
    assert expected
    assert ooc(*command, "--max-time", 1e-6).returncode == 75
    assert ooc(*command, "--max-time", 1e-6).returncode == 75
    with subprocess.Popen([sys.executable, "-m", "ooc", *command], cwd=place, stderr=subprocess.DEVNULL) as process:
        time.sleep(1.0)  # wherever that is
        os.kill(process.pid, signal.SIGKILL)
    before = tree(place / "run")
    options, said = OTHER[name]
    refused = ooc(*command, *options.split())
    assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
    assert {path: content for path, content in tree(place / "run").items() if "lock" not in path} == {
        path: content for path, content in before.items() if "lock" not in path
    }
    for _ in range(2):
        done = ooc(*command, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["run"].startswith("run")
        assert models(place / "run") == expected
    without = ooc(*command[:-1])
    assert (without.returncode, "Continue it with --resume or" in without.stderr) == (2, True)
    assert ooc(*command, "--overwrite").returncode == 2


def test_another_or_a_longer_dataset_is_told(place: Path, made: Path, ooc: Ooc) -> None:
    command = [*TRAIN["lda"].split(), "--workers", "1", "--resume"]
    assert ooc(*command).returncode == 0
    shutil.copytree(place / "corpus", place / "elsewhere")
    moved = ooc(*[word if word != "corpus" else "elsewhere" for word in command])
    assert moved.returncode == 0, moved.stderr  # it holds the same
    (place / "more.jsonl").write_text('{"text": "apple pear plum"}\n')
    assert ooc("ingest", "jsonl", "more.jsonl", "corpus", "--append").returncode == 0
    model = models(place / "run")
    done = ooc(*command, "--json")
    assert (done.returncode, json.loads(done.stdout)["iteration"]) == (0, 30)
    assert "warning: run has finished, but data has since been appended to corpus" in done.stderr
    assert models(place / "run") == model
    assert ooc("resume", "run", "--iterations", 31, "--max-time", 1e-6).returncode == 75
    refused = ooc(*command, "--iterations", 31)
    assert (refused.returncode, "documents were appended to corpus after run was started" in refused.stderr) == (
        2,
        True,
    )
    assert ooc("ingest", "text", made / "texts.jsonl", "other", "--lines").returncode == 0
    refused = ooc(*[word if word != "corpus" else "other" for word in command])
    assert (refused.returncode, "run was started on another dataset," in refused.stderr) == (2, True)


MAKING = {
    "corpus": "ingest jsonl texts.jsonl corpus",
    "design": "ingest svmlight numbers.svm design",
    "shards": "shard ../corpus shards --shards 2",
    "mixtures.csv": "infer ../lda ../corpus mixtures.csv --workers 1",
    "model.npz": "export ../lda model.npz",
    "mallet": "export ../lda mallet --format mallet",
    "y.csv": "predict ../lasso ../design y.csv",
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", MAKING)
def test_what_is_there_is_left(name: str, made: Path, tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    place = made / f"making-{name}"
    place.mkdir()
    for file in ("texts.jsonl", "numbers.svm"):
        shutil.copy(made / file, place)
    command = [*MAKING[name].split(), "--skip-existing"]
    done = ooc_in(place)(*command)
    assert done.returncode == 0, done.stderr
    before = tree(place)
    assert any(path.split("/")[0] == name for path in before)
    done = ooc_in(place)(*command)
    assert (done.returncode, done.stdout) == (0, f"{name} already exists and is left unchanged\n")
    done = ooc_in(place)(*command, "--json")
    assert json.loads(done.stdout) == {"path": name, "skipped": True}
    assert ooc_in(place)(*command, "--overwrite").returncode == 2
    assert tree(place) == before
    shutil.rmtree(place)


PRINTING = {
    "infer lda corpus {} --top 2 --workers 1": "mixtures.csv",
    "export lda {} --format mixtures": "trained.csv",
    "export lda {}": "model.npz",
    "predict lasso design {}": "y.csv",
    "predict softmax samples {}": "classes.csv",
    "predict mf pairs.tsv {}": "ratings.csv",
    "report lda -o {}": "lda.html",
}


QUICK = ["infer lda corpus {} --top 2 --workers 1", "predict lasso design {}"]


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("command", long_but(QUICK, PRINTING))
def test_what_is_made_goes_to_standard_output_or_a_pipe(command: str, made: Path, tmp_path: Path) -> None:
    """The bytes of the file, and nothing else; what is told goes to standard error."""
    shutil.copy(made / "ratings.tsv", made / "pairs.tsv")
    name = tmp_path / PRINTING[command]
    fifo = tmp_path / f"pipe{name.suffix}"

    def run(out: Path | str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "ooc", *command.format(out).split()]
        return subprocess.Popen(words, cwd=made, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    told, errors = run(name).communicate()
    assert told.startswith(str(name).encode()), errors
    printed, told = run("-").communicate()
    assert printed == name.read_bytes()
    assert b"-: " in told
    os.mkfifo(fifo)
    with run(fifo) as process:
        assert fifo.read_bytes() == name.read_bytes()
        assert process.communicate()[0] == b""
    assert process.returncode == 0
    assert fifo.is_fifo()


def test_json_and_what_is_made_do_not_mix(made: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    done = ooc_in(made)("infer", "lda", "corpus", "-", "--json")
    assert (done.returncode, done.stdout) == (2, "")
