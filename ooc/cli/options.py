"""Create the parameters of commands from the option descriptions in `samplers.options`, and read their values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, update_wrapper
from inspect import Parameter, Signature
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_origin

import typer

from ooc.cli.console import be_quiet, choice_option
from samplers.options import DescribedField, Options, described

Kind = TypeVar("Kind")

METAVARS: dict[Any, str] = {int: "N", float: "FLOAT", Path: "PATH", str: "TEXT", list[str]: "TEXT"}
_CALLBACKS = {"quiet": be_quiet}


class DescribedCommand:
    """A command: a function that takes keyword arguments, and its parameters in the order of the help.

    Parameters are created on demand, as most commands are not called.

    on_ring: whether `ooc launch` accepts the command.
    kind: class of the training options.
    """

    __name__: str
    on_ring = False
    kind: type[Options] | None = None

    def __init__(self, function: Callable[..., None], parameters: Sequence[Parameter | Iterator[Parameter]]) -> None:
        update_wrapper(self, function)
        self.__annotations__ = {}  # `__signature__` has them; since Python 3.14, the class's would be found
        self._function, self._parameters = function, parameters

    @cached_property
    def __signature__(self) -> Signature:
        several = ([each] if isinstance(each, Parameter) else each for each in self._parameters)
        return Signature([*chain.from_iterable(several)])

    def __call__(self, **given: Any) -> None:
        self._function(**given)


def takes(*parameters: Parameter | Iterator[Parameter]) -> Callable[[Callable[..., None]], DescribedCommand]:
    """Return a decorator that turns a function into a command with these parameters."""
    return lambda function: DescribedCommand(function, parameters)


def on_ring(command: DescribedCommand) -> DescribedCommand:
    """Allow a command to run on several machines."""
    command.on_ring = True
    return command


def parameter(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    """Return an argument or option of a command.

    annotation: type annotation for typer.
    """
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def options(*kinds: type, names: Collection[str] = ()) -> Iterator[Parameter]:
    """Yield the options described by the fields of classes, except those for Python only.

    names: names of the options to yield; all by default.
    """
    for kind in kinds:
        for each in described(kind).values():
            if each.option.help and (not names or each.field in names):
                yield _option(each, each.option.group or getattr(kind, "group", None))


def _option(each: DescribedField, group: str | None) -> Parameter:
    option, kind, default = each.option, each.type, each.default
    if option.read:
        kind = str
    elif get_origin(kind) is Sequence:
        kind, default = list[str], None
    switch = f"--{each.name}/--no-{each.name}" if kind is bool and default is not False else f"--{each.name}"
    flags = option.flags or (switch,)
    more: dict[str, Any] = {"min": option.least, "max": option.most, "callback": _CALLBACKS.get(each.field)}
    more = {name: value for name, value in (more | {"rich_help_panel": group}).items() if value is not None}
    if option.choices:
        declared = choice_option(option.choices, option.help, *flags, **more)
    else:
        declared = typer.Option(*flags, metavar=option.metavar or METAVARS.get(kind), help=option.help, **more)
    annotation = Annotated[kind | None if default is None else kind, declared]  # type: ignore[valid-type]
    return parameter(each.field, annotation, Parameter.empty if each.is_required else default)


def read(kind: type[Kind], given: Mapping[str, Any], place: Callable[[Path], Path] = Path) -> Kind:
    """Return an options object from the parameters of a command.

    place: function that localizes a path to this rank.
    """
    known = [each for each in described(kind).values() if each.field in given]
    return kind(**{each.field: _value(each, given[each.field], place) for each in known})


def _value(each: DescribedField, value: Any, place: Callable[[Path], Path]) -> Any:
    if value is None or value == []:
        return each.default
    if each.option.read and isinstance(value, str):
        return each.option.read(value, f"--{each.name}") if value else None
    return place(value) if isinstance(value, Path) else value
