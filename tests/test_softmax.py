"""Multi-class regression: gradients, one worker against plain steps, other losses, the command line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Ooc
from corpora import InProcessProgram
from sample_sets import drawn, samples_of

from blocks.samples.samples import Samples
from ooc.runs.run import Run
from ooc.workers.worker import ProgramSpec
from samplers.programs import target
from samplers.regression.softmax.model import SoftmaxModel
from samplers.regression.softmax.predictions import write_classes
from samplers.regression.softmax.program import LOSSES, turn_to_gradients
from samplers.regression.softmax.training import train_softmax


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    return samples_of(tmp_path_factory.mktemp("softmax") / "samples", *drawn(600, 1))


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["softmax", "hinge", "squared"])
def test_gradients_are_differences_of_the_loss(kind):
    scores = np.array([0.3, -1.2, 0.7, 0.1], np.float32)

    def loss(k: int, change: float) -> float:
        moved = scores.copy()
        moved[k] += change
        return turn_to_gradients(kind, 2, moved)[0]

    gradients = scores.copy()
    turn_to_gradients(kind, 2, gradients)
    assert gradients == pytest.approx([(loss(k, 1e-2) - loss(k, -1e-2)) / 2e-2 for k in range(4)], abs=1e-3)


def plain(samples: Samples, spacing: int, passes: int, rate: float, penalty: float) -> np.ndarray:
    """The weights and intercepts, float64 (13, 3), that AdaGrad comes to, one sample after the other."""
    weights, squares, t = np.zeros((13, 3)), np.zeros((13, 3)), 0
    for _ in range(passes):
        for number in range(samples.block_count):
            block = samples.block(number)
            for row, label in enumerate(block.labels):
                x = np.zeros(13)
                mine = slice(*block.offsets[row : row + 2])
                x[block.columns[mine] // spacing], x[12] = block.values[mine], 1
                shares = np.exp(x @ weights - (x @ weights).max())
                shares = shares / shares.sum() - (np.array([0.0, 2.0, 5.0]) == label)
                t += 1
                weights *= 1 - rate * penalty / np.sqrt(t)
                there = x != 0
                squares[there] += np.outer(x, shares)[there] ** 2
                weights[there] -= rate * np.outer(x, shares)[there] / np.sqrt(squares[there] + 1.0)
    return weights


@pytest.mark.parametrize("spacing", [1, 10_000], ids=["few columns", "too many for a cache"])
def test_one_worker_takes_the_steps_of_adagrad(tmp_path, spacing):
    samples = samples_of(tmp_path / "samples", *drawn(600, 1), spacing)
    options = {"parallelism": 1, "rate": 0.3, "regularization": 0.01, "sync_per_pass": 2}
    with InProcessProgram(samples, ProgramSpec(target("softmax"), options)) as chain:
        chain.iterate(2)
        weights = chain.shared["weights"][::spacing]  # the last row has the intercepts
        assert np.allclose(weights, plain(samples, spacing, 2, 0.3, 0.01), atol=2e-4)
        told = chain.objective()
    assert told["error"] < 0.25


@pytest.mark.parametrize("loss", ["softmax", "hinge", "squared"])
def test_workers_learn_as_one_does(samples, loss):
    """Eight, with a synchronization a pass, after four passes: the loss is near that of one."""
    found = []
    for degree in (1, 8):
        options = {"parallelism": degree, "loss": loss, "rate": 0.3}
        with InProcessProgram(samples, ProgramSpec(target("softmax"), options)) as chain:
            chain.iterate(4)
            found.append(chain.objective())
    assert found[1]["objective"] < 1.1 * found[0]["objective"]
    assert found[1]["error"] < 0.25


def test_at_the_command_line(tmp_path: Path, ooc: Ooc) -> None:
    for name, seed in (("train", 1), ("test", 2)):
        x, labels = drawn(400, seed)
        rows = [" ".join(f"{column + 1}:{x[row, column]}" for column in np.flatnonzero(x[row])) for row in range(400)]
        text = "".join(f"{label:g} {row}\n" for label, row in zip(labels, rows, strict=True))
        (tmp_path / f"{name}.svm").write_text(text)
    done = ooc("ingest", "svmlight", "train.svm", "samples", "--by-rows")
    assert done.stdout.startswith("samples: 400 samples, 12 columns")
    assert ooc("ingest", "svmlight", "test.svm", "others", "--by-rows", "--columns-from", "samples").returncode == 0
    command = ("train", "softmax", "samples", "run", "--passes", 3, "--held-out", "others", "--most-parallelism", 4)
    done = ooc(*command, "--json")
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout)
    assert last["held_out_error"] < 0.3
    assert last["parallelism"] in (1, 2, 4)
    assert {"held_out_loss", "objective", "computing_s", "waiting_s", "communicating_s"} <= last.keys()
    model = np.load(tmp_path / "run" / "model" / "softmax.npz")
    assert model["labels"].tolist() == [0, 2, 5]
    x, labels = drawn(400, 2)
    found = model["labels"][(x @ model["weights"].T + model["intercepts"]).argmax(axis=1)]
    assert np.mean(found != labels) == pytest.approx(last["held_out_error"])
    assert ooc("resume", "run", "--iterations", 4).returncode == 0
    assert [line["iteration"] for line in Run(tmp_path / "run").metrics()] == [1, 2, 3, 4]


@pytest.fixture(scope="module")
def folder(samples: Samples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each loss, and others by the same rule."""
    folder = tmp_path_factory.mktemp("runs")
    samples_of(folder / "others", *drawn(500, 2))
    for loss in LOSSES:
        options: dict[str, Any] = {"passes": 2, "parallelism": 1, "rate": 0.3, "workers": 1, "quiet": True}
        train_softmax(samples.path, folder / loss, loss=loss, held_out=folder / "others", **options)
    return folder


