"""The options of a command from their description, see `samplers.options`: what it takes, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_origin

import typer

from cli.console import be_quiet, one_of
from samplers.options import Described, described

Command = TypeVar("Command", bound=Callable[..., None])
Kind = TypeVar("Kind")

_CALLBACKS = {"quiet": be_quiet}


def takes(*parameters: Parameter) -> Callable[[Command], Command]:
    """Let a command, a function of keywords, take parameters; help shows them in this order."""

    def decorate(command: Command) -> Command:
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def on_ring(command: Command) -> Command:
    """Let a command run on several machines: `ooc launch` takes it."""
    command.on_ring = True  # type: ignore[attr-defined]
    return command


def parameter(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    """An argument or option of a command. annotation: of typer."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def options(*kinds: type, names: Collection[str] = ()) -> list[Parameter]:
    """The options that the fields of classes describe, or some of them, but for those of Python alone."""
    found = (each for kind in kinds for each in described(kind).values())
    return [_option(each) for each in found if each.option.help and (not names or each.field in names)]


def _option(each: Described) -> Parameter:
    option, kind, default = each.option, each.type, each.default
    if option.read:
        kind = str
    elif get_origin(kind) is Sequence:
        kind, default = list[str], None
    switch = f"--{each.name}/--no-{each.name}" if kind is bool and default is not False else f"--{each.name}"
    flags = option.flags or (switch,)
    more: dict[str, Any] = {"min": option.least, "max": option.most, "callback": _CALLBACKS.get(each.field)}
    more = {name: value for name, value in more.items() if value is not None}
    if option.choices:
        declared = one_of(option.choices, option.help, *flags, **more)
    else:
        declared = typer.Option(*flags, metavar=option.metavar, help=option.help, **more)
    annotation = Annotated[kind | None if default is None else kind, declared]  # type: ignore[valid-type]
    return parameter(each.field, annotation, Parameter.empty if each.is_required else default)


def read(kind: type[Kind], given: Mapping[str, Any], place: Callable[[Path], Path] = Path) -> Kind:
    """The options of a class from the parameters of a command. place: makes a path that of this machine."""
    known = [each for each in described(kind).values() if each.field in given]
    return kind(**{each.field: _value(each, given[each.field], place) for each in known})


def _value(each: Described, value: Any, place: Callable[[Path], Path]) -> Any:
    if value is None or value == []:
        return each.default
    if each.option.read and isinstance(value, str):
        return each.option.read(value, f"--{each.name}") if value else None
    return place(value) if isinstance(value, Path) else value
