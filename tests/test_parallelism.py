"""How many workers the stochastic engine takes where nobody says it: by trials, and fewer where a pass did harm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import InProcessProgram, kill_while_resuming, leftovers, model_bytes, new_run, plan
from factorizations import planted, written
from rings import on_ring
from scipy import sparse
from stochastic_programs import Naive

from blocks.errors import ModelDiverged
from blocks.ratings.matrix import Matrix
from blocks.samples.ingestion import write_samples
from blocks.samples.samples import Samples
from blocks.shards.splitting import make_shards
from ooc.ring.ring import Ring
from ooc.runs.new_run import create_run
from ooc.runs.run import Run
from ooc.stochastic.parallelism_degree import (
    MADE,
    TO_UNDO,
    ParallelismChoice,
    choose_degree,
    exact_sum,
    group_sizes,
    is_worse,
    undone_choice,
)
from ooc.stochastic.pass_tasks import ComputeHeldOutLosses, ProcessElements, check_stage, trial_stages
from ooc.training import train
from ooc.workers.worker import ProgramSpec

ROWS, PASSES = 400, 8


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """400 samples of which pairs of columns tell the label, in some blocks."""
    random = np.random.default_rng(0)
    x = np.where(random.random((ROWS, 20)) < 0.4, random.normal(size=(ROWS, 20)), 0)
    v, w = 0.7 * random.normal(size=(20, 2)), random.normal(size=20)
    labels = 3 + x @ w + 0.5 * (np.square(x @ v) - np.square(x) @ np.square(v)).sum(axis=1)
    rows = sparse.csr_array(x.astype(np.float32))
    path = tmp_path_factory.mktemp("samples") / "samples"
    return write_samples(path, rows.indptr, rows.indices, rows.data, labels, block_entries=700)


def spec(**options: Any) -> ProgramSpec:
    return ProgramSpec("stochastic_programs:Machine", {"seed": 3, "sync_per_pass": 2, "rate": 0.005, **options})


def trained(path: Path, samples: Samples, *how: Any, passes: int = PASSES, **options: Any) -> Run:
    run = new_run(path, samples, spec(**options), passes, 1)
    train(run, plan(*how or (1,)), quiet=True)
    return run


def told(run: Run, name: str) -> list[Any]:
    return [line[name] for line in run.metrics()]


@pytest.fixture(scope="module")
def alone(samples: Samples, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """By one process, all in memory."""
    return trained(tmp_path_factory.mktemp("alone") / "run", samples)


def test_workers_that_are_fixed_diverge(samples: Samples, tmp_path: Path) -> None:
    with pytest.raises(ModelDiverged, match=r"training diverged: `.` of Machine is no longer finite"):
        trained(tmp_path / "run", samples, parallelism=16)


def test_a_pass_that_did_harm_is_undone_and_made_by_fewer(samples: Samples, alone: Run, tmp_path: Path) -> None:
    """The degree falls, the loss does not rise, and what comes out is what the degrees that are told come to without
    trials and without passes that are undone, by a naive interpreter."""
    degrees, losses = told(alone, "parallelism"), told(alone, "objective")
    assert told(alone, "undone_passes")[-1] > 0
    assert min(degrees) < max(degrees)
    assert all(after < 1.1 * before for before, after in pairwise(losses))
    one = trained(tmp_path / "one", samples, parallelism=1)
    assert losses[-1] < 2 * told(one, "objective")[-1]
    naive = Naive(spec(parallelism=1).build(samples))
    for degree in degrees:
        naive.run(degree)
    with np.load(alone.path / "model" / "variables.npz") as found:
        for name, value in naive.values.items():
            assert np.allclose(found[name], value, rtol=1e-9, atol=1e-9 * np.abs(value).max()), name
        assert np.allclose(found["w_mean"], naive.totals["w"] / naive.weights["w"], rtol=1e-7, atol=1e-7)
        assert (found["t"], found["n"]) == (PASSES * ROWS, ROWS)


def test_elements_have_what_they_had_before_a_pass_that_is_undone(samples: Samples) -> None:
    with InProcessProgram(samples, spec()) as chain:
        chain.iterate(PASSES)
        assert ParallelismChoice(*chain.shared["choice"].tolist()).undone
        assert (chain.shared["local.visits"] == PASSES).all()


@pytest.mark.parametrize("how", [(2, "mapped"), (3, "")], ids=str)
def test_the_result_is_the_same_to_the_byte_whatever_the_processes(samples, alone, tmp_path, how):
    run = new_run(tmp_path / "run", samples, spec(), PASSES, 1)
    train(run, plan(how[0], mapped=bool(how[1])), quiet=True)
    assert leftovers(run.path) == []
    assert model_bytes(run.path) == model_bytes(alone.path)
    assert [told(run, name) for name in ("parallelism", "objective")] == [
        told(alone, name) for name in ("parallelism", "objective")
    ]


@pytest.mark.long
def test_a_run_that_is_killed_undoes_the_same_passes(samples, alone, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{Path(__file__).parent.parent}")
    run = new_run(tmp_path / "run", samples, spec(), PASSES, 1)
    for generation in (2, 4):
        kill_while_resuming(run.path, f"state/{generation:06}.h5")
    train(run, plan(1), quiet=True)
    assert model_bytes(run.path) == model_bytes(alone.path)
    assert told(run, "undone_passes") == told(alone, "undone_passes")


def test_all_machines_undo_the_same_passes(samples: Samples, tmp_path: Path) -> None:
    shards = make_shards(samples.path, str(tmp_path / "shards"), 2)
    length: dict[str, Any] = {"iterations": PASSES, "evaluate_every": 1, "settings": {"staleness": 0}}
    runs = [create_run(tmp_path / f"{n}", each, spec(on_ring=True), **length) for n, each in enumerate(shards)]

    def train_one(ring: Ring) -> None:
        train(runs[ring.rank], plan(1), quiet=True, ring=ring)

    on_ring(2, train_one)
    for name in ("parallelism", "objective", "undone_passes"):
        assert told(runs[0], name) == told(runs[1], name)
    assert told(runs[0], "undone_passes")[-1] > 0
    assert set(told(runs[0], "parallelism")) <= {2, 4, 8, 16}
    naive = Naive(*(spec(on_ring=True, parallelism=2).build(shard) for shard in shards))
    for degree in told(runs[0], "parallelism"):
        naive.run(degree)
    with np.load(runs[0].path / "model" / "variables.npz") as found:
        for name, value in naive.values.items():
            assert np.allclose(found[name], value, rtol=1e-9, atol=1e-9 * np.abs(value).max()), name


def test_batches_of_workers_make_no_difference(samples: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is memory for two workers at a time, as many passes are undone."""
    found = []
    for size in (1 << 28, 1):
        monkeypatch.setattr("ooc.stochastic.program._SLOTS_BYTES", size)
        with InProcessProgram(samples, spec()) as chain:
            chain.iterate(4)
            values = {name: value.copy() for name, value in chain.program.variables(chain.shared).items()}
            found.append((chain.shared["choice"].tolist(), values))
    (choices, values), (others, rounded) = found
    assert choices == others
    assert all(np.allclose(values[name], rounded[name], rtol=1e-6, atol=1e-6) for name in values)


