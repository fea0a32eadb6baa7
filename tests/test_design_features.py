"""The columns of a design on disk as the solvers see them: the numbers that numpy finds, and how much was read."""

from __future__ import annotations

import bed_reader
import numpy as np
import pytest
from designs import ingested, read_back, write
from hypothesis import given, settings
from hypothesis import strategies as st

from blocks import Design
from blocks.errors import WorkFailed
from samplers.regression.data import features as features_module
from samplers.regression.data import read_ahead
from samplers.regression.data.column_moments import column_moments
from samplers.regression.data.design_features import DesignFeatures
from samplers.regression.data.features import BlockColumns
from samplers.regression.data.read_ahead import ReadAhead
from samplers.regression.linear_algebra.columns import DenseColumns, dense_columns

ROWS = 30
FORMS = {"sparse": [8], "ones": [4], "float32": [4], "int8": [1], "mixed": [1] * 30 + [4] * 10}  # bytes of entries
_MANY = 1000  # times slower if they are few: they are read as if they were many


@pytest.fixture(scope="module")
def designs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Design]:
    """One of each form, of several blocks."""
    path = tmp_path_factory.mktemp("designs")
    random = np.random.default_rng(3)
    x = random.standard_normal((ROWS, 40)).astype(np.float32).astype(np.float64)
    forms = {"sparse": np.where(random.random(x.shape) < 0.2, x, 0), "ones": np.where(x > 1, 1.0, 0), "float32": x}
    made = {}
    for form, values in forms.items():
        (path / form).mkdir()
        source, options = write("npz-csc", values, np.arange(ROWS, dtype=float), path / form)
        made[form] = ingested("npz", source, path / f"{form}.design", block_bytes=1000, **options)
    genotypes = random.choice([0.0, 1, 2, np.nan], (ROWS, 40))
    bed_reader.to_bed(path / "x.bed", genotypes, properties={"pheno": np.arange(ROWS).astype(str)})
    made["int8"] = ingested("plink", path / "x.bed", path / "int8.design", block_bytes=300)
    bed_reader.to_bed(path / "y.bed", genotypes[:, :30].copy(), properties={"iid": [f"p{row}" for row in range(ROWS)]})
    lines = [f"0 p{row} {' '.join(map(str, x[row, 30:]))}\n" for row in random.permutation(ROWS)]
    (path / "y.cov").write_text("".join(lines))
    more = {"covariates": str(path / "y.cov"), "block_bytes": 300}
    made["mixed"] = ingested("plink", path / "y.bed", path / "mixed.design", **more)
    for form, design in made.items():
        assert (design.form, design.block_count > 1) == (form, True)
    return made


@pytest.mark.few(2)
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=20)
@given(seed=st.integers(0, 99), count=st.integers(0, 40), threads=st.integers(1, 3), ahead=st.integers(0, 500))
def test_what_the_columns_are_asked_for_is_what_numpy_finds(designs, form, seed, count, threads, ahead):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(features_module, "_LEAST", 1)
        patched.setattr(read_ahead, "_AHEAD", ahead)
        patched.setattr(read_ahead, "_SLOWER", seed % 2 and _MANY)
        check_features(designs[form], form, seed, count, threads)


def check_features(design: Design, form: str, seed: int, count: int, threads: int) -> None:
    random = np.random.default_rng(seed)
    x, features = read_back(design), DesignFeatures(design, threads, 1 << 30)
    chosen = np.sort(random.choice(40, count, replace=False))
    vectors = random.standard_normal((random.integers(1, 7), ROWS))
    close = {"atol": 1e-12, "rtol": 1e-9}
    np.testing.assert_allclose(features.correlations(chosen, vectors[0]), vectors[0] @ x[:, chosen], **close)
    np.testing.assert_allclose(features.several_correlations(chosen, vectors), vectors @ x[:, chosen], **close)
    if count:
        np.testing.assert_allclose(dense_columns(features.gather(chosen), ROWS), x[:, chosen].T, **close)
    entries = np.full(count, ROWS) if design.dense else np.count_nonzero(x[:, chosen], axis=0)
    passes = 3 if count else 2
    assert features.samples == passes * entries.sum()
    assert features.bytes_read == passes * (entries * np.resize(FORMS[form], 40)[chosen]).sum()


