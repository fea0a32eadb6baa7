"""`train lasso|logistic|poisson` on a ring: the path of one machine, the same at all ranks, whatever happens."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import leftovers, model_bytes
from llvmlite.binding.targets import FeatureMap
from regression_runs import COLUMNS, PATH, ROWS, dense_models, make_designs, model_of
from rings import on_ring

from blocks import Design, Interrupted, RequestError, WorkFailed
from blocks.design.design import DenseDesignBlock, SparseDesignBlock
from blocks.design.row_shards import block_rows, row_bounds
from blocks.design.weighted_moments import row_weightings, weighted_moments
from blocks.shards.splitting import make_shards
from ooc import training_loop
from ooc.ring.ring import Ring, RingFailed
from ooc.runs.run import Run
from samplers import ring_checks
from samplers.regression import training as regression_training
from samplers.regression.data.column_moments import joined_moments, own_moments
from samplers.regression.training import train_regression
from samplers.resume import resume

LOSS_OF = {"lasso": "squared", "logistic": "logistic", "poisson": "poisson"}
RANKS = 3
REFUSED = (RequestError, RingFailed)  # by the rank itself, or by one that was sooner


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_designs(tmp_path_factory.mktemp("designs"))


@pytest.fixture(scope="module")
def shards(made: Path) -> dict[str, list[Path]]:
    return {kind: [one.path for one in make_shards(made / kind, f"{made}/{kind}-{{rank}}", RANKS)] for kind in LOSS_OF}


def train_all(folder: Path, paths: list[Path], kind: str, **options: Any) -> list[Path]:
    """Runs of all ranks."""
    folder.mkdir(exist_ok=True)
    runs = [folder / f"run-{rank}" for rank in range(len(paths))]
    given = {**PATH, **options}
    on_ring(
        len(runs), lambda ring: train_regression(paths[ring.rank], runs[ring.rank], LOSS_OF[kind], ring=ring, **given)
    )
    return runs


def go_on(runs: list[Path], **options: Any) -> None:
    on_ring(len(runs), lambda ring: resume(runs[ring.rank], ring=ring, quiet=True, **options))


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("lasso", {"share": 0.5, "intercept": False}),
    ("lasso", {"weights": "weights.txt", "rows": "rows.npy", "folds": 2}),
    ("logistic", {"standardize": False, "unpenalized": ["3", "20"]}),
    ("logistic", {"folds": 3, "seed": 4}),
    ("poisson", {"folds": 3, "weights": "weights.txt", "positive": True}),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "given"), OPTIONS, ids=str)
def test_the_path_is_that_of_one_machine(made, shards, tmp_path, kind, given):
    """But for the order of sums. The last rank has no row that is used, in one of the cases."""
    np.save(tmp_path / "rows.npy", np.arange(50))
    (tmp_path / "weights.txt").write_text("\n".join(map(str, np.linspace(0.5, 2, ROWS))))
    given = {name: tmp_path / value if name in ("weights", "rows") else value for name, value in given.items()}
    given |= {"tolerance": 1e-11}
    train_regression(made / kind, tmp_path / "one", LOSS_OF[kind], **{**PATH, **given})
    runs = train_all(tmp_path / "ring", shards[kind], kind, **given)
    one, model = model_of(tmp_path / "one"), model_of(runs[0])
    assert model.manifest["dataset"] == Design(made / kind).identity
    assert list(model.problems()) == []
    np.testing.assert_allclose(model.arrays["lambdas"], one.arrays["lambdas"], rtol=1e-12)
    np.testing.assert_allclose(model.arrays["objectives"], one.arrays["objectives"], rtol=1e-9)
    for (_, found), (_, expected) in zip(dense_models(runs[0]), dense_models(tmp_path / "one"), strict=True):
        np.testing.assert_allclose(found.coefficients, expected.coefficients, rtol=1e-4, atol=2e-5)
        assert found.intercept == pytest.approx(expected.intercept, rel=1e-4, abs=1e-5)
    if "folds" in given:
        assert model.chosen == one.chosen
        np.testing.assert_allclose(model.arrays["held_out_errors"], one.arrays["held_out_errors"], rtol=1e-5)
    lines = [Run(run).metrics() for run in runs]
    assert lines[0] == [
        {**line, "budget_bytes": mine["budget_bytes"], "time": mine["time"]}
        for line, mine in zip(lines[1], lines[0], strict=True)
    ]
    last, alone = lines[0][-1], Run(tmp_path / "one").metrics()[-1]
    assert last["bytes_sent"] > 8 * COLUMNS * RANKS
    assert last["samples_processed"] == pytest.approx(alone["samples_processed"], rel=0.2)
    assert not [run for run in runs[1:] if (run / "model").exists()]
    assert [leftovers(run) for run in runs] == [[]] * RANKS


@pytest.fixture(scope="module")
def undisturbed(shards, tmp_path_factory) -> dict[str, bytes]:
    """The model of a cross-validated path that nobody disturbs."""
    return model_bytes(train_all(tmp_path_factory.mktemp("undisturbed"), shards["logistic"], "logistic", folds=2)[0])


def stop_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Have one of the ranks be asked to stop after so many steps."""

    class StopAfterRingStep(training_loop.StopRequest):
        asked = 0

        def reason(self) -> str | None:
            self.asked += 1
            return "SIGTERM" if self.asked > steps and self.leaves else None

    ranks: list[StopAfterRingStep] = []

    def make(*arguments: Any) -> StopAfterRingStep:
        ranks.append(StopAfterRingStep(*arguments))
        ranks[-1].leaves = len(ranks) % RANKS == 0  # type: ignore[attr-defined]
        return ranks[-1]

    monkeypatch.setattr(regression_training, "StopRequest", make)


