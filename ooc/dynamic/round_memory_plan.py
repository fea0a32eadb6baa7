"""Plan the memory of training in rounds: columns are held in memory if they fit, otherwise in a file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.design.design import Design
from blocks.errors import RequestError
from blocks.plurals import count_of
from ooc.dynamic.engine import shared_bytes
from ooc.dynamic.program import DynamicProgram
from ooc.plan.memory_plan import processes_bytes
from ooc.workers.worker import ProgramSpec

_PROCESS = 170_000_000  # bytes of the training process after it has loaded kernels
_OF_ROW = 32  # bytes per row while a program computes its objective
_OF_ENTRY = 8  # bytes per entry of a held sparse column; an entry of a dense column takes 4
_BESIDE = 2  # blocks, in addition to one per worker, whose columns are in the file but not yet written back


class RoundMemoryPlan(NamedTuple):
    """Memory plan of training in rounds.

    workers: number of processes.
    in_file: whether the columns are held in a file.
    bytes: memory of the process tree.
    columns_bytes: size of the columns in bytes.
    budget: memory limit in bytes.
    """

    workers: int
    in_file: bool
    bytes: int
    columns_bytes: int
    budget: int

    @property
    def streamed(self) -> list[str]:
        """Return descriptions of the data that is kept on disk."""
        return [f"the columns ({self.columns_bytes / 1e6:,.0f} MB) are kept in a file"] if self.in_file else []


def plan_rounds(design: Design, spec: ProgramSpec, workers: int, budget: int) -> RoundMemoryPlan:
    """Choose whether columns are held in memory or in a file; the choice does not change results.

    Raises RequestError, with the smallest sufficient budget, if the budget is too small for either.
    """
    program: DynamicProgram = spec.build(design)  # type: ignore[assignment]
    rounds, columns = shared_bytes(design, spec, program.rule, workers)
    fixed = _PROCESS + processes_bytes(workers) + rounds + _OF_ROW * design.rows
    unwritten = min((workers + _BESIDE) * _block_bytes(design), columns)
    for in_file, size in ((False, fixed + columns), (True, fixed + unwritten)):
        if size <= budget:
            return RoundMemoryPlan(workers, in_file, size, columns, budget)
    raise RequestError(
        f"--memory {budget / 1e6:,.0f} MB is too small for {count_of(workers, 'worker')}: it must be at least"
        f" {-(-(fixed + unwritten) // 10**6):,} MB",
        "Increase --memory, or reduce --workers.",
    )


def _block_bytes(design: Design) -> int:
    """Return the size in bytes of the largest block's columns when held."""
    if design.dense:
        return int(np.diff(design.block_bounds).max()) * design.rows * 4
    return max(block["entries"] for block in design.manifest["blocks"]) * _OF_ENTRY
