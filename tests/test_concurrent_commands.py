"""Commands beside a training, in all orders of two: none disturbs it, or it stops and says what happened."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from commands import Ooc
from corpora import tree
from fork_server import will_do
from held_runs import TRAIN, assert_plain, held
from text_files import write_texts

pytestmark = pytest.mark.skipif(not will_do(), reason="nothing is forked here")

OPERATIONS = {
    "append": "ingest jsonl more.jsonl corpus --append --workers 1",
    "replace": "ingest jsonl texts.jsonl corpus --overwrite --block-tokens 100 --workers 1 --seed 3",
    "overwrite": f"{TRAIN} 6 --overwrite",
    "remove dataset": "corpus",
    "remove run": "run",
    "clean": "clean . --state",
    "verify dataset": "verify corpus",
    "verify run": "verify run",
    "repair": "verify corpus --repair",
    "resume": "resume run --workers 1",
    "infer": "infer done corpus mixtures.npz --overwrite --workers 1",
}
AT_ONCE = {  # of the orders; the others take minutes
    ("append", "clean"),
    ("overwrite", "resume"),
    ("repair", "append"),
    ("replace", "clean"),
    ("remove dataset", "infer"),
    ("remove run", "overwrite"),
}
DISTURB = {"replace", "remove dataset", "remove run"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, ooc_in) -> Path:
    """A dataset, a finished run on it, and `alone`, what a training comes to that nobody disturbs."""
    place = tmp_path_factory.mktemp("prepared")
    ooc = ooc_in(place)
    write_texts(place / "texts.jsonl", *(f"first{number}" for number in range(60)))
    write_texts(place / "more.jsonl", *(f"second{number}" for number in range(70)))
    for command in ("ingest jsonl texts.jsonl corpus --block-tokens 100 --workers 1", f"{TRAIN} 5", f"{TRAIN} 9"):
        done = ooc(*command.split())
        assert done.returncode == 0, done.stderr
        if command.startswith("train"):
            (place / "run").rename(place / ("alone" if command.endswith("5") else "done"))
    return place


@pytest.fixture
def place(prepared: Path, tmp_path: Path, ooc: Ooc) -> Path:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "corpus" / "runs")
    return tmp_path


def operate(place: Path, ooc: Ooc, name: str) -> None:
    if name.startswith("remove"):
        shutil.rmtree(place / OPERATIONS[name], ignore_errors=True)
        return
    done = ooc(*OPERATIONS[name].split())
    assert_plain(name, done.returncode, done.stderr)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, marks=[] if order in AT_ONCE else pytest.mark.long)
        for order in itertools.product(OPERATIONS, repeat=2)
    ],
    ids=" - ".join,
)
def test_a_training_is_not_disturbed_or_says_what_happened(place: Path, ooc: Ooc, order: tuple[str, ...]) -> None:
    with held(place) as process:
        for name in order:
            operate(place, ooc, name)
        made = {name: tree(place / name / "model") for name in ("run", "done")}
        others_run = (place / "run" / "config.json").exists() and "remove run" in order
    assert_plain("train", process.code, process.message)
    if not DISTURB & {*order}:
        assert process.code == 0, process.message
    if process.code:
        assert any(
            what in process.message for what in ("was removed or moved", "was recreated", "while this command used it")
        )
    else:
        assert tree(place / "run" / "model") == tree(place / "alone" / "model")
    assert tree(place / "done" / "model") == made["done"] != {}
    if others_run:
        assert process.code == 1
        assert tree(place / "run" / "model") == made["run"] != {}
    for command in ("topics done", "verify done", "verify run", "clean .", "resume run --iterations 65 --workers 1"):
        done = ooc(*command.split())
        assert_plain(command, done.returncode, done.stderr)
        if not DISTURB & {*order}:
            assert done.returncode == 0, (command, done.stderr)
