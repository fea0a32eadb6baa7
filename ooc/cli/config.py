"""Config files: options in TOML, under the names that they have on the command line.

A file without tables holds the options of one command; a file with tables holds options of several commands:

    memory = "2GB"       # for every command that has the option
    [train]
    seed = 3             # for all train commands that have the option
    [train.lda]
    topics = 100         # for this command only

Arguments can also be given by name: data = "corpus".
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from blocks.errors import RequestError
from blocks.files import no_such_file
from ooc.cli.command import TYPED_ONLY, command_parameters
from ooc.cli.registry import commands

Table = dict[str, Any]


class ConfigFileValue(NamedTuple):
    """A value from a config file, in command-line form.

    where: the file and the table in it.
    """

    value: Any
    where: str


def read_config(
    path: Path, words: Sequence[str], parameters: Mapping[str, Any], *, shared: bool = False
) -> dict[str, ConfigFileValue]:
    """Return the values in a config file for a command, by parameter name.

    words: words that invoke the command, such as ("train", "lda").
    parameters: parameters of the command, by their names in the file.
    shared: whether a file without tables holds options of many commands.
    Raises RequestError if the file cannot be read or contains a name that no command has.
    """
    content = _read(path)
    if shared or any(isinstance(value, dict) for value in content.values()):
        _check(path, content, commands(), "")
    else:
        for name in content:
            _check_option(f"{path}", name, parameters)
    found: dict[str, ConfigFileValue] = {}
    for name, table in _tables(content, words):
        where = _where(path, name)
        for key in table.keys() & parameters.keys():
            if not isinstance(table[key], dict):
                found[parameters[key].name] = ConfigFileValue(_value(table[key], parameters[key]), where)
    return found


def _read(path: Path) -> Table:
    try:
        return _dashed(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise no_such_file(path) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RequestError(
            f"--config {path}: {error}", "Write TOML lines such as topics = 100 or memory = '2GB'."
        ) from None


def _dashed(table: Table) -> Table:
    """Return a table with dashes in its names: evaluate-every for evaluate_every."""
    return {key.replace("_", "-"): _dashed(value) if isinstance(value, dict) else value for key, value in table.items()}


def _tables(content: Table, words: Sequence[str]) -> Iterator[tuple[str, Table]]:
    """Yield the tables that apply to a command, from the top level to the command's own, each with its name."""
    yield "", content
    for depth, word in enumerate(words, 1):
        content = content.get(word, {})
        if not isinstance(content, dict):  # an option that has the name of a command
            return
        yield ".".join(words[:depth]), content


def _where(path: Path, table: str) -> str:
    return f"{path} [{table}]" if table else f"{path}"


def _check(path: Path, table: Table, command: Any, name: str) -> None:
    """Raise RequestError for an option or a table that no command has.

    command: the command or group that the table is for.
    name: name of the table, such as train.lda.
    """
    below = _below(command)
    known = dict.fromkeys(option for each in _leaf_commands(command) for option in command_parameters(each))
    for key, value in table.items():
        if not isinstance(value, dict):
            _check_option(_where(path, name), key, known)
            continue
        inner = f"{name}.{key}" if name else key
        if key not in below:
            raise RequestError(
                f"--config {path}: the table [{inner}] is not named after a command{_meant(inner)}",
                "Name each table after a command, such as [train.lda], and write each option on its own line.",
            )
        _check(path, value, below[key], inner)


def _below(command: Any) -> dict[str, Any]:
    """Return the commands of a group by name; {} for a single command."""
    return {name: each for name, each in getattr(command, "commands", {}).items() if not each.hidden}


def _leaf_commands(command: Any) -> Iterator[Any]:
    """Yield all commands of a group and its subgroups; for a single command, the command itself."""
    below = _below(command)
    if not below:
        yield command
    for each in below.values():
        yield from _leaf_commands(each)


def _check_option(where: str, name: str, known: Collection[str]) -> None:
    if name in TYPED_ONLY:
        raise RequestError(
            f"--config {where}: --{name} cannot be set in a file, as it allows other code to run",
            f"Use --{name} on the command line.",
        )
    if name not in known or name == "config":
        close = get_close_matches(name, known, 1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise RequestError(f"--config {where}: unknown option --{name}{meant}")


def _meant(table: str) -> str:
    """Return a hint for a table that lacks the name of its group, such as [lda] instead of [train.lda]."""
    names = list(_names(commands(), ""))
    close = [name for name in names if name.endswith(f".{table}")] or get_close_matches(table, names, 1)
    return f"; did you mean [{close[0]}]?" if close else ""


def _names(command: Any, name: str) -> Iterator[str]:
    for key, each in _below(command).items():
        inner = f"{name}.{key}" if name else key
        yield inner
        yield from _names(each, inner)


def _value(value: Any, parameter: Any) -> Any:
    """Return numbers as strings, so that they are parsed like numbers on the command line."""
    if isinstance(value, bool):
        return value
    several = [str(each) for each in (value if isinstance(value, list) else [value])]
    return several if getattr(parameter, "multiple", False) or parameter.nargs != 1 else ",".join(several)
