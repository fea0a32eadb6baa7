"""Section: the title, data and charts of one part of the report."""

from __future__ import annotations

from typing import Any, NamedTuple


class ReportSection(NamedTuple):
    """A section of the report page.

    name: stem of the section's template and script, and its anchor in the page.
    title: heading.
    data: JSON values that the template and the script use.
    charts: Vega-Lite specifications by the id of the HTML element that shows them.
    """

    name: str
    title: str
    data: dict[str, Any]
    charts: dict[str, dict[str, Any]]
