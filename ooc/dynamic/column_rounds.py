"""Run the compiled loops of a user's `ooc.dynamic.program.DynamicProgram` in the rounds of the dynamic engine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from blocks.design.design import Design
from ooc import user_functions, user_programs
from ooc.dynamic import column_loops
from ooc.dynamic.held_columns import HeldSparseColumns, band_bounds
from ooc.dynamic.program import DynamicProgram
from ooc.dynamic.round_program import ParameterSurvey, ParameterWave, RoundProgram, WorkerSteps
from ooc.program import Arrays
from ooc.workers.shared_arrays import ArraySpec
from ooc.workers.worker import ProgramSpec

WEIGHTS, SUMS = "rounds.weights", "rounds.sums"  # float64: squared norms of columns (m,); sums (m / group, group, sums)


def rounds_of(spec: ProgramSpec, design: Design, most: int | None = None) -> RoundProgram:
    """Build the rounds of a user's program or of a low-level `RoundProgram`.

    most: maximum number of columns held at a time; None for all.
    """
    if issubclass(user_programs.find_program(spec.target), DynamicProgram):
        return UserProgramRounds(spec.build(design), most)  # type: ignore[arg-type]
    return spec._replace(options={**spec.options, "most": most}).build(design)  # type: ignore[return-value]


@contextmanager
def report_numba_errors(program: RoundProgram) -> Iterator[None]:
    """Report numba errors in the functions of a user's program with file and line."""
    if not isinstance(program, UserProgramRounds):
        yield
        return
    with user_functions.report_user_errors(type(program.user), program.user.functions):
        yield


class UserProgramRounds(RoundProgram):
    """Rounds of a user's program.

    The shared arrays are the arrays of the program's fields, `WEIGHTS`, and `SUMS` if the program has a gap.
    """

    def __init__(self, user: DynamicProgram, most: int | None = None) -> None:
        super().__init__(user.dataset, most)
        self.user, self.group = user, user.group
        self.change_shape = user.group, math.prod(user.coefficient_shape)
        self.sums_shape = user.group, user.sums_of_column
        self._bands = band_bounds(self.design)
        self._names = {per: user.fields_per(per) for per in ("row", "column", "")}
        self._derives = "derive" in user.functions

    @cached_property
    def loops(self) -> ModuleType:
        """Return the module with the program's compiled loops."""
        user = self.user
        declared = column_loops.DeclaredMembers(
            functions=user.functions,
            coefficients=user.coefficient_name,
            residual=user.residual_name,
            rows=user.fields_per("row"),
            columns=user.fields_per("column"),
            shared=[*user.fields_per(""), *user.constants],
            derived=user.followers[1:],
            group=user.group,
            shape=user.coefficient_shape,
            sums=user.sums_of_column,
        )
        return column_loops.load(type(user), declared)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        fields = self.user.fields
        specs = {
            name: spec._replace(shape=(self.most, *spec.shape[1:])) if fields[name].per == "column" else spec
            for name, spec in self.user.shared_arrays().items()
        }
        specs[WEIGHTS] = ArraySpec((self.most,), "float64")
        if self.user.has_gap:
            specs[SUMS] = ArraySpec((self.most // self.group, *self.sums_shape), "float64")
        return specs

    def primary_arrays(self) -> Sequence[str]:
        return self.user.primary_arrays()

    def followers(self) -> Sequence[str]:
        return self.user.followers

    def surveyed(self) -> Sequence[str]:
        return [SUMS] if self.user.has_gap else []

    def hold(self, columns: np.ndarray, shared: Arrays) -> None:
        shared[WEIGHTS][: columns.size] = self.design.norms[columns] ** 2

    def start(self, wave: ParameterWave) -> None:
        """Add the columns, times their initial coefficients, to the residual in the rows of this worker's bands."""
        coefficients = wave.shared[self.user.coefficient_name]
        changes = coefficients.astype(np.float64).reshape(-1, *self.change_shape)[: wave.parameters.size]
        self._add(wave, changes)
        if self._derives:
            first, last = self._bands[list(wave.bands)]
            self.loops.derive_rows(self._rows(wave.shared), first, last, self._shared(wave.shared))

    def advance(self, ahead: WorkerSteps) -> tuple[int, int]:
        """Take steps in compiled code until the worker has to wait; returns the number of steps, and of values read."""
        shared, sparse = ahead.shared, isinstance(ahead.columns, HeldSparseColumns)
        kernel = self.loops.sparse_steps if sparse else self.loops.dense_steps
        own = (
            self._rows(shared),
            self._columns(shared),
            self._shared(shared),
            shared[WEIGHTS],
            self._residual_of(shared),
        )
        first, last = ahead.bands
        bounds = first, last, self._bands[first], self._bands[last]
        return kernel(*ahead[:6], bounds, ahead.sums, ahead.changes, *own)

    def _add(self, wave: ParameterWave, changes: np.ndarray) -> None:
        kernel = self.loops.add_sparse if isinstance(wave.columns, HeldSparseColumns) else self.loops.add_dense
        kernel(wave.columns, wave.parameters, *wave.bands, changes, self._residual_of(wave.shared))

    def _residual_of(self, shared: Arrays) -> np.ndarray:
        """Return the residual with one or, if a column has several coefficients, two dimensions."""
        residual = shared[self.user.residual_name]
        return residual.reshape(len(residual), -1) if self.user.coefficient_shape else residual

    def survey(self, survey: ParameterSurvey) -> int:
        """Set the priority of each parameter to the value that an update would return in the current state."""
        shared, parameters, own = survey.shared, survey.parameters, np.arange(survey.parameters.size)
        bands = self._bands.size - 1
        sums, changes = np.empty((own.size, bands, *self.sums_shape)), np.empty((own.size, *self.change_shape))
        kernel = self.loops.sparse_sums if isinstance(survey.columns, HeldSparseColumns) else self.loops.dense_sums
        rows = self._rows(shared)
        samples = int(kernel(survey.columns, parameters, 0, bands, rows, self._shared(shared), sums))
        if self.user.has_gap:
            shared[SUMS][parameters] = sums.sum(axis=1)
        columns = (self.group * parameters[:, None] + np.arange(self.group)).reshape(-1)
        copies = self._columns({name: shared[name][columns] for name in self._names["column"]})
        weights = shared[WEIGHTS][columns]
        self.loops.change_columns(own, sums, weights, copies, self._shared(shared), changes, survey.priorities)
        return samples

    def _rows(self, shared: Arrays) -> Any:
        return self.loops.Row(*(shared[name] for name in self._names["row"]))

    def _columns(self, shared: Mapping[str, np.ndarray]) -> Any:
        return self.loops.Column(*(shared[name] for name in self._names["column"]))

    def _shared(self, shared: Arrays) -> Any:
        """Return the constants, and the fields that are not per row or column, as a NamedTuple with at least one
        field."""
        values = [*(shared[name] for name in self._names[""]), *self.user.constants.values()]
        return self.loops.Shared(*(values or [0]))

    def gap(self, shared: Arrays) -> float:
        """Return the duality gap. All parameters must have been surveyed in the current state."""
        sums = shared[SUMS] if self.group > 1 else shared[SUMS][:, 0]
        return float(self.user.gap(self.user.own_arrays(shared), sums))  # type: ignore[attr-defined]
