"""Write the report page of a run: all sections, scripts and styles in one HTML file."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blocks.errors import RequestError
from blocks.outputs import output
from ooc.runs.chains import chain_paths, is_chains, read_chains
from ooc.runs.run import Run
from ooc.runs.status import value_text
from samplers.factorization import model as factor_model
from samplers.models import is_own, open_any_model
from samplers.regression import model as regression_model
from samplers.regression.softmax import model as softmax_model
from samplers.report import comparison, factors, regression, softmax, topics, training
from samplers.report.charts import CONFIG, library
from samplers.report.section import Section
from samplers.topics import model
from samplers.topics.compare import training_comparison

VIEWS: dict[str, Callable[[Any], Section]] = {  # section function by kind of model
    factor_model.KIND: factors.section,
    regression_model.KIND: regression.section,
    softmax_model.KIND: softmax.section,
}
_TEMPLATES = Path(__file__).parent / "templates"


def write_report(path: Path, out: Path, *, by: str | None = None, data: Path | None = None) -> int:
    """Write the report of a run or of several chains, and return its size in bytes.

    The report of an unfinished run has the learning curves so far. by: column or value by which to compare topics (see
    `samplers.topics.compare`). data: path of the training dataset, if it has been moved. Raises RequestError if no
    iteration is finished yet or a library is missing.
    """
    environment, script = _environment(), library()
    chosen = _chosen(path)
    sections = _sections(path, chosen, by, data)
    page = environment.get_template("page.html").render(
        name=path.resolve().name,
        version=chosen.config["version"],
        options={name: text for name, value in _options(chosen).items() if (text := value_text(value))},
        program=chosen.config["program"].rpartition(":")[2],
        dataset=Path(chosen.config["dataset"]["path"]).name,
        identity=chosen.config["dataset"]["identity"],
        sections=sections,
        library=script,
        config_of_charts=CONFIG,
    )
    with output(out) as beside:
        beside.write_text(page, encoding="utf-8")
        return beside.stat().st_size


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


def _sections(path: Path, chosen: Run, by: str | None, data: Path | None) -> list[Section]:
    runs = [Run(chain) for chain in chain_paths(path)] if is_chains(path) else [chosen]
    lines = {run.path.name: [_finite(line) for line in found] for run in runs if (found := run.metrics())}
    if not lines:
        raise RequestError(f"{path} has no finished iteration yet", f"Continue the run with: ooc resume {path}")
    sections = [training.section(lines, chosen.config["iterations"])]
    if (chosen.path / "model").exists() and not is_own(chosen):
        opened = open_any_model(chosen.path)
        if isinstance(opened, model.Model):
            sections.insert(0, topics.section(opened, data))
            if by:
                sections.insert(1, comparison.section(training_comparison(opened, by, None, 0.95, data)))
            return sections
        if view := VIEWS.get(opened.manifest["kind"]):
            sections.insert(0, view(opened))
    if by:
        raise RequestError(f"{path} has no trained topic model to compare by {by}", "Leave --by out.")
    return sections


def _finite(line: dict[str, Any]) -> dict[str, Any]:
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
