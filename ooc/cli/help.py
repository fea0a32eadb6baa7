"""Layout of the help: commands by section; arguments first, then options under the headings of `samplers.options`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from samplers.options import (
    ADVANCED,
    EVALUATION,
    GENERAL,
    INPUT,
    LAYOUT,
    MODEL,
    OUTPUT,
    RESOURCES,
    SEVERAL,
    TRAINING,
    WORDS,
)

_ARGUMENTS, _OPTIONS = "Arguments", "Options"
_DATA = (INPUT, WORDS, LAYOUT)
_ORDER = (_ARGUMENTS, _OPTIONS, MODEL, TRAINING, EVALUATION, ADVANCED, *_DATA, RESOURCES, SEVERAL, OUTPUT, GENERAL)
_WIDTH = 32  # maximum width of the first column
_SECTIONS = {  # commands of each section
    "Data": ["ingest", "info", "verify", "shard", "clean"],
    "Training": ["train", "sweep", "resume", "plan", "watch", "launch"],
    "Results": [
        *("topics", "documents", "compare", "label", "infer", "evaluate"),
        *("predict", "recommend", "similar-items", "report", "curves"),
    ],
    "Other programs": ["export", "import"],
    "This machine": ["demo", "doctor", "compile", "config"],
}


def in_order(names: Iterable[str]) -> list[str]:
    """Return names of commands in the order of the sections; commands without a section come last."""
    order = list(chain.from_iterable(_SECTIONS.values()))
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def write_commands(commands: Mapping[str, Any], formatter: Any) -> None:
    """Write the names and summaries of commands, grouped by section."""
    width = max(map(len, commands))
    for title, names in _SECTIONS.items():
        with formatter.section(title):
            formatter.write_dl(
                [(f"{name:<{width}}", commands[name].get_short_help_str(formatter.width - 6 - width)) for name in names]
            )


def write_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the arguments and options of a command; frequently used options come first."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        if (record := param.get_help_record(ctx)) is not None:
            sections.setdefault(_heading(param), []).append(_row(param, record))
    width = max((len(name) for rows in sections.values() for name, _ in rows if len(name) <= _WIDTH), default=0)
    for heading in _ORDER:
        if rows := sections.get(heading):
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in rows], col_max=width)


def usage_of(pieces: list[str]) -> list[str]:
    """Return the arguments of the usage line, such as DATA RUN, without typer's braces."""
    return [re.sub(r"[{}]", "", piece) for piece in pieces]


def _heading(param: Any) -> str:
    if param.param_type_name == "argument":
        return _ARGUMENTS
    return getattr(param, "rich_help_panel", None) or (GENERAL if param.name == "help" else _OPTIONS)


def _row(param: Any, record: tuple[str, str]) -> tuple[str, str]:
    """Return the help row of a parameter; arguments are shown without a type."""
    return (param.metavar, record[1]) if param.param_type_name == "argument" else record