@pytest.mark.long
def test_a_run_stopped_time_and_again_ends_with_the_same_bytes(shards, tmp_path, undisturbed, monkeypatch):
    """One rank is stopped, and so all are; they go on with other workers and budgets. One has lost its last commit."""
    stop_after(monkeypatch, 1)
    with pytest.raises(Interrupted, match=r"stopped by SIGTERM after \d of 12 values of lambda; everything is saved"):
        train_all(tmp_path, shards["logistic"], "logistic", folds=2)
    runs = [tmp_path / f"run-{rank}" for rank in range(RANKS)]
    for attempt in range(100):
        shutil.copytree(runs[1] / "state", tmp_path / f"state-{attempt}")
        try:
            go_on(runs, workers=1 + attempt % 2, memory_bytes=600_000_000)
        except Interrupted:
            if attempt == 2:
                shutil.rmtree(runs[1] / "state")
                shutil.copytree(tmp_path / "state-2", runs[1] / "state")
            continue
        break
    assert attempt > 2
    assert model_bytes(runs[0]) == undisturbed
    for run in runs:
        assert [line["iteration"] for line in Run(run).metrics()] == list(range(1, 13))
        assert leftovers(run) == []


@pytest.mark.long
def test_damage_at_one_rank_takes_all_back(shards, tmp_path, undisturbed):
    runs = train_all(tmp_path, shards["logistic"], "logistic", folds=2)
    newest = max((runs[2] / "state").glob("*.h5"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    go_on(runs)
    assert model_bytes(runs[0]) == undisturbed
    shutil.rmtree(runs[1] / "state")
    with pytest.raises(WorkFailed, match="rank 1 has no saved state, but other ranks have one"):
        go_on(runs)


def test_a_budget_that_is_too_small_ends_all(shards, tmp_path):
    """The columns that are gathered are those of all rows."""
    with pytest.raises(REFUSED, match="is too small for 400 columns: it must be at least"):
        train_all(tmp_path, shards["lasso"], "lasso", memory_bytes=10**8)
    assert not list(tmp_path.glob("run-*"))


def test_what_does_not_fit_together_is_refused(shards, tmp_path, monkeypatch):
    one, two, three = shards["lasso"]
    with pytest.raises(REFUSED, match="is shard 1"):
        train_all(tmp_path / "order", [two, one, three], "lasso")
    with pytest.raises(REFUSED, match="shard 2 of 3 is missing"):
        train_all(tmp_path / "missing", [one, two], "lasso")
    files = [tmp_path / name for name in ("a.txt", "a.txt", "b.txt")]
    for value, file in enumerate(files, 1):
        file.write_text(f"{value}\n" * ROWS)
    runs = [tmp_path / f"run-{rank}" for rank in range(RANKS)]

    def with_own_weights(ring: Ring) -> None:
        paths = shards["lasso"][ring.rank], runs[ring.rank]
        train_regression(*paths, "squared", ring=ring, weights=files[ring.rank], **PATH)

    with pytest.raises(REFUSED, match="have different weights"):
        on_ring(RANKS, with_own_weights)
    unlike = {
        r"is a \S+ (zen|i486), but that of rank 0": ("get_host_cpu_name", ("zen", "zen", "i486")),
        r"have different instruction sets: avx": (
            "get_host_cpu_features",
            [FeatureMap(avx=True, sse=True)] * 2 + [FeatureMap(avx=False, sse=True)],
        ),
    }
    for said, (asked, answers) in unlike.items():
        monkeypatch.setattr(ring_checks, asked, iter(answers).__next__)
        with pytest.raises(REFUSED, match=f"the processor of rank .*{said}"):
            train_all(tmp_path / "processors", shards["lasso"], "lasso")
        monkeypatch.undo()
    assert not [folder for name in ("order", "missing", "processors") for folder in (tmp_path / name).glob("run-*")]


@pytest.mark.parametrize("dense", [True, False])
def test_moments_are_those_of_the_whole(dense):
    """Also where values are missing, columns are constant, at one rank or at all, and ranks have no rows that count."""
    random = np.random.default_rng(1)
    x = random.integers(0, 3, size=(30, 12)).astype(float)
    x[:, 3], x[:, 4], x[:10, 5], x[:10, 6], x[:, 7] = 0, 2, 1, np.nan, np.where(np.arange(30) < 20, np.nan, 2)
    x[(random.random(x.shape) < 0.3) & (np.arange(12) > 7)] = np.nan
    block: SparseDesignBlock | DenseDesignBlock
    if dense:
        columns, rows = np.nonzero(np.isnan(x.T))
        offsets = np.searchsorted(columns, np.arange(13)).astype(np.int64)
        block = DenseDesignBlock(np.nan_to_num(x.T).astype(np.int8), offsets, rows.astype(np.uint32))
    else:
        columns, rows = np.nonzero(np.nan_to_num(x.T))
        offsets = np.searchsorted(columns, np.arange(13)).astype(np.int64)
        block = SparseDesignBlock(offsets, rows.astype(np.uint32), x.T[columns, rows].astype(np.float32))
    weights = np.stack([random.random(30), np.arange(30) >= 10, np.ones(30)], axis=1).astype(float)
    bounds = row_bounds(30, 3)
    shards = [(block_rows(block, *own), weights[slice(*own)]) for own in pairwise(bounds.tolist())]
    parts = np.stack([own_moments(part, row_weightings(mine)) for part, mine in shards])
    found = joined_moments(parts, np.stack([mine.sum(axis=0) for _, mine in shards]))
    np.testing.assert_allclose(found, weighted_moments(block, row_weightings(weights)), rtol=1e-12, atol=1e-12)
    assert (found[2, :, 3:5] == 0).all()
    assert not dense or (found[2, :, 7] == 0).all()
