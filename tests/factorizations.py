"""Matrices with planted factors, factorizations on rings, and programs for tests of engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from corpora import plan
from rings import on_ring

from blocks.ratings.ingestion import ingest_ratings
from blocks.ratings.matrix import Matrix
from blocks.ratings.request import RatingsRequest
from ooc.ring.ring import Ring
from ooc.runs.dataset_entries import dataset_entry
from ooc.runs.new_run import create_run
from ooc.runs.run import Run
from ooc.training import train
from ooc.workers.worker import ProgramSpec
from samplers.factorization.observer import FactorizationObserver
from samplers.programs import target


def program_spec(method: str, **options: object) -> ProgramSpec:
    defaults = {"rank": 3, "regularization": 0.1, "seed": 7}
    return ProgramSpec(target(f"mf-{method}"), defaults | options)


def written(path: Path, dense: np.ndarray, known: np.ndarray, **options: object) -> Matrix:
    """Write the known entries of a dense matrix, float (D, I), with mask bool (D, I), as a dataset."""
    lines = (f"{row}\t{column}\t{float(dense[row, column])!r}\n" for row, column in np.argwhere(known).tolist())
    (path / "ratings.tsv").write_text("".join(lines))
    request = RatingsRequest([str(path / "ratings.tsv")], str(path / "matrix"), **options)  # type: ignore[arg-type]
    return ingest_ratings(request, workers=1)


def planted(rows: int, columns: int, rank: int, share: float, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix of low rank, and the mask of its known entries, with some in every row and column."""
    random = np.random.default_rng(seed)
    dense = random.normal(size=(rows, rank)) @ random.normal(size=(rank, columns))
    known = random.random((rows, columns)) < share
    known[:, 0] = known[0] = True
    return dense, known


OPTIONS = {"rank": 6, "regularization": 0.02, "seed": 7}


OWN: dict[str, dict[str, object]] = {"implicit": {"alpha": 2.0}, "splash": {"parallelism": 6}}


def options_of(method: str) -> dict[str, object]:
    return OPTIONS | OWN.get(method, {"biases": True})


def train_all(runs: list[Run], workers: int = 1, *, mapped: bool = False) -> None:
    """Train a run at each rank of a ring."""

    def train_one(ring: Ring) -> None:
        run = runs[ring.rank]
        train(run, plan(workers, mapped=mapped), quiet=True, observer=FactorizationObserver(run), ring=ring)

    on_ring(len(runs), train_one)


def new_runs(
    root: Path,
    datasets: list[Matrix],
    method: str,
    iterations: int = 4,
    held_out: Sequence[Matrix] = (),
    **options: object,
) -> list[Run]:
    root.mkdir(exist_ok=True)
    spec = ProgramSpec(target(f"ring-mf-{method}"), options_of(method) | options)
    length = {"iterations": iterations, "evaluate_every": 1}
    entries = list(map(dataset_entry, held_out)) or [None] * len(datasets)
    return [
        create_run(root / f"run-{i}", shard, spec, settings={"staleness": 0, "held_out": entry}, **length)
        for i, (shard, entry) in enumerate(zip(datasets, entries, strict=True))
    ]


def one_machine(path: Path, matrix: Matrix, method: str, iterations: int, **options: object) -> Run:
    spec = ProgramSpec(target(f"mf-{method}"), options_of(method) | options)
    run = create_run(path, matrix, spec, iterations=iterations, evaluate_every=1)
    train(run, plan(), quiet=True)
    return run


def told(run: Run, name: str) -> list[float]:
    return [line[name] for line in run.metrics()]
