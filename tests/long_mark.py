"""Marks of test parameters that only the long suite runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def long_but(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Return the parameters of a test: those in `quick` run in both suites, the others in the long one only."""
    return [value if value in quick else _long(value) for value in values]


def _long(value: Any) -> Any:
    together = value if type(value) is tuple else (value,)  # a named tuple is one parameter
    return pytest.param(*together, marks=pytest.mark.long)
