"""The engine: programs, workers, slices, commits. Knows no topic."""

from __future__ import annotations

from typing import Any

_WHERE = {
    "Local": "ooc.stochastic.program",
    "Shared": "ooc.stochastic.variable_arrays",
    "StaticEngine": "ooc.engine",
    "StochasticEngine": "ooc.stochastic.engine",
    "StochasticProgram": "ooc.stochastic.program",
    "Job": "ooc.program",
    "LocalState": "ooc.program",
    "Phase": "ooc.program",
    "Program": "ooc.program",
    "StaticProgram": "ooc.program",
    "ArraySpec": "ooc.shared",
    "ProgramSpec": "ooc.worker",
    "make_plan": "ooc.plan",
    "Run": "ooc.run",
    "create_run": "ooc.run",
    "train": "ooc.training",
}
__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that `import ooc` costs nothing."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)
