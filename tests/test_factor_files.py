"""Factors in a file: the same bytes as in memory, after any kill, and few pages that are not written."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from corpora import InProcessProgram, kill_while_resuming, leftovers, model_bytes, plan
from dirty_pages import Watch, dirty, on_disk
from factorizations import planted, program_spec, written
from hypothesis import given
from hypothesis import strategies as st
from long_mark import long_but
from processes import children

from blocks.errors import RequestError
from blocks.memory import parse_size
from blocks.ratings.matrix import Matrix
from ooc.plan.memory_plan import make_plan, sliced_bytes
from ooc.runs.new_run import create_run
from ooc.runs.run import Run
from ooc.training import train
from samplers.factorization.gradient_programs import StochasticGradient, rounds

PROGRAMS = {
    "sgd": {"biases": True},
    "ccd": {},
    "als": {"biases": True},
    "implicit": {"alpha": 2.0},
}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    dense, known = planted(300, 90, 3, 0.3)
    return written(tmp_path_factory.mktemp("matrix"), np.abs(dense) + 0.1, known, grid=7)


def trained(path: Path, matrix: Matrix, method: str, chosen, iterations: int = 3) -> dict[str, bytes]:
    spec = program_spec(method, **PROGRAMS[method])
    run = create_run(path, matrix, spec, iterations=iterations, evaluate_every=1)
    train(run, chosen, quiet=True)
    assert leftovers(path) == []
    return model_bytes(path)


@pytest.mark.few(1)
@pytest.mark.parametrize("method", PROGRAMS)
def test_the_model_is_the_same_to_the_byte(matrix, tmp_path, method):
    """In memory and in a file, by one worker and by three."""
    expected = trained(tmp_path / "memory", matrix, method, plan())
    for workers in (1, 3):
        assert trained(tmp_path / f"{workers}", matrix, method, plan(workers, mapped=True)) == expected
    assert children() == []


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("method", long_but(["ccd", "sgd"], PROGRAMS))
def test_a_killed_run_goes_on_in_a_file_or_in_memory(matrix, tmp_path, method):
    """The generation has all of it: what lay in the file when the process was killed does not count."""
    expected = trained(tmp_path / "whole", matrix, method, plan(), iterations=9)
    spec = program_spec(method, **PROGRAMS[method])
    run = create_run(tmp_path / "run", matrix, spec, iterations=9, evaluate_every=1)
    kill_while_resuming(run.path, "state/000003.h5")
    train(run, plan(2, mapped=True), quiet=True)
    assert model_bytes(run.path) == expected
    assert leftovers(run.path) == []
    assert [line["iteration"] for line in run.metrics()] == list(range(1, 10))


@pytest.fixture(scope="module")
def tall(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """So many rows and columns that their factors, at rank 500, take 40 MB."""
    random = np.random.default_rng(0)
    known = np.zeros((16_000, 4_000), bool)
    known[np.arange(16_000), random.integers(0, 4_000, 16_000)] = True
    known[random.integers(0, 16_000, 4_000), np.arange(4_000)] = True
    return written(tmp_path_factory.mktemp("tall"), random.normal(size=known.shape).astype(np.float16), known, grid=20)


@pytest.mark.long
@pytest.mark.parametrize("method", ["ccd", "als"])
def test_the_smallest_budget_holds(tall, tmp_path, method):
    """Of factors in a file no more wait to be written than the plan says; all processes stay in the budget."""
    on_disk(tmp_path)
    program = program_spec(method, rank=500).build(tall)
    with pytest.raises(RequestError) as told:
        make_plan(tall, program, 2, 1)
    budget = parse_size(re.search(r"at least ([\d,]+ MB)", told.value.what)[1].replace(",", ""))
    assert make_plan(tall, program, 2, budget).mapped
    whole, two = sliced_bytes(program)
    assert two < whole / 2
    options = f"--rank 500 --method {method} --iterations 2 --workers 2 --memory {budget}"
    command = [sys.executable, "-m", "ooc", "train", "mf", tall.path, tmp_path / "run", *options.split()]
    with Watch(dirty) as watched:
        subprocess.run(command, check=True, capture_output=True)
    assert 0 < watched.most < two + 1_000_000
    assert all(line["memory_bytes"] < budget for line in Run(tmp_path / "run").metrics())


@given(data=st.data())
def test_cells_that_overlap_share_no_block_and_no_stratum(data):
    """Whatever order what they follow leaves, the cells of each block and of each stratum keep theirs."""
    program = object.__new__(StochasticGradient)
    program.strata = data.draw(st.integers(1, 6))
    program.rounds = rounds(data.draw(st.integers(1, 13)), program.strata)
    stages = program.schedule(program.phases[0], 0, 0)
    cells = [(stage, block) for stage, blocks in enumerate(stages) for block in blocks]
    left, done = list(cells), set()
    order = {kind: dict.fromkeys(range(13), -1) for kind in ("block", "stratum")}
    while left:
        ready = [
            (stage, block)
            for stage, block in left
            if stage == 0 or {(stage - 1, each) for each in program.follows(program.phases[0], stage, block)} <= done
        ]
        stage, block = cell = data.draw(st.sampled_from(ready))
        for kind, place in ("block", block), ("stratum", program._stratum(block, stage % program.strata)):
            assert order[kind][place] < stage
            order[kind][place] = stage
        left.remove(cell)
        done.add(cell)


@pytest.mark.parametrize(("blocks", "most", "expected"), [
    (1, 4, [0, 1]), (7, 2, [0, 2, 4, 6, 7]), (16, 13, [0, 8, 16]), (17, 9, [0, 8, 13, 17]), (20, 8, [0, 8, 14, 20]),
    (3, 16, [0, 3]),
])  # fmt: skip
def test_rounds_have_an_even_number_of_blocks_where_they_can(blocks, most, expected):
    assert rounds(blocks, most) == expected


def test_descent_changes_the_rows_of_one_piece_until_all_are_written(matrix):
    """Two blocks at a time: between two times that the file is written nothing else changes."""
    with InProcessProgram(matrix, program_spec("sgd")) as chain:
        program, rows = chain.program, chain.shared["rows"]
        program.rounds = rounds(matrix.block_count, 2)
        pieces = np.append(0, np.cumsum(program.sliced_arrays()["rows"])) // program.width
        assert pieces.size == 5
        assert pieces[-1] == matrix.rows
        phase, before, found = program.phases[0], rows.copy(), []
        for stage, _ in enumerate(chain._stages(phase)):
            if program.writes_slice(phase, stage):
                changed = np.flatnonzero((rows != before).any(axis=1))
                found.append((int(changed[0]), int(changed[-1]) + 1, changed.size))
                before = rows.copy()
        assert found == [(first, last, last - first) for first, last in itertools.pairwise(pieces)]


def test_what_passes_through_memory_is_the_same(matrix):
    """Blocks and factors that are let go after a round, as if they were more than memory."""
    found = []
    for passing in (False, True):
        with InProcessProgram(matrix, program_spec("sgd")) as chain:
            chain.program.rounds, chain.program._passing = rounds(matrix.block_count, 2), passing
            chain.iterate(3)
            found.append([chain.shared[side].tobytes() for side in ("rows", "columns")])
    assert found[0] == found[1]
