"""Multi-class regression on a ring: as many workers come to the same as on one machine; processes that are killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import model_bytes, plan
from launches import LaunchProcess, nobody_left, rank_in
from rings import mpiexec, on_ring
from sample_sets import drawn, samples_of

from benchmarks.sshd import SSHD, client_config, free_port, make_keys, serve, wait_for
from blocks import RequestError
from blocks.samples.samples import Samples
from blocks.shards.splitting import make_shards
from blocks.verify import verify_dataset, verify_shards
from ooc.cli.console import progress_bar
from ooc.ring.ring import Ring
from ooc.runs.dataset_entries import dataset_entry
from ooc.runs.new_run import create_run
from ooc.runs.run import Run
from ooc.training import train
from ooc.workers.worker import ProgramSpec
from samplers.programs import target
from samplers.regression.softmax.training import SoftmaxObserver


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """601 samples as `whole`, and in two shards."""
    folder = tmp_path_factory.mktemp("samples")
    whole = samples_of(folder / "whole", *drawn(601, 1))
    assert whole.block_count > 3
    make_shards(whole.path, f"{folder}/shard-{{rank}}", 2)
    samples_of(folder / "others", *drawn(200, 2))
    return folder


def opened(folder: Path) -> list[Samples]:
    return [Samples(folder / f"shard-{rank}") for rank in range(2)]


def contents(samples: Samples) -> list[tuple[Any, ...]]:
    """The samples in the order in which they are stored."""
    found = []
    for number in range(samples.block_count):
        block = samples.block(number)
        for row, label in enumerate(block.labels.tolist()):
            mine = slice(*block.offsets[row : row + 2])
            found.append((label, block.columns[mine].tolist(), block.values[mine].tolist()))
    return found


def test_shards_are_runs_of_the_whole(folder: Path) -> None:
    whole, shards = Samples(folder / "whole"), opened(folder)
    assert [shard.rows for shard in shards] == [300, 301]
    assert contents(shards[0]) + contents(shards[1]) == contents(whole)
    numbers = np.concatenate([whole.block(number).rows for number in range(whole.block_count)])
    theirs = []
    for shard in shards:
        places = np.concatenate([shard.block(number).rows for number in range(shard.block_count)])
        theirs.append(shard.of_whole()["numbers"][places])  # type: ignore[index]
        assert verify_dataset(shard, progress_bar).problems == []
        assert shard.index.labels.tolist() == whole.index.labels.tolist()
    assert np.array_equal(np.concatenate(theirs), numbers)


def test_shards_at_the_command_line(folder: Path, ooc_in: Callable[[Path], Any]) -> None:
    done = ooc_in(folder)("shard", "whole", "in-3", "--shards", 3)
    entries = [Samples(folder / "in-3" / f"shard-{rank}").entries for rank in range(3)]
    assert done.stdout.startswith(f"in-3/shard-0: 200 samples, 12 columns, {entries[0]:,} entries")
    assert sum(entries) == Samples(folder / "whole").entries


def test_what_cannot_be_split_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="601 samples cannot be split into 602 shards"):
        make_shards(folder / "whole", str(tmp_path / "shards"), 602)
    with pytest.raises(RequestError, match="is already a shard"):
        make_shards(folder / "shard-0", str(tmp_path / "shards"), 2)
    assert not list(tmp_path.iterdir())
    make_shards(folder / "whole", str(tmp_path / "shards"), 3)
    assert verify_shards(tmp_path / "shards", progress_bar).problems == []


def new_runs(
    root: Path, datasets: Sequence[Samples], passes: int = 3, held_out: Path | None = None, **options: Any
) -> list[Run]:
    root.mkdir()
    on_ring = {"on_ring": True} if len(datasets) > 1 else {}
    spec = ProgramSpec(target("softmax"), {"rate": 0.3, "seed": 3, **on_ring, **options})
    entry = dataset_entry(Samples(held_out)) if held_out else None
    length: dict[str, Any] = {"iterations": passes, "evaluate_every": 1}
    settings = {"staleness": 0, "held_out": entry} if on_ring else {"held_out": entry}
    return [create_run(root / f"{n}", each, spec, settings=settings, **length) for n, each in enumerate(datasets)]


def train_all(runs: Sequence[Run]) -> None:
    def train_one(ring: Ring) -> None:
        run = runs[ring.rank]
        train(run, plan(1), quiet=True, observer=SoftmaxObserver(run, first=ring.rank == 0), ring=ring)

    on_ring(len(runs), train_one)


def weights_of(run: Run) -> np.ndarray:
    return np.load(run.path / "model" / "softmax.npz")["weights"]


def told(run: Run) -> list[dict[str, Any]]:
    """What is told of each pass, but for how long it took and what it took."""
    names = ("iteration", "objective", "error", "parallelism", "held_out_loss", "held_out_error", "samples_processed")
    return [{name: line[name] for name in names} for line in run.metrics()]


@pytest.mark.few(1)
@pytest.mark.parametrize("degree", [2, 6])
def test_workers_come_to_what_they_do_on_one_machine(folder: Path, tmp_path: Path, degree: int) -> None:
    """Bit for bit where each machine has one worker, as sums are then added up in the same order."""
    options: dict[str, Any] = {"parallelism": degree, "held_out": folder / "others", "regularization": 1e-3}
    runs = new_runs(tmp_path / "ring", opened(folder), **options)
    train_all(runs)
    (one,) = new_runs(tmp_path / "one", [Samples(folder / "whole")], **options)
    train(one, plan(1), quiet=True, observer=SoftmaxObserver(one))
    np.testing.assert_allclose(weights_of(runs[0]), weights_of(one), rtol=1e-5, atol=1e-6)
    assert degree > 2 or np.array_equal(weights_of(runs[0]), weights_of(one))
    assert told(runs[0]) == told(runs[1])
    for mine, other in zip(told(runs[0]), told(one), strict=True):
        assert mine == pytest.approx(other, rel=1e-5)
    assert not (runs[1].path / "model").exists()


def test_all_machines_choose_the_same(folder: Path, tmp_path: Path) -> None:
    """Groups are of all machines, with as many workers of each; several synchronizations a pass."""
    options = {"parallelism": "auto", "most_parallelism": 7, "sync_per_pass": 2, "held_out": folder / "others"}
    runs = new_runs(tmp_path / "ring", opened(folder), **options)  # type: ignore[arg-type]
    train_all(runs)
    assert told(runs[0]) == told(runs[1])
    first = runs[0].metrics()[0]
    tried = {name for name in first if name.startswith("held_out_loss_of_")}
    assert tried == {"held_out_loss_of_2", "held_out_loss_of_6"}
    assert all(line["parallelism"] in (2, 6) for line in told(runs[0]))
    assert told(runs[0])[-1]["error"] < 0.25


def test_workers_are_dealt_evenly(folder: Path) -> None:
    spec = ProgramSpec(target("softmax"), {"parallelism": 5, "on_ring": True})
    with pytest.raises(RequestError, match="--parallelism must be a multiple of 2, the number of machines; got 5"):
        spec.build(opened(folder)[0])


# Processes

OPTIONS = ("--passes", 40, "--parallelism", 4, "--rate", 0.3, "--seed", 3, "--workers", 1, "--held-out", "others")


@pytest.fixture(scope="module")
def place(folder: Path) -> Any:
    """Two ranks behind a real sshd."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("NO LAUNCH IS TESTED: there is no sshd on this machine")
    make_keys(folder)
    port = free_port()
    (folder / "hosts.txt").write_text("one\none\n")
    with serve(folder, "127.0.0.1", port), nobody_left(folder):
        config = client_config(folder, {"one": ("127.0.0.1", port)})
        wait_for(config, ["one"])
        yield folder


