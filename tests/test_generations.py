"""Generations of a run's state: committed whole or not at all, and never trusted without their checksums."""

from __future__ import annotations

import mmap
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from corpora import corpora, model_bytes, new_run, plan, program_spec, small_dataset, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blocks import Dataset, RequestError, WorkFailed
from ooc.program import LocalState
from ooc.runs.run import Run
from ooc.state.cell_file import CellFile
from ooc.state.cell_layout import CellLayout
from ooc.state.direct_io import PAGE
from ooc.state.generations import StateGenerations, TrainingCursor
from ooc.state.unit_passes import read_slice, read_stripe, write_slice, write_stripe
from ooc.training import train

ITERATIONS = 6
KINDS = "cells", "h5", "json"


@contextmanager
def generations_of(dataset: Dataset, local: LocalState) -> Iterator[tuple[StateGenerations, CellLayout]]:
    layout = CellLayout(dataset.index.cells, local)
    with tempfile.TemporaryDirectory() as directory:
        yield StateGenerations.to_write(Path(directory) / "state", dataset, layout), layout


def pages(layout: CellLayout, rows: int) -> np.ndarray:
    """Rows of local state that begin a page of memory."""
    whole = mmap.mmap(-1, max(rows * layout.row_bytes, 1))
    return np.frombuffer(whole, layout.local.dtype, rows * layout.local.width).reshape(rows, layout.local.width)


def stripe_of(layout: CellLayout, stripe: int, rows: np.ndarray) -> np.ndarray:
    first, last = layout.block_rows[layout.stripe_bounds[stripe : stripe + 2]]
    return rows[first:last]


def write(cells: CellFile, layout: CellLayout, rows: np.ndarray) -> None:
    tile = pages(layout, int(layout.tile_rows.max()))
    for stripe in range(layout.stripes):
        write_stripe(cells, layout, stripe, tile, stripe_of(layout, stripe, rows))


def read(cells: CellFile, layout: CellLayout) -> np.ndarray:
    rows = np.zeros((layout.rows, layout.local.width), layout.local.dtype)
    tile = pages(layout, int(layout.tile_rows.max()))
    for stripe in range(layout.stripes):
        read_stripe(cells, layout, stripe, tile, stripe_of(layout, stripe, rows))
    cells.close()
    return rows


def commit(generations: StateGenerations, layout: CellLayout, number: int) -> np.ndarray:
    """Commit a generation of random rows with arrays and a cursor made of `number`; returns the rows."""
    rows = np.random.default_rng(number).integers(0, 60_000, (layout.rows, layout.local.width))
    cells = generations.create()
    write(cells, layout, rows.astype(layout.local.dtype))
    generations.commit(
        cells, {"counts": np.arange(number, dtype=np.int64)}, TrainingCursor(iteration=number, sums={"a": 0.1})
    )
    cells.close()
    return rows.astype(layout.local.dtype)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(corpora(), st.sampled_from(["uint16", "uint32", "float32"]), st.integers(1, 4), st.integers(1, 4))
def test_a_generation_reads_back_as_it_was_written(corpus, dtype, width, commits):
    """Any grid (empty cells too), dtype and width; by the object that wrote it and by one that opens the directory."""
    with written(corpus) as dataset, generations_of(dataset, LocalState(dtype, width)) as (generations, layout):
        assert not generations
        for number in range(1, commits + 1):
            rows = commit(generations, layout, number)
        for found in (generations, StateGenerations(generations.directory, dataset, layout)):
            assert found
            assert np.array_equal(read(found.open(), layout), rows)
            assert np.array_equal(found.arrays()["counts"], np.arange(commits))
            assert found.cursor == TrainingCursor(iteration=commits, sums={"a": 0.1})
            found.check()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(corpora(), st.sampled_from([("uint8", 1), ("uint16", 3), ("uint32", 3)]))
