"""Check the functions of a stochastic program before compilation, and report mistakes with the author's names and
lines."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blocks.errors import RequestError
from blocks.plurals import count_of
from ooc.stochastic.elements import KINDS as ELEMENTS
from ooc.stochastic.operators import FIXED_KINDS, KINDS, OPERATORS, SOLE_KINDS, ParameterTableRow, SoleRow
from ooc.user_functions import UserFunction, assignment_targets, names_used, read

if TYPE_CHECKING:
    from ooc.stochastic.program import StochasticProgram

# Names that a sole worker's variables and rows lack, and fields of variables that differ.
_NOT_OF_SOLE = {name for kind in (*KINDS, ParameterTableRow) for name in dir(kind)}
_NOT_OF_SOLE -= {name for kind in (*SOLE_KINDS, SoleRow) for name in dir(kind)} - {"store"}
_CHANGES = "Shared variables change only by add, delayed_add and multiply."


def check_functions(program: StochasticProgram) -> None:
    """Raise RequestError, with file and line, if a function of a program is invalid."""
    if taken := {*program.declared, *program.constants(), *program.locals} & set(OPERATORS):
        raise RequestError(
            f"{type(program).__name__}: {min(taken)!r} is the name of an operator, not of a variable",
            "Rename the variable.",
        )
    for name in ("process", *program.functions):
        function = read(type(program), name)
        wanted = ("element", "weight", "shared", "local")
        function.require_parameters(wanted if name == "process" else ("element", "shared", "local"))
        element, *_, shared, local = function.parameters
        function.require_names(
            {
                element: ("an element has", ELEMENTS[type(program.dataset)]._fields),
                shared: ("shared variables and constants are", (*program.declared, *program.constants())),
                local: ("local variables are", tuple(program.locals)),
            }
        )
        _check_operators(function, program, shared)


def only_adds(program: StochasticProgram) -> bool:
    """Return whether shared variables are changed by immediate additions alone; False if that is uncertain, for example
    because `process` calls something other than a compiled function.
    """
    if any(declared.delayed or declared.averaged for declared in program.declared.values()):
        return False
    used = names_used(program.process, *program.constants().values())
    return used is not None and used.isdisjoint(_NOT_OF_SOLE)


def _check_operators(function: UserFunction, program: StochasticProgram, shared: str) -> None:
    """Raise RequestError unless shared variables are only used through operators that they support."""
    for node in ast.walk(function.tree):
        for target in assignment_targets(node):
            if name := _of_shared(target, shared):
                raise function.wrong(node, f"{shared}.{name} must not be assigned to", _CHANGES)
        if isinstance(node, ast.Subscript) and (name := _of_shared(node, shared)) in program.declared:
            raise function.wrong(
                node, f"{shared}.{name} cannot be indexed with brackets", f"Write {shared}.{name}.get(...)."
            )
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = _of_shared(node.func.value, shared)
            if name in program.declared:
                _check_operator(function, program, node, name)


def _check_operator(function: UserFunction, program: StochasticProgram, call: ast.Call, name: str) -> None:
    assert isinstance(call.func, ast.Attribute)
    operator, declared = call.func.attr, program.declared[name]
    kind = KINDS[len(declared.shape)]
    method: Callable[..., Any] | None = getattr(kind, operator, None) if operator in OPERATORS else None
    if method is None:
        has = ", ".join(each for each in OPERATORS if hasattr(kind, each))
        raise function.wrong(call, f"unknown operator {name}.{operator}", f"Choose one of: {has}.")
    wanted = list(inspect.signature(method).parameters)[1:]
    if len(call.args) != len(wanted) or call.keywords:
        given = f"got {count_of(len(call.args), 'argument')}"
        raise function.wrong(call, f"{name}.{operator} takes {', '.join(wanted) or 'nothing'}; {given}")
    if operator in ("delayed_add", "late_add") and not declared.delayed:
        raise function.wrong(
            call, f"additions to `{name}` cannot be delayed", "Declare it as Shared(..., delayed=True)."
        )
    if operator == "delayed_add" and not program.delays:
        raise function.wrong(
            call,
            "delayed additions need `delays`, which is 0",
            "Set `delays` to the number of delayed additions per element.",
        )
    if operator == "row_view" and declared.averaged and function.name == "process":
        what = f"`{name}` is averaged and cannot be viewed row by row"
        raise function.wrong(call, what, "Use get_row and add_row.")
    if operator == "average" and not declared.averaged:
        raise function.wrong(call, f"`{name}` is not averaged", "Declare it as Shared(..., averaged=True).")
    if function.name != "process" and not hasattr(FIXED_KINDS[len(declared.shape)], operator):
        raise function.wrong(
            call, f"{function.name} must not change `{name}`", "Only `process` can change shared variables."
        )


def _of_shared(node: ast.AST, shared: str) -> str:
    """Return the name of the shared variable that an expression refers to or indexes, or ""."""
    if isinstance(node, ast.Subscript):
        return _of_shared(node.value, shared)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == shared:
        return node.attr
    return ""
