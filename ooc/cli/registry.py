"""Find commands by name, for features that need other commands' options: config files, variables and launch."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Any

import typer
from typer.models import CommandInfo

_registered: list[typer.Typer] = []


def register(app: typer.Typer) -> None:
    """Set the application whose commands `commands` returns."""
    _registered[:] = [app]


@cache
def commands(*words: str) -> Any:
    """Return a click group of all commands, or only of those that the given words can name.

    words: first words of the command line. Creating one command takes a millisecond; creating all of them would take
    longer than many commands run.
    """
    return typer.main.get_command(_named(_registered[0], words))


def _named(of: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """Return a group that contains only the command that the words name, or all commands if they name none."""
    groups = [group for group in of.registered_groups if group.name in words[:1]]
    single = [command for command in of.registered_commands if _name(command) in words[:1]]
    if not groups and not single:
        return of
    only = copy(of)
    only.registered_commands, only.registered_groups = single, [copy(group) for group in groups]
    for group in only.registered_groups:
        assert group.typer_instance
        group.typer_instance = _named(group.typer_instance, words[1:])
    return only


def _name(command: CommandInfo) -> str | None:
    return command.name or getattr(command.callback, "__name__", None)
