"""Options from environment variables: for example, OOC_MEMORY sets --memory of every command that has this option."""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import Any

from blocks import stderr
from ooc.cli.registry import commands

PREFIX = "OOC_"
_CACHE = "OOC_CACHE_DIR"  # equals `blocks.cache_directory.CHOSEN`, which takes time to import; not an option


def variable(option: str) -> str:
    """Return the name of an option's environment variable, such as OOC_MAX_TIME for max-time."""
    return PREFIX + option.upper().replace("-", "_")


def without_options() -> dict[str, str]:
    """Return the environment without the variables of options, for subprocesses that are given explicit options."""
    return {name: value for name, value in os.environ.items() if name == _CACHE or not name.startswith(PREFIX)}


def forget_options() -> None:
    """Remove the variables of options from the environment of this process."""
    for name in os.environ.keys() - without_options():
        del os.environ[name]


def warn_of_unknown(command: Any) -> None:
    """Warn about variables that do not match any option.

    command: command or group to search first.
    """
    unknown = {name for name in os.environ if name.startswith(PREFIX)} - _known(command)
    if not unknown:
        return
    known = _known(commands())
    options = [name.removeprefix(PREFIX) for name in known]
    for name in sorted(unknown - known):
        close = get_close_matches(name.removeprefix(PREFIX), options, 1)
        meant = f"; did you mean {PREFIX}{close[0]}?" if close else ""
        stderr.print_warning(f"the environment variable {name} does not set any option of ooc{meant}")


def _known(command: Any) -> set[str]:
    """Return the names of the variables of a command, or of all commands of a group."""
    below = getattr(command, "commands", {}).values()
    own = {param.envvar for param in command.params if isinstance(param.envvar, str)}
    return own.union({_CACHE}, *map(_known, below))