@pytest.mark.parametrize("loss", LOSSES)
def test_classes_are_predicted_and_told_as_while_training(
    folder: Path, ooc_in: Callable[[Path], Ooc], monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """In the original order, whatever is scored at a time."""
    ooc = ooc_in(folder)
    told = json.loads(ooc("evaluate", loss, "others", "--json").stdout)
    last = Run(folder / loss).metrics()[-1]
    assert told == {
        "samples": 500,
        "error": last["held_out_error"],
        "loss": pytest.approx(last["held_out_loss"], rel=1e-6),
    }
    assert ooc("predict", loss, "others", f"{loss}.csv").stdout == f"{loss}.csv: 500 predictions\n"
    x, _ = drawn(500, 2)
    model = np.load(folder / loss / "model" / "softmax.npz")
    scores = x.astype(float) @ model["weights"].T + model["intercepts"]
    header, *lines = csv.reader((folder / f"{loss}.csv").read_text().splitlines())
    assert header == ["row", "class", *(f"probability of {label}" for label in (0, 2, 5) if loss == "softmax")]
    assert [line[:2] for line in lines] == [
        [str(row + 1), f"{model['labels'][best]:g}"] for row, best in enumerate(scores.argmax(axis=1))
    ]
    if loss == "softmax":
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        assert np.allclose([list(map(float, line[2:])) for line in lines], shares, atol=1e-5)
    monkeypatch.setattr("samplers.regression.softmax.predictions._NUMBERS", 100)
    with (folder / "again.csv").open("w", newline="") as out:
        write_classes(SoftmaxModel(folder / loss / "model"), Samples(folder / "others"), out, folder)
    assert (folder / "again.csv").read_bytes() == (folder / f"{loss}.csv").read_bytes()


def test_labels_are_written_as_they_are(tmp_path: Path) -> None:
    x, labels = drawn(60, 1)
    odd = np.array([-0.5, 20200101.0, 3.0])[np.searchsorted([0, 2, 5], labels)]
    samples = samples_of(tmp_path / "samples", x, odd)
    train_softmax(samples.path, tmp_path / "run", passes=1, parallelism=1, workers=1, quiet=True)
    out = io.StringIO()
    write_classes(SoftmaxModel(tmp_path / "run" / "model"), samples, out, tmp_path)
    assert {line.split(",")[1] for line in out.getvalue().splitlines()[1:]} == {"-0.5", "3", "20200101"}


def test_what_cannot_be_predicted_is_refused(folder: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    ooc, (x, labels) = ooc_in(folder), drawn(50, 3)
    samples_of(folder / "narrow", x[:, :5], labels)
    samples_of(folder / "unknown", x, np.where(labels == 5, 7.0, labels))
    for arguments, told in [
        (("predict", "softmax", "narrow", "no.csv"), "narrow has 5 columns, but the model has 12"),
        (("evaluate", "softmax", "narrow"), "narrow has 5 columns, but the model has 12"),
        (("evaluate", "softmax", "unknown"), "unknown has the label 7, which softmax/model was not trained on"),
        (("predict", "softmax", "others", "no.csv", "--lambda", "1"), "softmax is not one"),
        (("predict", "softmax", "nowhere", "no.csv"), "nowhere"),
        (("predict", "softmax", "others", "narrow"), "narrow"),
    ]:
        done = ooc(*arguments)
        assert done.returncode == 2, arguments
        assert told in done.stderr
    assert not (folder / "no.csv").exists()


def test_what_cannot_be_trained_is_refused(tmp_path: Path, ooc: Ooc) -> None:
    (tmp_path / "one.svm").write_text("1 1:1\n1 2:1\n")
    assert ooc("ingest", "svmlight", "one.svm", "one", "--by-rows").returncode == 0
    for arguments, told in [
        (("one", "run"), "must have 2 to"),
        (("one", "run", "--loss", "best"), "--loss: unknown loss 'best'"),
        (("one", "run", "--rate", "0"), "--rate must be a finite number above 0, got 0"),
        (("one", "run", "--parallelism", "many"), "--parallelism must be auto or the number of parallel learners"),
        (
            ("one", "run", "--parallelism", "2", "--most-parallelism", "4"),
            "--most-parallelism can only be used with --parallelism auto",
        ),
    ]:
        done = ooc("train", "softmax", *arguments)
        assert done.returncode == 2, arguments
        assert told in done.stderr
    assert not (tmp_path / "run").exists()
