"""Detect user files that shadow a package of this project, such as `blocks.py` next to a script."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def require_own_packages() -> None:
    """Raise ImportError with the name of the file if `blocks` or `samplers` would be imported from elsewhere."""
    for name in ("blocks", "samplers"):
        ours = Path(__file__).parents[1] / name / "__init__.py"
        found = find_spec(name)
        there = found and (found.origin or next(iter(found.submodule_search_locations or []), None))
        if not there:
            raise ImportError(f"the package {name!r} of ooc is missing: install ooc again")
        if not ours.exists() or not Path(there).exists() or not ours.samefile(there):
            raise ImportError(f"{there} hides the package {name!r} of ooc: rename it, or move it elsewhere")
