"""Find the files and constants that a user's program depends on, so that a change to any of them is noticed.

Numba's cache notices a change to the file of a compiled function, but neither a change to the functions that it calls
in other files nor a change to global constants, which are compiled into the code.
"""

from __future__ import annotations

import ast
import dis
import importlib.util
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from itertools import chain
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import xxhash

PARSING = threading.Lock()  # Python 3.11 counts the depth of syntax trees over all threads: occasional SystemError
PACKAGES = ("builtins", "math", "numba", "numpy")  # packages that call no function of a user
OURS = ("blocks", "ooc", "samplers")  # packages whose classes are not users' programs
_STANDARD = Path(sysconfig.get_path("stdlib"))
_INSTALLED = {"site-packages", "dist-packages"}
_SCALARS = (bool, int, float, complex, str, bytes, np.generic, np.dtype)


def spec_of(module: str) -> ModuleSpec | None:
    """Return the import spec of a module without importing anything; None if there is no such module."""
    parent, _, _ = module.rpartition(".")
    with suppress(ImportError, ValueError):
        if not parent:
            return importlib.util.find_spec(module)
        above = spec_of(parent)
        if above and above.submodule_search_locations is not None:
            return PathFinder.find_spec(module, above.submodule_search_locations)
    return None


def module_file(module: str) -> Path | None:
    """Return the file of a module without importing it; None if there is no file."""
    spec = spec_of(module)
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None


def module_files(module: str) -> dict[str, Path]:
    """Return the files of a module and of all modules that it imports, directly or indirectly, by module name.

    Modules of ooc, of the standard library and of other installed packages are left out.
    """
    files: dict[str, Path] = {}
    waiting, known = [module], {module}
    for name in waiting:  # which grows
        file = module_file(name)
        if file is None or _package(name) in OURS:
            continue
        if _package(name) != _package(module) and not _is_local(file):
            continue
        files[name] = file
        for imported in _imported(name, file) if file.suffix == ".py" else ():
            parts = imported.split(".")
            new = [each for end in range(len(parts)) if (each := ".".join(parts[: end + 1])) not in known]
            known.update(new)
            waiting += new
    return files


def _package(module: str) -> str:
    return module.partition(".")[0]


def _is_local(file: Path) -> bool:
    return not (_INSTALLED.intersection(file.parts) or file.is_relative_to(_STANDARD))


def _imported(module: str, file: Path) -> Iterator[str]:
    """Yield the names in a file's import statements that may be modules."""
    package = module if file.stem == "__init__" else module.rpartition(".")[0]
    with suppress(SyntaxError, ImportError):  # a relative import outside a package
        with PARSING:
            tree = ast.parse(file.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                yield base
                yield from (f"{base}.{each.name}" for each in node.names)


def source_checksum(module: str) -> str | None:
    """Return the XXH3-128 of the files of a module and of all modules that it imports (see `module_files`); None if the
    module has no file."""
    files = module_files(module)
    return digest_of(files.values()).hexdigest() if files else None


def digest_of(files: Iterable[Path]) -> xxhash.xxh3_128:
    """Return the XXH3-128 of files, in their order."""
    digest = xxhash.xxh3_128()
    for file in files:
        digest.update(file.read_bytes())
    return digest


class CompiledDependencies(NamedTuple):
    """Files and constants that compiled functions depend on.

    files: files that define the functions and all that they may call.
    constants: global constants in the functions, as bytes.
    """

    files: list[Path]
    constants: list[bytes]

    @property
    def digest(self) -> str:
        digest = digest_of(self.files)
        for constant in self.constants:
            digest.update(constant)
        return digest.hexdigest()


def dependencies(functions: Iterable[Callable[..., Any]]) -> CompiledDependencies:
    """Return the files and constants that functions depend on when they are compiled."""
    values = referenced_names(functions)[1]
    modules = {str(getattr(each, "__module__", "")) for each in [*functions, *values]}
    modules |= {each.__name__ for each in values if isinstance(each, ModuleType)}
    theirs = sorted(each for each in modules if _package(each) not in (*PACKAGES, *OURS))
    files = sorted({file for module in theirs for file in module_files(module).values()})
    return CompiledDependencies(files, [constant for value in values for constant in _constant(value)])


def _constant(value: Any) -> Iterator[bytes]:
    """Yield a number, a string or an array as bytes; nothing for other values."""
    if isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}\0".encode() + value.tobytes()
    elif isinstance(value, _SCALARS):
        yield f"{value!r}\0".encode()


def dispatcher_of(value: Any) -> Any | None:
    """Return the dispatcher of a function compiled by numba.njit or numba.vectorize; None for other values."""
    value = getattr(value, "_dispatcher", value)
    return value if hasattr(value, "py_func") else None


def referenced_names(functions: Iterable[Callable[..., Any]], *given: Any) -> tuple[set[str], list[Any]]:
    """Return the names in functions and in all compiled functions that they may call, in any file, and the values of
    these names, always in the same order.

    given: values that the functions may be given, which are included.
    """
    names: set[str] = set()
    values: list[Any] = []
    known: dict[int, Any] = {}
    waiting = [*given, *(value for function in functions for value in _used_in(function, names))]
    while waiting:
        values.append(value := waiting.pop())
        if id(value) not in known:
            known[id(value)] = value
            if isinstance(value, tuple):
                waiting += value
            elif dispatcher := dispatcher_of(value):
                waiting += _used_in(dispatcher, names)
    return names, values


def _used_in(function: Callable[..., Any], names: set[str]) -> list[Any]:
    """Return the values that a function refers to, and add the names in it to `names`."""
    plain: Any = getattr(function, "py_func", function)
    codes = [plain.__code__]
    found = [cell.cell_contents for cell in plain.__closure__ or ()]
    found += [*(plain.__defaults__ or ()), *(plain.__kwdefaults__ or {}).values()]
    used: dict[str, None] = {}
    of_module: dict[str, None] = {}
    for code in codes:  # the list grows by inner functions during the loop
        used |= dict.fromkeys(code.co_names)
        of_module |= {each.argval: None for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    found += [plain.__globals__[name] for name in of_module if name in plain.__globals__]
    for value in found:  # the list grows during the loop by the values in modules
        if isinstance(value, ModuleType) and _package(value.__name__) not in PACKAGES:
            have = [getattr(value, name) for name in used if hasattr(value, name)]
            modules = [each for each in found if isinstance(each, ModuleType)]
            found += [each for each in have if not any(each is module for module in modules)]
    names.update(used)
    return found


def stamp_cached_functions(module: str) -> None:
    """Add a digest of all dependencies to the stamps in numba's own cache (`cache=True`) of a module and its imports.

    A changed dependency then invalidates the cached functions.
    """
    from numba.core.caching import FunctionCache

    for name in module_files(module):
        content = [*vars(sys.modules[name]).values()] if name in sys.modules else []
        of_classes = [vars(each).values() for each in content if isinstance(each, type) and each.__module__ == name]
        for value in chain(content, *of_classes):
            dispatcher = dispatcher_of(value)
            cache = getattr(dispatcher, "_cache", None) or getattr(dispatcher, "cache", None)
            if dispatcher is not None and type(cache) is FunctionCache:
                needs = dependencies([dispatcher])
                if len(needs.files) > 1 or needs.constants:
                    cache._cache_file._source_stamp = (cache._impl.locator.get_source_stamp(), needs.digest)
