"""The engine with real workers: the same bytes whatever the workers and the plan; failures that leave nothing."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from corpora import (
    InProcessProgram,
    leftovers,
    model_bytes,
    new_run,
    open_engine,
    plan,
    program_spec,
    recount,
    small_dataset,
    tiny_dataset,
)
from long_mark import long_but
from processes import children

from blocks import Dataset, RequestError, WorkFailed
from blocks.memory import parse_size
from blocks.workers import WorkerDied
from ooc.plan.memory_plan import make_plan
from ooc.state.generations import StateGenerations
from ooc.state.unit_passes import RESIDENT, ResidentState
from ooc.training import train
from ooc.workers.engine_options import EngineOptions
from ooc.workers.shared_arrays import SharedArrays
from ooc.workers.worker import ProgramSpec, StageMessage, all_phases, unit_parts
from samplers.lda.doc_major import UPDATES
from samplers.topics.model import SavedTopicModel

ITERATIONS = 4
SPECS = {
    "two-phase": program_spec(topics=30, mh_steps=2),
    "hash rows": program_spec(topics=70_000),
    "gibbs": program_spec("Gibbs", topics=12, alpha=[0.1 * k for k in range(1, 13)]),
}
DOC_MAJOR = {  # topics of two bytes and of one
    f"{sampler} {update}": program_spec(sampler, topics=300 if sampler == "Gibbs" else 256, update=update)
    for sampler in ("Gibbs", "SparseGibbs", "SparseLda", "AliasLda", "LightLda")
    for update in UPDATES
}
SPECS |= DOC_MAJOR
PLANS = [(1, 0), (2, 3), (3, 0), (1, 2), (2, 0), (3, 4)]  # workers, buffers (0: all state in memory)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    dataset = small_dataset(tmp_path_factory.mktemp("engine") / "dataset")
    assert dataset.block_count > 5
    assert dataset.slice_count == 4
    return dataset


@pytest.fixture(scope="module")
def in_process(dataset, tmp_path_factory) -> dict[str, dict[str, bytes]]:
    """Each sampler's model, made by its program in this process: no workers, no engine."""
    directory = tmp_path_factory.mktemp("in-process")
    found = {}
    for name, spec in SPECS.items():
        with InProcessProgram(dataset, spec) as chain:
            chain.iterate(ITERATIONS)
            (directory / name).mkdir()
            chain.export(directory / name / "model")
        found[name] = model_bytes(directory / name)
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("sampler", "workers", "buffers"),
    [
        ("two-phase", 1, 0),
        ("two-phase", 2, 0),
        ("two-phase", 3, 0),
        ("two-phase", 1, 2),
        ("two-phase", 2, 3),
        ("two-phase", 3, 4),
        ("hash rows", 2, 2),
        ("gibbs", 2, 0),
        ("gibbs", 1, 2),
        ("gibbs", 3, 4),
        ("LightLda delayed", 3, 0),
        ("LightLda rotation", 2, 0),
        ("AliasLda data-parallel", 3, 3),
        ("SparseLda rotation", 3, 2),
    ],
)
def test_the_model_is_the_same_to_the_byte(dataset, in_process, tmp_path, sampler, workers, buffers):
    """1, 2 or 3 workers, all state in memory (0 buffers) or streamed through 2 to 4 buffers, or no engine at all."""
    run = new_run(tmp_path / "run", dataset, SPECS[sampler], ITERATIONS)
    train(run, plan(workers, buffers), quiet=True)
    assert model_bytes(run.path) == in_process[sampler]
    assert leftovers(run.path) == []
    assert children() == []


