"""What is the same bytes, whenever, wherever and by however many workers it is made; the rest is in docs/files.md."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import Ooc, run_all
from long_mark import long_but
from make_old_files import write_inputs
from pages import ROOT

from samplers.interchange.formats import FORMATS

INGEST = {
    "corpus": "ingest jsonl {0}/texts.jsonl corpus --workers {1}",
    "ratings": "ingest ratings {0}/ratings.tsv ratings --workers {1}",
    "design": "ingest svmlight {0}/numbers.svm design --workers {1}",
    "samples": "ingest svmlight {0}/numbers.svm samples --by-rows",
}
TRAIN = {
    "lda": "train lda corpus run --topics 3 --sampler two-phase --evaluate-every 100 --iterations 1000 --workers {}",
    "mf": "train mf ratings run --rank 2 --iterations 4 --workers {}",
    "lasso": "train lasso design run --path 5 --cross-validate 2 --workers {}",
    "softmax": "train softmax samples run --passes 3 --parallelism 2 --workers {}",
}


def documented(heading: str) -> set[str]:
    """The names in the first column of the table below a heading of docs/files.md."""
    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([\w./]+?)/?` \|", section, re.MULTILINE))


def contents(directory: Path) -> dict[str, str]:
    """A hash of each file, by its path in the directory."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def differing(one: Path, other: Path) -> set[str]:
    """What is not in both with the same bytes: files, or directories that hold some, without what they hold."""
    return {path.partition("/")[0] for path, _ in contents(one).items() ^ contents(other).items()}


def identity(dataset: Path) -> str:
    return json.loads((dataset / "manifest.json").read_text())["identity"]


def interrupt(command: list[str], directory: Path) -> None:
    """Run a training until it has told of some iterations, then stop it as Ctrl-C does."""
    metrics = directory / "run" / "metrics.jsonl"
    words = [sys.executable, "-m", "ooc", *command]
    with subprocess.Popen(words, cwd=directory, stderr=subprocess.PIPE, text=True) as process:
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < 20:
            assert process.poll() is None, process.communicate()
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130, said


@pytest.mark.few(1)
@pytest.mark.parametrize("model", long_but(["lda", "lasso"], TRAIN))
def test_datasets_and_models_are_the_same_bytes(model: str, tmp_path: Path, ooc_in) -> None:
    """One run in one go by one worker, one by two that is stopped and goes on; from datasets made in other places."""
    places = [tmp_path / "here", tmp_path / "there" / "deeper"]
    for workers, place in enumerate(places, 1):
        place.mkdir(parents=True)
        write_inputs(place)
        run_all(ooc_in(place), [each.format(place, workers) for each in INGEST.values()])
    here, there = map(ooc_in, places)
    done = here(*TRAIN[model].format(1).split())
    assert done.returncode == 0, done.stderr
    if model == "lda":
        interrupt(TRAIN[model].format(2).split(), places[1])
    else:
        assert there(*TRAIN[model].format(2).split(), "--max-time", 1e-6).returncode == 75
    done = there("resume", "run", "--workers", 2)
    assert done.returncode == 0, done.stderr
    of_run, of_dataset = (documented(f"What differs from one {what} to the next") for what in ("run", "dataset"))
    assert differing(*(place / "run" for place in places)) == of_run
    assert (places[0] / "run" / "model").is_dir()
    for name in INGEST:
        of_this = of_dataset - (set() if (model, name) == ("lda", "corpus") else {"runs"})
        assert differing(*(place / name for place in places)) == of_this
        assert identity(places[0] / name) == identity(places[1] / name)


@pytest.mark.long
def test_exports_are_the_same_bytes(tmp_path: Path, ooc: Ooc) -> None:
    """In every format, a while later, by processes whose sets have other orders."""
    write_inputs(tmp_path)
    for name in ("corpus", "ratings"):
        assert ooc(*INGEST[name].format(tmp_path, 1).split()).returncode == 0
    assert ooc(*TRAIN["lda"].format(1).split(), "--iterations", 5).returncode == 0
    assert ooc(*TRAIN["mf"].format(1).replace("run", "factors").split()).returncode == 0
    wanted = {name: "factors" if name == "word2vec" else "run" for name in FORMATS}
    endings = {"npz": [".npz"], "mixtures": [".npz", ".csv", ".jsonl", ".parquet"]}
    made = [(name, run, f"{name}{ending}") for name, run in wanted.items() for ending in endings.get(name, [""])] + [
        ("parquet", "factors", "parquet-of-factors")
    ]
    for place in ("first", "second"):
        (tmp_path / place).mkdir()
    for name, run, out in made:
        assert ooc("export", run, f"first/{out}", "--format", name).returncode == 0
    for name, run, out in made:
        words = [sys.executable, "-m", "ooc", "export", run, f"second/{out}", "--format", name]
        environment = {**os.environ, "PYTHONHASHSEED": "1"}
        subprocess.run(words, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert {path.partition("/")[0] for path in contents(tmp_path / "first")} == {out for _, _, out in made}
    assert differing(tmp_path / "first", tmp_path / "second") == set()
