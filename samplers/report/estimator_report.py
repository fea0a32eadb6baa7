"""Write the report of a topic model in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from samplers.report import comparison, topics, training
from samplers.report.page import finite_metrics, require_libraries, write_page
from samplers.topics.group_comparison import comparison_as_json
from samplers.topics.model import TopicModel
from samplers.topics.prevalence import PrevalenceComparison


def write_report(
    model: TopicModel,
    out: Path,
    facts: Mapping[str, Any],
    history: Sequence[dict[str, Any]],
    compared: PrevalenceComparison | None,
) -> None:
    """Write the report page.

    facts: options and program of the run.
    history: lines of its metrics.
    compared: groups of documents to compare, or None.
    """
    require_libraries()
    sections = [topics.section(model)]
    if compared is not None:
        sections.append(comparison.section(comparison_as_json(model, compared, largest=comparison.MOST_TOPICS)))
    if history:
        sections.append(training.section({"fit": [finite_metrics(line) for line in history]}, len(history)))
    about = {
        "name": facts["program"],
        "version": version("ooc"),
        "dataset": "data in memory",
        "identity": "",
        "made": {},
    }
    options = {name: value for name, value in facts["options"].items() if isinstance(value, str | int | float | list)}
    write_page(out, sections, {**about, **facts, "options": options})
