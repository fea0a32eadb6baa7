"""Write the report page of a run: all sections, scripts and styles in one HTML file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from blocks.dataset_generations import generation_of
from blocks.errors import OocError, RequestError
from blocks.kinds import open_any
from blocks.outputs import publish_output
from ooc.runs.chains import chain_paths, is_chains, read_chains
from ooc.runs.run import Run
from ooc.runs.status import value_text
from samplers.factorization import model as factor_model
from samplers.model_files import MANIFEST
from samplers.models import is_own, open_any_model
from samplers.regression import model as regression_model
from samplers.regression.softmax import model as softmax_model
from samplers.report import comparison, factors, regression, softmax, topics, training
from samplers.report.charts import CONFIG, library
from samplers.report.section import ReportSection
from samplers.topics import model
from samplers.topics.group_comparison import comparison_as_json, training_comparison

VIEWS: dict[str, Callable[[Any], ReportSection]] = {  # section function by kind of model
    factor_model.KIND: factors.section,
    regression_model.KIND: regression.section,
    softmax_model.KIND: softmax.section,
}
_TOLD = ("options", "made")
_TEMPLATES = Path(__file__).parent / "templates"


def write_report(path: Path, out: Path, *, by: str | None = None, data: Path | None = None) -> int:
    """Write the report of a run or of several chains, and return its size in bytes.

    The report of an unfinished run has the learning curves so far.

    by: column or value by which to compare topics (see `samplers.topics.group_comparison`).
    data: path of the training dataset, if it has been moved.
    Raises RequestError if no iteration is finished yet or a library is missing.
    """
    require_libraries()
    if not is_chains(path) and (path / MANIFEST).exists():
        return _write_model_report(path, out, by, data)
    chosen = _chosen(path)
    facts = {
        "name": path.resolve().name,
        "version": chosen.config["version"],
        "options": _options(chosen),
        "program": chosen.config["program"].rpartition(":")[2],
        "dataset": Path(chosen.config["dataset"]["path"]).name,
        "identity": chosen.config["dataset"]["identity"],
        "made": _made(chosen, data),
    }
    return write_page(out, _sections(path, chosen, by, data), facts)


def _write_model_report(path: Path, out: Path, by: str | None, data: Path | None) -> int:
    """Write the report of a model directory, such as a view of a run or an imported model."""
    opened = open_any_model(path)
    if isinstance(opened, model.SavedTopicModel):
        sections = [topics.section(opened, data), *([_compared(opened, by, data)] if by else [])]
    elif by or not (view := VIEWS.get(opened.manifest["kind"])):
        raise RequestError(f"{path} has no trained topic model, so topics cannot be compared by {by}", "Omit --by.")
    else:
        sections = [view(opened)]
    facts = {"name": path.resolve().name, "version": version("ooc"), "program": "Model", "options": {}, "made": {}}
    identity = opened.manifest["dataset"]
    return write_page(out, sections, {**facts, "dataset": data.name if data else "a dataset", "identity": identity})


def _compared(opened: model.SavedTopicModel, by: str, data: Path | None) -> ReportSection:
    found = training_comparison(opened, by, None, 0.95, data)
    return comparison.section(comparison_as_json(opened, found, largest=comparison.MOST_TOPICS))


def write_page(out: Path, sections: Sequence[ReportSection], facts: Mapping[str, Any]) -> int:
    """Write a report page, and return its size in bytes.

    facts: name; program, dataset and identity that the model was trained by and on, and version of ooc; options of the
        training, and made, options of the ingestion, by name.
    """
    shown = {each: {name: text for name, value in facts[each].items() if (text := value_text(value))} for each in _TOLD}
    page = (
        _environment()
        .get_template("page.html")
        .render(**{**facts, **shown}, sections=sections, library=library(), config_of_charts=CONFIG)
    )
    with publish_output(out) as beside:
        beside.write_text(page, encoding="utf-8")
        return beside.stat().st_size


def require_libraries() -> None:
    """Raise RequestError if a library that reports need is missing."""
    _environment()
    library()


def _made(run: Run, data: Path | None) -> dict[str, Any]:
    """Return how the dataset of a run was made, by name of the option; nothing if it is no longer there."""
    try:
        dataset = open_any(generation_of(data or run.dataset_path, run.config["dataset"]["identity"]))
    except OocError:
        return {}
    made = dataset.manifest["made"]
    inputs = ", ".join(entry["name"] for entry in made.get("inputs", []))
    options = {name: value for name, value in made.get("options", {}).items() if value is not False}
    return {"made from": f"{made.get('kind', '')} {inputs}".strip(), **options}


def _options(run: Run) -> dict[str, Any]:
    """Return the options and settings that determine the result of a run."""
    length = {name: run.config[name] for name in ("iterations", "evaluate_every")}
    settings = {name: value for name, value in run.config["settings"].items() if value}
    if "held_out" in settings:
        settings["held_out"] = Path(settings["held_out"]["path"]).name
    return {**run.config["options"], **length, **settings}


def _chosen(path: Path) -> Run:
    """Return the run itself or, of several chains, the best chain (the first chain until all have been compared)."""
    if not is_chains(path):
        return Run(path)
    return Run(path / (read_chains(path)["best"] or "chain-1"))


def _sections(path: Path, chosen: Run, by: str | None, data: Path | None) -> list[ReportSection]:
    runs = [Run(chain) for chain in chain_paths(path)] if is_chains(path) else [chosen]
    lines = {run.path.name: [finite_metrics(line) for line in found] for run in runs if (found := run.metrics())}
    if not lines:
        raise RequestError(f"{path} has no finished iteration yet", f"Continue the run with: ooc resume {path}")
    sections = [training.section(lines, chosen.config["iterations"])]
    if (chosen.path / "model").exists() and not is_own(chosen):
        opened = open_any_model(chosen.path)
        if isinstance(opened, model.SavedTopicModel):
            sections.insert(0, topics.section(opened, data))
            if by:
                sections.insert(1, _compared(opened, by, data))
            return sections
        if view := VIEWS.get(opened.manifest["kind"]):
            sections.insert(0, view(opened))
    if by:
        raise RequestError(f"{path} has no trained topic model, so topics cannot be compared by {by}", "Omit --by.")
    return sections


def finite_metrics(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of the metrics without NaN and infinite values, which a diverged training has."""
    return {name: value for name, value in line.items() if not isinstance(value, float) or math.isfinite(value)}


def _environment() -> Any:
    try:
        import jinja2
    except ImportError:
        raise RequestError(
            "reports need the package jinja2, which is not installed",
            "Install it with: pip install 'ooc[report]'",
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False, "ensure_ascii": False}
    return environment
