"""Write the newest metrics of a run to a text file for the textfile collector of Prometheus' node_exporter.

The file is valid both as OpenMetrics and in the older text format that the collector reads: all values are gauges,
without timestamps, which the collector rejects.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from blocks import stderr
from blocks.errors import OocError, RequestError
from blocks.files import publish_file
from ooc.runs.run import Run

_PREFIX = "ooc_"
_OURS = f"# TYPE {_PREFIX}".encode()  # start of each metrics file
_UNITS = {
    "_per_s": "_per_second",
    "_s": "_seconds",
}  # suffixes of our metric names, and the corresponding suffixes of Prometheus
_kept: ContextVar[MetricsFile | None] = ContextVar("kept", default=None)


@contextmanager
def keep_metrics_file(path: Path) -> Iterator[None]:
    """Keep a file with the newest metrics of runs in this context.

    Raises RequestError if the file cannot be created, or if it exists and is not a metrics file of ooc.
    """
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise RequestError(
            f"--metrics-file {path}: the directory {path.parent} does not exist or is not writable",
            "Create the directory, or choose another.",
        )
    if path.exists() and not _is_ours(path):
        raise RequestError(f"--metrics-file {path} exists and is not a metrics file of ooc", "Choose another name.")
    token = _kept.set(MetricsFile(path))
    try:
        yield
    finally:
        _kept.reset(token)


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_OURS)) == _OURS


def update_metrics_file(run: Run, line: dict[str, Any]) -> None:
    """Write the metrics file, if one is kept, after an iteration.

    line: line of the run's metrics.
    """
    if kept := _kept.get():
        kept.tell(run, line)


class MetricsFile:
    """Metrics file with the newest value of each metric, as some metrics are only evaluated in some iterations."""

    def __init__(self, path: Path) -> None:
        self._path, self._of, self._failed = path, Path(), False
        self._values: dict[str, float] = {}

    def tell(self, run: Run, line: dict[str, Any]) -> None:
        """Write the file. If that fails, training continues, and a warning is issued the first time."""
        if run.path != self._of:
            self._of, self._values = run.path, {}
            for before in run.metrics():
                self._values |= _numbers(before)
        self._values |= _numbers(line)
        try:
            with publish_file(self._path) as beside:
                beside.write_text(_text(run, self._values), encoding="utf-8")
        except OocError as error:
            if not self._failed:
                stderr.print_warning(f"--metrics-file {self._path} cannot be written: {error.what}")
            self._failed = True


def _numbers(line: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in line.items() if isinstance(value, (int, float))}


def _text(run: Run, values: dict[str, float]) -> str:
    program = str(run.config["program"]).rpartition(":")[2]
    labels = f'run="{_escaped(str(run.path.absolute()))}",model="{_escaped(program)}"'
    samples = "".join(
        f"# TYPE {name} gauge\n{name}{{{labels}}} {_shown(value)}\n"
        for name, value in ((_name(field), value) for field, value in values.items())
    )
    return f"{samples}# EOF\n"


def _name(field: str) -> str:
    for ending, longer in _UNITS.items():
        if field.endswith(ending):
            field = field.removesuffix(ending) + longer
            break
    return _PREFIX + re.sub(r"[^a-zA-Z0-9_]", "_", field)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _shown(value: float) -> str:
    if math.isfinite(value):
        return repr(int(value) if isinstance(value, int) else float(value))  # also for bools and NumPy numbers
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
