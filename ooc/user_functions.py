"""Report mistakes in the functions of a user's program with the user's names and lines, before and during
compilation."""

from __future__ import annotations

import ast
import inspect
import textwrap
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from blocks.errors import RequestError
from ooc.program_sources import PACKAGES, PARSING, dependencies, dispatcher_of, referenced_names
from ooc.user_programs import place_in, place_of_name, reason

_IS_PLAIN = "Cannot determine Numba type of <class 'function'>"
Known = Mapping[str, tuple[str, Collection[str]]]  # per parameter: the term for its attributes, and their names


class UserFunction(NamedTuple):
    """A function of a user's program.

    tree: its syntax tree.
    file: its file.
    before: number of lines before the function.
    """

    name: str
    tree: ast.FunctionDef
    file: str
    before: int

    @property
    def parameters(self) -> list[str]:
        return [argument.arg for argument in self.tree.args.args]

    def wrong(self, node: ast.AST, what: str, remedy: str = "") -> RequestError:
        """Return the error for the line of a node of the function."""
        return RequestError(f"{self.file}, line {self.before + node.lineno}: {what}", remedy)  # type: ignore[attr-defined]

    def require_parameters(self, wanted: Sequence[str]) -> None:
        """Raise RequestError unless the function has as many parameters as `wanted`."""
        if len(self.parameters) != len(wanted):
            names = ", ".join(wanted)
            raise self.wrong(
                self.tree,
                f"{self.name} has the parameters {', '.join(self.parameters)}; expected {names}",
                f"Change its parameters to {names}.",
            )

    def require_names(self, known: Known) -> None:
        """Raise RequestError unless each attribute of a parameter that the function uses is in `known`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
                which, names = known[node.value.id]
                if node.attr not in names:
                    some = ", ".join(names) or "none"
                    raise self.wrong(node, f"there is no {node.value.id}.{node.attr}", f"The {which}: {some}.")


def read(program: type, name: str) -> UserFunction:
    """Parse a function of a program."""
    function = inspect.unwrap(getattr(program, name))
    function = getattr(function, "py_func", function)
    lines, first = inspect.getsourcelines(function)
    with PARSING:
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return UserFunction(name, tree, inspect.getsourcefile(function) or "?", first - 1)


def assignment_targets(node: ast.AST) -> Sequence[ast.AST]:
    """Return the targets of an assignment; an empty sequence for other nodes."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def names_used(function: Callable[..., Any], *given: Any) -> set[str] | None:
    """Return the names in a function and in all compiled functions that it may call, in whatever file.

    given: what the function may be given.
    Returns None if it uses anything else than compiled functions, modules, classes, numbers, arrays and numba's own
    functions, as that could call what is not seen here.
    """
    names, values = referenced_names([function], *given)
    for value in values:
        if not dispatcher_of(value) and not isinstance(value, type | ModuleType | tuple):
            made = value if isinstance(value, FunctionType) else type(value)
            if str(made.__module__).partition(".")[0] not in PACKAGES:
                return None
    return names


@contextmanager
def report_user_errors(program: type, functions: Collection[str]) -> Iterator[None]:
    """Report numba errors in the functions of a program, and in functions that these call, with file and line."""
    from numba.core.errors import NumbaError

    try:
        yield
    except (NumbaError, AttributeError) as error:
        files = {str(file): None for file in dependencies([getattr(program, name) for name in functions]).files}
        if isinstance(error, NumbaError):
            place = place_in(str(error), files)
        elif _raised_by_numba(error):  # for a name that a module does not have
            place = place_of_name(error.name or "", files)
        else:
            raise
        where, line = place or (read(program, min(functions)).file, 0)
        text = Path(where).read_text(encoding="utf-8").splitlines()[line - 1].strip() if line else ""
        what = f"{where}, line {line}: `{text}` cannot be compiled" if line else f"{where} cannot be compiled"
        remedy = "Decorate the function with @numba.njit." if _IS_PLAIN in str(error) else ""
        raise RequestError(f"{what}: {reason(str(error))}", remedy) from error


def _raised_by_numba(error: Exception) -> bool:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(str(frame.f_globals.get("__name__")).startswith("numba.") for frame in frames)
