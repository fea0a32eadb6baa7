"""Programs of the dynamic engine that users write: functions of numbers, from which the rounds are compiled.

    schedule    draws columns by priority, and keeps those that do not depend on each other (the engine)
    update      for each entry of a column that is drawn: adds to sums over the rows (workers)
    aggregate   given the sums over all rows: the coefficients that the column has from now on
    follow      residual += change * column, and what is derived from the residual (workers)

That is schedule / update / aggregate of STRADS (algorithm 2): what `update` comes to is partial, as each worker, and
each machine, has some of the rows.
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
from ooc.dynamic.rounds import Pipeline
from ooc.dynamic.schedules import Rule, check
from ooc.fields import Field, converted, fields_of, options_of, set_options
from ooc.program import Arrays, LocalState
from ooc.workers.shared_arrays import ArraySpec


class DynamicProgram:
    """A model of a design matrix that is trained column by column, those first that still change.

    A subclass declares fields (`ooc.Field`) and options (annotated attributes), and gives `update` and `aggregate`, and
    an `objective` for the metrics. The first field per column holds the coefficients. The first field per row is the
    residual: it starts with its value for coefficients of 0, and each change of a coefficient, times its column, is
    added to it. Its elements have the shape of the coefficients of a column. All methods: docs/dynamic_engine.md.

    sums: numbers that `update` adds to, or the name of an option. group: consecutive columns that are updated together.

    Parameters
    ----------
    schedule, parallelism, rho : see `ooc.dynamic.schedules.Rule`
        How columns are chosen ("priority", "random" or "cyclic"), the largest number of columns in a round, and the
        largest correlation of two of them; None for no limit.
    depth : int
        Rounds that are computed at the same time.
    tolerance : float
        Duality gap at which the training ends, as a share of the first objective.
    seed : int
        Of the draws, and of the first values of fields.
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
        parallelism, depth, self.seed = (converted(self, name, value, int) for name, value in own.items())
        rho, self.tolerance = converted(self, "rho", rho, float | None), converted(self, "tolerance", tolerance, float)
        self.dataset = design
        set_options(self, options)
        check_declared(self)
        candidates = parallelism if rho is None else 2 * parallelism
        overlap = Pipeline(depth, depth + 1, 1)
        rule = Rule(schedule, parallelism, candidates, rho, False, pipeline=overlap, seed=self.seed)
        check(rule)
        self.rule = rule.for_parameters(design.columns // self.group)

    # What a program of one's own says

    def initialize(self, shared: Arrays) -> None:
        """In the coordinator, once for a new run: set the first values. Default: those of the fields."""
        for name, field in self.fields.items():
            field.fill(shared[name], [self.seed, *name.encode()])

    def objective(self, shared: Arrays) -> float | dict[str, float]:
        """In the coordinator, between rounds: the objective, and other numbers for the metrics, by their names."""
        return {}

    def export(self, shared: Arrays, directory: Path) -> None:
        """Write the model into an empty directory. Default: arrays.npz, of all fields that are not derived."""
        write_npz(directory / "arrays.npz", {name: shared[name] for name, f in self.fields.items() if not f.derived})

    # Declared

    @cached_property
    def fields(self) -> dict[str, Field]:
        return fields_of(type(self))

    def fields_per(self, per: str) -> list[str]:
        """The fields of rows, columns, or neither."""
        return [name for name, field in self.fields.items() if field.per == per]

    @property
    def coefficient_name(self) -> str:
        return self.fields_per("column")[0]

    @property
    def residual_name(self) -> str:
        return self.fields_per("row")[0]

    @cached_property
    def coefficient_shape(self) -> tuple[int, ...]:
        """Of the coefficients of a column."""
        return self.fields[self.coefficient_name].shape_in(self)

    @property
    def has_one_coefficient(self) -> bool:
        """Whether a parameter is a single coefficient."""
        return self.group == 1 and not self.coefficient_shape

    @property
    def sums_of_column(self) -> int:
        """Sums of a column."""
        return getattr(self, self.sums) if isinstance(self.sums, str) else self.sums

    @property
    def has_gap(self) -> bool:
        return hasattr(self, "gap")

    @cached_property
    def functions(self) -> dict[str, Any]:
        """Those that are compiled."""
        names = ("update", "aggregate", "priority", "derive")
        return {name: getattr(type(self), name) for name in names if hasattr(self, name)}

    def own_arrays(self, shared: Arrays) -> dict[str, np.ndarray]:
        """The arrays of the fields, of all arrays."""
        return {name: shared[name] for name in self.fields}

    @cached_property
    def constants(self) -> dict[str, float]:
        """Options that are numbers, which functions are given in `shared`."""
        values = {name: getattr(self, name) for name in options_of(type(self))}
        return {name: value for name, value in values.items() if isinstance(value, int | float)}

    def local_state(self) -> LocalState:
        """There is none: blocks are only read."""
        return LocalState("uint8", 0)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        """The arrays of all fields."""
        sizes = {"row": (self.dataset.rows,), "column": (self.dataset.columns,), "": ()}
        return {
            name: ArraySpec((*sizes[field.per], *field.shape_in(self)), field.dtype)
            for name, field in self.fields.items()
        }

    def primary_arrays(self) -> Sequence[str]:
        return tuple(self.fields)

    @cached_property
    def followers(self) -> list[str]:
        """The fields of rows that change with the coefficients: the residual, and those that `derive` gives."""
        return [self.residual_name, *(name for name in self.fields_per("row") if self.fields[name].derived)]
