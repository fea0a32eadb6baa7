"""Options in a file: TOML, with the names that they have on the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
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


def spelled_out(words: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """The words after a command, with what a file has that `--config` names in its place: for those who have no such
    file. It comes first, as later words count before earlier ones."""
    file, rest = _parted(words)
    named = {option.name: option for option in options.values()}
    found = read_config(file, options) if file else {}
    return [word for name, value in found.items() for word in _words(named[name], value)] + rest


def _parted(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The value of `--config`, if there is one, and the other words."""
    for place, word in enumerate(words):
        name, given, value = word.partition("=")
        if name == "--config" and (given or place + 1 < len(words)):
            after = place + (1 if given else 2)
            return Path(value if given else words[place + 1]), [*words[:place], *words[after:]]
    return None, list(words)


def _words(option: Any, value: Any) -> Iterator[str]:
    """An option with its value, as in the command line."""
    if isinstance(value, bool):
        yield from option.opts[:1] if value else option.secondary_opts[:1]
        return
    for each in value if isinstance(value, list) else [value]:
        yield f"{max(option.opts, key=len)}={each}"


def _value(path: Path, key: str, value: Any, option: Any) -> Any:
    """Numbers as text, so that they are read as those of the command line are."""
    if isinstance(value, dict):
        raise RequestError(f"--config {path}: {key} is a table", "Write each option on a line of its own.")
    if isinstance(value, bool) or (isinstance(value, list) and option.multiple):
        return value
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
