"""Options in a file: TOML, with the names that they have on the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from blocks.errors import RequestError
from blocks.files import no_such_file


def read_config(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a file by the names of parameters, as the command line would give them.

    options: those that there are, by their names. Raises RequestError if one is not known, or the file cannot be read.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise no_such_file(path) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RequestError(f"--config {path}: {error}", "Write lines as topics = 100 or memory = '2GB'.") from None
    given = {key.replace("_", "-"): value for key, value in content.items()}
    for name in given:
        if name not in options or name == "config":
            close = get_close_matches(name, options, 1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise RequestError(f"--config {path}: there is no option --{name}{meant}")
    return {options[name].name: _value(path, name, value, options[name]) for name, value in given.items()}


def _value(path: Path, key: str, value: Any, option: Any) -> Any:
    """Numbers as text, so that they are read as those of the command line are."""
    if isinstance(value, dict):
        raise RequestError(f"--config {path}: {key} is a table", "Write each option on a line of its own.")
    if isinstance(value, bool) or (isinstance(value, list) and option.multiple):
        return value
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