def test_what_is_too_fast_even_for_one_worker_ends_with_a_message(samples: Samples, tmp_path: Path) -> None:
    with pytest.raises(ModelDiverged, match=r"iteration 1: training diverged: `.` of Machine is no longer finite"):
        trained(tmp_path / "run", samples, rate=10.0)


# Trials


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """90 rows in four blocks."""
    return written(tmp_path_factory.mktemp("matrix"), *planted(90, 40, 3, 0.3), grid=4)


def test_a_trial_chooses_the_smallest_held_out_loss_and_changes_nothing_else(matrix: Matrix) -> None:
    options = {"seed": 3, "parallelism": "auto", "most_parallelism": 7}
    with InProcessProgram(matrix, ProgramSpec("stochastic_programs:Everything", options)) as chain:
        kept = {name: chain.shared[name].copy() for name in chain.program.primary_arrays()}
        chain._run(chain.program.trial)
        tried = {int(degree): loss for degree, loss in chain.shared["tried"] if degree}
        assert sorted(tried) == [1, 2, 7]
        choice = ParallelismChoice(*chain.shared["choice"].tolist())
        assert choice == ParallelismChoice(min(tried, key=tried.__getitem__), chosen=1, next_trial=1)
        for name, value in kept.items():
            if name not in ("choice", "tried"):
                assert np.array_equal(chain.shared[name], value), name
        line = chain.objective()
        assert {f"held_out_loss_of_{degree}" for degree in tried} <= line.keys()
        assert line["parallelism"] == choice.degree


