"""The reference pages: Markdown of the command line, from its commands, and of the Python interface, from its names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from typer import Context
from typer.main import get_command

from cli.app import app

PACKAGES = ("samplers", "ooc", "blocks")


def commands() -> str:
    """All commands with their arguments and options."""
    found = sorted(walk(get_command(app), ("ooc",)), key=lambda each: each[0])
    return "\n\n".join(section for path, command in found for section in _told(path, command))


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The commands below one that are not hidden, each with the words it is called by."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        if not below.hidden:
            yield from walk(below, (*path, name))


def _told(path: tuple[str, ...], command: Any) -> Iterator[str]:
    yield f"## {' '.join(path)}"
    context = Context(command, info_name=" ".join(path))
    yield f"```text\n{' '.join([*path, *command.collect_usage_pieces(context)])}\n```"
    yield command.help or ""
    rows = [row for parameter in command.params if (row := _row(parameter, context)) is not None]
    yield "\n".join(["| | |", "| --- | --- |", *rows])


def _row(parameter: Any, context: Any) -> str | None:
    record = parameter.get_help_record(context)
    if record is None or record[0] == "--help":
        return None
    name, said = (" ".join(text.replace("|", "\\|").split()) for text in record)
    return f"| `{name}` | {said} |"


def interface() -> str:
    """All public names of the packages."""
    return "\n\n".join(_package(name) for name in PACKAGES if getattr(importlib.import_module(name), "__all__", ()))


def _package(name: str) -> str:
    """Its own names, and the classes that these have in common."""
    package = importlib.import_module(name)
    things = {f"{name}.{member}": getattr(package, member) for member in sorted(package.__all__)}
    public = {path: thing for path, thing in things.items() if thing.__module__.startswith(f"{name}.")}
    bases = [base for thing in public.values() if inspect.isclass(thing) for base in thing.__mro__[1:]]
    shared = [base for base in bases if base.__module__.startswith(f"{name}.") and base not in public.values()]
    public |= {f"{base.__module__}.{base.__qualname__}": base for base in shared}
    sections = [_directive(path, thing) for path, thing in public.items()]
    return "\n\n".join([f"## {name}", (package.__doc__ or "").strip(), *sections])


def _directive(path: str, thing: Any) -> str:
    kind = "function" if not inspect.isclass(thing) else "exception" if issubclass(thing, Exception) else "class"
    options = ":members:" if kind == "class" else ""
    return f"### {path.rpartition('.')[2]}\n\n```{{eval-rst}}\n.. auto{kind}:: {path}\n   {options}\n```"


REFERENCES = {"commands": commands, "python": interface}