@pytest.fixture(scope="module")
def model(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What engines in one process come to, whose ranks are threads."""
    runs = new_runs(tmp_path_factory.mktemp("expected") / "runs", opened(folder), 40, parallelism=4)
    train_all(runs)
    return model_bytes(runs[0].path)


@pytest.mark.long
def test_a_launch_goes_on_after_a_rank_is_killed(place: Path, model: dict[str, bytes]) -> None:
    command = ("--", "train", "softmax", "shard-{rank}", "run-{rank}", *OPTIONS)
    with nobody_left(place):
        launch = LaunchProcess(place, *command)
        launch.until_trained(place / "run-0", 1)
        rank_in(place).kill()
        done = launch.done()
    assert done.returncode == 1
    assert "was killed by SIGKILL" in done.stderr
    done = LaunchProcess(place, "--", "resume", "run-{rank}", "--workers", 2).done()
    assert done.returncode == 0, done.stderr
    assert "held-out error" in done.stdout
    assert model_bytes(place / "run-0") == model


@pytest.mark.long
@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
def test_ranks_that_mpi_starts(folder: Path, model: dict[str, bytes]) -> None:
    pytest.importorskip("mpi4py")
    command = [
        *(str(mpiexec()), "-n", "2", sys.executable, "-m", "ooc"),
        *("train", "softmax", "shard-{rank}", "mpi-{rank}"),
    ]
    options = [*map(str, OPTIONS), "--transport", "mpi", "--json"]
    common: dict[str, Any] = {"cwd": folder, "capture_output": True, "text": True, "timeout": 240}
    done = subprocess.run([*command, *options], check=False, **common)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["iteration"] == 40
    assert model_bytes(folder / "mpi-0") == model
