"""The newest metrics of a training as a file for Prometheus, and the time of day of each line of the metrics."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import Ooc
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

from ooc.runs.metrics import metrics_line
from ooc.runs.run import Run

ONE = "--workers 1"
TRAIN = {
    "lda-two-phase": f"train lda corpus run --topics 3 --sampler two-phase --iterations 7 --evaluate-every 3 {ONE}",
    "mf-sgd": f"train mf ratings run --rank 2 --iterations 3 {ONE}",
    "regression": f"train lasso design run --path 5 --cross-validate 2 {ONE}",
}
NAMES = {  # of the metrics, and as Prometheus names such values
    "iteration": "ooc_iteration",
    "elapsed_s": "ooc_elapsed_seconds",
    "tokens_per_s": "ooc_tokens_per_second",
    "samples_per_s": "ooc_samples_per_second",
    "memory_bytes": "ooc_memory_bytes",
    "log_likelihood_per_token": "ooc_log_likelihood_per_token",
    "objective": "ooc_objective",
    "rmse": "ooc_rmse",
    "duality_gap": "ooc_duality_gap",
    "held_out_error": "ooc_held_out_error",
}


@pytest.fixture
def place(datasets: Path, tmp_path: Path) -> Path:
    for each in datasets.iterdir():
        (tmp_path / each.name).symlink_to(each)
    return tmp_path


def parsed(path: Path) -> tuple[dict[str, float], dict[str, str]]:
    """The values of a file and the labels that all of them have, by Prometheus' own parsers of both formats."""
    text = path.read_text(encoding="utf-8")
    families = list(openmetrics.text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    older = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
    assert {family.type for family in families} == {"gauge"}
    assert [(each.name, each.labels, each.value) for each in older] == [
        (each.name, each.labels, each.value) for each in samples
    ]
    assert all(sample.timestamp is None and sample.labels == samples[0].labels for sample in samples)
    return {sample.name: sample.value for sample in samples}, samples[0].labels


def newest(run: Path) -> dict[str, Any]:
    """Of each value of the metrics the newest."""
    return {name: value for line in Run(run).metrics() for name, value in line.items()}


@pytest.mark.few(2)
@pytest.mark.parametrize("program", TRAIN)
def test_the_file_has_the_newest_metrics(program: str, place: Path, ooc: Ooc) -> None:
    """Those of a likelihood, too, that the last lines have not."""
    words = [*TRAIN[program].split(), "--metrics-file", "ooc.prom"]
    done = ooc(*words)
    assert done.returncode == 0, done.stderr
    found, labels = parsed(place / "ooc.prom")
    assert labels == {"run": str(place / "run"), "model": program}
    expected = newest(place / "run")
    shared = {name: NAMES[name] for name in NAMES if name in expected}
    assert {"iteration", "elapsed_s", "memory_bytes"} < shared.keys()
    assert {name: found[shared[name]] for name in shared} == {name: expected[name] for name in shared}
    assert not [each.name for each in place.iterdir() if each.name.startswith(".")]
    assert "metrics" not in (place / "run" / "options.toml").read_text()


def test_a_run_that_goes_on_keeps_the_file_up_to_date(place: Path, ooc: Ooc) -> None:
    assert ooc(*TRAIN["lda-two-phase"].split()).returncode == 0
    assert ooc("resume", "run", "--iterations", 8, "--metrics-file", "own.prom").returncode == 0
    found, _ = parsed(place / "own.prom")
    assert found["ooc_iteration"] == 8
    assert found["ooc_log_likelihood_per_token"] == newest(place / "run")["log_likelihood_per_token"]


def test_what_is_in_the_name_of_a_run_stays_in_its_label(place: Path, ooc: Ooc) -> None:
    name = 'a "run" \\ of\nmine'
    words = TRAIN["lda-two-phase"].replace("run", "@").split()
    assert ooc(*(name if word == "@" else word for word in words), "--metrics-file", "ooc.prom").returncode == 0
    assert parsed(place / "ooc.prom")[1]["run"] == str(place / name)


def test_no_other_file_is_replaced(place: Path, ooc: Ooc) -> None:
    (place / "thesis.tex").write_text("years of work")
    for path in ("thesis.tex", "corpus", "nowhere/ooc.prom"):
        done = ooc(*TRAIN["mf-sgd"].split(), "--metrics-file", path)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 2), done.stderr
        assert f"--metrics-file {path}" in done.stderr
        assert not (place / "run").exists()
    assert (place / "thesis.tex").read_text() == "years of work"


@pytest.mark.long
def test_a_training_outlives_the_directory_of_the_file(place: Path) -> None:
    (place / "collected").mkdir()
    words = TRAIN["lda-two-phase"].replace("--iterations 7", "--iterations 1000").split()
    command = [sys.executable, "-m", "ooc", *words, "--metrics-file", "collected/ooc.prom"]
    with subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        while not (place / "collected" / "ooc.prom").exists():
            assert process.poll() is None
            time.sleep(0.01)
        (place / "collected").rename(place / "gone")
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert said.count("warning: --metrics-file collected/ooc.prom cannot be written") == 1
    assert newest(place / "run")["iteration"] == 1000


def times(run: Path) -> list[datetime]:
    return [datetime.fromisoformat(line["time"]) for line in Run(run).metrics()]


@pytest.mark.parametrize("program", TRAIN)
def test_lines_of_the_metrics_have_the_time_of_day(program: str, place: Path, ooc: Ooc) -> None:
    began = datetime.now(UTC).replace(microsecond=0)
    assert ooc(*TRAIN[program].split()).returncode == 0
    told = [began, *times(place / "run"), datetime.now(UTC)]
    assert told == sorted(told)
    assert {each.utcoffset() for each in told} == {timedelta()}


def test_lines_up_to_a_commit_stay_as_they_are(place: Path, ooc: Ooc) -> None:
    assert ooc(*TRAIN["lda-two-phase"].split()).returncode == 0
    before = (place / "run" / "metrics.jsonl").read_bytes()
    assert ooc("resume", "run", "--iterations", 9).returncode == 0
    assert (place / "run" / "metrics.jsonl").read_bytes().startswith(before)
    assert len(times(place / "run")) == 9


@pytest.mark.long
def test_lines_of_earlier_versions_have_no_time(place: Path, ooc: Ooc) -> None:
    """Whatever reads metrics reads these as well."""
    assert ooc(*TRAIN["lda-two-phase"].split()).returncode == 0
    watched, told = ooc("watch", "run").stdout, ooc("info", "run").stdout
    assert "time 2" in told
    shutil.copytree(place / "run", place / "old")
    lines = [{name: value for name, value in line.items() if name != "time"} for line in Run(place / "run").metrics()]
    (place / "run" / "metrics.jsonl").write_text("".join(map(metrics_line, lines)))
    assert ooc("watch", "run").stdout == watched
    assert ooc("info", "run").stdout.splitlines()[-1] == told.splitlines()[-2]
    assert json.loads(ooc("info", "run", "--json").stdout)["last"] == lines[-1]
    for words in (["curves", "run", "old", "-o", "x.svg"], ["report", "run", "-o", "x.html"], ["verify", "run"]):
        done = ooc(*words)
        assert done.returncode == 0, done.stderr
    assert ooc("resume", "run", "--iterations", 8, "--metrics-file", "ooc.prom").returncode == 0
    assert ["time" in line for line in Run(place / "run").metrics()] == [False] * 7 + [True]
