"""Import and validate users' programs, and report mistakes with file and line."""

from __future__ import annotations

import ast
import errno
import importlib
import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from blocks.errors import OocError, RequestError, WorkFailed
from ooc.program import LocalState, Phase, StaticProgram
from ooc.program_sources import OURS, module_file, stamp_cached_functions
from ooc.workers.shared_arrays import ArraySpec

_PASSED_ON = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE}  # reported elsewhere
_UNKNOWN = re.compile(r"NameError: name '(\w+)' is not defined")
_WHERE = re.compile(r'File "([^"]+)", line (\d+)')


def build_program(target: str, dataset: Any, options: dict[str, Any]) -> StaticProgram:
    """Import a program, "module:Class", and create an instance for a dataset.

    Raises RequestError if the program cannot be imported, does not accept the options, or is incomplete or invalid.
    """
    program = find_program(target)
    with user_errors(program, RequestError):
        try:
            built = program(dataset, **options)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is None:  # raised by the call itself
                what = f"{defined_at(program)}: {program.__name__} does not accept the given options: {error}"
                takes = [name for name in list(inspect.signature(program).parameters)[1:] if name != "options"]
                raise RequestError(what, f"Its options are: {', '.join(takes) or 'none'}.") from error
            raise
        except NotImplementedError as error:
            missing = traceback.extract_tb(error.__traceback__)[-1].name
            raise RequestError(f"{defined_at(program)}: {program.__name__} has no `{missing}`") from error
        if isinstance(built, StaticProgram):
            check(built)
    return built


def is_dynamic(target: str) -> bool:
    """Return whether a program, "module:Class", is a user's program for the dynamic engine."""
    from ooc.dynamic.program import DynamicProgram  # imported here, as its modules are rarely needed

    return issubclass(find_program(target), DynamicProgram)


def find_program(target: str) -> type[Any]:
    """Import a program, "module:Class".

    Raises RequestError with the reason if that fails.
    """
    name, _, program = target.partition(":")
    cannot = f"program {target} cannot be imported"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and not f"{name}.".startswith(f"{error.name}."):
            raise RequestError(f"{cannot}: its module needs {error.name!r}, which is not installed") from error
        remedy = "Run the command in the module's directory, or add this directory to PYTHONPATH."
        raise RequestError(f"{cannot}: there is no module {name!r}", remedy) from error
    except SyntaxError as error:
        raise RequestError(f"{cannot}: {error.filename}, line {error.lineno}: {error.msg}") from error
    except OocError:
        raise
    except Exception as error:
        raise _explained(error, {str(module_file(name) or "")}, RequestError) or RequestError(
            f"{cannot}: {error}"
        ) from error
    from ooc.dynamic.program import DynamicProgram  # imported here, as its modules are rarely needed
    from ooc.dynamic.round_program import RoundProgram

    found = getattr(module, program, None)
    if not inspect.isclass(found) or not issubclass(found, StaticProgram | DynamicProgram | RoundProgram):
        what = "does not exist" if found is None else "is not a subclass of ooc.StaticProgram or ooc.DynamicProgram"
        raise RequestError(f"{cannot}: {program or 'its name'!r} in {module.__file__} {what}", 'Write "module:Class".')
    stamp_cached_functions(name)
    return found


def defined_at(what: Any) -> str:
    """Return where a class or function is defined, as "file, line n"."""
    try:
        return f"{inspect.getsourcefile(what)}, line {max(inspect.getsourcelines(what)[1], 1)}"
    except (OSError, TypeError):
        return getattr(what, "__module__", "?")


def check(program: StaticProgram) -> None:
    """Raise RequestError, with file and line, for missing or invalid parts of a program."""
    kind = type(program)
    if kind.update is StaticProgram.update:
        remedy = "Define how a worker processes one part of the data: def update(self, job)."
        raise RequestError(f"{defined_at(kind)}: {kind.__name__} has no `update`", remedy)
    if not program.phases:
        remedy = 'Define the phases of an iteration: phases = (ooc.Phase("users", "block", writes=False),).'
        raise RequestError(f"{defined_at(kind)}: {kind.__name__} has no `phases`", remedy)
    for name in ("initial", "phases", "reading_phases"):
        phases = getattr(program, name)
        if not isinstance(phases, Sequence) or not all(isinstance(phase, Phase) for phase in phases):
            raise RequestError(f"{defined_at(kind)}: `{name}` must be a tuple of ooc.Phase, got {phases!r}")
        if not program.dataset.slice_count and (sliced := [phase.name for phase in phases if phase.order == "slice"]):
            what = f"the phase {sliced[0]!r} goes through slices of columns, but samples have no slices"
            raise RequestError(f"{defined_at(kind)}: {what}", 'Go through rows: use Phase(name, "block").')
    if not isinstance(state := program.local_state(), LocalState):
        raise RequestError(
            f"{defined_at(kind.local_state)}: `local_state` must return an ooc.LocalState, got {state!r}"
        )
    arrays = _checked_specs(program, "shared_arrays")
    if not arrays:
        remedy = 'Declare the arrays that the workers share, for example: users = ooc.Field("row").'
        raise RequestError(f"{defined_at(kind)}: {kind.__name__} has no arrays", remedy)
    for method in (kind.primary_arrays, kind.sliced_arrays, kind.summed_arrays):
        if unknown := [name for name in method(program) if name not in arrays]:
            what = f"`{method.__name__}` names {unknown[0]!r}, which is not a shared array"
            raise RequestError(
                f"{defined_at(method)}: {what}", f"The shared arrays are: {', '.join(arrays) or 'none'}."
            )
    for name, spec in _checked_specs(program, "delta_arrays").items():
        if np.dtype(spec.dtype).base.kind in "fc":
            raise RequestError(
                f"{_place_of_method(program, 'delta_arrays')}: the delta array {name!r} has dtype "
                f"{np.dtype(spec.dtype)}: a sum of floats depends on the assignment of parts to workers",
                "Use an integer dtype, or return sums of floats from `update`: they are added in a fixed order.",
            )


