"""Plot learning curves: the objective against the data processed, and the data processed against time.

The first curve shows the quality of the updates, the second their speed (Xing et al., "STRADS", figure 8: OvD and DvT).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blocks.errors import RequestError
from blocks.outputs import publish_output
from ooc.runs.run import Run

FORMATS = (".png", ".svg", ".pdf")
_PREFERRED = ("objective", "log_likelihood_per_token")
_NO_OBJECTIVE = (
    "iteration",
    "samples_processed",
    "nonzeros",
    "changed_fraction",
    "converged",
    "lambda",
    "lambda_bytes_read",
    "time",
)
_UNITS = ("_s", "_bytes", "_per_s")  # suffixes of the names of metrics about the machine
_MOVED = "bytes_"  # prefix of the names of metrics about data transfer
_NO_STAGE = (
    "elapsed_s",
    "page_cache_s",
    "computing_s",
    "waiting_s",
    "communicating_s",
)  # all but the first are part of sampling


def check_plot(out: Path) -> None:
    """Raise RequestError if the file extension is unknown or matplotlib is missing."""
    if out.suffix not in FORMATS:
        raise RequestError(f"{out}: unknown file extension {out.suffix!r}", f"Use one of {', '.join(FORMATS)}.")
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns if there is no home directory for its cache
    try:
        import matplotlib as mpl
    except ImportError:
        raise RequestError(
            "plots need the package matplotlib, which is not installed",
            "Install it with: pip install 'ooc[plot]'",
        ) from None
    mpl.use("Agg")


def objectives(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of the metrics that training optimizes or evaluates, starting with the main objective."""
    names = dict.fromkeys(name for line in lines for name in line)
    found = [
        name
        for name in names
        if name not in _NO_OBJECTIVE and not name.endswith(_UNITS) and not name.startswith(_MOVED)
    ]
    return sorted(found, key=lambda name: _PREFERRED.index(name) if name in _PREFERRED else len(_PREFERRED))


def stages(line: dict[str, Any]) -> list[str]:
    """Return the fields of a line of metrics that add up to the time of its iteration, for example sampling_s."""
    return [name for name in line if name.endswith("_s") and not name.endswith("_per_s") and name not in _NO_STAGE]


def plot_runs(runs: Sequence[Run], out: Path, value: str | None = None) -> str:
    """Plot both curves of the given runs to a file, and return the name of the plotted metric.

    value: name of the metric; None for the objective.
    Raises RequestError if a run has not recorded the metric.
    """
    check_plot(out)
    import matplotlib.pyplot as plt

    lines = {str(run.path): run.metrics() for run in runs}
    known = objectives([line for of_run in lines.values() for line in of_run])
    name = value or next(iter(known), "")
    for path, of_run in lines.items():
        if not any(name in line for line in of_run):
            what = f"the metric {name!r}" if name else "an objective"
            raise RequestError(f"{path} has not recorded {what}", f"Its metrics are: {', '.join(known) or 'none'}.")
    figure, (quality, speed) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for path, of_run in lines.items():
        told = [line for line in of_run if name in line]
        quality.plot([line["samples_processed"] for line in told], [line[name] for line in told], ".-", label=path)
        seconds, processed = ([0.0, *(line[field] for line in of_run)] for field in ("elapsed_s", "samples_processed"))
        speed.plot(seconds, processed, ".-", label=path)
    quality.set(title="objective by samples processed", xlabel="samples processed", ylabel=name.replace("_", " "))
    speed.set(title="samples processed over time", xlabel="training seconds", ylabel="samples processed")
    for axis in (quality, speed):
        axis.grid(alpha=0.3)
        axis.legend()
    with publish_output(out) as beside:
        figure.savefig(beside, dpi=120, format=out.suffix[1:])
    plt.close(figure)
    return name