def test_a_file_is_the_same_by_stripes_and_by_slices(corpus, kept):
    """Written by stripes, read by slices: every row of every cell is where `buffer_bases` says."""
    with written(corpus) as dataset, generations_of(dataset, LocalState(*kept)) as (generations, layout):
        rows = commit(generations, layout, 1)
        cells, copy = generations.open(), generations.create()
        for slice_ in range(layout.slices):
            buffer = pages(layout, int(layout.section_rows("slice")[slice_]))
            read_slice(cells, layout, slice_, buffer)
            bases = layout.buffer_bases("slice", slice_)
            found = 0
            for block, first in enumerate(layout.block_rows[:-1]):
                begin, end = layout.cell_rows[block, slice_ : slice_ + 2]
                assert np.array_equal(
                    buffer[bases[block] + begin : bases[block] + end], rows[first + begin : first + end]
                )
                found += end - begin
            assert found == dataset.index.cells[:, slice_].sum()
            write_slice(copy, layout, slice_, buffer)
        copy.seal()
        assert copy.path.read_bytes()[layout.header_bytes :] == cells.path.read_bytes()[layout.header_bytes :]
        cells.close()
        copy.close()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(corpora(), st.sampled_from([("uint8", 1), ("uint16", 3), ("uint32", 3)]))
def test_tiles_take_pages_of_their_own_and_stripes_all_blocks(corpus, kept):
    with written(corpus) as dataset:
        layout = CellLayout(dataset.index.cells, LocalState(*kept))
        assert [unit for stripe in range(layout.stripes) for unit in layout.section_units("block", stripe)] == [
            *range(layout.blocks)
        ]
        assert layout.section_rows("block").sum() == layout.rows == dataset.tokens
        assert np.all(layout.tile_positions % PAGE == 0)
        assert np.array_equal(np.diff(layout.tile_positions), layout.tile_rows.ravel() * layout.row_bytes)
        for stripe in range(layout.stripes):
            blocks = layout.section_units("block", stripe)
            for block in blocks:
                assert layout.section_of("block", block) == stripe
                base = layout.buffer_bases("block", block)[block]
                assert base == dataset.index.cells[blocks[0] : block].sum()
            tiles = dataset.index.cells[list(blocks)].sum(axis=0)
            assert np.all(tiles <= layout.tile_rows[stripe])
            assert np.all((layout.tile_rows[stripe] - tiles) * layout.row_bytes < layout.header_bytes)


@pytest.fixture
def grid(tmp_path) -> tuple[StateGenerations, CellLayout, Dataset]:
    dataset = small_dataset(tmp_path / "dataset", documents=60)
    layout = CellLayout(dataset.index.cells, LocalState("uint16", 2))
    return StateGenerations.to_write(tmp_path / "state", dataset, layout), layout, dataset


def names_of(generations: StateGenerations) -> list[str]:
    return sorted(file.name for file in generations.directory.iterdir())


def test_two_generations_are_kept_and_the_cells_of_a_third_are_written_over(grid):
    generations, layout, dataset = grid
    files = []
    for number in range(1, 7):
        commit(generations, layout, number)
        files.append((generations.directory / f"{number:06}.cells").stat().st_ino)
    assert files == [*files[:3], *files[:3]]
    kept = [f"00000{number}.{kind}" for number in (5, 6) for kind in ("cells", "h5", "json")] + ["manifest.json"]
    assert names_of(generations) == ["000004.cells", *kept]
    assert names_of(StateGenerations.to_write(generations.directory, dataset, layout)) == kept


@pytest.mark.parametrize("earlier", [1, 4])
@pytest.mark.parametrize("progress", ["created", "written", "sealed", "manifest not renamed"])
def test_what_was_not_committed_does_not_count(grid, progress, earlier):
    """A crash anywhere between creating a generation and the flip of the manifest leaves the old ones and no litter."""
    generations, layout, dataset = grid
    for number in range(1, earlier + 1):
        before = commit(generations, layout, number)
    left = [f"{number:06}.{kind}" for number in range(max(earlier - 1, 1), earlier + 1) for kind in KINDS]
    cells = generations.create()
    if progress != "created":
        write(cells, layout, before + 1)
    if progress in ("sealed", "manifest not renamed"):
        cells.seal()
        (generations.directory / f"{earlier + 1:06}.h5").write_bytes(b"whole or not")
    if progress == "manifest not renamed":
        (generations.directory / ".manifest.json.partial-0123abcd").write_text("{}")
    cells.close()
    again = StateGenerations.to_write(generations.directory, dataset, layout)
    assert np.array_equal(read(again.open(), layout), before)
    assert names_of(again) == [*left, "manifest.json"]
    after = commit(again, layout, 9)
    assert np.array_equal(read(StateGenerations(generations.directory, dataset, layout).open(), layout), after)


