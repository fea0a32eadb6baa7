"""Compiled loops over elements, generated for the functions of a program.

The fields of `shared` and `local` depend on the program, so its loops are written as a module of
`ooc.stochastic.generated` in the directory of compiled kernels, where numba's cache identifies it by its file; its name
is a hash of its text and of the file with the functions. The types of `shared` and `local` are in a module of their
own, as the cache of called functions refers to them by name, also to those of deleted programs.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import xxhash

from blocks.cache_directory import written
from blocks.errors import WorkFailed
from blocks.kernel_cache import CACHE, additions, alone
from ooc.stochastic import generated


class DeclaredNames(NamedTuple):
    """Declarations of a program.

    elements: class of its elements. maps: functions besides `process`. constants, variables: of `shared`; delayed:
    variables with delayed additions, with their numbers. by_element, by_entry, work: of `local`.
    """

    elements: Any
    maps: Sequence[str]
    variables: Sequence[str]
    delayed: dict[str, int]
    constants: Sequence[str]
    by_element: Sequence[str]
    by_entry: Sequence[str]
    work: Sequence[str]


_TYPES = '''"""What functions of some program have: made by ooc.stochastic.element_loops."""

from typing import Any, NamedTuple


class Shared(NamedTuple):
{shared}


class Local(NamedTuple):
{local}
'''
_HEAD = '''"""Loops over elements for {target}: made by ooc.stochastic.element_loops."""

from blocks.compiled import inlined_kernel, uncached_kernel, unmanaged_kernel
from {module} import {program} as Program
from ooc.stochastic.elements import {element_at}
from ooc.stochastic.variables import add_late
from {types} import Local, Shared


def compiled(function):
    return uncached_kernel(getattr(function, "py_func", function))


process = compiled(Program.process)


@inlined_kernel
def local_at(local, block, element):
    mine = slice(block.offsets[element], block.offsets[element + 1])
    return Local({local_at})


@inlined_kernel
def execute(which, row, column, delta, shared):
{execute}


@unmanaged_kernel
def process_elements(block, visits, weight, shared, local, queue, kept):
    """The first element at which a mistake was noted, or -1. kept: counts, places and deltas of delayed additions."""
    counts, places, deltas = kept
    for element in range(visits.first, visits.last):
        if queue.deltas.size:
            for number in range(counts[element]):
                place = places[element, number]
                execute(place[0], place[1], place[2], deltas[element, number], shared)
        queue.filled[0] = 0
        process({element_at}(block, element, visits), weight, shared, local_at(local, block, element))
        if queue.mistake[0]:
            return visits.place + element
        if queue.deltas.size:
            counts[element] = queue.filled[0]
            for number in range(queue.filled[0]):
                for side in range(3):
                    places[element, number, side] = queue.places[number, side]
                deltas[element, number] = queue.deltas[number] / weight
    return -1
'''

_MAP = '''

of_{name} = compiled(Program.{name})


@unmanaged_kernel
def {name}_elements(block, visits, shared, local, found):
    """Set what the function gives for each element."""
    for element in range(visits.first, visits.last):
        here = local_at(local, block, element)
        found[element - visits.first] = of_{name}({element_at}(block, element, visits), shared, here)
'''


def load(program: Any, names: DeclaredNames) -> ModuleType:
    """Return the module with a program's loops: `Shared`, `Local`, `process_elements`, and NAME_elements for each
    map."""
    fields = _fields([*names.variables, *names.constants]), _fields([*names.by_element, *names.by_entry, *names.work])
    types = _TYPES.format(shared=fields[0], local=fields[1])
    functions = {name: getattr(type(program), name) for name in ("process", *names.maps)}
    text = source(_owner(type(program), functions), names, _written("types", types, xxhash.xxh3_64(types.encode())))
    files = sorted({inspect.getfile(inspect.unwrap(function)) for function in functions.values()})
    digest = xxhash.xxh3_64(text.encode())
    for file in files:
        digest.update(Path(file).read_bytes())
    return importlib.import_module(_written("loops", text, digest))


def _owner(program: type, functions: dict[str, Any]) -> type:
    """Return the first class of a program that defines these functions: subclasses that change none share the loops."""
    first = reversed(program.__mro__)
    return next(each for each in first if all(getattr(each, name, None) is functions[name] for name in functions))


def _written(kind: str, text: str, digest: Any) -> str:
    """Return the name of the module with a text, written if it does not exist.

    It is written once even if several processes need it: numba would compile everything again for a newer file.
    """
    stem = f"{kind}_{digest.hexdigest()}"
    name = f"{generated.__name__}.{stem}"
    if name not in sys.modules:
        if CACHE is None or not (CACHE / f"{stem}.py").exists():
            _write(f"{stem}.py", text)
        importlib.invalidate_caches()  # whoever wrote it
    return name


def _write(name: str, text: str) -> None:
    """Write a module to the directory of kernels, and make it importable."""
    directory = additions()
    if directory is None:
        raise WorkFailed(
            "no directory for the compiled loops is writable",
            "Set OOC_CACHE_DIR to a directory that only you can write to.",
        )
    path = directory / name
    with alone(directory / "modules.lock"):
        if not path.exists():
            with written(path) as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
    if str(directory) not in generated.__path__:
        generated.__path__.append(str(directory))


def source(program: type, names: DeclaredNames, types: str) -> str:
    """Return the text of the module. types: module with `Shared` and `Local`."""
    element_at = f"{names.elements.__name__.lower()}_at"
    places = [f"local.{name}[element]" for name in names.by_element]
    places += [f"local.{name}[mine]" for name in names.by_entry] + [f"local.{name}" for name in names.work]
    calls = [
        f"    if which == {number}:\n        add_late(shared.{name}.store, row, column, delta)"
        for name, number in names.delayed.items()
    ]
    head = _HEAD.format(
        target=f"{program.__module__}.{program.__name__}",
        module=program.__module__,
        program=program.__name__,
        element_at=element_at,
        types=types,
        local_at=", ".join(places) or "0",
        execute="\n".join(calls) or "    pass",
    )
    return head + "".join(_MAP.format(name=name, element_at=element_at) for name in names.maps)


def _fields(names: Sequence[str]) -> str:
    return "\n".join(f"    {name}: Any" for name in names or ["nothing"])
