"""The dynamic engine with real workers: the same bits whatever their number, the optimum, and failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from designs import ingested, read_back, write
from processes import children, gone, until
from sklearn.linear_model import Lasso, LogisticRegression

from blocks import Design, RequestError, WorkFailed
from ooc.dynamic.engine import DynamicEngine
from ooc.dynamic.held_columns import HeldColumnsCapacity
from ooc.dynamic.round_program import BlockScan, RoundProgram
from ooc.dynamic.round_schedule import RoundPipeline
from ooc.dynamic.selection_rules import SelectionRule
from ooc.workers.worker import ProgramSpec

LASSO = ProgramSpec("samplers.regression.rounds.lasso:LassoRounds", {})
LOGISTIC = ProgramSpec("samplers.regression.rounds.logistic:LogisticRounds", {})
RULE = SelectionRule(parallel=8, candidates=16, rho=0.3, eta=1.0, seed=5)


class Broken(RoundProgram):
    """Fails in a later round than a trial has; scans answer what they were given."""

    aggregated = 0

    def shared_arrays(self) -> dict[str, Any]:
        return {}

    def update(self, wave: Any) -> int:
        wave.sums[:] = 1.0
        return 0

    def aggregate(self, wave: Any) -> None:
        wave.priorities[:] = 1.0
        self.aggregated += 1
        if self.aggregated > 20:
            raise ValueError("no more")

    def apply(self, wave: Any) -> None:
        pass

    def scan(self, scan: BlockScan) -> Any:
        return scan.first, len(scan.block.values)


@pytest.fixture(scope="module", params=["sparse", "dense"])
def design(request, tmp_path_factory) -> Design:
    path = tmp_path_factory.mktemp(request.param)
    random = np.random.default_rng(3)
    x = random.normal(size=(90, 121))
    x = x[:, 1:] + 0.7 * x[:, :-1]  # neighbours are correlated, but so little that few rounds are enough
    if request.param == "sparse":
        x[random.random(x.shape) < 0.7] = 0
    y = np.where(x @ np.where(random.random(120) < 0.1, random.normal(size=120), 0) > 0, 1.0, -1.0)
    source, _ = write("npz-C", x, y, path)
    design = ingested("npz", source, path / "design", block_bytes=3000)
    assert (design.block_count > 4, design.dense) == (True, request.param == "dense")
    return design


def solved(
    design: Design, spec: ProgramSpec, rule: SelectionRule, penalty: float, rounds: list[int], workers: int
) -> Any:
    with DynamicEngine(design, spec, rule, workers) as engine:
        engine.hold()
        engine.program.begin(engine.arrays, engine.columns, penalty)
        engine.survey()
        for some in rounds:
            engine.run(some)
        assert engine.round == sum(rounds)
        objective = engine.program.objective(engine.arrays, engine.columns.size)
        return objective, engine.samples, {name: array.copy() for name, array in engine.arrays.items()}


def standardised(design: Design, *, centred: bool) -> np.ndarray:
    x = read_back(design)
    x = x - x.mean(axis=0) if centred else x
    return x / np.linalg.norm(x, axis=0)


@pytest.mark.parametrize("depth", [1, 3])
def test_lasso_comes_to_the_optimum_of_scikit_learn(design, depth):
    rule = RULE._replace(pipeline=RoundPipeline(depth, 4, 2))
    x, y = standardised(design, centred=True), design.y - design.y.mean()
    penalty = np.abs(x.T @ y).max() / 5
    best = Lasso(alpha=penalty / len(y), fit_intercept=False, tol=1e-12, max_iter=100_000).fit(x, y).coef_
    objective, _, arrays = solved(design, LASSO, rule, penalty, [400, 200], 2)
    optimum = np.sum((y - x @ best) ** 2) / 2 + penalty * np.abs(best).sum()
    assert optimum * (1 - 1e-9) <= objective <= optimum * (1 + 1e-9)
    residual = y - x @ arrays["coefficients"]
    assert np.allclose(arrays["residual"] - arrays["residual"].mean(), residual, atol=1e-9)


def test_logistic_comes_to_the_optimum_of_scikit_learn(design):
    x, y = standardised(design, centred=False), design.y
    penalty = np.abs(x.T @ y).max() / 2 / 5
    options = {"solver": "liblinear", "fit_intercept": False, "tol": 1e-12, "max_iter": 100_000}
    best = LogisticRegression(l1_ratio=1, C=1 / penalty, **options).fit(x, y).coef_[0]
    objective, _, _ = solved(design, LOGISTIC, RULE._replace(centred=False), penalty, [500, 300], 2)
    optimum = np.logaddexp(0, -y * (x @ best)).sum() + penalty * np.abs(best).sum()
    assert optimum * (1 - 1e-9) <= objective <= optimum * (1 + 1e-9)


def test_parameters_are_surveyed_again_once_what_was_worth_an_update_is_done_with(design):
    with DynamicEngine(design, LASSO, RULE._replace(eta=0.01), 1) as engine:
        engine.hold()
        engine.program.begin(engine.arrays, engine.columns, 1.0)
        engine.survey()
        samples, found = engine.samples, engine.priorities.sum()
        engine.survey_if_settled()
        assert engine.samples == samples
        engine.run(200)
        done, left = engine.samples, engine.priorities.sum()
        engine.survey_if_settled()
        assert left < 1e-3 * found
        assert done < engine.samples <= done + samples


def test_those_that_were_nearest_to_an_update_are_surveyed_first_and_all_if_there_is_nothing_in_it(design):
    with DynamicEngine(design, LASSO, RULE, 2) as engine:
        engine.hold()
        engine.program.begin(engine.arrays, engine.columns, 1.0)
        engine.survey()
        whole, found, nearness = engine.samples, engine.priorities, engine.arrays["nearness"].copy()
        for width in (8, 16, 32, 64, 120, 8):
            engine.priorities = np.zeros(120)
            engine.survey_if_settled()
            nearest = np.argsort(-nearness)[:width]
            assert np.array_equal(engine.priorities, np.where(np.isin(np.arange(120), nearest), found, 0.0))
        assert whole < engine.samples < 4 * whole
        engine.program.begin(engine.arrays, engine.columns, 1e3)
        engine.priorities, done = np.zeros(120), engine.samples
        engine.survey_if_settled()
        assert engine.samples == done + whole


@pytest.mark.few(4)
@pytest.mark.parametrize("schedule", ["priority", "random", "cyclic"])
def test_the_same_bits_whatever_the_workers(design, schedule):
    rule = RULE._replace(schedule=schedule)
    found = [solved(design, LASSO, rule, 1.0, [40, 25], workers) for workers in (1, 2, 3)]
    for _, samples, arrays in found[1:]:
        assert samples == found[0][1]
        assert {name: array.tobytes() for name, array in arrays.items()} == {
            name: array.tobytes() for name, array in found[0][2].items()
        }
    assert children() == []


@pytest.mark.few(1)
def test_blocks_that_are_not_asked_for_are_not_read(design):
    spec = ProgramSpec(f"{__name__}:Broken", {})
    blocks = design.manifest["blocks"]
    with DynamicEngine(design, spec, RULE, 2) as engine:
        asked = [3, 1, 2]
        answers = list(engine.scan(asked))
        assert [first for first, _ in answers] == design.block_bounds[asked].tolist()
        assert engine.bytes_read == sum(blocks[number]["bytes"] for number in asked)


def test_there_must_be_room_for_what_is_held(design):
    with DynamicEngine(design, LASSO, RULE, 1, HeldColumnsCapacity(5, 5 * design.rows)) as engine:
        engine.hold(np.array([1, 2, 50, 60, 119]))
        with pytest.raises(
            RequestError, match=r"6 columns with .* entries do not fit into --memory, which has room for 5"
        ):
            engine.hold(np.arange(6))


@pytest.mark.few(1)
def test_a_program_that_fails_is_told(design):
    with DynamicEngine(design, ProgramSpec(f"{__name__}:Broken", {}), RULE, 2) as engine:
        engine.hold()
        with pytest.raises(WorkFailed, match="a worker process failed: ValueError") as caught:
            engine.run(1000)
    assert str(caught.value).count("\n") == 1
    assert "Traceback" in caught.value.__notes__[0]
    assert children() == []


def test_a_worker_that_is_killed_is_told_while_others_wait_for_it(design):
    with DynamicEngine(design, LASSO, RULE, 3) as engine:
        engine.hold()
        engine.program.begin(engine.arrays, engine.columns, 1.0)
        threading.Timer(0.3, os.kill, (engine.pids[2], signal.SIGKILL)).start()
        with pytest.raises(WorkFailed, match="died: killed by SIGKILL; its task was RunRoundsRequest"):
            engine.run(1_000_000)
    assert children() == []


@pytest.mark.few(1)
def test_workers_that_wait_end_with_their_coordinator(design, tmp_path):
    code = f"""
