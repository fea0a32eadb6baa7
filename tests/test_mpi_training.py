"""Topic models trained by ranks that MPI starts."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import xxhash
from corpora import model_bytes, tree
from launches import ITERATIONS, OPTIONS, expected, shards_of
from rings import mpiexec
from text_files import files_of

from blocks.corpus.dataset import Dataset
from ooc.runs.run import Run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a directory with two shards."""
    folder = tmp_path_factory.mktemp("mpi")
    shards_of(folder, 2)
    return folder


@pytest.fixture(scope="module")
def model(place) -> dict[str, bytes]:
    return expected(place / "expected", [Dataset(place / f"shard-{rank}") for rank in range(2)])


@pytest.mark.ring
@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
def test_ranks_that_mpi_starts(place, model):
    """The same command at all ranks trains the same model; only the first tells it."""
    pytest.importorskip("mpi4py")
    command = [str(mpiexec()), "-n", "2", sys.executable, "-m", "ooc", "train", "lda", "shard-{rank}", "mpi-{rank}"]
    options = [*map(str, OPTIONS), "--transport", "mpi"]
    common: dict[str, Any] = {"cwd": place, "capture_output": True, "text": True, "timeout": 240}
    done = subprocess.run([*command, *options], check=False, **common)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{ITERATIONS} iterations") == 1
    assert model_bytes(place / "mpi-0") == model
    refused = subprocess.run([*command, *options, "--update", "rotation"], check=False, **common)
    assert refused.returncode != 0
    assert "--update rotation cannot be used on several machines" in refused.stderr


@pytest.mark.long
@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec: pip install mpich")
def test_ranks_that_mpi_starts_ingest_shards_of_one_dataset(tmp_path, bags):
    """One rank makes the bytes of a process without MPI; two make shards of the same documents and vocabulary."""
    pytest.importorskip("mpi4py")
    files_of(tmp_path, "text")

    def ingest(ranks: int, *paths: str) -> None:
        started = [str(mpiexec()), "-n", str(ranks)] if ranks else []
        words = ["ingest", "text", "--lines", "--seed", "3", *paths, *(["--transport", "mpi"] if ranks else [])]
        command = [*started, sys.executable, "-m", "ooc", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr

    ingest(0, "in-0", "in-1", "alone")
    ingest(1, "in-{rank}", "in-1", "one-{rank}")
    assert tree(tmp_path / "one-0") == tree(tmp_path / "alone")
    ingest(2, "in-{rank}", "shard-{rank}")
    alone, shards = Dataset(tmp_path / "alone"), [Dataset(tmp_path / f"shard-{rank}") for rank in range(2)]
    assert [shard.vocabulary() for shard in shards] == [alone.vocabulary()] * 2
    assert [bag for shard in shards for bag in bags(shard)] == bags(alone)
    assert [shard.whole[:2] for shard in shards] == [(alone.documents, alone.tokens)] * 2


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
@pytest.mark.parametrize(
    ("second", "said"),
    [
        (
            ["train", "lda", "shard-{rank}", "unlike-{rank}", *OPTIONS, "--beta", 0.5],
            "--beta is not given on rank 0 (HOST), but 0.5",
        ),
        (["resume", "unlike-{rank}"], "command is train lda on rank 0 (HOST), but resume"),
    ],
)
def test_ranks_that_mpi_starts_by_unlike_commands(place, second, said):
    """What differs is named, by all of them."""
    pytest.importorskip("mpi4py")
    first = ["train", "lda", "shard-{rank}", "unlike-{rank}", *OPTIONS, "--workers", 2]
    commands = [
        ["-n", "1", sys.executable, "-m", "ooc", *map(str, words), "--transport", "mpi"] for words in (first, second)
    ]
    command = [str(mpiexec()), *commands[0], ":", *commands[1]]
    refused = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=240, check=False)
    assert refused.returncode != 0
    assert refused.stderr.count(said.replace("HOST", socket.gethostname())) == 2, refused.stderr
    assert not (place / "unlike-0").exists()


def test_mpich_by_the_name_that_debian_gives_it_is_explained(tmp_path, monkeypatch):
    """Any library by that name does, as it is only looked for."""
    pytest.importorskip("mpi4py")
    (tmp_path / "libmpich.so.12").write_bytes(Path(xxhash._xxhash.__file__).read_bytes())
    command = [sys.executable, "-m", "ooc", "resume", "run", "--transport", "mpi"]
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nowhere")
    for path, said in (
        ("", "and an MPI library"),
        (str(tmp_path), f"ln -s {tmp_path}/libmpich.so.12 ~/mpi/libmpi.so.12"),
    ):
        monkeypatch.setenv("LD_LIBRARY_PATH", path)
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.returncode == 2
        assert "MPI cannot be used: cannot load MPI library" in refused.stderr
        assert said in refused.stderr


@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
@pytest.mark.long
def test_a_job_that_runs_out_of_time_commits_and_goes_on(place, monkeypatch):
    """Its slices are on the disk of the node, which the next job has elsewhere."""
    pytest.importorskip("mpi4py")

    def job(disk: str, *words: object) -> subprocess.CompletedProcess[str]:
        (place / disk).mkdir()
        monkeypatch.setenv("TMPDIR", str(place / disk))
        command = [str(mpiexec()), "-n", "2", sys.executable, "-m", "ooc", *map(str, words), "--transport", "mpi"]
        return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=240, check=False)

    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + 90)))  # saving is given 60 s of them
    long = ("train", "lda", "shard-{rank}", "job-{rank}", *OPTIONS, "--iterations", 9**6)
    stopped = job("disk-0", *long, "--scratch", "node")
    assert stopped.returncode == 75, stopped.stderr
    assert "training stops after" in stopped.stderr
    assert "stopped by the end of the job at iteration" in stopped.stderr
    assert "everything is saved" in stopped.stderr
    assert "Continue with: mpirun -n 2 ooc resume job-{rank} --transport mpi" in stopped.stderr
    assert not (place / "job-0" / "slices").exists()
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    more = len(Run(place / "job-0").metrics()) + 5
    went_on = job("disk-1", "resume", "job-{rank}", "--iterations", more)
    assert went_on.returncode == 0, went_on.stderr
    assert len(Run(place / "job-1").metrics()) == more
