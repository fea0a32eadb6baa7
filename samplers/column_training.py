"""Plan and train a run of a user's program for the dynamic engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blocks.control_groups import core_count
from blocks.stored_dataset import StoredDataset
from ooc.ring.ring import Ring
from ooc.runs.run import Run
from ooc.training import Callback
from ooc.workers.worker import ProgramSpec
from samplers.options import TrainingResources
from samplers.training_preparation import announce, budget_of

if TYPE_CHECKING:
    from ooc.dynamic.round_memory_plan import RoundMemoryPlan


def plan_columns(design: StoredDataset, spec: ProgramSpec, resources: TrainingResources) -> RoundMemoryPlan:
    """Choose the number of workers, if not given, and whether columns are held in memory or in a file.

    Raises RequestError if the memory limit is too small.
    """
    from ooc.dynamic.round_memory_plan import plan_rounds  # imported here because its kernels make the import slow

    workers = resources.workers or core_count()
    return plan_rounds(design, spec, workers, budget_of(resources.memory_bytes))  # type: ignore[arg-type]


def train_columns(
    run: Run, plan: RoundMemoryPlan, resources: TrainingResources, ring: Ring | None, callback: Callback | None
) -> dict[str, Any]:
    """Print the training plan, then train."""
    from ooc.dynamic.training import train_rounds

    announce(run, plan, quiet=resources.quiet)
    return train_rounds(run, plan, max_time=resources.max_time, quiet=resources.quiet, callback=callback, ring=ring)
