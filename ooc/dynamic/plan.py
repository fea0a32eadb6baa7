"""Plan the memory of a training by rounds: columns in memory if they fit, else in a file."""

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

_PROCESS = 170_000_000  # bytes of the process that trains, which has loaded kernels
_OF_ROW = 32  # bytes for each row, while a program computes its objective
_OF_ENTRY = 8  # bytes of an entry of a sparse column that is held; of a dense one 4
_BESIDE = 2  # blocks, besides one of each worker, whose columns were copied into the file and are not written yet


class RoundPlan(NamedTuple):
    """workers: processes. in_file: whether the columns are held in a file. bytes: what the process tree will hold.

    columns_bytes: of the columns. budget: bytes that it may hold.
    """

    workers: int
    in_file: bool
    bytes: int
    columns_bytes: int
    budget: int

    @property
    def streamed(self) -> list[str]:
        """Describe what does not stay in memory."""
        return [f"the columns ({self.columns_bytes / 1e6:,.0f} MB) are kept in a file"] if self.in_file else []


def plan_rounds(design: Design, spec: ProgramSpec, workers: int, budget: int) -> RoundPlan:
    """Choose whether columns stay in memory; the choice does not change the result.

    Raises RequestError, with the smallest budget that is enough, if the budget is too small for either.
    """
    program: DynamicProgram = spec.build(design)  # type: ignore[assignment]
    rounds, columns = shared_bytes(design, spec, program.rule, workers)
    fixed = _PROCESS + processes_bytes(workers) + rounds + _OF_ROW * design.rows
    unwritten = min((workers + _BESIDE) * _block_bytes(design), columns)
    for in_file, size in ((False, fixed + columns), (True, fixed + unwritten)):
        if size <= budget:
            return RoundPlan(workers, in_file, size, columns, budget)
    raise RequestError(
        f"--memory {budget / 1e6:,.0f} MB is too small for {count_of(workers, 'worker')}: it must be at least"
        f" {-(-(fixed + unwritten) // 10**6):,} MB",
        "Give a larger --memory, or a smaller --workers.",
    )


def _block_bytes(design: Design) -> int:
    """Return the most bytes that the columns of a block take where they are held."""
    if design.dense:
        return int(np.diff(design.block_bounds).max()) * design.rows * 4
    return max(block["entries"] for block in design.manifest["blocks"]) * _OF_ENTRY
