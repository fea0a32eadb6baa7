"""Report mistakes in the functions of a user's program in the user's terms, before and during compilation."""

from __future__ import annotations

import ast
import inspect
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from blocks.errors import RequestError
from blocks.plurals import count_of
from ooc.stochastic.elements import KINDS as ELEMENTS
from ooc.stochastic.operators import FIXED_KINDS, KINDS, OPERATORS
from ooc.user_programs import place_in, reason

if TYPE_CHECKING:
    from ooc.stochastic.program import StochasticProgram

_CHANGES = "Shared variables change only by add, delayed_add and multiply."
_PARSING = threading.Lock()  # Python 3.11 counts how deep a tree is for all threads together: SystemError, now and then


class Function(NamedTuple):
    """A function of a user: its parameters, file, number of the line before it, and source text."""

    name: str
    tree: ast.FunctionDef
    file: str
    before: int

    def wrong(self, node: ast.AST, what: str, remedy: str = "") -> RequestError:
        """Return the error for a line of the function."""
        return RequestError(f"{self.file}, line {self.before + node.lineno}: {what}", remedy)  # type: ignore[attr-defined]


def check(program: StochasticProgram) -> None:
    """Raise RequestError, with file and line, for invalid code in the functions of a program."""
    if taken := {*program.declared, *program.constants(), *program.locals} & set(OPERATORS):
        raise RequestError(
            f"{type(program).__name__}: {min(taken)!r} is the name of an operator", "Give the variable another name."
        )
    for name in ("process", *program.functions):
        function = _read(type(program), name)
        wanted = 4 if name == "process" else 3
        parameters = [argument.arg for argument in function.tree.args.args]
        if len(parameters) != wanted:
            names = "element, weight, shared, local" if wanted == 4 else "element, shared, local"
            raise function.wrong(
                function.tree,
                f"{name} takes {', '.join(parameters)}; expected {names}",
                f"Change its parameters to {names}.",
            )
        _check_names(function, program, parameters[0], *parameters[-2:])
        _check_operators(function, program, parameters[-2])


def _read(program: type, name: str) -> Function:
    function = inspect.unwrap(getattr(program, name))
    function = getattr(function, "py_func", function)
    lines, first = inspect.getsourcelines(function)
    with _PARSING:
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return Function(name, tree, inspect.getsourcefile(function) or "?", first - 1)


def _check_names(function: Function, program: StochasticProgram, element: str, shared: str, local: str) -> None:
    """Check that used attributes of the element, of `shared` and of `local` exist."""
    known = {
        element: ("an element has", ELEMENTS[type(program.dataset)]._fields),
        shared: ("shared variables and constants are", (*program.declared, *program.constants())),
        local: ("local variables are", tuple(program.locals)),
    }
    for node in ast.walk(function.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            which, names = known[node.value.id]
            if node.attr not in names:
                some = ", ".join(names) or "none"
                raise function.wrong(node, f"there is no {node.value.id}.{node.attr}", f"The {which}: {some}.")


def _check_operators(function: Function, program: StochasticProgram, shared: str) -> None:
    """Check that shared variables are used only through operators that they have."""
    for node in ast.walk(function.tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [*targets, *([node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else [])]
        for target in targets:
            if name := _of_shared(target, shared):
                raise function.wrong(node, f"{shared}.{name} is assigned to", _CHANGES)
        if isinstance(node, ast.Subscript) and (name := _of_shared(node, shared)) in program.declared:
            raise function.wrong(node, f"{shared}.{name} is read by brackets", f"Write {shared}.{name}.get(...).")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = _of_shared(node.func.value, shared)
            if name in program.declared:
                _check_operator(function, program, node, name)


def _check_operator(function: Function, program: StochasticProgram, call: ast.Call, name: str) -> None:
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
            call, "`delays` of the program is 0", "Set `delays` to the number of delayed additions of an element."
        )
    if operator == "row_view" and declared.averaged and function.name == "process":
        what = f"`{name}` is averaged and cannot be viewed row by row"
        raise function.wrong(call, what, "Use get_row and add_row.")
    if operator == "average" and not declared.averaged:
        raise function.wrong(call, f"`{name}` is not averaged", "Declare it as Shared(..., averaged=True).")
    if function.name != "process" and not hasattr(FIXED_KINDS[len(declared.shape)], operator):
        raise function.wrong(call, f"{function.name} changes `{name}`", "Only `process` can change shared variables.")


def _of_shared(node: ast.AST, shared: str) -> str:
    """Return the shared variable that an expression refers to, or None."""
    if isinstance(node, ast.Subscript):
        return _of_shared(node.value, shared)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == shared:
        return node.attr
    return ""


@contextmanager
def reported(program: StochasticProgram) -> Iterator[None]:
    """Report what numba cannot compile in the functions of a program with file and line."""
    from numba.core.errors import NumbaError

    try:
        yield
    except NumbaError as error:
        files = {_read(type(program), name).file for name in ("process", *program.functions)}
        where, line = place_in(str(error), files) or (min(files), 0)
        text = Path(where).read_text(encoding="utf-8").splitlines()[line - 1].strip() if line else ""
        what = f"{where}, line {line}: `{text}` cannot be compiled" if line else f"{where} cannot be compiled"
        raise RequestError(f"{what}: {reason(str(error))}") from error
