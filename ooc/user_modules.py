"""Modules with compiled loops around the functions of a user's program, written for it.

What a loop hands to a function depends on what the program declares, so the text of the loop does, too. Its module is
one of `ooc.generated`: it lies in the directory of the compiled kernels, where numba's cache knows it by its file; its
name is a hash of its text and of the files that the functions are in. Types that the loops have arguments of are
modules of their own, as the cache of a function that is called has them by name: those of programs that are gone, too.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import xxhash

from blocks.cache_directory import written
from blocks.errors import WorkFailed
from blocks.kernel_cache import CACHE, additions, alone
from ooc import generated

_TYPES = '''"""What functions of some program have: made by ooc.user_modules."""

from typing import Any, NamedTuple
'''
_TYPE = """

class {name}(NamedTuple):
{fields}
"""


def types_module(types: Mapping[str, Sequence[str]]) -> str:
    """Return the name of a module of NamedTuples, of which the fields are given."""
    classes = (_TYPE.format(name=name, fields=_fields(fields)) for name, fields in types.items())
    text = _TYPES + "".join(classes)
    return write_module("types", text, xxhash.xxh3_64(text.encode()))


def _fields(names: Sequence[str]) -> str:
    return "\n".join(f"    {name}: Any" for name in names or ["nothing"])


def owner(program: type, functions: Mapping[str, Any]) -> type:
    """Return the first class of a program that has these functions: programs that change none share the loops."""
    first = reversed(program.__mro__)
    return next(each for each in first if all(getattr(each, name, None) is functions[name] for name in functions))


def loops_module(text: str, functions: Mapping[str, Any]) -> ModuleType:
    """Return the module of a text in which these functions of a program are called."""
    digest = xxhash.xxh3_64(text.encode())
    for file in sorted({inspect.getfile(inspect.unwrap(function)) for function in functions.values()}):
        digest.update(Path(file).read_bytes())
    return importlib.import_module(write_module("loops", text, digest))


def write_module(kind: str, text: str, digest: Any) -> str:
    """Return the name of the module that has a text, and write the module if it is not there.

    It is written once, whoever needs it at the same time: of one that is newer numba compiles everything again.
    """
    stem = f"{kind}_{digest.hexdigest()}"
    name = f"{generated.__name__}.{stem}"
    if name not in sys.modules:
        if CACHE is None or not (CACHE / f"{stem}.py").exists():
            _write(f"{stem}.py", text)
        importlib.invalidate_caches()  # whoever wrote it
    return name


def _write(name: str, text: str) -> None:
    """Write a module where kernels are kept, and have it be found there."""
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
