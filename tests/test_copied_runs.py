"""Copied, moved and restored runs and datasets: commands work, or say what is the matter and what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Ooc
from corpora import tree
from held_runs import assert_plain, held
from long_mark import long_but
from text_files import write_texts

TRAIN = "train lda corpus run --topics 3 --sampler two-phase --workers 1 --seed 5 --evaluate-every 20 --iterations 20"
LONGER = "resume {} --iterations 30 --workers 1"
APPEND = "ingest jsonl more.jsonl corpus --append --workers 1"
COMMANDS = (
    LONGER.format("run"),
    "verify run",
    "verify corpus",
    "info run",
    "topics run",
    "export run model.npz --overwrite",
    "export run mallet --format mallet --overwrite",
    "export run mixtures.csv --format mixtures --overwrite",
    "infer run corpus mixtures.npz --overwrite --workers 1",
    "curves run -o curves.svg",
    "report run -o report.html",
    "clean .",
    f"{TRAIN} --overwrite",
    APPEND,
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, ooc_in) -> Path:
    """A dataset, a finished run on it, and the model in `longer` that it comes to with more iterations."""
    place = tmp_path_factory.mktemp("prepared")
    write_texts(place / "texts.jsonl", *(f"first{number}" for number in range(60)))
    write_texts(place / "more.jsonl", *(f"second{number}" for number in range(70)))
    for command in ("ingest jsonl texts.jsonl corpus --workers 1", TRAIN):
        succeed(ooc_in(place), command)
    shutil.copytree(place / "run", place / "before")
    succeed(ooc_in(place), LONGER.format("run"))
    (place / "run" / "model").rename(place / "longer")
    shutil.rmtree(place / "run")
    (place / "before").rename(place / "run")
    return place


@pytest.fixture
def place(prepared: Path, tmp_path: Path, ooc_in) -> Path:
    """The same, made anew: a run holds the path of its dataset."""
    directory = tmp_path / "place"
    directory.mkdir()
    for name in ("texts.jsonl", "more.jsonl"):
        shutil.copy(prepared / name, directory)
    shutil.copytree(prepared / "longer", directory / "longer")
    for command in ("ingest jsonl texts.jsonl corpus --workers 1", TRAIN):
        succeed(ooc_in(directory), command)
    return directory


@pytest.fixture
def ooc(place: Path, ooc_in) -> Ooc:
    return ooc_in(place)


def succeed(ooc: Ooc, command: str) -> str:
    done = ooc(*command.split())
    assert done.returncode == 0, (command, done.stderr)
    return done.stderr


def but_for_the_lock(run: Path) -> dict[str, bytes]:
    """The files of a run; the lock holds the number of the process that had it last."""
    return {name: content for name, content in tree(run).items() if name != "lock"}


def fail(ooc: Ooc, command: str) -> str:
    """What a command says that is to fail as it should."""
    done = ooc(*command.split())
    assert_plain(command, done.returncode, done.stderr)
    assert done.returncode, command
    return done.stderr


def test_a_copy_needs_the_dataset_as_the_first_does(place: Path, ooc: Ooc) -> None:
    """Both go on from the generation that they began with, whichever of them was used last and is deleted."""
    for name in ("copy", "other"):
        shutil.copytree(place / "run", place / name)
        before = tree(place / "run")
        for command in ("verify", "topics", "clean"):
            succeed(ooc, f"{command} {name}")
        succeed(ooc, LONGER.format(name))
        assert tree(place / name / "model") == tree(place / "longer")
        assert tree(place / "run") == before
    shutil.rmtree(place / "other")
    succeed(ooc, "clean copy --state")
    succeed(ooc, APPEND)
    succeed(ooc, "clean .")
    succeed(ooc, LONGER.format("run"))
    assert tree(place / "run" / "model") == tree(place / "longer")
    shutil.rmtree(place / "run")
    succeed(ooc, "clean .")
    assert not list((place / "corpus").glob("manifest-*"))  # the copy that is left has no state


def test_a_run_that_was_moved_beside_its_dataset_is_not_forgotten(place: Path, ooc: Ooc) -> None:
    succeed(ooc, APPEND)
    (place / "run").rename(place / "moved")
    succeed(ooc, "clean .")
    succeed(ooc, LONGER.format("moved"))
    assert tree(place / "moved" / "model") == tree(place / "longer")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "command", long_but([LONGER.format("run"), "verify run", "topics run", "clean .", APPEND], COMMANDS)
)
def test_a_dataset_that_was_moved_is_named(place: Path, ooc: Ooc, command: str) -> None:
    before = but_for_the_lock(place / "run")
    (place / "corpus").rename(place / "elsewhere")
    done = ooc(*command.split())
    assert_plain(command, done.returncode, done.stderr)
    if command.startswith(("resume", "verify run")) or "mallet" in command:
        assert f"{place}/corpus, the dataset on which run was started, does not exist" in done.stderr
        assert ("not checked: the state of run" if "verify" in command else "--data PATH") in done.stderr
        assert done.returncode == (0 if "verify" in command else 2)
    assert but_for_the_lock(place / "run") == before
    succeed(ooc, f"{LONGER.format('run')} --data elsewhere")
    assert tree(place / "run" / "model") == tree(place / "longer")
    assert "not checked" not in succeed(ooc, "verify run")


def test_another_dataset_is_not_taken_for_the_one_of_a_run(place: Path, ooc: Ooc) -> None:
    before = but_for_the_lock(place / "run")
    succeed(ooc, "ingest jsonl more.jsonl other")
    (place / "corpus").rename(place / "elsewhere")
    (place / "other").rename(place / "corpus")
    for command in (LONGER.format("run"), f"{LONGER.format('run')} --data corpus"):
        assert "the dataset on which run was started" in fail(ooc, command)
    assert "nowhere: there is no such file" in fail(ooc, f"{LONGER.format('run')} --data nowhere")
    assert "--held-out corpus: run has no held-out dataset" in fail(ooc, "resume run --held-out corpus")
    assert but_for_the_lock(place / "run") == before
    succeed(ooc, f"{LONGER.format('run')} --data elsewhere")
    assert tree(place / "run" / "model") == tree(place / "longer")


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["moved", "copied"])
def test_what_is_moved_together_finds_each_other(place: Path, tmp_path: Path, ooc_in, how: str) -> None:
    """A run, its dataset and what is held out; a copy goes on with the copy of the dataset."""
    ooc, new = ooc_in(place), tmp_path / "disk" / "there"
    succeed(ooc, "ingest jsonl more.jsonl held --vocab-from corpus")
    succeed(ooc, f"{TRAIN.replace(' run ', ' runs/judged ')} --held-out held")
    shutil.copytree(place, new)
    damage = place / "corpus" / "blocks" / "00000.h5"
    damage.write_bytes(damage.read_bytes()[:-1])
    if how == "moved":
        shutil.rmtree(place)
    for run in ("run", "runs/judged"):
        assert "not checked" not in succeed(ooc_in(new), f"verify {run}")
        succeed(ooc_in(new), LONGER.format(run))
        assert tree(new / run / "model") == tree(new / "longer")
    assert f"dataset     {new}/corpus" in ooc_in(new)("info", "run").stdout
    if how == "copied":
        shutil.rmtree(place)
    (new / "held").rename(new / "later")
    assert "--held-out PATH" in fail(ooc_in(new), "resume runs/judged --iterations 40")
    succeed(ooc_in(new), "resume runs/judged --iterations 40 --held-out later")


@pytest.mark.long
def test_files_that_may_not_be_read_are_not_called_damaged(place: Path, ooc: Ooc) -> None:
    """Those of another user."""
    hidden = [place / "corpus" / "blocks" / "00000.h5", *(place / "run" / "state").glob("*.cells")]
    for file in hidden:
        file.chmod(0)
    words = ["setpriv", "--reuid", "54321", "--clear-groups"] if os.getuid() == 0 else []
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}

    def as_other(*command: str) -> subprocess.CompletedProcess[str]:
        all_words = [*words, sys.executable, "-m", "ooc", *command]
        return subprocess.run(all_words, cwd=place, capture_output=True, text=True, check=False, env=environment)

    if (words and not shutil.which("setpriv")) or as_other("--version").returncode != 0:
        pytest.skip("NOTHING IS READ AS ANOTHER USER: one cannot run this checkout, as below a directory of mode 700")
    for name in ("corpus", "run"):
        done = as_other("verify", name)
        assert done.returncode == 0, done.stderr
        assert "no permission to read it" in done.stderr
        assert "no damage in the files that could be checked" in done.stdout


def test_an_archive_keeps_all_that_counts(place: Path, ooc: Ooc) -> None:
    there_and_back = "tar -cf ../archive --mtime=@0 . && rm -r corpus run && tar -xmf ../archive"
    subprocess.run(there_and_back, shell=True, cwd=place, check=True)
    for command in ("verify corpus", "verify run", LONGER.format("run")):
        succeed(ooc, command)
    assert tree(place / "run" / "model") == tree(place / "longer")


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("part", [".", "state", "state/manifest.json", "metrics.jsonl", "config.json", "model"])
@pytest.mark.parametrize("cleans", long_but([True], [False, True]))
def test_an_older_backup_over_a_newer_run(place: Path, ooc: Ooc, part: str, cleans: bool) -> None:
    """Of all or some of it; what is newer stays beside it. The run goes on to the same bytes."""
    shutil.copytree(place / "run", place / "backup")
    for iterations in (24, 27, 30):
        succeed(ooc, f"resume run --iterations {iterations} --workers 1")
    source = place / "backup" / part
    if source.is_dir():
        shutil.copytree(source, place / "run" / part, dirs_exist_ok=True)
    else:
        shutil.copy(source, place / "run" / part)
    done = ooc("verify", "run")
    assert_plain("verify", done.returncode, done.stderr)
    if cleans:
        succeed(ooc, "clean run")
    said = succeed(ooc, LONGER.format("run"))
    if part == "state/manifest.json":
        assert "names generation 2, whose files are missing; continuing from generation 5" in said
        assert "run/state/manifest.json names generation 2, whose files are missing" in done.stderr
    assert tree(place / "run" / "model") == tree(place / "longer")
    succeed(ooc, "verify run")


@pytest.mark.few(1)
@pytest.mark.parametrize("part", ["state", "model", "metrics.jsonl", "log.txt", "lock", "options.toml"])
def test_a_backup_that_lacks_a_part_of_a_run(place: Path, ooc: Ooc, part: str) -> None:
    path = place / "run" / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    for command in ("verify run", "info run", "topics run"):
        done = ooc(*command.split())
        assert_plain(command, done.returncode, done.stderr)
    succeed(ooc, LONGER.format("run"))
    assert tree(place / "run" / "model") == tree(place / "longer")
    succeed(ooc, "verify run")


@pytest.mark.long
def test_a_backup_made_while_a_training_goes_on(place: Path, ooc: Ooc) -> None:
    """Goes on to what the training itself comes to."""
    shutil.rmtree(place / "run")
    with held(place):
        shutil.copytree(place / "run", place / "copy")
    done = ooc("verify", "copy")
    assert_plain("verify", done.returncode, done.stderr)
    succeed(ooc, "resume copy --workers 1")
    assert tree(place / "copy" / "model") == tree(place / "run" / "model")
    succeed(ooc, "verify copy")


@pytest.mark.long
def test_a_dataset_without_the_generation_of_a_run(place: Path, ooc: Ooc) -> None:
    """One from before an append, under a run from after it; then the append is made again."""
    shutil.copytree(place / "corpus", place / "backup")
    succeed(ooc, APPEND)
    succeed(ooc, TRAIN.replace(" run ", " late "))
    succeed(ooc, LONGER.format("late"))
    model, before = tree(place / "late" / "model"), but_for_the_lock(place / "late")
    shutil.rmtree(place / "corpus")
    (place / "backup").rename(place / "corpus")
    for command in ("resume late --iterations 40 --workers 1", "export late out --format mallet"):
        assert "the dataset on which late was started" in fail(ooc, command)
    assert "not checked: the state of late" in succeed(ooc, "verify late")
    for command in ("topics late", "verify corpus", "clean .", "verify run", LONGER.format("run")):
        succeed(ooc, command)
    assert but_for_the_lock(place / "late") == before
    succeed(ooc, APPEND)
    succeed(ooc, "verify late")
    succeed(ooc, "resume late --workers 1")
    assert tree(place / "late" / "model") == model


@pytest.mark.long
def test_an_older_dataset_over_a_newer(place: Path, ooc: Ooc) -> None:
    shutil.copytree(place / "corpus", place / "backup")
    succeed(ooc, APPEND)
    shutil.copytree(place / "backup", place / "corpus", dirs_exist_ok=True)
    for command in ("verify corpus", "verify run", "clean .", "verify corpus", LONGER.format("run"), APPEND):
        succeed(ooc, command)
    assert tree(place / "run" / "model") == tree(place / "longer")
    succeed(ooc, "verify corpus")
