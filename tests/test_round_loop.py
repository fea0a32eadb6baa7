"""Rounds of the dynamic engine, in one process: any interleaving of workers, against rounds written down plainly."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from designs import InlineWorkers, ingested, read_back, write
from hypothesis import given, settings
from hypothesis import strategies as st
from long_mark import long_but

from blocks import Design
from blocks.design import ingestion as design_ingestion
from ooc.dynamic import held_columns
from ooc.dynamic.held_columns import (
    band_bounds,
    gather,
    gatherings,
    held_columns_of_arrays,
    held_specs,
    make_room,
    whole_room,
)
from ooc.dynamic.priority_sampling import draw_parameters, empty_sums, sum_priorities
from ooc.dynamic.round_loop import PRIORITIES, RoundLoop, RoundLoopShape, round_specs
from ooc.dynamic.round_schedule import RoundPipeline
from ooc.dynamic.selection_rules import SCHEDULES, SelectionRule, generator
from samplers.regression.rounds.lasso import LassoRounds
from samplers.regression.rounds.logistic import LogisticRounds

SPARSE, DENSE, ONES, GENOTYPES = "sparse", "float32", "ones", "int8"
PENALTY = 0.3


def made(path, form: str, rows: int, columns: int) -> Design:
    random = np.random.default_rng(rows)
    x = random.integers(-9, 9, (rows, columns)) + 0.5
    if form in (SPARSE, ONES):
        x[random.random(x.shape) < 0.8] = 0
        x[x != 0] = 1 if form == ONES else x[x != 0]
    if form == GENOTYPES:
        x = np.rint(x)
    x[:, 3] = x[0, 3]
    y = np.where(random.random(rows) < 0.5, 1.0, -1.0)
    path.mkdir()
    source, options = write("npz-C", x, y, path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(design_ingestion, "WorkerPool", InlineWorkers)
        design = ingested("npz", source, path / "design", block_bytes=200, **options)
    assert design.form == form
    assert design.block_count > 2
    return design


@pytest.fixture(scope="module")
def designs(tmp_path_factory) -> dict[str, Design]:
    path = tmp_path_factory.mktemp("designs")
    shapes = {SPARSE: (60, 23), DENSE: (40, 17), ONES: (80, 19), GENOTYPES: (30, 21)}
    return {form: made(path / form, form, *shape) for form, shape in shapes.items()}


class InProcessRounds:
    """Loops of all workers over arrays of this process."""

    def __init__(self, design: Design, program: Any, rule: SelectionRule, workers: int, columns: np.ndarray) -> None:
        room, shape = whole_room(design), RoundLoopShape(workers, design.columns)
        specs = program.shared_arrays() | held_specs(design, room) | round_specs(design, program, rule, shape)
        self.shared = {name: np.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
        make_room(design, room, columns, self.shared)
        for gathering in gatherings(design, columns):
            gather(design, gathering, held_columns_of_arrays(design, self.shared))
        program.begin(self.shared, columns, PENALTY)
        self.shared[PRIORITIES][:] = 1.0
        self.loops = [RoundLoop(program, rule, shape, number, self.shared) for number in range(workers)]
        self.parameters = columns.size

    def run(self, first: int, last: int, random: Random) -> None:
        runs = [loop.run(first, last, self.parameters) for loop in self.loops]
        while runs:
            run = runs[random.randrange(len(runs))]
            for _ in run:
                break
            else:
                runs.remove(run)


def plain_rounds(design: Design, program: Any, rule: SelectionRule, columns: np.ndarray, stretches: list[int]) -> Any:
    """The coefficients and priorities after rounds as `ooc.dynamic.round_schedule` describes them, each state kept as a
    whole."""
    x = read_back(design)[:, columns]
    lasso = isinstance(program, LassoRounds)
    x = x - x.mean(axis=0) if lasso else x
    scales = np.linalg.norm(x, axis=0)
    x = x / np.where(scales > 1e-9, scales, np.inf)
    y = design.y - design.y.mean() if lasso else design.y
    depth, schedulers, waves = rule.pipeline
    b, priorities, number = np.zeros(columns.size), np.ones(columns.size), 0
    products = np.abs(x.T @ x)
    for stretch in stretches:
        begin, states, at_first = number, {}, b.copy()
        randoms = [generator(rule.seed, begin, scheduler) for scheduler in range(schedulers)]
        rounds: list[list[int]] = []
        for number in range(begin, begin + stretch):
            # The rounds in between are of other schedulers: these priorities are as the last of the same left them.
            scheduler = number % schedulers
            own, sums = priorities[scheduler::schedulers].copy(), empty_sums(columns.size)
            sum_priorities(own, sums)
            turn = range(number // schedulers, number // schedulers + 1)
            candidates = SCHEDULES[rule.schedule](turn, own.size, rule, randoms[scheduler])[0]
            if rule.schedule == "priority":
                uniforms, candidates = candidates, np.empty(candidates.size, np.int64)
                candidates = candidates[
                    : draw_parameters(own, sums, rule.eta * own.mean() or 1.0, uniforms, candidates)
                ]
            others, chosen = [j for some in rounds[1 - depth :] for j in some] if depth > 1 else [], []
            for j in scheduler + schedulers * candidates:
                mine = products[j, np.array([*others, *chosen], np.int64)]
                independent = rule.rho is None or (all(mine < rule.rho) and np.sum(mine**2) < rule.rho)
                if len(chosen) < rule.parallel and independent:
                    chosen.append(int(j))
            chosen.sort(key=lambda j: -priorities[j])
            rounds.append(chosen)
            for wave in range(waves):
                some = chosen[len(chosen) * wave // waves : len(chosen) * (wave + 1) // waves]
                oldest = number - depth + 1
                before = (number, 0) if depth == 1 else (oldest, wave)
                seen = max((key for key in states if key < before), default=None)
                state = at_first if seen is None else states[seen]
                residual = y - x @ state if lasso else y / (1 + np.exp(y * (x @ state)))
                curvature = 1.0 if lasso else 0.25
                for j in some:
                    goal = b[j] + x[:, j] @ residual / curvature
                    after = np.sign(goal) * max(abs(goal) - PENALTY / curvature, 0)
                    priorities[j] = (after - b[j]) ** 2
                    b[j] = after
                states[number, wave] = b.copy()
        number = begin + stretch
    return b, priorities


RULES = [
    SelectionRule("priority", 3, 5, 0.301, True, 0.2, RoundPipeline(1, 1, 1), seed=1),
    SelectionRule("priority", 4, 6, 0.501, False, 0.2, RoundPipeline(2, 3, 2), seed=2),
    SelectionRule("priority", 3, 6, None, True, 0.2, RoundPipeline(3, 3, 3), seed=3),
    SelectionRule("random", 2, 2, None, True, 1.0, RoundPipeline(3, 4, 2), seed=4),
    SelectionRule("cyclic", 2, 3, 0.401, True, 1.0, RoundPipeline(2, 2, 1), seed=5),
]


@pytest.mark.parametrize("form", long_but([SPARSE, GENOTYPES], [SPARSE, DENSE, ONES, GENOTYPES]))
@pytest.mark.parametrize("rule", long_but(RULES[1:4], RULES), ids=str)
@pytest.mark.parametrize("program", [LassoRounds, LogisticRounds])
def test_rounds_are_those_written_down_plainly(designs, monkeypatch, form, rule, program):
    monkeypatch.setattr(held_columns, "_BAND_ENTRIES", 3)
    design = designs[form]
    rule = rule._replace(centred=program is LassoRounds)
    columns = np.delete(np.arange(design.columns), [1, 8])
    rounds = InProcessRounds(design, program(design), rule, 1, columns)
    assert band_bounds(design).size > 3
    stretches = [7, 1, 6]
    for last, stretch in zip(np.cumsum(stretches).tolist(), stretches, strict=True):
        assert not any(rounds.loops[0].run(last - stretch, last, columns.size))  # a worker alone need not wait
    b, priorities = plain_rounds(design, program(design), rule, columns, stretches)
    assert np.allclose(rounds.shared["coefficients"][: columns.size], b, rtol=1e-9, atol=1e-12)
    found = rounds.shared[PRIORITIES].T.reshape(-1)[: columns.size]
    assert np.allclose(found, priorities, rtol=1e-9, atol=1e-12)
    assert np.count_nonzero(b) > 0


@settings(deadline=None, max_examples=40)
@given(
    form=st.sampled_from([SPARSE, DENSE]),
    rule=st.sampled_from(RULES),
    workers=st.integers(2, 4),
    seed=st.integers(0, 1 << 32),
)
def test_workers_and_their_speed_do_not_matter(designs, form, rule, workers, seed):
    random = Random(seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(held_columns, "_BAND_ENTRIES", 3)
        design, found = designs[form], []
        for count in (1, workers):
            rounds = InProcessRounds(design, LassoRounds(design), rule, count, np.arange(design.columns))
            rounds.run(0, 9, random)
            rounds.run(9, 16, random)
            samples = sum(loop.samples for loop in rounds.loops)
            names = ("coefficients", "residual", PRIORITIES)
            found.append((samples, *(rounds.shared[name].tobytes() for name in names)))
    assert found[0] == found[1]
