"""Compiled loops over elements, generated for the functions of a program.

The fields of `shared` and `local` depend on the program, so loops are generated for each program, see
`ooc.user_modules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from ooc.user_modules import defining_class, loops_module, types_module


class DeclaredVariableNames(NamedTuple):
    """Names of the functions and fields that a program declares.

    elements: class of the dataset's elements.
    maps: functions other than `process`.
    constants, variables: fields of `shared`.
    delayed: index of each variable with delayed additions.
    by_element, by_entry, work: fields of `local`.
    """

    elements: Any
    maps: Sequence[str]
    variables: Sequence[str]
    delayed: dict[str, int]
    constants: Sequence[str]
    by_element: Sequence[str]
    by_entry: Sequence[str]
    work: Sequence[str]


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
    span = slice(block.offsets[element], block.offsets[element + 1])
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


def load(program: Any, names: DeclaredVariableNames) -> ModuleType:
    """Return the module with a program's loops: `Shared`, `Local`, `process_elements`, and a loop for each map."""
    types = types_module(
        {
            "Shared": [*names.variables, *names.constants],
            "Local": [*names.by_element, *names.by_entry, *names.work],
        }
    )
    functions = {name: getattr(type(program), name) for name in ("process", *names.maps)}
    return loops_module(source(defining_class(type(program), functions), names, types), functions)


def source(program: type, names: DeclaredVariableNames, types: str) -> str:
    """Return the source of the module.

    types: name of the module that defines `Shared` and `Local`.
    """
    element_at = f"{names.elements.__name__.lower()}_at"
    places = [f"local.{name}[element]" for name in names.by_element]
    places += [f"local.{name}[span]" for name in names.by_entry] + [f"local.{name}" for name in names.work]
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