@pytest.mark.parametrize("form", FORMS)
def test_passes_go_from_end_to_end_and_back(designs, form):
    features, firsts = DesignFeatures(designs[form], 1, 1 << 30), []
    few, every = np.array([0, 39]), np.arange(40)
    for chosen in (every, every, few, few, every):
        looked: list[int] = []
        features._each_piece(chosen, lambda piece, looked=looked: looked.append(piece.place.start))
        assert sorted(looked) in (looked, looked[::-1])
        firsts.append(looked[0])
    assert [first == 0 for first in firsts] == [False, True, False, False, False]


@pytest.mark.parametrize("slower", [0, _MANY])
@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=30), ahead=st.integers(0, 100))
def test_pieces_are_asked_for_once_each_and_only_so_far_ahead(slower, sizes, ahead):
    asked: list[int] = []
    block = DenseColumns(np.zeros((1, 1)))
    pieces = [BlockColumns(block, np.zeros(1, np.int64), slice(number, number + 1)) for number in range(len(sizes))]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(read_ahead, "_AHEAD", ahead)
        patched.setattr(read_ahead, "_SLOWER", slower)
        for name in ("_touch", "_ask_for"):
            patched.setattr(read_ahead, name, lambda some: asked.extend(piece.place.start for piece in some))
        reading = ReadAhead([block], sum(sizes))
        ask = reading.begin(pieces, np.array(sizes))
        for number in range(len(sizes)):
            ask(number)
            reading._reader.submit(int).result()  # what was before is done
            assert asked == list(range(len(asked)))
            assert len(asked) > number
            assert sum(sizes[number + 1 : len(asked)]) <= ahead


@pytest.mark.parametrize("form", ["sparse", "ones"])
def test_of_sparse_columns_those_that_were_gathered_last_are_not_read_again(designs, form):
    design, random = designs[form], np.random.default_rng(5)
    x, features, last = read_back(design), DesignFeatures(design, 2, 1 << 30, keeps=True), np.empty(0, np.int64)
    for count in (10, 30, 0, 5, 40, 20):
        chosen, before = np.sort(random.choice(40, count, replace=False)), features.bytes_read
        found = features.gather(chosen)
        np.testing.assert_array_equal(dense_columns(found, ROWS), x[:, chosen].T)
        assert features.bytes_read - before == np.count_nonzero(x[:, np.setdiff1d(chosen, last)]) * FORMS[form][0]
        assert all(array.flags.writeable for array in found)
        last = chosen


def test_columns_that_there_is_no_room_for_are_told_of(designs):
    features = DesignFeatures(designs["float32"], 1, 2 * 8 * ROWS * 5)
    features.gather(np.arange(5))
    with pytest.raises(WorkFailed, match="the working set of 6 columns takes"):
        features.gather(np.arange(6))


@pytest.mark.parametrize("form", ["sparse", "ones", "float32"])
def test_moments_under_several_weights(designs, form):
    design, random = designs[form], np.random.default_rng(1)
    weights = [None, random.random(ROWS), (np.arange(ROWS) % 3 > 0).astype(float)]
    x = read_back(design)
    for of_rows, found in zip(weights, column_moments(design, weights, 2), strict=True):
        w = np.ones(ROWS) if of_rows is None else of_rows
        means = w @ x / w.sum()
        np.testing.assert_allclose(found.means, means, atol=1e-12)
        np.testing.assert_allclose(found.norms, np.sqrt(w @ x**2), atol=1e-12)
        np.testing.assert_allclose(found.deviations, np.sqrt(w @ (x - means) ** 2 / w.sum()), atol=1e-7)