@pytest.mark.parametrize(
    ("before", "most", "sizes"),
    [
        (1, 1, [1]),
        (1, 2, [1, 2]),
        (1, 3, [1, 3]),
        (1, 8, [1, 2, 4, 8]),
        (4, 8, [2, 4, 8]),
        (1, 16, [1, 4, 16]),
        (16, 16, [4, 16]),
        (1, 64, [1, 4, 16, 64]),
        (4, 64, [1, 4, 16, 64]),
        (64, 64, [16, 64]),
        (1, 100, [1, 4, 16, 100]),
    ],
)
def test_groups_are_a_few_times_as_large_as_the_one_before(before: int, most: int, sizes: Sequence[int]) -> None:
    assert group_sizes(before, most) == sizes


def test_trials_become_rare_once_they_choose_the_same() -> None:
    first = choose_degree(ParallelismChoice(), [1, 4], [2.0, 1.0])
    assert first == ParallelismChoice(4, chosen=1, next_trial=1)
    second = choose_degree(first._replace(passes=1), [4, 11], [1.0, math.nan])
    assert second == ParallelismChoice(4, chosen=2, next_trial=11, passes=1)
    assert choose_degree(second._replace(passes=11), [4, 11], [1.0, 1.0]) == ParallelismChoice(11, 1, 12, 11)


def test_a_loss_that_is_infinite_never_wins() -> None:
    assert choose_degree(ParallelismChoice(4), [1, 4, 16], [math.inf, math.nan, -math.inf]).degree == 1
    assert choose_degree(ParallelismChoice(4), [1, 4, 16], [math.inf, 1e300, math.nan]).degree == 4


def test_what_was_undone_is_not_tried_again_at_once_and_each_time_later() -> None:
    first = undone_choice(ParallelismChoice(16, chosen=2, next_trial=12, passes=5), 4)
    assert first == ParallelismChoice(4, next_trial=15, passes=5, undone=1, status=TO_UNDO)
    assert undone_choice(first._replace(degree=16, passes=15, status=MADE), 4).next_trial == 35


@pytest.mark.parametrize(
    ("first", "before", "after", "expected"),
    [
        (100, 10, 5, False),
        (100, 10, 10, False),
        (100, 10, 10.4, False),  # a twentieth of it is no more than may be
        (100, 10, 11, True),
        (11, 10, 10.04, False),  # and of what it has fallen
        (11, 10, 10.1, True),
        (100, 10, math.nan, True),
        (100, 10, 1e308, True),
        (math.inf, math.inf, 10, False),
        (math.inf, math.inf, math.inf, True),
        (math.inf, 10, 11, True),
        (-5, -10, -9.7, True),
        (0, 0, 0, False),
    ],
)
def test_a_loss_is_worse_if_it_rises_by_more_than_steps_make_it_go_up_and_down(first, before, after, expected):
    elements = np.array([5.0] * 15 + [0.0])
    losses = [np.where(elements > 0, each, 0.0) for each in (first, before, after)]
    assert is_worse(*losses, elements) is expected


def test_a_loss_is_not_worse_if_a_few_elements_say_so() -> None:
    elements, before = np.full(16, 5.0), np.full(16, 10.0)
    assert not is_worse(10 * before, before, before + np.array([60.0] + [-1.0] * 15), elements)
    assert is_worse(10 * before, before, before + np.tile([60.0, -1.0], 8), elements)


@pytest.mark.parametrize("rounds", [1, 3])
def test_no_group_sees_the_data_of_another_or_that_of_the_test(rounds: int) -> None:
    stages = [stage for stages in trial_stages(100, rounds, [1, 2, 4], 2, 1, 3) for stage in stages]
    seen = [
        number for stage in stages for x in stage if isinstance(x, ProcessElements) for number in range(x.first, x.last)
    ]
    assert sorted(seen) == list(range(50))
    tests = [tasks for stage in stages if (tasks := [x for x in stage if isinstance(x, ComputeHeldOutLosses)])]
    assert tests == tests[:1] * 3
    assert [number for x in tests[-1] for number in range(x.first, x.last)] == list(range(50, 100))


@pytest.mark.parametrize(("elements", "size"), [(3, 3), (200, 200), (1000, 256), (10**6, 62_500)])
def test_the_sample_is_small_and_spread_over_all_elements(elements: int, size: int) -> None:
    tasks = [task for task in check_stage(elements, 16) if isinstance(task, ComputeHeldOutLosses)]
    found = [number for task in tasks for number in range(task.first, task.last)]
    assert size <= len(found) <= size + 16
    assert found == sorted(set(found))
    assert max(np.diff([0, *found, elements])) <= -(-elements // 16)


def test_sums_of_losses_are_exact_or_infinite() -> None:
    assert exact_sum([0.1] * 10) == 1.0
    assert exact_sum([1e308, 1e308]) == math.inf
    assert math.isnan(exact_sum([math.inf, -math.inf]))
