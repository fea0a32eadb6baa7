"""Check a user's program of the dynamic engine before training: its dataset, fields, options and functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from blocks.design.design import Design
from blocks.errors import RequestError
from ooc.program_fields import Field
from ooc.user_functions import UserFunction, assignment_targets, read
from ooc.user_programs import defined_at

if TYPE_CHECKING:
    from ooc.dynamic.program import DynamicProgram

_PARAMETERS = {
    "update": ("x", "row", "sums", "shared"),
    "aggregate": ("sums", "column", "shared"),
    "priority": ("before", "column", "shared"),
    "derive": ("row", "shared"),
}
_MOST_SUMS = 256
_TAKEN = (
    "dataset",
    "rule",
    "seed",
    "tolerance",
    "round",
    "width",
    "surveyed",
    "priorities",
)  # names used by the engine


def check_declared(program: DynamicProgram) -> None:
    """Raise RequestError unless a program's dataset, fields, options and functions are valid."""
    _check_design(program)
    kind = type(program)
    place, name = defined_at(kind), kind.__name__
    for needed in ("update", "aggregate"):
        if not hasattr(program, needed):
            remedy = f"Write it as: @staticmethod def {needed}({', '.join(_PARAMETERS[needed])})"
            raise RequestError(f"{place}: {name} has no `{needed}`", remedy)
    for per, remedy in (("column", 'b = ooc.Field("column")'), ("row", 'residual = ooc.Field("row")')):
        if not program.fields_per(per):
            raise RequestError(
                f"{place}: {name} declares no field per {per}", f"Declare a field, for example: {remedy}"
            )
    for field, declared in program.fields.items():
        for wrong in _wrong_with(program, field, declared):
            raise RequestError(f"{place}: the field {field!r} of {name} {wrong}")
    derived = program.followers[1:]
    if bool(derived) != hasattr(program, "derive"):
        what = "has no derived field per row" if not derived else f"has no `derive` for the field {derived[0]!r}"
        raise RequestError(
            f"{place}: {name} {what}", "Declare derived=True for the fields that `derive` returns, and for no others."
        )
    if program.has_gap and type(program).objective is _base().objective:
        raise RequestError(
            f"{place}: {name} has a `gap` but no `objective`", "Define `objective`: the gap is relative to it."
        )
    if not program.tolerance > 0:
        raise RequestError(f"tolerance must be above 0, got {program.tolerance}")
    _check_sizes(program, place)
    for function in program.functions:
        _check_function(program, read(kind, function))


def _base() -> type[DynamicProgram]:
    from ooc.dynamic.program import DynamicProgram

    return DynamicProgram


def _check_design(program: DynamicProgram) -> None:
    design = program.dataset
    if not isinstance(design, Design):
        raise RequestError(
            f"{design.path} is a {design.kind}; expected a design matrix",
            f"{type(program).__name__} trains on columns: ingest with `ooc ingest svmlight|mtx|csv|npz|plink`.",
        )
    if design.shards > 1:
        raise RequestError(
            f"{design.path} is a shard, and {type(program).__name__} does not train on shards",
            "Use the whole dataset on every rank; the ranks then share the work.",
        )
    if design.offsets is not None:
        column = int(np.flatnonzero(design.offsets)[0])
        raise RequestError(
            f"column {design.names_of(np.array([column]))[0]} of {design.path} is stored as differences from"
            f" {design.offsets[column]:.15g}",
            "Subtract this number in the input: a program is given the values as they are stored.",
        )


def _wrong_with(program: DynamicProgram, name: str, field: Field) -> Iterator[str]:
    """Yield each mistake in a field's declaration, as a phrase that follows the field's name in a message."""
    kind, shape, wanted = np.dtype(field.dtype).kind, field.shape_in(program), program.coefficient_shape
    if name in (*vars(_base()), *_TAKEN):
        yield "has a name that the base class or the engine uses"
    if field.per == "work" or field.summed:
        yield "is a work or summed field, which dynamic programs do not support"
    if kind not in "fiub":
        yield f"has dtype {field.dtype}; expected a numeric dtype"
    if field.derived and (field.per != "row" or shape or name == program.residual_name):
        yield "is derived; only scalar fields per row can be derived, except the first, which is the residual"
    if name in (program.coefficient_name, program.residual_name):
        if kind != "f":
            yield f"has dtype {field.dtype}; expected a floating-point dtype"
        if shape != wanted:
            yield f"has the shape {shape}; expected {wanted}, the shape of the coefficients"


def _check_sizes(program: DynamicProgram, place: str) -> None:
    sums, group, design = program.sums_of_column, program.group, program.dataset
    if not isinstance(sums, int) or not 1 <= sums <= _MOST_SUMS:
        raise RequestError(f"{place}: sums={sums}; expected 1 to {_MOST_SUMS}")
    if not isinstance(group, int) or group < 1:
        raise RequestError(f"{place}: group={group}; expected a positive number of columns")
    if design.columns % group:
        raise RequestError(
            f"{design.path} has {design.columns:,} columns, which is not a multiple of group={group}",
            "Use another group, or add columns of zeros to the input.",
        )


def _check_function(program: DynamicProgram, function: UserFunction) -> None:
    """Check the parameters of a function, the attributes that it uses, and whether it returns a value."""
    function.require_parameters(_PARAMETERS[function.name])
    by_name = dict(zip(_PARAMETERS[function.name], function.parameters, strict=True))
    has = {
        "row": ("fields per row are", program.fields_per("row")),
        "column": ("fields per column are", program.fields_per("column")),
        "shared": ("options that are numbers and other fields are", [*program.fields_per(""), *program.constants]),
    }
    known = {by_name[parameter]: has[parameter] for parameter in by_name if parameter in has}
    function.require_names(known)
    for node in ast.walk(function.tree):
        for target in assignment_targets(node):
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in known:
                name = f"{target.value.id}.{target.attr}"
                remedy = "Return the new coefficient from `aggregate`; arrays are changed in place: column.b[:] = ..."
                raise function.wrong(node, f"{name} must not be assigned to", remedy)
    returns = any(isinstance(node, ast.Return) and node.value for node in ast.walk(function.tree))
    if function.name == "aggregate" and returns != program.has_one_coefficient:
        raise function.wrong(
            function.tree,
            f"aggregate must {'not return a value' if returns else 'return a value'}",
            f"Change column.{program.coefficient_name} in place: a parameter has several coefficients."
            if returns
            else "Return the new coefficient of the column.",
        )
    if function.name in ("priority", "derive") and not returns:
        raise function.wrong(function.tree, f"{function.name} must return a value")