def _place_of_method(program: StaticProgram, name: str) -> str:
    """Return where a program defines the result of a method: the place of the method, or of the class if fields define
    the result."""
    own = getattr(type(program), name)
    return defined_at(type(program) if own is getattr(StaticProgram, name) else own)


def _checked_specs(program: StaticProgram, method: str) -> dict[str, ArraySpec]:
    """Return the array specs that a method returns.

    Raises RequestError if they are invalid.
    """
    specs = getattr(program, method)()
    if wrong := _wrong_in(specs):
        where = f"{_place_of_method(program, method)}: `{method}`"
        raise RequestError(where + wrong, 'Pass ooc.ArraySpec((1000,), "float64") for each name.')
    return dict(specs)


def _wrong_in(specs: Any) -> str | None:
    """Return the mistake in array specs, as the end of a message; None if they are valid."""
    if not isinstance(specs, Mapping):
        return f" must return a dictionary, got {_shortened(specs)}"
    for name, spec in specs.items():
        if not isinstance(spec, ArraySpec):
            return f": {name!r} must be an ooc.ArraySpec, got {_shortened(spec)}"
        shape = spec.shape
        if not isinstance(shape, tuple) or not all(isinstance(n, int | np.integer) and n >= 0 for n in shape):
            return f": the shape of {name!r} must be a tuple of sizes, got {_shortened(shape)}"
        try:
            plain = not np.dtype(spec.dtype).hasobject
        except TypeError:
            plain = False
        if not plain:
            return f": the dtype of {name!r} must be a dtype of numbers, got {spec.dtype!r}"
    return None


def metrics_of_method(method: Callable[..., Any], *arguments: Any, single: str = "") -> dict[str, float]:
    """Return the metrics that a method of a program returns.

    Raises WorkFailed unless they are numbers by name.

    single: name for a number that is returned without a dictionary, if that is allowed.
    """
    found = method(*arguments)
    if single and isinstance(found, Real):
        found = {single: found}
    if not isinstance(found, Mapping):
        raise WorkFailed(
            f"{defined_at(method)}: `{method.__name__}` must return a dictionary, got {_shortened(found)}",
            'Return numbers by name, such as {"squared_error": 1.5}, or {} for none.',
        )
    for name, value in found.items():
        if not isinstance(value, Real | np.bool_):
            raise WorkFailed(
                f"{defined_at(method)}: `{method.__name__}` returns {_shortened(value)} for {name!r}; expected a number"
            )
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}


def _shortened(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextmanager
def user_errors(program: object, kind: type[OocError] = WorkFailed) -> Iterator[None]:
    """Convert errors in the functions of a user's program to errors of type `kind` that show the user's line."""
    of = program if isinstance(program, type) else type(program)
    try:
        yield
    except Exception as error:
        if told := _explained(error, _files(of), kind):
            told.add_note("".join(traceback.format_exception(error)))  # shown with --debug
            raise told from error
        raise


@lru_cache
def _files(program: type) -> set[str]:
    """Return the files of a program and its base classes, except those of ooc."""
    theirs = [each for each in program.__mro__ if each.__module__.partition(".")[0] not in (*OURS, "builtins")]
    return {inspect.getfile(each) for each in theirs if each.__module__ in sys.modules}


def _explained(error: Exception, files: Collection[str], kind: type[OocError]) -> OocError | None:
    """Return an error of type `kind` that explains an error raised in one of the files; None if it was raised
    elsewhere."""
    if isinstance(error, OocError | MemoryError) or getattr(error, "errno", None) in _PASSED_ON:
        return None
    frames = [frame for frame in _frames(error.__traceback__) if frame[0] in files]
    if not frames:
        return None
    file, line, function = frames[-1]
    where, said = f", in {function}", str(error)
    if type(error).__module__.startswith("numba."):
        if place := place_in(said, files):
            (file, line), where = place, ""
        said = reason(said)
    said = said.strip().splitlines()[0] if said.strip() else ""
    what = f"{file}, line {line}{where}: `{linecache.getline(file, line).strip()}` raises {type(error).__name__}"
    return kind(f"{what}: {said}" if said else what)


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    for frame, line in traceback.walk_tb(trace):
        yield frame.f_code.co_filename, line, frame.f_code.co_name


def place_in(message: str, files: Collection[str]) -> tuple[str, int] | None:
    """Return file and line of the first position in a numba message that is in one of the files, or of an unknown name
    that it reports."""
    for found in _WHERE.finditer(message):
        for file in files:
            if Path(found[1]).name == Path(file).name:
                return file, int(found[2])
    unknown = _UNKNOWN.search(message)
    return place_of_name(unknown[1], files) if unknown else None


def place_of_name(name: str, files: Iterable[str]) -> tuple[str, int] | None:
    """Return file and line of the first use of a variable or an attribute."""
    for file in files:
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
            if name in (getattr(node, "id", None), getattr(node, "attr", None)):
                return file, node.lineno  # type: ignore[attr-defined]
    return None


def reason(message: str) -> str:
    """Return the line of a numba message that gives the reason."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Failed in", "During:", "File ", "- Resolution"))]
    if telling and telling[0].endswith("found for signature:"):
        return " ".join(telling[:2])
    return telling[0] if telling else lines[0]
