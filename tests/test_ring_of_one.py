"""A ring of one machine is no ring: the same bytes on the same dataset, by every model that trains on rings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpora import model_bytes, small_dataset
from factorizations import planted, written
from long_mark import long_but
from rings import on_ring
from sample_sets import drawn, samples_of

from samplers.factorization.training import train_mf
from samplers.lda.training import train_lda
from samplers.regression.softmax.training import train_softmax
from samplers.resume import resume


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A dataset for each kind of model."""
    folder = tmp_path_factory.mktemp("data")
    dense, known = planted(60, 40, 3, 0.5)
    return {
        "lda": small_dataset(folder / "corpus").path,
        "mf": written(folder, dense - dense.min() + 0.1, known, grid=3).path,
        "softmax": samples_of(folder / "samples", *drawn(200, 1)).path,
    }


TRAIN: dict[str, Callable[..., Any]] = {"lda": train_lda, "mf": train_mf, "softmax": train_softmax}
LENGTH = {"softmax": "passes"}
MODELS = [
    ("lda", {"topics": 5, "sampler": "sparse-gibbs"}),
    ("mf", {"rank": 4, "method": "sgd"}),
    ("softmax", {}),
    *(("lda", {"topics": 5, "sampler": name}) for name in ("auto", "two-phase", "gibbs", "lightlda", "splash")),
    *(("mf", {"rank": 4, "method": name}) for name in ("ccd", "als", "splash")),
    ("mf", {"rank": 4, "implicit": True}),
]


@pytest.mark.parametrize(("model", "options"), long_but(MODELS[:3], MODELS))
def test_the_bytes_are_those_of_no_ring(
    tmp_path: Path, data: dict[str, Path], model: str, options: dict[str, Any]
) -> None:
    """Also where the one goes on with what the other began."""
    length = LENGTH.get(model, "iterations")
    how = {"workers": 1, "quiet": True, "seed": 3, **options}
    TRAIN[model](data[model], tmp_path / "alone", **how, **{length: 4})
    on_ring(1, lambda ring: TRAIN[model](data[model], tmp_path / "ring", ring=ring, **how, **{length: 2}))
    on_ring(1, lambda ring: resume(tmp_path / "ring", iterations=3, workers=1, quiet=True, ring=ring))
    resume(tmp_path / "ring", iterations=4, workers=1, quiet=True)
    assert model_bytes(tmp_path / "ring") == model_bytes(tmp_path / "alone")
