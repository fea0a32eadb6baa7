"""`ooc clean`: what killed processes left goes, what is committed or in use stays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import model_bytes, new_run, plan, program_spec, small_dataset, tree

from blocks import Dataset, RequestError
from blocks.files import file_lock
from ooc import training
from ooc.runs.cleanup import clean
from ooc.runs.run import Run
from ooc.training import train

PUBLISHING = """
import sys
from pathlib import Path
from blocks.files import publish_file, publish_directory
with publish_file(Path("file")) as file, publish_directory(Path("directory")) as directory:
    print(file.name, directory.name, flush=True)
    sys.stdin.read()
"""
SPEC = program_spec(topics=8)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("leftovers") / "dataset")


def trained(path: Path, dataset: Dataset, iterations: int = 3) -> Run:
    run = new_run(path, dataset, SPEC, iterations)
    train(run, plan(), quiet=True)
    return run


def names(removed) -> list[str]:
    return sorted(gone.path.name for gone in removed)


def test_what_is_being_published_stays_and_what_was_goes(tmp_path):
    command = [sys.executable, "-c", PUBLISHING]
    for end in ("killed", "left"):
        with subprocess.Popen(
            command, cwd=tmp_path, env={"PYTHONPATH": ":".join(sys.path)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            published = sorted(process.stdout.readline().decode().split())
            assert names(clean(tmp_path).removed) == []
            if end == "killed":
                process.kill()
            else:
                process.communicate(b"")
        assert process.returncode == (-9 if end == "killed" else 0)
        assert names(clean(tmp_path).removed) == (published if end == "killed" else [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "file"]


def test_a_dataset_loses_what_its_manifest_does_not_name(tmp_path):
    dataset = small_dataset(tmp_path / "dataset")
    before = tree(dataset.path)
    for stray in ("blocks/00099.h5", "index-1.h5", "slices-1/00000.h5", "blocks/.00001.h5.partial-0123abcd"):
        (dataset.path / stray).parent.mkdir(exist_ok=True)
        (dataset.path / stray).write_bytes(b"left over")
    with file_lock(dataset.path):
        with pytest.raises(RequestError, match="another process is appending to it"):
            clean(dataset.path)
        assert clean(tmp_path).skipped == [f"{dataset.path} is in use: another process is appending to it"]
    cleaned = clean(tmp_path)
    assert names(cleaned.removed) == [".00001.h5.partial-0123abcd", "00099.h5", "index-1.h5", "slices-1"]
    assert sum(gone.bytes for gone in cleaned.removed) == 4 * len(b"left over")
    assert tree(dataset.path) == before


def test_a_run_loses_what_was_not_committed_and_goes_on_to_the_same_bytes(tmp_path, dataset):
    expected = model_bytes(trained(tmp_path / "expected", dataset, 5).path)
    run = trained(tmp_path / "run", dataset)
    (run.path / ".model.partial-0123abcd").mkdir()
    (run.path / "slices").mkdir()
    killed_before_it_was_locked = ".000099.json.partial-0123abcd.unlocked"  # a moment ago
    in_state = ("000099.cells", "000099.h5", killed_before_it_was_locked)
    for stray in (*(f"state/{name}" for name in in_state), "slices/arrays", ".model.partial-0123abcd/words.h5"):
        (run.path / stray).write_bytes(b"left over")
    with run.locked():
        (run.path / "slices").mkdir()  # the lock's holder uses it
        (run.path / "slices" / "arrays").write_bytes(b"in use")
        with pytest.raises(RequestError, match="is in use by process"):
            clean(run.path)
        assert len(clean(tmp_path).skipped) == 1
        assert (run.path / "slices" / "arrays").exists()
    assert names(clean(run.path).removed) == [killed_before_it_was_locked, "000099.cells", "000099.h5", "slices"]
    assert clean(run.path).removed == []
    run.set_iterations(5)
    train(run, plan(2), quiet=True)
    assert model_bytes(run.path) == expected


@pytest.mark.long
def test_without_its_state_a_finished_run_can_be_read_and_not_resumed(tmp_path, dataset, ooc):
    lda = ["--topics", 8, "--iterations", 4, "--evaluate-every", 1, "--workers", 1, "--sampler", "gibbs"]
    assert ooc("train", "lda", dataset.path, "run", *lda, "--scratch", "scratch").returncode == 0
    assert ooc("train", "lda", dataset.path, "chains", *lda, "--iterations", 12, "--chains", 2).returncode == 0
    unfinished = trained(tmp_path / "unfinished", dataset)
    unfinished.set_iterations(5)

    told = json.loads(ooc("clean", ".", "--state", "--json").stdout)
    assert told["skipped"] == ["unfinished is not finished, so its state is kept"]
    assert told["bytes"] > dataset.tokens
    assert len(told["removed"]) == 4  # three states, and what says whose the scratch directory was
    assert list((tmp_path / "scratch").iterdir()) == []
    assert (tmp_path / "unfinished" / "state").exists()
    assert not any(tmp_path.glob("chains/*/state"))

    assert ooc("topics", "run").returncode == 0
    assert ooc("verify", "run").returncode == 0
    assert ooc("verify", "chains").returncode == 0
    assert "state removed" in ooc("info", "run").stdout
    assert ooc("clean", "run", "--state").stdout == "run: nothing to delete\n"
    refused = ooc("resume", "run", "--iterations", 9)
    assert refused.returncode == 2
    assert "was removed with `ooc clean --state`" in refused.stderr
    assert Run(tmp_path / "run").config["iterations"] == 4
    assert ooc("train", "lda", dataset.path, "run", *lda, "--overwrite").returncode == 0


@pytest.mark.long
def test_the_model_that_a_finished_run_has_replaced_goes(tmp_path, dataset, ooc):
    """It is deleted at the end; after a power cut it may be there again."""
    lda = ["--topics", 3, "--iterations", 8, "--evaluate-every", 1, "--workers", 1]
    for out, more in (("run", []), ("chains", ["--chains", 2])):
        assert ooc("train", "lda", dataset.path, out, *lda, *more).returncode == 0
        before = without_lock(tmp_path / out)
        (tmp_path / out / "previous").mkdir()
        (tmp_path / out / "previous" / "vocabulary.txt").write_text("deleted up to here\n")
        assert ooc("verify", out).returncode == 0
        assert f"{out}/previous: removed" in ooc("clean", out).stdout
        assert without_lock(tmp_path / out) == before


def without_lock(run: Path) -> dict[str, bytes]:
    """All files of a run, or of chains, but for those that say which process had it last."""
    return {name: content for name, content in tree(run).items() if Path(name).name != "lock"}


def test_a_model_of_fewer_iterations_does_not_make_a_run_finished(tmp_path, dataset, monkeypatch):
    """A run that went on and was killed before it wrote its new model keeps its state."""
    run = trained(tmp_path / "run", dataset)
    run.set_iterations(5)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training, "publish_model", killed)
        with pytest.raises(KeyboardInterrupt):
            train(run, plan(), quiet=True)
    assert run.metrics()[-1]["iteration"] == 5
    assert clean(run.path, state=True).skipped == [f"{run.path} is not finished, so its state is kept"]
    train(run, plan(), quiet=True)
    assert clean(run.path, state=True).skipped == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "command",
    [
        "infer run {dataset} {}.csv --workers 1",
        "export run {}.npz",
        "export run {}.csv --format mixtures",
        "export run {} --format mallet",
        "report run -o {}.html",
        "curves run -o {}.svg",
    ],
)
def test_what_a_killed_command_left_goes_when_it_is_run_again(command, tmp_path, dataset, ooc):
    """Pipelines do so, and nobody cleans behind them; what another process is writing stays."""
    trained(tmp_path / "run", dataset)
    out = next(word for word in command.format("out", dataset=dataset.path).split() if word.startswith("out"))
    for name in (out, f"other-{out}"):
        (tmp_path / f".{name}.partial-00000000").mkdir()
        (tmp_path / f".{name}.partial-00000000" / "topics").write_bytes(bytes(99))
        (tmp_path / f".{name}.partial-11111111").write_bytes(bytes(9))
    (tmp_path / f".{out}.partial-22222222").write_bytes(bytes(9))
    with file_lock(tmp_path / f".{out}.partial-22222222"):
        done = ooc(*command.format("out", dataset=dataset.path).split())
    assert done.returncode == 0, done.stderr
    left = {path.name for path in tmp_path.glob(".*.partial-*")}
    assert left == {f".other-{out}.partial-{digits}" for digits in ("00000000", "11111111")} | {
        f".{out}.partial-22222222"
    }


def test_what_is_neither_is_refused(tmp_path, ooc):
    ended = ooc("clean", "nothing")
    assert ended.returncode == 2
    assert "nothing is not a directory" in ended.stderr
