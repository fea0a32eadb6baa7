"""What every training begins with: limits that make sense, data that is whole, a plan within the budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from blocks import memory, stderr
from blocks.errors import RequestError, WorkFailed
from blocks.store import Store, check_file
from blocks.workers import cores
from ooc.plan.memory_plan import Plan, make_plan, processes_bytes
from ooc.ring.ring import Ring
from ooc.runs.run import Run
from ooc.training import Callback, Observer, train
from ooc.workers.worker import ProgramSpec
from samplers.options import Resources

MEMORY_SHARE = 0.8  # of the memory that is available, if no budget is given
SMALL = 50_000  # samples: 100 iterations of the slowest sampler take about as long as worker processes take to start


def check_limits(spec: ProgramSpec, resources: Resources) -> None:
    """Raise RequestError unless the program can be trained by so many workers, and for so long."""
    workers, max_time = resources.workers, resources.max_time
    if workers not in (None, 1) and spec.options.get("update") == "immediate":
        raise RequestError(f"--workers {workers}: --update immediate is for one worker", "Leave --workers out.")
    if max_time is not None and not max_time > 0:
        raise RequestError(f"--max-time {max_time:g}: a number of seconds above 0 is needed")


def check_dataset(dataset: Store) -> None:
    """Read every file of a dataset and compare its checksum; raises WorkFailed that names each damaged one."""
    if problems := [problem for path, entry in dataset.files() if (problem := check_file(path, entry))]:
        raise WorkFailed(
            "damaged: " + "; ".join(problems), f"Nothing was changed. See what is left with: ooc verify {dataset.path}"
        )


def plan_training(dataset: Store, spec: ProgramSpec, resources: Resources, *, evaluators: bool = False) -> Plan:
    """Choose workers, if they are not given, and what is resident. evaluators: whether evaluations start as many more.

    Raises RequestError if the budget will not do.
    """
    available, memory_bytes = memory.available(), resources.memory_bytes
    if memory_bytes and memory_bytes > available:
        asked, there = (f"{size / 1e9:,.1f} GB" for size in (memory_bytes, available))
        stderr.warn(f"the budget of {asked} is more than the {there} of memory that are available")
    budget = memory_bytes or int(MEMORY_SHARE * available)
    in_process = resources.workers is None and spec.is_known and dataset.samples <= SMALL
    one = in_process or spec.options.get("update") == "immediate"
    count = resources.workers or (1 if one else cores())
    beside = processes_bytes(count) if evaluators else 0
    return replace(make_plan(dataset, spec.build(dataset), count, budget, beside=beside), in_process=in_process)


def train_planned(
    run: Run,
    plan: Plan,
    observer: Observer | None,
    resources: Resources,
    ring: Ring | None = None,
    callback: Callback | None = None,
) -> dict[str, Any]:
    """Say what was planned, then train; see `ooc.training.train`."""
    quiet, max_time = resources.quiet, resources.max_time
    if not quiet:
        stderr.note("; ".join([f"plan: {plan.workers} workers, {plan.bytes / 1e6:,.0f} MB", *plan.reasons]))
    return train(run, plan, max_time=max_time, quiet=quiet, observer=observer, callback=callback, ring=ring)
