"""Ratings of any size: factors that go with it, objectives in the ratings' own unit, and nothing that is not finite."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Ooc
from factorizations import planted, written
from long_mark import long_but
from rings import on_ring

from blocks.errors import RequestError, WorkFailed
from blocks.shards.splitting import make_shards
from ooc.runs.run import Run
from samplers import MatrixFactorization
from samplers.factorization.model import FactorModel
from samplers.factorization.training import train_mf

DENSE, KNOWN = planted(120, 40, 3, 0.4)
ROWS, COLUMNS = np.nonzero(KNOWN)
NOISE = np.random.default_rng(8).normal(size=DENSE.shape)
TABLE = (DENSE + 2 + 0.5 * NOISE).astype(np.float32).astype(float)
VALUES = TABLE[KNOWN]
SIZES = [1e-8, 1e8, 1e9, 1e10, 1e30]
METHODS = ["als", "ccd", "sgd", "splash"]


def no_penalty(method: str, size: float) -> float:
    """One that does not count: 0, but for splash, which needs one."""
    return 1e-6 * min(1.0, size**2) if method == "splash" else 0.0


@cache
def fitted(method: str, size: float, regularization: float, iterations: int = 6, **options: Any) -> MatrixFactorization:
    estimator = MatrixFactorization(
        3, method=method, regularization=regularization, max_iter=iterations, random_state=0, n_jobs=1, **options
    )
    return estimator.fit((ROWS, COLUMNS, VALUES * size))


@pytest.mark.few(2)
@pytest.mark.parametrize("size", long_but(SIZES[-1:], SIZES))
@pytest.mark.parametrize("method", METHODS)
def test_errors_go_with_the_ratings(method: str, size: float) -> None:
    """The score is that of ratings of size 1, with biases, and all that is learnt is finite."""
    model, ordinary = (fitted(method, each, no_penalty(method, each)) for each in (size, 1.0))
    for learnt in (model.row_factors_, model.components_, model.row_biases_, model.column_biases_):
        assert np.isfinite(learnt).all()
    assert model.mean_ == pytest.approx(size * ordinary.mean_, rel=1e-6)
    errors = model.predict((ROWS, COLUMNS)) - VALUES * size
    assert model.history_[-1]["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-4)
    score, expected = (each.score((ROWS, COLUMNS, VALUES * s)) for each, s in ((model, size), (ordinary, 1.0)))
    assert score / size == pytest.approx(expected, rel=0.25 if method == "sgd" else 0.03)  # sgd: by the first rate


@pytest.mark.few(3)
@pytest.mark.parametrize("power", [-14, 14, 15, 49])
@pytest.mark.parametrize("method", METHODS[:3])
def test_ratings_times_a_power_of_four_have_the_factors_times_its_root(method: str, power: int) -> None:
    """To the last bit: nothing but the exponents of the numbers is another."""
    size = 4.0**power
    model, ordinary = (fitted(method, each, 0.02 * each, biases=False) for each in (size, 1.0))
    assert 1 <= VALUES.std() < 4
    np.testing.assert_array_equal(model.row_factors_, ordinary.row_factors_ * np.float32(2.0**power))
    np.testing.assert_array_equal(model.components_, ordinary.components_ * np.float32(2.0**power))
    assert model.history_[-1]["objective"] == pytest.approx(size**2 * ordinary.history_[-1]["objective"], rel=1e-12)


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [1e-8, 1.0, 1e9])
@pytest.mark.parametrize("method", METHODS[:2])
def test_a_penalty_means_the_same_for_ratings_of_any_size(method: str, size: float) -> None:
    """The gradient of the documented objective, in float64 and without any unit, is all but 0 at the end."""
    level = 0.1 * size
    model = fitted(method, size, level, iterations=300)
    w, h = model.row_factors_.astype(float), model.components_.T.astype(float)
    b, c = model.row_biases_.astype(float), model.column_biases_.astype(float)
    errors = np.where(KNOWN, TABLE * size - model.mean_ - b[:, None] - c - w @ h.T, 0)
    counts = KNOWN.sum(axis=1), KNOWN.sum(axis=0)
    objective = (errors**2).sum() + level * (counts[0] @ ((w**2).sum(axis=1) + b**2))
    objective += level * (counts[1] @ ((h**2).sum(axis=1) + c**2))
    assert model.history_[-1]["objective"] == pytest.approx(objective, rel=1e-4)
    for wrong, others, kept in (
        (errors, h, level * counts[0][:, None] * w),
        (errors.T, w, level * counts[1][:, None] * h),
        (errors, np.ones((40, 1)), level * (counts[0] * b)[:, None]),
        (errors.T, np.ones((120, 1)), level * (counts[1] * c)[:, None]),
    ):
        terms = np.abs(wrong) @ np.abs(others)
        assert np.abs(wrong @ others - kept).max() < 2e-3 * max(terms.max(), np.abs(kept).max())


@pytest.mark.parametrize("size", [1e8, 1e12, 1e30])
def test_counts_of_any_size_are_confidences(size: float) -> None:
    """That of Hu, Koren and Volinsky for large counts: all wishes that are known all but come true."""
    counts = np.abs(VALUES) + 0.1
    estimator = MatrixFactorization(3, implicit=True, regularization=0.1, max_iter=20, random_state=0, n_jobs=1)
    model = estimator.fit((ROWS, COLUMNS, counts * size))
    w, h = model.row_factors_.astype(float), model.components_.T.astype(float)
    scores = w @ h.T
    known = np.where(KNOWN, np.abs(TABLE) + 0.1, 0) * size
    dense = ((1 + known) * (KNOWN - scores) ** 2).sum() + 0.1 * ((w**2).sum() + (h**2).sum())
    assert model.history_[-1]["objective"] == pytest.approx(dense, rel=1e-3 if size < 1e9 else 1.0)  # all but 0
    assert np.sqrt(np.mean((scores[KNOWN] - 1) ** 2)) < 0.05


def test_users_who_come_later_are_solved_for_in_the_unit_of_the_ratings() -> None:
    """Biases count beside factors that are 1e15 times as large."""
    gaps = np.where(KNOWN, TABLE, np.nan)
    model, ordinary = (fitted("ccd", size, 0.0, iterations=30) for size in (4.0**49, 1.0))
    expected, found = ordinary.predict(gaps), model.predict(gaps * 4.0**49) / 4.0**49
    np.testing.assert_allclose(found, expected, atol=0.05 * expected.std())


@pytest.mark.few(1)
@pytest.mark.parametrize("method", METHODS)
def test_at_the_command_line(tmp_path: Path, ooc: Ooc, method: str) -> None:
    for name, size in (("ones", 1.0), ("large", 1e9)):
        lines = (f"{u}\t{i}\t{v!r}\n" for u, i, v in zip(ROWS, COLUMNS, (VALUES * size).tolist(), strict=True))
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
        done = ooc("ingest", "ratings", f"{name}.tsv", name, "--workers", 1)
        assert done.returncode == 0, done.stderr
        options = (
            "--method",
            method,
            "--rank",
            3,
            "--regularization",
            no_penalty(method, size),
            "--iterations",
            6,
            "--workers",
            1,
        )
        done = ooc("train", "mf", name, f"{name}-run", *options, "--held-out", name, "--json")
        assert done.returncode == 0, done.stderr
    ones, large = (Run(tmp_path / f"{name}-run").metrics()[-1] for name in ("ones", "large"))
    assert large["rmse"] == pytest.approx(1e9 * ones["rmse"], rel=0.25 if method == "sgd" else 0.03)
    assert large["held_out_rmse"] == pytest.approx(large["rmse"], rel=1e-5)
    told = json.loads(ooc("evaluate", "large-run", "large", "--json").stdout)
    assert told["rmse"] == pytest.approx(large["rmse"], rel=1e-4)
    assert "unit" not in Run(tmp_path / "ones-run").config["options"]


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("method", long_but(["als", "splash"], METHODS))
def test_on_a_ring(tmp_path: Path, method: str) -> None:
    """Two machines come to the model of ratings of size 1, times the size."""
    models = {}
    for size in (1.0, 4.0**15):
        place = tmp_path / f"{size:g}"
        place.mkdir()
        matrix = written(place, TABLE.astype(np.float32) * np.float32(size), KNOWN, grid=3)
        shards = make_shards(matrix.path, f"{place}/shard-{{rank}}", 2, workers=1)
        options: dict[str, Any] = {
            "rank": 3,
            "iterations": 4,
            "regularization": no_penalty(method, size),
            "method": method,
        }

        def train_one(ring: Any, place: Path = place, options: dict[str, Any] = options, shards: Any = shards) -> None:
            rank = ring.rank
            held_out = shards[rank].path
            train_mf(held_out, place / f"run-{rank}", workers=1, quiet=True, ring=ring, held_out=held_out, **options)

        on_ring(2, train_one)
        models[size] = FactorModel(place / "run-0" / "model")
        line = Run(place / "run-1").metrics()[-1]
        assert line["held_out_rmse"] == pytest.approx(line["rmse"], rel=1e-5)
    (ordinary, model), root = models.values(), np.float32(2.0**15)
    products = [each.rows.factors @ each.columns.factors.T for each in (ordinary, model)]
    if method == "splash":
        np.testing.assert_allclose(products[1] / root**2, products[0], atol=1e-3 * products[0].std())
    else:
        np.testing.assert_array_equal(model.rows.factors, ordinary.rows.factors * root)
        np.testing.assert_array_equal(model.columns.factors, ordinary.columns.factors * root)
        np.testing.assert_array_equal(model.rows.biases, ordinary.rows.biases * root**2)
        np.testing.assert_array_equal(model.columns.biases, ordinary.columns.biases * root**2)


def test_steps_that_are_too_long_end_the_training_in_one_message(tmp_path: Path, ooc: Ooc) -> None:
    written(tmp_path, DENSE, KNOWN)
    done = ooc("train", "mf", "matrix", "run", "--rank", 3, "--rate", 500, "--workers", 1)
    assert done.returncode == 1
    what, remedy = done.stderr.splitlines()[-2:]
    assert "iteration 1: --method sgd: training diverged: factors are no longer finite" in what
    assert "500 is too long" in what
    assert "--rate" in remedy
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    assert not (tmp_path / "run" / "model").exists()
    assert not Run(tmp_path / "run").config["finished"]


def test_factors_that_float32_does_not_hold_are_not_published() -> None:
    """The vectors of users are as large as the ratings, and there is no room above these."""
    signs = np.where(np.random.default_rng(0).random(VALUES.size) < 0.5, 3.3e38, -3.3e38)
    model = MatrixFactorization(3, method="splash", max_iter=4, random_state=0, n_jobs=1)
    with pytest.raises(WorkFailed, match="iteration 4: method splash: training diverged: factors are no longer finite"):
        model.fit((ROWS, COLUMNS, signs))
    assert not hasattr(model, "model_")


def test_ratings_that_float32_does_not_hold_are_refused(tmp_path: Path, ooc: Ooc) -> None:
    (tmp_path / "ratings.csv").write_text("1,2,3\n1,3,1e39\n")
    done = ooc("ingest", "ratings", "ratings.csv", "ratings")
    assert done.returncode == 2
    assert "line 2: the rating 1e+39 is not between -3.40282e+38 and 3.40282e+38" in done.stderr
    with pytest.raises(RequestError, match=r"row 1 .* 1e\+39"):
        MatrixFactorization(2).fit(([1, 1], [2, 3], [3.0, 1e39]))
    with pytest.raises(RequestError, match=r"row 0, column 1 .* -1e\+39"):
        MatrixFactorization(2).fit(np.array([[1.0, -1e39], [2.0, 3.0]]))