def train_in_halves(run, first, second):
    """Train half of the iterations with one plan, the other half with another."""
    run.set_iterations(ITERATIONS // 2)
    train(run, plan(*first), quiet=True)
    run.set_iterations(ITERATIONS)
    train(run, plan(*second), quiet=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("number", long_but((0, 5, 10, 15, 16), range(len(DOC_MAJOR))), ids=list(DOC_MAJOR))
def test_rows_made_again_on_resume_lead_to_the_same_bytes(dataset, in_process, tmp_path, number):
    """Stopped in the middle and resumed with other workers and buffers: rows and tables are rebuilt from topics, and
    the model is that of the run that was not stopped. Over the samplers, every update sees all workers and buffers."""
    name = list(DOC_MAJOR)[number]
    sampler = number // len(UPDATES)
    run = new_run(tmp_path / "run", dataset, DOC_MAJOR[name], ITERATIONS)
    train_in_halves(run, PLANS[(2 * sampler) % 6], PLANS[(2 * sampler + 1) % 6])
    assert model_bytes(run.path) == in_process[name]
    assert leftovers(run.path) == []


@pytest.mark.long
@pytest.mark.parametrize("chosen", PLANS, ids=str)
@pytest.mark.parametrize("name", list(DOC_MAJOR))
def test_document_major_models_are_the_same_to_the_byte(dataset, in_process, tmp_path, name, chosen):
    """Every sampler, update, number of workers, resident or streamed; the s-error is told where it applies."""
    run = new_run(tmp_path / "run", dataset, DOC_MAJOR[name], ITERATIONS)
    train(run, plan(*chosen), quiet=True)
    assert model_bytes(run.path) == in_process[name]
    errors = [line["s_error"] for line in run.metrics() if "s_error" in line]
    assert len(errors) == (ITERATIONS if "rotation" in name else 0)
    assert all(0 < error < 2 for error in errors)


def test_another_seed_gives_another_model(dataset, in_process, tmp_path):
    run = new_run(tmp_path / "run", dataset, program_spec(topics=30, mh_steps=2, seed=8), ITERATIONS)
    train(run, plan(2), quiet=True)
    assert model_bytes(run.path)["words.h5"] != in_process["two-phase"]["words.h5"]


@pytest.mark.parametrize(("most", "sizes"), [(1, [1, 1, 1, 1, 0]), (3, [3, 1, 0, 0, 0]), (9, [4, 0, 0, 0, 0])])
def test_an_answer_has_no_more_parts_than_it_may(dataset, most, sizes):
    """What a phase that reads answers may be large: its parts are answered one by one, all of them once."""
    with InProcessProgram(dataset, SPECS["two-phase"]) as chain:
        phase = all_phases(chain.program).index(chain.program.document_likelihood)
        parts = range(unit_parts(dataset, "block", 0)[1].size - 1)
        message = StageMessage(phase, 0, 0, 0, parts, most, RESIDENT)
        answers = [chain._handler(message) for _ in sizes]
        assert [len(answer) for answer in answers] == sizes
        told = {part: likelihood for answer in answers for part, likelihood in answer.items()}
        assert [told[part] for part in parts] == list(chain.sweep(chain.program.document_likelihood))[: len(parts)]


def test_the_order_in_which_parts_are_dealt_does_not_matter(dataset, in_process, tmp_path):
    spec = ProgramSpec("worker_targets:ReversedPartsLda", SPECS["two-phase"].options)
    run = new_run(tmp_path / "run", dataset, spec, ITERATIONS)
    train(run, plan(2, 2), quiet=True)
    assert model_bytes(run.path) == in_process["two-phase"]


@pytest.mark.parametrize("buffers", [0, 2], ids=["resident", "streamed"])
def test_the_engine_changes_nothing_but_what_it_commits(dataset, tmp_path, buffers):
    """After any step the summary row equals a recount of what was committed; objectives leave the state alone."""
    run = new_run(tmp_path / "run", dataset, SPECS["two-phase"], ITERATIONS)
    with open_engine(run, plan(2, buffers)) as engine:
        engine.start()
        for _ in range(4):
            engine.step()
        first = engine.objective()
        assert engine.objective() == first
        engine.commit()
        counts = engine.arrays["topic_counts"].copy()
        engine.export(_made(tmp_path / "model"))
    model = SavedTopicModel(tmp_path / "model")
    assert np.array_equal(model.topic_counts, counts)
    assert counts.sum() == dataset.tokens
    with open_engine(run, plan(1, 0)) as again:
        again.start()
        assert again.cursor.iteration == 2
        assert again.objective() == first
        words = recount(dataset, again.shared["state"][:, 0], 30)[1]
        assert np.array_equal(words.sum(axis=0), counts)


def _made(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize("sampler", ["two-phase", "LightLda rotation"])
def test_what_is_committed_beside_the_work_is_the_state_after_it(dataset, tmp_path, sampler):
    """After each phase, of slices or of blocks; the phases after it do not change it."""
    run = new_run(tmp_path / "run", dataset, SPECS[sampler], ITERATIONS)
    with open_engine(run, plan(2, 0)) as engine:
        engine.start()
        for number in range(1, 4):
            engine.step(checkpoint=True)
            assert engine.committed
            state = engine.shared[RESIDENT].copy()
            arrays = {name: engine.arrays[name].copy() for name in engine.program.primary_arrays()}
            found, read, generations = committed_state(engine, dataset, run, tmp_path / f"{number}")
            assert generations.cursor.iteration * len(engine.program.phases) + generations.cursor.phase == number
            assert np.array_equal(found, state)
            assert all(np.array_equal(flat, arrays[name].reshape(-1)) for name, flat in read.items())
        engine.step()
        assert not engine.committed
        assert not np.array_equal(engine.shared[RESIDENT], state)
        assert np.array_equal(committed_state(engine, dataset, run, tmp_path / "last")[0], state)


def committed_state(engine, dataset, run, copy):
    """Local state and primary arrays of the newest generation, read from a copy, and the copy."""
    shutil.copytree(run.path / "state", copy)
    generations = StateGenerations(copy, dataset, engine._layout)
    shared = SharedArrays(ResidentState.specs(engine._layout))
    ResidentState(engine._layout, shared).load(generations)
    return shared[RESIDENT], generations.arrays(), generations


@pytest.mark.few(4)
@pytest.mark.parametrize("buffers", [0, 2], ids=["resident", "streamed"])
@pytest.mark.parametrize("switched", [{"macro": False}, {"heaviest_first": False}, {"own_queues": True}])
def test_no_switch_changes_what_is_computed(dataset, in_process, tmp_path, switched, buffers):
    run = new_run(tmp_path / "run", dataset, SPECS["two-phase"], ITERATIONS)
    with open_engine(run, plan(3, buffers), EngineOptions(**switched)) as engine:
        engine.start()
        for _ in range(ITERATIONS * len(engine.program.phases)):
            engine.step()
        engine.export(_made(run.path / "model"))
    assert model_bytes(run.path) == in_process["two-phase"]


@pytest.mark.parametrize("buffers", [0, 2], ids=["resident", "streamed"])
def test_an_error_in_a_worker_stops_the_run_and_leaves_nobody(dataset, tmp_path, buffers):
    spec = ProgramSpec("worker_targets:FailingLda", SPECS["two-phase"].options)
    run = new_run(tmp_path / "run", dataset, spec, ITERATIONS)
    threads = threading.active_count()
    with pytest.raises(WorkFailed, match="slice 2 is cursed"):
        train(run, plan(2, buffers), quiet=True)
    assert children() == []
    assert threading.active_count() == threads
    assert leftovers(run.path) == []
    with pytest.raises(WorkFailed, match="slice 2 is cursed"):  # not locked, not damaged: the same again
        train(run, plan(1, buffers), quiet=True)


@pytest.mark.parametrize("buffers", [0, 2], ids=["resident", "streamed"])
def test_a_dead_worker_is_named_with_the_unit_that_it_was_told_to_work_on(dataset, tmp_path, buffers):
    with open_engine(new_run(tmp_path / "run", dataset, SPECS["two-phase"], ITERATIONS), plan(2, buffers)) as engine:
        engine.start()
        os.kill(engine.pids[2], signal.SIGKILL)
        with pytest.raises(WorkerDied, match=r"worker 1 of 2 .* killed by SIGKILL; its task was unit \d+, stage 0"):
            engine.step()
    assert children() == []


def test_state_damaged_while_the_engine_runs_stops_it(dataset, tmp_path):
    """A cell that does not have its checksum when it is streamed in is never sampled from."""
    run = new_run(tmp_path / "run", dataset, SPECS["two-phase"], ITERATIONS)
    threads = threading.active_count()
    with open_engine(run, plan(2, 2)) as engine:
        engine.start()
        engine.step()
        cells = max((run.path / "state").glob("*.cells"))
        with cells.open("r+b") as file:
            file.seek(cells.stat().st_size // 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 4]))
        with pytest.raises(WorkFailed, match="damaged at block"):
            engine.step()
    assert threading.active_count() == threads
    assert children() == []


@pytest.mark.parametrize("buffers", [0, 2], ids=["resident", "streamed"])
def test_the_smallest_corpora_train(tmp_path, buffers):
    """One token; more slices than words, so that some are empty; empty documents; more workers than work."""
    dataset = tiny_dataset(tmp_path / "dataset", [[], [1], []], 3, slices=5)
    run = new_run(tmp_path / "run", dataset, program_spec(topics=2), 2)
    train(run, plan(3, buffers), quiet=True)
    model = SavedTopicModel(run.path / "model")
    assert model.topic_counts.sum() == 1
    assert np.diff(model.documents.offsets).tolist() == [0, 1, 0]
    assert np.diff(model.words.offsets).tolist() == [0, 1, 0]


def test_a_plan_keeps_in_memory_what_fits_and_streams_the_rest(dataset):
    """From the smallest budget that is named on refusal, through streaming, to residency: bytes within the budget."""
    program = SPECS["two-phase"].build(dataset)
    with pytest.raises(RequestError, match="is too small for 2 workers: it must be at least") as told:
        make_plan(dataset, program, 2, 1_000_000)
    named = re.search(r"at least ([\d,]+ MB)", told.value.what)
    assert named
    least = parse_size(named[1].replace(",", ""))
    smallest = make_plan(dataset, program, 2, least)
    assert smallest.bytes <= least
    with pytest.raises(RequestError):
        make_plan(dataset, program, 2, least - 2_000_000)
    assert make_plan(dataset, program, 2, 10**10).resident
