"""Plan the memory and disk space of a regression, and the memory for working sets."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from blocks.control_groups import core_count
from blocks.design.row_shards import shard_or_whole
from blocks.errors import RequestError
from blocks.plurals import count_of
from ooc.dynamic.selection_rules import SelectionRule
from samplers.regression.program import RegressionProgram
from samplers.regression.rounds.solver import round_bytes
from samplers.training_preparation import budget_of

_PROCESS = 170_000_000  # resident bytes of a process that has loaded the kernels
LEAST_ROOM = 16_000_000  # minimum bytes for working sets; training with less memory is refused

_ENTRY = 40  # bytes of an entry in a working set: up to five copies of its row and value
_STATE_OF_COLUMN = 13  # bytes of a generation per column: known cosine, and whether the column is a candidate
_STATE_OF_ROW = 208  # bytes of a generation per row: residuals
_GENERATIONS = 3  # number of generations on disk while the third replaces the first


class PathMemoryPlan(NamedTuple):
    """What a run keeps in memory.

    room: bytes for working sets, besides everything that is always held.
    """

    workers: int
    held: int
    room: int


def plan_path(
    program: RegressionProgram, workers: int | None, memory_bytes: int | None, rule: SelectionRule | None = None
) -> PathMemoryPlan:
    """Return the plan of a path.

    rule: rule of the rounds, if any.
    Raises RequestError if the memory limit is too small.
    """
    workers, budget = workers or core_count(), budget_of(memory_bytes)
    held = _PROCESS + program.bytes() + (round_bytes(program, rule, workers) if rule else 0)
    if held + LEAST_ROOM > budget:
        left_out = (
            "--schedule, which holds all columns in memory" if rule else "--cross-validate" if program.folds else ""
        )
        least = -(-(held + LEAST_ROOM) // 10**6)
        raise RequestError(
            f"--memory {budget / 1e6:,.0f} MB is too small for {count_of(program.design.columns, 'column')}: it must be"
            f" at least {least:,} MB",
            f"Increase --memory{f', or omit {left_out}' if left_out else ''}.",
        )
    return PathMemoryPlan(workers, held, budget - held)


def largest_bytes(plan: PathMemoryPlan, program: RegressionProgram) -> int:
    """Return the maximum memory of a path: with all columns in its working sets, or all that the plan allows."""
    design = program.design
    entries = design.rows * design.columns if design.dense else design.entries
    return plan.held + min(plan.room, min(plan.workers, program.regressions) * _ENTRY * entries)


def disk_needed(data: Path, folds: int) -> int:
    """Return the maximum size in bytes of the generations that a new run on a shard keeps on a ring."""
    design = shard_or_whole(data)
    return (1 + folds) * _GENERATIONS * (_STATE_OF_COLUMN * design.columns + _STATE_OF_ROW * design.rows)
