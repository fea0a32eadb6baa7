"""Base class of user programs for the dynamic engine: functions of numbers that are compiled into rounds of updates.

    schedule    draw columns by priority, and keep those that do not depend on each other (the engine)
    update      for each entry of a drawn column: add to sums over the rows (workers)
    aggregate   given the sums over all rows: compute the column's new coefficients
    follow      residual += change * column, then compute the fields derived from the residual (workers)

The first three are schedule, update and aggregate of STRADS (algorithm 2). The sums of `update` are partial sums,
because each worker and each machine has some of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from blocks.design.design import Design
from blocks.npz import write_npz
from ooc.dynamic.checks import check_declared
from ooc.dynamic.round_schedule import RoundPipeline
from ooc.dynamic.selection_rules import SelectionRule, check_rule
from ooc.program import Arrays, LocalState
from ooc.program_fields import Field, convert_option, program_fields, program_options, set_options
from ooc.workers.shared_arrays import ArraySpec


class DynamicProgram:
    """Base class of models that are trained by coordinate descent on the columns of a design matrix that still change.

    A subclass declares fields (`ooc.Field`) and options (annotated attributes), and defines `update` and `aggregate`,
    and an `objective` for the metrics. The first field per column holds the coefficients. The first field per row is
    the residual: its initial value is the residual when all coefficients are 0, and each change of a coefficient, times
    its column, is added to it. Each element of the residual has the shape of the coefficients of a column.
    docs/dynamic_engine.md describes all methods.

    Class attributes: `sums`, number of sums per column to which `update` adds, or the name of an option with this
    number; `group`, number of consecutive columns that are updated together.

    Parameters
    ----------
    schedule, parallelism, rho : see `ooc.dynamic.selection_rules.SelectionRule`
        How columns are chosen ("priority", "random" or "cyclic"), the maximum number of columns in a round, and the
        upper bound on the absolute correlation of two of them (None for no limit).
    depth : int
        Number of rounds that are computed concurrently.
    tolerance : float
        Duality gap at which training stops, relative to the initial objective.
    seed : int
        Random seed of the draws and of the initial values of fields.
    """

    sums: int | str = 1
    group: int = 1

    def __init__(
        self,
        design: Design,
        *,
        schedule: str = "priority",
        parallelism: int = 64,
        rho: float | None = 0.2,
        depth: int = 3,
        tolerance: float = 1e-6,
        seed: int = 0,
        **options: Any,
    ) -> None:
        own = {"parallelism": parallelism, "depth": depth, "seed": seed}
        parallelism, depth, self.seed = (convert_option(self, name, value, int) for name, value in own.items())
        rho, self.tolerance = (
            convert_option(self, "rho", rho, float | None),
            convert_option(self, "tolerance", tolerance, float),
        )
        self.dataset = design
        set_options(self, options)
        check_declared(self)
        candidates = parallelism if rho is None else 2 * parallelism
        overlap = RoundPipeline(depth, depth + 1, 1)
        rule = SelectionRule(schedule, parallelism, candidates, rho, False, pipeline=overlap, seed=self.seed)
        check_rule(rule)
        self.rule = rule.for_parameters(design.columns // self.group)

    # Methods that a user's program may override

    def initialize(self, shared: Arrays) -> None:
        """Set the initial values of a new run; called in the coordinator. Default: the initial values of the fields."""
        for name, field in self.fields.items():
            field.fill(shared[name], [self.seed, *name.encode()])

    def objective(self, shared: Arrays) -> float | dict[str, float]:
        """Return the objective, or metrics by name; called in the coordinator between rounds."""
        return {}

    def export(self, shared: Arrays, directory: Path) -> None:
        """Write the model into an empty directory. Default: arrays.npz with all fields that are not derived."""
        write_npz(directory / "arrays.npz", {name: shared[name] for name, f in self.fields.items() if not f.derived})

    # Properties of the declared fields and options

    @cached_property
    def fields(self) -> dict[str, Field]:
        return program_fields(type(self))

    def fields_per(self, per: str) -> list[str]:
        """Return the names of the fields per "row" or per "column", or of the other fields for ""."""
        return [name for name, field in self.fields.items() if field.per == per]

    @property
    def coefficient_name(self) -> str:
        return self.fields_per("column")[0]

    @property
    def residual_name(self) -> str:
        return self.fields_per("row")[0]

    @cached_property
    def coefficient_shape(self) -> tuple[int, ...]:
        """Return the shape of a column's coefficients."""
        return self.fields[self.coefficient_name].shape_in(self)

    @property
    def has_one_coefficient(self) -> bool:
        """Return whether a parameter is a single coefficient."""
        return self.group == 1 and not self.coefficient_shape

    @property
    def sums_of_column(self) -> int:
        """Return the number of sums that `update` computes for a column."""
        return getattr(self, self.sums) if isinstance(self.sums, str) else self.sums

    @property
    def has_gap(self) -> bool:
        return hasattr(self, "gap")

    @cached_property
    def functions(self) -> dict[str, Any]:
        """Return the functions to compile, by name."""
        names = ("update", "aggregate", "priority", "derive")
        return {name: getattr(type(self), name) for name in names if hasattr(self, name)}

    def own_arrays(self, shared: Arrays) -> dict[str, np.ndarray]:
        """Return the arrays of the program's fields, given a mapping of all shared arrays."""
        return {name: shared[name] for name in self.fields}

    @cached_property
    def constants(self) -> dict[str, float]:
        """Return the numeric options by name, which functions read from `shared`."""
        values = {name: getattr(self, name) for name in program_options(type(self))}
        return {name: value for name, value in values.items() if isinstance(value, int | float)}

    def local_state(self) -> LocalState:
        """Return an empty layout: blocks are only read, and entries have no state."""
        return LocalState("uint8", 0)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        """Return the shapes and dtypes of the arrays of all fields."""
        sizes = {"row": (self.dataset.rows,), "column": (self.dataset.columns,), "": ()}
        return {
            name: ArraySpec((*sizes[field.per], *field.shape_in(self)), field.dtype)
            for name, field in self.fields.items()
        }

    def primary_arrays(self) -> Sequence[str]:
        return tuple(self.fields)

    @cached_property
    def followers(self) -> list[str]:
        """Return the row fields that change with the coefficients: the residual, then the derived fields."""
        return [self.residual_name, *(name for name in self.fields_per("row") if self.fields[name].derived)]
