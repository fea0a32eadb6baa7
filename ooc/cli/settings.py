"""Find the effective options of a command and their sources, for `ooc config show` and for ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from blocks.errors import RequestError
from ooc.cli.command import CONFIG, command_parameters, parameter_source
from ooc.cli.console import Json, print_json
from ooc.cli.registry import commands

app = typer.Typer(
    help="Show the value of each option of a command, and where it was set.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_SOURCES = {"COMMANDLINE": "command line", "ENVIRONMENT": "environment", "DEFAULT_MAP": "file"}


class EffectiveSetting(NamedTuple):
    """A parameter of a command and its effective value; None if it has no value.

    name: name in a config file.
    source: command line, environment, file or default.
    where: the environment variable, or the file and table; "" for other sources.
    """

    name: str
    parameter: Any
    value: Any
    source: str
    where: str


def settings(command: Any, name: str, words: Sequence[str], parent: Any = None) -> list[EffectiveSetting]:
    """Return the settings of all parameters of a command called with `words`; required parameters may be missing.

    name: name of the command in messages.
    parent: context of the command's group.
    """
    asked = copy(command)
    asked.params = [copy(param) for param in command.params]
    for param in asked.params:
        param.required, param.expose_value = False, True
    context = asked.make_context(name, [*words], parent=parent)
    given = {known: param for known, param in command_parameters(asked).items() if known != "config"}
    return [_setting(context, known, param) for known, param in given.items()]


def _setting(context: Any, name: str, param: Any) -> EffectiveSetting:
    value = context.params[param.name]
    source = parameter_source(context, param.name)
    where = {"ENVIRONMENT": param.envvar, "DEFAULT_MAP": (context.obj or {}).get(param.name, ("", ""))[1]}
    return EffectiveSetting(
        name,
        param,
        value=None if value in ([], ()) else value,
        source=_SOURCES.get(source, "default"),
        where=where.get(source, ""),
    )


def spelled_out(settings: Iterable[EffectiveSetting]) -> list[str]:
    """Return the arguments that give the same settings without environment variables or a config file."""
    given = [setting for setting in settings if setting.source != "default" and setting.value is not None]
    options = [setting for setting in given if setting.parameter.param_type_name == "option"]
    arguments = [str(each) for setting in given if setting not in options for each in _each(setting.value)]
    return [*(word for option in options for word in _words(option)), "--", *arguments]


def _words(option: EffectiveSetting) -> Iterator[str]:
    if isinstance(option.value, bool):
        yield from (option.parameter.opts if option.value else option.parameter.secondary_opts)[:1]
        return
    for each in _each(option.value):
        yield f"--{option.name}={each}"


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


@app.command(context_settings={"allow_interspersed_args": False})
def show(
    context: typer.Context,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="Command with its options, such as train lda --topics 100.")
    ],
    config: Annotated[Path | None, typer.Option(metavar="FILE.toml", help=CONFIG)] = None,
    json: Json = False,
) -> None:
    """Show the effective value of each option and where it was set.

    The command is not run and needs no data. The output can be used as a file for --config.

    Example: ooc config show train lda --config pipeline.toml
    """
    words = [word for word in command if word != "--json"]
    options = [f"--config={config}"] if parameter_source(context, "config") == "COMMANDLINE" else []
    called, found = _asked(words, options)
    if json or len(words) < len(command):
        print_json({"command": " ".join(called), "options": {setting.name: _facts(setting) for setting in found}})
        return
    lines = [(_assignment(setting), _remark(setting)) for setting in found]
    width = min(max(len(text) for text, _ in lines), 40)
    print(f"[{'.'.join(called)}]")
    for text, remark in lines:
        print(f"{text:<{width}}  # {remark}")


def _asked(words: list[str], options: list[str]) -> tuple[list[str], list[EffectiveSetting]]:
    """Return the words that name a command, and its settings.

    words: words after `ooc`.
    options: additional options.
    """
    command, context, called = commands(*words[:2]), None, ["ooc"]
    while hasattr(command, "commands"):
        context = command.context_class(command, info_name=called[-1], parent=context)
        if not words:
            raise RequestError(
                f"{context.command_path}: missing command", f"Choose one of: {', '.join(command.commands)}."
            )
        name, command, words = command.resolve_command(context, words)
        called.append(name)
    return called[1:], settings(command, called[-1], [*options, *words], context)


def _facts(setting: EffectiveSetting) -> dict[str, Any]:
    return {"value": _plain(setting.value), "source": setting.source, "where": setting.where or None}


def _assignment(setting: EffectiveSetting) -> str:
    """Return a setting as a line of TOML; the line is a comment if the setting has no value."""
    from ooc.runs.start_command import toml

    return f"# {setting.name} =" if setting.value is None else f"{setting.name} = {toml(_plain(setting.value))}"


def _remark(setting: EffectiveSetting) -> str:
    """Return a comment with the source of a value, or with the default behaviour if there is no value."""
    if setting.value is not None or setting.source != "default":
        return setting.where or setting.source
    told = re.search(r"\[default: (.+)\]", getattr(setting.parameter, "help", None) or "")
    return f"default: {told[1]}" if told else "not given"


def _plain(value: Any) -> Any:
    """Return paths as strings, and other values unchanged."""
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value
