"""The main job at the command line: from ingestion to results, resumed and verified; and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import Ooc, assert_refused
from corpora import program_spec, tiny_dataset
from themed_corpus import THEMES, ingest_themes, train

from blocks import Dataset
from ooc.runs.new_run import create_run


@pytest.fixture
def corpus(tmp_path: Path, ooc: Ooc) -> Path:
    return ingest_themes(ooc, tmp_path)


def test_the_main_job(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    """Every step of it, in one go; the themes are found, and results come in the original order of documents."""
    done = train(ooc)
    assert done.returncode == 0, done.stderr
    assert "ooc topics run" in done.stdout
    assert "training on " in done.stderr

    described = json.loads(ooc("topics", "run", "--top", 6, "--documents", 2, "--json").stdout)
    found = {frozenset(entry["word"] for entry in topic["words"]) for topic in described}
    assert found == {frozenset(theme.split()) for theme in THEMES}
    assert all(entry["name"].startswith("doc") for topic in described for entry in topic["documents"])
    assert "planet" in ooc("topics", "run").stdout

    assert ooc("ingest", "jsonl", "texts.jsonl", "again", "--vocab-from", "corpus").returncode == 0
    assert ooc("infer", "run", "again", "mixtures.jsonl", "--top", 1).returncode == 0
    rows = [json.loads(line) for line in (tmp_path / "mixtures.jsonl").read_text().splitlines()]
    assert [row["name"] for row in rows] == [f"doc{d}" for d in range(151)]
    of_theme = [{row["topics"][0] for row in rows[:150][theme::3]} for theme in range(3)]
    assert all(len(topics) == 1 for topics in of_theme)
    assert len(set.union(*of_theme)) == 3

    evaluated = json.loads(ooc("evaluate", "run", "again", "--json").stdout)
    assert 5 < evaluated["perplexity"] < 10  # six words of a theme are equally likely

    assert ooc("export", "run", "model.npz").returncode == 0
    with np.load(tmp_path / "model.npz") as arrays:
        assert arrays["topic_tokens"].sum() == 150 * 30

    facts = json.loads(ooc("info", "run", "--json").stdout)
    assert facts["iterations"] == {"planned": 30, "done": 30}
    assert "30 of 30" in ooc("info", "run").stdout
    assert ooc("verify", "run").returncode == 0


def test_a_prior_for_each_topic(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    done = train(ooc, "--alpha", "0.5,0.1,0.25", "--iterations", 1)
    assert done.returncode == 0, done.stderr
    assert ooc("export", "run", "model.npz").returncode == 0
    assert np.load(tmp_path / "model.npz")["alpha"].tolist() == [0.5, 0.1, 0.25]


def test_a_document_major_run_says_its_s_error(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    """LightLDA with its options, as a process: trained, and every line of the metrics has the s-error."""
    chosen = ("--sampler", "lightlda", "--proposal", "cycle", "--mh-steps", 3, "--update", "rotation")
    assert train(ooc, *chosen, "--quiet").returncode == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 30
    assert all(0 <= line["s_error"] < 2 for line in lines)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["options"]["update"] == "rotation"


def test_resume_goes_on_to_the_same_bits(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    """10 iterations and then 20 more, with other workers and another budget, are 30."""
    assert train(ooc).returncode == 0
    whole = {file.name: file.read_bytes() for file in (tmp_path / "run" / "model").iterdir()}
    shorter = ("train", "lda", "corpus", "other", "--topics", 3, "--iterations", 10, "--workers", 1)
    assert ooc(*shorter).returncode == 0
    resumed = ooc("resume", "other", "--iterations", 30, "--workers", 2, "--memory", "1GB", "--json")
    assert json.loads(resumed.stdout)["iteration"] == 30
    assert {file.name: file.read_bytes() for file in (tmp_path / "other" / "model").iterdir()} == whole
    metrics = [json.loads(line) for line in (tmp_path / "other" / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in metrics] == list(range(1, 31))


def test_an_interrupt_is_committed_and_says_how_to_go_on(corpus: Path, tmp_path: Path) -> None:
    """SIGINT once iterations are done: exit code 130, the command to resume; then resume ends it."""
    command = "train lda corpus run --topics 3 --iterations 1000000 --workers 1"
    words = [sys.executable, "-m", "ooc", *command.split()]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 100
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=900)
    assert process.returncode == 130
    assert "ooc resume run" in said
    done = len(metrics.read_text().splitlines())
    resume = [sys.executable, "-m", "ooc", "resume", "run", "--iterations", str(done + 2), "--quiet"]
    assert subprocess.run(resume, cwd=tmp_path, check=False, timeout=900).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--topics", 0), "--topics must be"),
        (("--topics", -3), "--topics must be"),
        (("--topics", "many"), "--topics"),
        (("--topics", 2_000_000), "--topics must be"),
        (("--topics", 2**20 + 1, "--sampler", "lightlda"), "--topics must be"),
        (("--topics", 1_000_000, "--sampler", "aliaslda", "--memory", "200MB"), "at least"),
        (("--alpha", "nan"), "--alpha must be"),
        (("--alpha", "inf"), "--alpha"),
        (("--alpha", 0), "--alpha"),
        (("--alpha", -0.1), "--alpha"),
        (("--alpha", 1e308), "--alpha"),
        (("--alpha", 1e-320), "--alpha"),
        (("--alpha", "0.1,0.2"), "--alpha must have 1 or"),
        (("--alpha", "0.1,,0.2"), "--alpha: '0.1,,0.2' is not a number"),
        (("--alpha", "texts.jsonl"), "--alpha: 'texts.jsonl' is not a number"),
        (("--beta", -1), "--beta"),
        (("--beta", 0), "--beta"),
        (("--beta", "nan"), "--beta"),
        (("--beta", 1e300), "--beta must be from 1e-09 to 1e+09, got 1e+300"),
        (("--sampler", "magic"), "magic"),
        (("--sampler", "gibbs", "--mh-steps", 2), "--mh-steps"),
        (("--mh-steps", 0), "--mh-steps must be"),
        (("--mh-steps", 65), "--mh-steps must be"),
        (("--sampler", "sparselda", "--mh-steps", 2), "--mh-steps cannot be used with --sampler sparselda"),
        (("--sampler", "two-phase", "--update", "rotation"), "--update cannot be used with --sampler two-phase"),
        (("--sampler", "aliaslda", "--proposal", "doc"), "--proposal cannot be used with --sampler aliaslda"),
        (("--sampler", "lightlda", "--proposal", "all"), "--proposal: unknown proposal 'all'"),
        (("--sampler", "gibbs", "--update", "now"), "--update: unknown update 'now'"),
        (
            ("--sampler", "gibbs", "--update", "immediate", "--workers", 2),
            "--update immediate can only be used with 1 worker",
        ),
        (("--memory", "2GBB"), "2GBB"),
        (("--memory", "1MB"), "at least"),
        (("--workers", 0), "workers"),
        (("--iterations", 0), "iterations"),
        (("--optimize-every", -1), "optimize-every"),
        (("--optimize-every", 5, "--burn-in", -1), "burn-in"),
        (("--optimize-every", 5, "--burn-in", 30), "--burn-in 30"),
        (("--burn-in", 5), "--optimize-every"),
        (("--burn-in", 5, "--optimize-every", 0), "--optimize-every"),
        (("--evaluate-every", 0), "evaluate-every"),
        (("--max-time", 0), "--max-time must be"),
        (("--max-time", "nan"), "--max-time must be"),
        (("--seed", -1), "seed"),
        (("--stop-when-converged", "--evaluate-every", 31), "--stop-when-converged"),
        (("--held-out", "nowhere"), "nowhere"),
        (("--average", 4), "--average 4"),
        (("--average", 0), "--average must be"),
        (("--average", 31, "--evaluate-every", 1), "--average 31"),
        (("--average", 2, "--evaluate-every", 7), "must be a multiple of --evaluate-every 7"),
        (("--chains", 0), "--chains must be"),
        (("--chains", 2), "R-hat needs 4"),
        (("--chains", 2, "--evaluate-every", 2, "--stop-when-converged"), "--stop-when-converged"),
        (("--no-such-option",), "no-such-option"),
    ],
)
def test_a_wrong_request_is_refused_and_writes_nothing(
    tmp_path: Path, ooc: Ooc, arguments: tuple[object, ...], said: str
) -> None:
    """Exit code 2, a line that names the option, one that says what to do, no traceback, no run directory."""
    tiny_dataset(tmp_path / "corpus", [[0, 1, 2, 2]] * 5, 3)
    done = train(ooc, *arguments)
    assert_refused(done, said)
    assert done.stdout == ""
    assert not (tmp_path / "run").exists()


def test_held_out_documents_that_do_not_fit_are_refused(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    """Of another vocabulary, with nothing to predict, or no dataset."""
    for name, text, more in (("other", "no such words", ()), ("alike", "apple apple", ("--vocab-from", "corpus"))):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": text}) + "\n")
        assert ooc("ingest", "jsonl", f"{name}.jsonl", name, *more).returncode == 0
    assert_refused(train(ooc, "--held-out", "other"), "different vocabularies")
    assert_refused(train(ooc, "--held-out", "alike"), "nothing to predict")
    assert_refused(train(ooc, "--held-out", "texts.jsonl"), "texts.jsonl")
    assert not (tmp_path / "run").exists()


def test_an_immediate_run_is_resumed_by_one_worker_only(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    """Whoever does not say how many workers gets one; whoever asks for more is told so, before anything is done."""
    configured = {
        "iterations": 3,
        "evaluate_every": 3,
        "settings": {"held_out": None, "stop_when_converged": False, "average": 1},
    }
    create_run(tmp_path / "run", Dataset(corpus), program_spec("Gibbs", update="immediate"), **configured)
    assert_refused(
        ooc("resume", "run", "--workers", 2), "--workers 2: --update immediate can only be used with 1 worker"
    )
    assert_refused(ooc("resume", "run", "--max-time", -1), "--max-time must be a number of seconds above 0, got -1")
    assert_refused(ooc("resume", "run", "--memory", "1MB"), "is too small for 1 worker: it must be at least")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"config.json"}


def test_training_with_everything(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    """Priors, held-out documents, an average, chains: told, and used by the commands for results."""
    assert ooc("ingest", "jsonl", "texts.jsonl", "again", "--vocab-from", "corpus").returncode == 0
    options = ("--optimize-every", 4, "--burn-in", 6, "--held-out", "again", "--evaluate-every", 3, "--average", 3)
    told = json.loads(train(ooc, *options, "--chains", 2, "--json").stdout)
    assert told["r_hat"] > 0
    assert -3 < told["held_out_log_likelihood_per_token"] < -1.5
    assert told["alpha_sum"] > 0
    for command in (("topics", "run"), ("export", "run", "out.npz"), ("evaluate", "run", "again"), ("verify", "run")):
        done = ooc(*command)
        assert done.returncode == 0, done.stderr
        assert command[0] == "verify" or told["best"] in done.stderr
    assert "chain-2" in ooc("info", "run").stdout
    said = ooc("resume", "run").stdout
    assert "R-hat" in said
    assert "held-out" in said


def test_wrong_paths_are_refused(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    """A dataset that is none, a run that exists or is none or is not finished, a file that exists."""
    assert train(ooc).returncode == 0
    assert "resume" in train(ooc).stderr
    (tmp_path / "taken").write_text("mine")
    for arguments in (
        ("train", "lda", "nowhere", "r", "--topics", 3),
        ("train", "lda", "run", "r", "--topics", 3),
        ("train", "lda", "corpus", "taken", "--topics", 3, "--overwrite"),
        ("resume", "corpus"),
        ("topics", "corpus"),
        ("evaluate", "run", "nowhere"),
        ("infer", "run", "corpus", "taken"),
        ("infer", "run", "corpus", "out.npz", "--top", 4),
        ("export", "run", "taken"),
        ("export", "run", "out.xyz", "--format", "xyz"),
        ("info", "nowhere"),
        ("verify", "nowhere"),
    ):
        assert_refused(ooc(*arguments), "")
    assert (tmp_path / "taken").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "run", "taken", "texts.jsonl"}
    assert train(ooc, "--overwrite").returncode == 0


def test_state_on_another_disk(corpus: Path, tmp_path: Path, ooc: Ooc) -> None:
    """--scratch: the state is there and the model the same; it goes with the run that is replaced; without it nothing
    can go on, and that is said."""
    fast = tmp_path / "fast"
    assert train(ooc, "--scratch", "fast").returncode == 0
    (place,) = fast.iterdir()
    assert list((place / "state").glob("*.cells"))
    assert not (tmp_path / "run" / "state").exists()
    assert ooc("verify", "run").returncode == 0
    elsewhere = (tmp_path / "run" / "model" / "words.h5").read_bytes()
    assert_refused(train(ooc, "--scratch", "fast"), "already exists")
    assert list(fast.iterdir()) == [place]
    assert train(ooc, "--overwrite").returncode == 0
    assert not list(fast.iterdir())
    assert (tmp_path / "run" / "model" / "words.h5").read_bytes() == elsewhere
    chains = ("--chains", 2, "--evaluate-every", 3, "--scratch", "fast", "--overwrite")
    assert train(ooc, *chains).returncode == 0
    assert [sorted(path.name for path in place.iterdir()) for place in fast.iterdir()] == [["owner.json", "state"]] * 2
    assert train(ooc, "--scratch", "fast", "--overwrite").returncode == 0
    (place,) = fast.iterdir()
    place.rename(tmp_path / "unmounted")
    done = ooc("resume", "run", "--iterations", 40)
    assert done.returncode == 1
    assert f"{place}, the --scratch directory of run, is missing" in done.stderr
    assert "Traceback" not in done.stderr
    (tmp_path / "unmounted").rename(place)
    assert ooc("resume", "run", "--iterations", 40).returncode == 0
