"""Regressions on a ring, each rank with some of the rows: the solutions of one machine, the same at all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rings
from designs import ingested, write

from blocks import Design
from blocks.design.row_shards import DesignRowShard
from blocks.shards.splitting import make_shards
from ooc.ring.ring import Ring
from samplers.regression.data.column_moments import ColumnMoments
from samplers.regression.data.design_features import DesignFeatures
from samplers.regression.data.features import FeatureColumns
from samplers.regression.data.ring_features import RingFeatures
from samplers.regression.linear_algebra.columns import dense_columns
from samplers.regression.solver.sparse_regression import SparseRegression

ROOM = 1 << 30
RATIOS = np.array([0.7, 0.2, 0.05])


@pytest.fixture(scope="module", params=["sparse", "ones", "float32", "int8"])
def whole(request, tmp_path_factory) -> Design:
    path, random = tmp_path_factory.mktemp(request.param), np.random.default_rng(3)
    x = random.normal(size=(60, 81))
    x = x[:, 1:] + x[:, :-1]
    if request.param in ("sparse", "ones"):
        x[random.random(x.shape) < 0.8] = 0
        x[x != 0] = 1 if request.param == "ones" else x[x != 0]
    x[:40, 7] = 0
    y = np.where(x @ np.where(random.random(80) < 0.1, 3.0, 0) + random.normal(size=60) > 0, 1.0, 0.0)
    if request.param == "int8":
        x = np.rint(x)
    source, options = write("npz-C", x, y, path)
    design = ingested("npz", source, path / "design", block_bytes=1500, **options)
    assert (design.form, design.block_count > 2) == (request.param, True)
    return design


@pytest.fixture(scope="module")
def shards(whole) -> dict[int, list[DesignRowShard]]:
    def made(count: int) -> list[DesignRowShard]:
        out: Path = whole.path.with_name(f"in-{count}")
        return [DesignRowShard(shard.path) for shard in make_shards(whole.path, str(out), count)]

    return {count: made(count) for count in (1, 3)}


def moments(design: Design) -> ColumnMoments:
    return ColumnMoments(design.means, design.norms, design.deviations)


def of_ranks(shards: list[DesignRowShard], deed: Any, keeps: bool = False) -> list[Any]:
    """What a deed makes of the features and the ring of each rank."""

    def of_rank(ring: Ring) -> Any:
        shard = shards[ring.rank]
        return deed(RingFeatures(shard, ring, 1, ROOM, keeps=keeps), shard, ring)

    return rings.on_ring(len(shards), of_rank)


@pytest.mark.few(2)
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 3])
def test_features_are_those_of_the_whole(whole, shards, ranks):
    random = np.random.default_rng(1)
    vector, vectors, weights = random.normal(size=60), random.normal(size=(2, 60)), random.random(60)
    chosen = np.array([0, 3, 7, 20, 79])

    def found(features: FeatureColumns, *_: Any) -> list[np.ndarray]:
        gathered = features.gather(chosen)
        return [
            features.correlations(chosen, vector),
            features.several_correlations(chosen, vectors),
            features.squares(chosen, weights),
            features.squares(chosen, None),
            dense_columns(gathered, features.rows),
            dense_columns(features.gather(chosen[:0]), features.rows),
            *gathered,
        ]

    expected = found(DesignFeatures(whole, 1, ROOM))
    for answers in of_ranks(shards[ranks], found):
        assert [answer.dtype for answer in answers] == [answer.dtype for answer in expected]
        assert all(np.allclose(*pair, rtol=1e-12, atol=1e-12) for pair in zip(answers, expected, strict=True))
        assert all(np.array_equal(*pair) for pair in zip(answers[4:], expected[4:], strict=True))


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 3])
def test_what_is_kept_of_sparse_columns_neither_is_read_nor_travels_again(whole, shards, ranks):
    sets = [np.arange(50), np.arange(10, 60), np.arange(60, 80), np.arange(0), np.array([5, 70])]

    def gathered(features: RingFeatures, _: Design, ring: Ring) -> list[Any]:
        columns = [dense_columns(features.gather(chosen), features.rows) for chosen in sets]
        return [features.samples, ring.bytes_summed, *columns]

    every = zip(*(of_ranks(shards[ranks], gathered, keeps) for keeps in (False, True)), strict=True)
    for anew, kept in every:
        assert all(np.array_equal(*pair) for pair in zip(anew[2:], kept[2:], strict=True))
        assert (kept[0] < 0.8 * anew[0]) == (not whole.dense)
        assert (kept[1] < 0.8 * anew[1]) == (not whole.dense and ranks > 1)


STANDARDIZED = {"standardize": True, "share": 0.5}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("squared", {}),
        ("logistic", STANDARDIZED),
        pytest.param("squared", STANDARDIZED, marks=pytest.mark.long),
        pytest.param("logistic", {}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_paths_are_those_of_one_machine(whole, shards, loss, options):
    """Rounding alone differs: within the gap that was asked for, the objective is the same."""

    def path(features: FeatureColumns, design: Design, *_: Any) -> list[Any]:
        regression = SparseRegression(features, np.asarray(design.y), loss, moments=moments(design), **options)
        found = [regression.regression.nothing()]
        for ratio in RATIOS:
            found.append(regression.regression.solve(ratio * found[0].lam, found[-1], 1e-9 * found[0].objective))
        return found

    expected = path(DesignFeatures(whole, 1, ROOM), whole)
    first, *others = of_ranks(shards[3], path)
    for solution, one in zip(first, expected, strict=True):
        assert solution.lam == pytest.approx(one.lam, rel=1e-12)
        assert solution.objective == pytest.approx(one.objective, rel=1e-8)
        assert np.allclose(*(of.coefficients(whole.columns) for of in (solution, one)), atol=1e-4)
    for other in others:
        for solution, mine in zip(other, first, strict=True):
            assert np.array_equal(solution.support, mine.support)
            assert np.array_equal(solution.values, mine.values)
            assert (solution.objective, solution.gap) == (mine.objective, mine.gap)
