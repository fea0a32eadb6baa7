"""Arrays of slices in a file: the same bytes as in memory, few pages that are not written, nothing left behind."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from corpora import leftovers, model_bytes, names_of_words, new_run, plan, program_spec, small_dataset
from dirty_pages import Watch, dirty, on_disk
from long_mark import long_but
from processes import children

from blocks import Dataset, RequestError, WorkFailed, write_corpus
from blocks.memory import MemoryMeter, held_memory, parse_size
from ooc.plan.memory_plan import make_plan
from ooc.runs.run import Run
from ooc.state.slice_file import SliceFile
from ooc.training import train
from ooc.workers.shared_arrays import ArraySpec, SharedArrays

SPECS = {"a": ArraySpec((1_000_000,), "int64"), "b": ArraySpec((10,), "int32")}
SAMPLED = [
    ("Gibbs", "delayed"),
    ("SparseGibbs", "data-parallel"),
    ("SparseLda", "delayed"),
    ("LightLda", "delayed"),
    ("AliasLda", "data-parallel"),
]
ITERATIONS = 4


def test_what_is_held_is_looked_at_again_and_again():
    """What is told may be old, but not for long."""
    held_now = MemoryMeter()
    before, array = held_now([os.getpid()]), np.ones(1 << 23)
    while held_now([os.getpid()]) < before + array.nbytes / 2:
        time.sleep(0.01)


def test_a_file_holds_arrays_until_it_is_closed(tmp_path):
    """Zero at first whatever lay there; others that attach see them; what was written back is no longer memory."""
    on_disk(tmp_path)
    threads = threading.active_count()
    (tmp_path / "slices").mkdir()
    (tmp_path / "slices" / "arrays").write_bytes(b"\xff" * 9_000_000)
    file = SliceFile(tmp_path / "slices", SPECS)
    assert not any(array.any() for array in file.arrays.values())
    other = SharedArrays(SPECS, os.dup(file.arrays.descriptor))
    other["a"][:] = 3
    assert (file.arrays["a"] == 3).all()
    before = dirty(os.getpid())
    assert before > 7_000_000
    assert held_memory([os.getpid()]) > 7_000_000
    for _ in range(2):  # the second waits for the first
        file.write_back()
    assert dirty(os.getpid()) < before - 7_000_000
    other.close()
    file.close()
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == threads


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("slices") / "dataset")


@pytest.fixture(scope="module")
def in_memory(dataset, tmp_path_factory) -> dict[tuple[str, str], dict[str, bytes]]:
    """The model of each sampler and update, trained with everything in memory."""
    found = {}
    for number, (sampler, update) in enumerate(SAMPLED):
        path = tmp_path_factory.mktemp("in-memory") / str(number)
        run = new_run(path, dataset, program_spec(sampler, topics=256, update=update), ITERATIONS)
        train(run, plan(), quiet=True)
        found[sampler, update] = model_bytes(path)
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize(("workers", "buffers"), [(1, 0), (2, 2)])
@pytest.mark.parametrize(("sampler", "update"), SAMPLED)
def test_the_model_is_the_same_to_the_byte(dataset, in_memory, tmp_path, sampler, update, workers, buffers):
    run = new_run(tmp_path / "run", dataset, program_spec(sampler, topics=256, update=update), ITERATIONS)
    train(run, plan(workers, buffers, mapped=True), quiet=True)
    assert model_bytes(run.path) == in_memory[sampler, update]
    assert leftovers(run.path) == []
    assert children() == []


def test_a_full_disk_is_told_before_anything_is_done_and_the_run_can_go_on(dataset, in_memory, tmp_path, monkeypatch):
    """There is room for shared memory, and none in the file system."""
    allocate = os.posix_fallocate

    def no_room(descriptor: int, offset: int, size: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "arrays":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(descriptor, offset, size)

    run = new_run(tmp_path / "run", dataset, program_spec("LightLda", topics=256), ITERATIONS // 2)
    train(run, plan(mapped=True), quiet=True)
    run.set_iterations(ITERATIONS)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", no_room)
        with pytest.raises(WorkFailed, match="slices/arrays: the disk is full"):
            train(run, plan(mapped=True), quiet=True)
    assert leftovers(run.path) == []
    assert children() == []
    train(run, plan(2, mapped=True), quiet=True)
    assert model_bytes(run.path) == in_memory["LightLda", "delayed"]


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Dataset:
    """Half a million tokens of words that occur 33 times each: rows are tables of 1 KiB, 15 MB in all, in 8 slices."""
    words = np.random.default_rng(0).permutation(np.repeat(np.arange(15_000, dtype=np.uint32), 33))
    offsets = np.append(np.arange(0, words.size, 100), words.size)
    path = tmp_path_factory.mktemp("large") / "dataset"
    return write_corpus(path, offsets, words, names_of_words(15_000), block_tokens=125_000, slices=8)


def smallest_budget(dataset: Dataset, program) -> int:
    """What is named when a budget of nothing is refused."""
    with pytest.raises(RequestError) as told:
        make_plan(dataset, program, 2, 1)
    return parse_size(re.search(r"at least ([\d,]+ MB)", told.value.what)[1].replace(",", ""))


@pytest.mark.long
@pytest.mark.parametrize("update", long_but(["delayed"], ["delayed", "data-parallel"]))
def test_the_smallest_budget_holds(large, tmp_path, update):
    """Rows lie in a file, of which never more than two slices wait to be written; all processes stay in the budget."""
    on_disk(tmp_path)
    program = program_spec("LightLda", topics=256, mh_steps=1, update=update).build(large)
    budget = smallest_budget(large, program)
    assert make_plan(large, program, 2, budget).mapped
    specs = program.shared_arrays()
    slices = sum(count * np.dtype(specs[name].dtype).itemsize for name, count in program.sliced_arrays().items())
    assert slices.sum() > 15_000_000
    run = tmp_path / "run"
    options = f"--sampler lightlda --update {update} --topics 256 --mh-steps 1 --start random --iterations 2"
    limits = f"--workers 2 --memory {budget}"
    command = [sys.executable, "-m", "ooc", "train", "lda", large.path, run, *f"{options} {limits}".split()]
    with Watch(dirty) as watched:
        subprocess.run(command, check=True, capture_output=True)
    assert 0 < watched.most < 2 * slices.max() + 1_000_000
    assert all(line["memory_bytes"] < budget for line in Run(run).metrics())


def test_what_is_kept_in_memory_grows_with_the_budget(large):
    """Rows are the first to be kept, then topics; nothing is chosen that is larger than the budget."""
    program = program_spec("Gibbs", topics=256).build(large)
    budget = smallest_budget(large, program) - 1_000_000  # what is told is rounded up to a million
    order = []
    while not order or order[-1] != (False, True):
        budget += 100_000
        with contextlib.suppress(RequestError):
            chosen = make_plan(large, program, 2, budget)
            assert chosen.bytes <= budget
            order.append((chosen.mapped, chosen.resident))
    assert list(dict.fromkeys(order)) == [(True, False), (True, True), (False, False), (False, True)]


@pytest.mark.parametrize("update", ["rotation", "immediate"])
def test_rows_that_are_updated_in_place_must_fit_in_memory(large, update):
    """Every stage changes rows of all slices: the smallest budget holds them all, and none chooses a file."""
    delayed = program_spec("LightLda", topics=256).build(large)
    program = program_spec("LightLda", topics=256, update=update).build(large)
    least = smallest_budget(large, program)
    assert least > smallest_budget(large, delayed) + 8_000_000
    assert not make_plan(large, program, 2, least).mapped
