"""A part of the report."""

from __future__ import annotations

from typing import Any, NamedTuple


class Section(NamedTuple):
    """name: of its template and its script, and in addresses within the page.

    data: what both are given, of JSON types. charts: specifications of Vega, by the ids of the elements they go to.
    """

    name: str
    title: str
    data: dict[str, Any]
    charts: dict[str, dict[str, Any]]
