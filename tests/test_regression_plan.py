"""`ooc plan` for regressions: what it says beforehand against what a run then measures."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
from designs import ingested

from blocks import Design, RequestError
from ooc.runs.run import Run
from samplers.regression.path.forecast import WITHIN, forecast_lines, plan_regression

ROWS, COLUMNS = 3000, 100_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Design:
    folder, random = tmp_path_factory.mktemp("design"), np.random.default_rng(1)
    x = scipy.sparse.random_array((ROWS, COLUMNS), density=0.003, format="csc", rng=random, dtype=np.float32)
    scipy.sparse.save_npz(folder / "x.npz", x)
    np.save(folder / "y.npy", x[:, :200].sum(axis=1) + 0.1 * random.normal(size=ROWS))
    return ingested("npz", folder / "x.npz", folder / "design", block_bytes=4_000_000, target=str(folder / "y.npy"))


def test_a_plan_is_what_a_run_then_takes(made, tmp_path, ooc):
    """Memory as exactly as is told; bytes to a factor of two, as they depend on the columns."""
    facts = json.loads(ooc("plan", made.path, "--path", 20, "--nonzeros", 300, "--json").stdout)
    command = f"train lasso {made.path} run --path 20 --lambda-min-ratio 0.1 --workers 1"
    # Started afresh, as users do: a process that is forked shares memory with others, which does not count.
    subprocess.run([sys.executable, "-m", "ooc", *command.split()], cwd=tmp_path, check=True)
    lines = Run(tmp_path / "run").metrics()
    assert max(line["memory_bytes"] for line in lines) == pytest.approx(facts["memory_bytes"], rel=WITHIN)
    assert 0.5 < lines[-1]["bytes_read"] / facts["read_bytes"] < 2
    taken = sum(file.stat().st_size for file in (tmp_path / "run" / "state").iterdir())
    assert taken < facts["state_bytes"] < 3 * taken


def test_what_is_told_of_a_design(made, ooc):
    done = ooc("plan", made.path, "--memory", "1GB", "--speed", "1e8", "--workers", 2, "--cross-validate", 3)
    assert done.returncode == 0, done.stderr
    assert f"{ROWS:,} rows x {COLUMNS:,} columns" in done.stdout
    assert "assumes    all columns are read in" in done.stdout
    refused = ooc("plan", made.path, "--memory", "100MB")
    assert refused.returncode == 2
    assert "--memory 100 MB is too small for 100,000 columns: it must be at least" in refused.stderr


def test_a_disk_counts_where_the_page_cache_has_no_room(made, monkeypatch):
    plain = plan_regression(made, speed=1e8, memory_bytes=10**9)
    assert "assumed_disk" not in plain
    monkeypatch.setattr("samplers.regression.path.forecast.memory.available_memory", lambda: 10**6)
    facts = plan_regression(made, speed=1e8, disk=1e6, memory_bytes=10**9)
    assert facts["disk_s"] == pytest.approx(facts["read_bytes"] / 1e6)
    assert facts["path_s"] == pytest.approx(facts["disk_s"] + facts["solving_s"])
    assert any("at 1.0 MB/s" in line for line in forecast_lines(facts))
    with pytest.raises(RequestError, match="got 100 and 1"):
        plan_regression(made, folds=1)
