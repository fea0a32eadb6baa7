"""Prepare training: check limits, check the data, plan the memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from blocks import memory, stderr
from blocks.control_groups import core_count
from blocks.dataset_description import size_summary
from blocks.errors import RequestError, WorkFailed
from blocks.kinds import open_any
from blocks.plurals import count_of
from blocks.stored_dataset import StoredDataset, check_file
from ooc.plan.memory_plan import MemoryPlan, make_plan, processes_bytes
from ooc.ring.ring import Ring
from ooc.runs.run import Run
from ooc.training import Callback, TrainingObserver, train
from ooc.workers.worker import ProgramSpec
from samplers.options import TrainingResources

if TYPE_CHECKING:
    from ooc.dynamic.round_memory_plan import RoundMemoryPlan

MEMORY_SHARE = 0.8  # fraction of the available memory that is used if no limit is given


def check_limits(spec: ProgramSpec, resources: TrainingResources) -> None:
    """Raise RequestError unless the program allows the number of workers and max_time is valid."""
    workers, max_time = resources.workers, resources.max_time
    if workers not in (None, 1) and spec.options.get("update") == "immediate":
        raise RequestError(f"--workers {workers}: --update immediate can only be used with 1 worker", "Omit --workers.")
    if max_time is not None and not max_time > 0:
        raise RequestError(f"--max-time must be a number of seconds above 0, got {max_time:g}")


def check_dataset(dataset: StoredDataset) -> None:
    """Read every file of a dataset and verify its checksum.

    Raises WorkFailed that names the damaged files.
    """
    if problems := [problem for path, entry in dataset.files() if (problem := check_file(path, entry))]:
        raise WorkFailed(
            f"{dataset.path} is damaged: {'; '.join(problems)}",
            f"Nothing was changed. List all damaged files with: ooc verify {dataset.path}",
        )


def budget_of(memory_bytes: int | None) -> int:
    """Return the memory limit in bytes: the given one, or most of the available memory."""
    available = memory.available_memory()
    if memory_bytes and memory_bytes > available:
        asked, there = (f"{size / 1e9:,.1f} GB" for size in (memory_bytes, available))
        stderr.print_warning(f"the memory limit of {asked} exceeds the available memory, {there}")
    return memory_bytes or int(MEMORY_SHARE * available)


def plan_training(
    dataset: StoredDataset, spec: ProgramSpec, resources: TrainingResources, *, evaluators: bool = False
) -> MemoryPlan:
    """Choose the number of workers, if not given, and what stays in memory.

    evaluators: whether evaluations start as many processes again.
    Raises RequestError if the memory limit is too small.
    """
    return _plan(dataset, spec, resources, budget_of(resources.memory_bytes), evaluators=evaluators)


def fits(dataset: StoredDataset, spec: ProgramSpec, resources: TrainingResources, *, evaluators: bool = False) -> bool:
    """Return whether `plan_training` finds a plan within the memory limit."""
    budget = resources.memory_bytes or int(MEMORY_SHARE * memory.available_memory())
    try:
        _plan(dataset, spec, resources, budget, evaluators=evaluators)
    except RequestError:
        return False
    return True


def _plan(
    dataset: StoredDataset, spec: ProgramSpec, resources: TrainingResources, budget: int, *, evaluators: bool
) -> MemoryPlan:
    program = spec.build(dataset)
    in_process = resources.workers in (None, 1) and spec.is_known and dataset.samples <= program.few_samples
    one = in_process or spec.options.get("update") == "immediate"
    count = resources.workers or (1 if one else core_count())
    beside = processes_bytes(count) if evaluators else 0
    return replace(make_plan(dataset, program, count, budget, beside=beside), in_process=in_process)


def announcement(dataset: StoredDataset, steps: str, workers: int, memory_bytes: int) -> str:
    """Return the first line that `ooc train` prints: the data, its steps, workers and memory."""
    taken = f"{count_of(workers, 'worker')}, up to {memory_bytes / 1e6:,.0f} MB of memory"
    return f"training on {size_summary(dataset)}: {steps}, {taken}"


def announce(run: Run, plan: MemoryPlan | RoundMemoryPlan, *, quiet: bool) -> None:
    """Print the data and the resources of the run."""
    if not quiet:
        many = count_of(run.config["iterations"], "iteration")
        first = announcement(run.dataset(open_any), many, plan.workers, plan.bytes)
        stderr.print_note("; ".join([first, *plan.streamed]))


def train_planned(
    run: Run,
    plan: MemoryPlan,
    observer: TrainingObserver | None,
    resources: TrainingResources,
    ring: Ring | None = None,
    callback: Callback | None = None,
) -> dict[str, Any]:
    """Announce the run and its resources, then train; see `ooc.training.train`."""
    quiet, max_time = resources.quiet, resources.max_time
    announce(run, plan, quiet=quiet)
    return train(run, plan, max_time=max_time, quiet=quiet, observer=observer, callback=callback, ring=ring)
