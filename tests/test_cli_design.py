"""Design matrices on the command line, as processes: what is printed, how they end, and what they leave behind."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from corpora import kill_once_there

from blocks import Design
from blocks.memory import held_memory

SVMLIGHT = "1 1:1 3:2\n-1 2:1.5\n1 3:1\n"


def test_from_svmlight_to_info_verify_and_clean(tmp_path, ooc):
    made = ooc("ingest", "svmlight", "-", "x", "--workers", 2, input=SVMLIGHT)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("x: 3 rows, 3 columns, 4 entries\n1 block, sparse, float32, ")
    facts = json.loads(ooc("info", "x", "--json").stdout)
    assert (facts["kind"], facts["rows"], facts["columns"], facts["form"]) == ("design matrix", 3, 3, "sparse")
    told = ooc("info", "x").stdout
    assert "columns     3 (0 constant, 0 all 0)" in told
    assert "y           -1 to 1, mean 0.333333" in told
    assert "made        from svmlight - by ooc" in told
    assert "no damage found" in ooc("verify", "x").stdout
    (tmp_path / "x" / "blocks" / "00009.h5").write_bytes(b"left over")
    assert "00009.h5: removed" in ooc("clean", "x").stdout
    (tmp_path / "x" / "blocks" / "00000.h5").write_bytes(b"")
    damaged = ooc("verify", "x", "--repair")
    assert damaged.returncode == 1
    assert "00000.h5: 0 bytes, expected" in damaged.stderr.splitlines()[0]
    failed = ooc("shard", "x", "shards", "--shards", 2)
    assert (failed.returncode, "00000.h5" in failed.stderr.splitlines()[0]) == (1, True)


def test_tables_of_text_and_of_numbers(tmp_path, ooc):
    (tmp_path / "in.csv").write_text("text,price,size\nhouse,3,4\nflat,1,2.5\n")
    made = ooc("ingest", "csv", "in.csv", "x", "--target", "price", "--drop", "text", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["y"] == {"low": 1.0, "high": 3.0, "mean": 2.0}
    assert Design(tmp_path / "x").column_names() == ["size"]
    assert ooc("ingest", "csv", "in.csv", "corpus").stdout.startswith("corpus: 2 documents")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["svmlight", "in.svm", "out"], "in.svm, line 3: index 2 comes after 3"),
        (["svmlight", "nowhere.svm", "out"], "nowhere.svm: there is no such file"),
        (["npz", "in.svm", "out"], "in.svm is truncated or damaged"),
        (["mtx", "in.svm", "out"], "in.svm, line 1: expected the header of a real MatrixMarket matrix, got '1 1:1'"),
        (["plink", "in.svm", "out"], "in.svm.bed: there is no such file"),
        (["csv", "in.svm", "out", "--target", "y", "--ngrams", "2"], "--ngrams is for text"),
        (["csv", "in.svm", "out", "--drop", "y"], "--drop can only be used to create a design matrix"),
        (["svmlight", "in.svm", "out", "--block-size", "big"], "--block-size: 'big' is not a size"),
        (["svmlight", "in.svm", "out", "--memory", "1MB", "--workers", "1"], "--memory 0MiB is too small"),
    ],
)
def test_wrong_requests_end_with_code_2_and_one_line(tmp_path, ooc, arguments, complaint):
    (tmp_path / "in.svm").write_text("1 1:1\n1 2:1\n1 3:1 2:1\n")
    ended = ooc("ingest", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert complaint in ended.stderr.splitlines()[0]
    assert [path.name for path in tmp_path.iterdir()] == ["in.svm"]


def test_dropping_the_target_is_not_advised(tmp_path, ooc):
    (tmp_path / "x.csv").write_text("a,y\n1,yes\n")
    for target, advice in (
        ("y", "code the two classes of a logistic regression as 0 and 1"),
        ("a", "or use --drop y"),
    ):
        refused = ooc("ingest", "csv", "x.csv", "out", "--target", target)
        assert refused.returncode == 2
        assert advice in refused.stderr
        assert ("--drop" in refused.stderr) == (target == "a")


def test_the_main_process_leaves_the_kernels_to_its_workers():
    code = "import sys, blocks.design.ingestion\nassert not {'numba', 'h5py', 'scipy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.long
def test_what_a_killed_ingestion_left_is_removed_by_the_next(tmp_path, ooc):
    memory = ["--workers", "1", "--memory", "300MB"]
    command = [sys.executable, "-m", "ooc", "ingest", "svmlight", "-", "x", *memory]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(SVMLIGHT.encode() * 2_000_000)  # more than a chunk
        kill_once_there(process, tmp_path, ".x*/spill/run-*")
    assert ooc("ingest", "svmlight", "-", "x", "--workers", 1, input=SVMLIGHT).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path):
    with gzip.open(tmp_path / "in.svm.gz", "wt", compresslevel=1) as file:
        file.write(SVMLIGHT * 200_000)
    limited = ["bash", "-c", f"ulimit -f 1000; exec {sys.executable} -m ooc ingest svmlight in.svm.gz x"]
    ended = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900)
    assert ended.returncode == 1
    assert "File too large" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.svm.gz"]


@pytest.mark.long
def test_a_file_of_rows_larger_than_memory_keeps_to_it(tmp_path: Path):
    """The input is decompressed as it is read; its entries alone would take 360 MB."""
    random = np.random.default_rng(5)
    rows = ["".join(f" {column}:{column % 7 + 0.5}" for column in np.sort(random.permutation(5000)[:100]) + 1)]
    rows += ["".join(f" {column}:2" for column in range(4000 + shift, 4100 + shift)) for shift in range(9)]
    with gzip.open(tmp_path / "in.svm.gz", "wt", compresslevel=1) as file:
        for _ in range(1000):
            file.write("".join(f"1{row}\n-1{row}\n" for row in rows) * 15)
    budget = 300 << 20
    command = [sys.executable, "-m", "ooc", "ingest", "svmlight", "in.svm.gz", "x", "--workers", "1"]
    command += ["--memory", f"{budget >> 20}MiB", "--block-size", "8MiB"]
    most = 0
    with subprocess.Popen(command, cwd=tmp_path) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            tree = [watched, *watched.children(recursive=True)]
            most = max(most, held_memory([one.pid for one in tree]))
            time.sleep(0.05)
    assert process.returncode == 0
    assert most < budget
    design = Design(tmp_path / "x")
    assert (design.rows, design.entries) == (300_000, 30_000_000)
    assert (np.diff(design.block(0).offsets) > 0).any()
