"""Generate and cache modules with compiled loops that call the functions of a user's program.

The arguments that a loop passes to a function depend on the program's declarations, so the source of the loop is
generated. The modules are in the package `ooc.generated`, stored in the cache directory of compiled kernels, where
numba's cache identifies a module by its file. A module's name is a hash of its source and of everything that the
functions depend on (`ooc.program_sources`). Types of the loops' arguments are in separate modules, because numba's
cache of a called function refers to the types by name, even for programs that no longer exist.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import xxhash

from blocks.cache_directory import write_private
from blocks.errors import WorkFailed
from blocks.kernel_cache import CACHE, added_kernels_directory, compile_lock
from ooc import generated
from ooc.program_sources import dependencies

_TYPES = '''"""What functions of some program have: made by ooc.user_modules."""

from typing import Any, NamedTuple
'''
_TYPE = """

class {name}(NamedTuple):
{fields}
"""

_STAMPS = """

from ooc.program_sources import stamp_cached_functions

for each in {modules}:
    stamp_cached_functions(each)
"""


def types_module(types: Mapping[str, Sequence[str]]) -> str:
    """Write a module of NamedTuples with the given names and fields, and return the module's name."""
    classes = (_TYPE.format(name=name, fields=_fields(fields)) for name, fields in types.items())
    text = _TYPES + "".join(classes)
    return write_module("types", text, xxhash.xxh3_64(text.encode()))


def _fields(names: Sequence[str]) -> str:
    return "\n".join(f"    {name}: Any" for name in names or ["nothing"])


def defining_class(program: type, functions: Mapping[str, Any]) -> type:
    """Return the most basic class of a program that has the given functions, so that subclasses that do not override
    them share loops."""
    first = reversed(program.__mro__)
    return next(each for each in first if all(getattr(each, name, None) is functions[name] for name in functions))


def loops_module(text: str, functions: Mapping[str, Any]) -> ModuleType:
    """Write and import the module with the given source, which calls the given functions of a program."""
    needs = dependencies(functions.values())
    text += _STAMPS.format(modules=sorted({function.__module__ for function in functions.values()}))
    digest = xxhash.xxh3_64(f"{text}{needs.digest}".encode())
    return importlib.import_module(write_module("loops", text, digest))


def write_module(kind: str, text: str, digest: Any) -> str:
    """Return the name of the module with the given source, and write the module if it does not exist.

    The file is written only once, even by concurrent processes, because numba compiles everything again if a file has a
    newer date.
    """
    stem = f"{kind}_{digest.hexdigest()}"
    name = f"{generated.__name__}.{stem}"
    if name not in sys.modules:
        if CACHE is None or not (CACHE / f"{stem}.py").exists():
            _write(f"{stem}.py", text)
        importlib.invalidate_caches()  # another process may have written the module
    return name


def _write(name: str, text: str) -> None:
    """Write a module to the cache directory of kernels, and add this directory to the path of `ooc.generated`."""
    directory = added_kernels_directory()
    if directory is None:
        raise WorkFailed(
            "no directory for the compiled loops is writable",
            "Set OOC_CACHE_DIR to a directory that only you can write to.",
        )
    path = directory / name
    with compile_lock(directory / "modules.lock"):
        if not path.exists():
            with write_private(path) as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
    if str(directory) not in generated.__path__:
        generated.__path__.append(str(directory))