def flip(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.fixture(scope="module")
def committed(tmp_path_factory) -> tuple[Path, Dataset, CellLayout]:
    directory = tmp_path_factory.mktemp("committed")
    dataset = small_dataset(directory / "dataset", documents=5)
    layout = CellLayout(dataset.index.cells, LocalState("uint16", 2))
    commit(StateGenerations.to_write(directory / "state", dataset, layout), layout, 3)
    return directory / "state", dataset, layout


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_flipped_bit_is_found(committed, data):
    """Any bit of the cells (header, rows, table), the arrays or the manifest: an error that says what it is about."""
    directory, dataset, layout = committed
    file = data.draw(st.sampled_from(sorted(directory.iterdir())))
    bit = data.draw(st.integers(0, 8 * file.stat().st_size - 1))
    flip(file, bit)
    try:
        problems = list(StateGenerations(directory, dataset, layout).problems())
    except (WorkFailed, RequestError) as error:
        problems = [error.what]
    flip(file, bit)
    assert problems
    assert all("damaged" in problem or "schema version" in problem for problem in problems)
    assert list(StateGenerations(directory, dataset, layout).problems()) == []


@pytest.mark.parametrize("name", ["000001.cells", "000001.h5", "manifest.json"])
@pytest.mark.parametrize("left", [0, 1, 100, 0.5, -1])
def test_a_file_cut_short_is_found(grid, name, left):
    generations, layout, dataset = grid
    commit(generations, layout, 1)
    file = generations.directory / name
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * left) if isinstance(left, float) else left])
    if name == "manifest.json" and left == -1:
        return  # only the newline at its end is gone
    with pytest.raises(WorkFailed, match="damaged"):
        raise WorkFailed("\n".join(StateGenerations(generations.directory, dataset, layout).problems()))


def test_a_state_of_another_schema_is_refused(grid):
    generations, layout, dataset = grid
    commit(generations, layout, 1)
    manifest = generations.directory / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema": 1', '"schema": 99', 1))
    with pytest.raises(RequestError, match="schema version 99"):
        StateGenerations(generations.directory, dataset, layout)


@pytest.fixture(scope="module")
def half_trained(tmp_path_factory) -> tuple[Run, dict[str, bytes]]:
    """A run stopped in the middle, with two different generations, and the model it should end with."""
    directory = tmp_path_factory.mktemp("half")
    dataset, spec = small_dataset(directory / "dataset"), program_spec(topics=20)
    whole = new_run(directory / "whole", dataset, spec, ITERATIONS)
    train(whole, plan(), quiet=True)
    run = new_run(directory / "run", dataset, spec, 3)
    train(run, plan(1, 2), quiet=True)  # streamed: every phase is committed
    shutil.rmtree(run.path / "model")
    run.set_iterations(ITERATIONS)
    return run, model_bytes(whole.path)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("damage", "buffers"),
    [*((damage, 0) for damage in ("header", "rows", "table", "arrays", "cut", "missing")), ("rows", 2), ("arrays", 2)],
)
def test_the_generation_before_stands_in_for_a_damaged_one(half_trained, tmp_path, damage, buffers):
    """Training falls back to the older generation, redoes what is lost, and ends with the same model."""
    original, expected = half_trained
    path = tmp_path / "run"
    shutil.copytree(original.path, path)
    newest = max((path / "state").glob("*.cells"))
    if damage == "missing":
        newest.unlink()
    elif damage == "cut":
        newest.write_bytes(newest.read_bytes()[:5000])
    elif damage == "arrays":
        flip(newest.with_suffix(".h5"), 8 * (newest.with_suffix(".h5").stat().st_size - 5))
    else:
        size = newest.stat().st_size
        flip(newest, 8 * {"header": 20, "rows": size // 2, "table": size - 3}[damage])
    train(Run(path), plan(1, buffers), quiet=True)
    assert model_bytes(path) == expected
    assert [line["iteration"] for line in Run(path).metrics()] == list(range(1, ITERATIONS + 1))


def test_without_a_generation_to_fall_back_to_the_damage_is_told(half_trained, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(half_trained[0].path, path)
    for file in (path / "state").glob("*.cells"):
        flip(file, 8 * (file.stat().st_size // 2))
    with pytest.raises(WorkFailed, match="damaged at block") as told:
        train(Run(path), plan(), quiet=True)
    assert "train again from the start" in told.value.remedy