import os, signal, threading, numpy as np
from blocks import Design
from ooc.dynamic.engine import DynamicEngine
from ooc.dynamic.selection_rules import SelectionRule
from ooc.workers.worker import ProgramSpec
spec = ProgramSpec("samplers.regression.rounds.lasso:LassoRounds", {{}})
engine = DynamicEngine(Design({str(design.path)!r}), spec, SelectionRule(), 2)
engine.hold()
interpreter, stopped, waiting = engine.pids
print(stopped, waiting, flush=True)
os.kill(stopped, signal.SIGSTOP)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
engine.run(1_000_000)
"""
    told = tmp_path / "pids"
    with told.open("w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=False)  # a pipe would be open in the workers too
    stopped, waiting = map(int, told.read_text().split())
    until(lambda: gone([waiting]))
    os.kill(stopped, signal.SIGKILL)
    until(lambda: gone([stopped]))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"schedule": "greedy"}, "--schedule: unknown schedule 'greedy'; choose one of priority, random, cyclic"),
        ({"parallel": 0}, "--parallelism must be at least 1, got 0"),
        ({"candidates": 7}, "candidates must be at least the parallelism 8, got 7"),
        ({"rho": 0.0}, "--rho must be above 0, got 0.0"),
        ({"eta": 0.0}, "eta must be above 0, got 0.0"),
        ({"pipeline": RoundPipeline(0, 1, 1)}, "the depth of the pipeline"),
        ({"pipeline": RoundPipeline(3, 2, 1)}, "schedulers must be at least the depth 3"),
    ],
)
def test_rules_that_make_no_sense_are_refused(design, changes, told):
    with pytest.raises(RequestError, match=told):
        DynamicEngine(design, LASSO, RULE._replace(**changes), 1)
