"""The public names of a package, each imported on first use.

The names need numpy, numba and h5py, which the command line must not import at its start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a package, which also gets `__version__`.

    modules: module of each public name.
    """

    def get(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("ooc")
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return get, lambda: sorted([*modules, "__version__"])
