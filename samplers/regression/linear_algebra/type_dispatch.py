"""Dispatch functions on the type (a kind of NamedTuple) of one argument, in Python and in kernels."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from numba.extending import overload

Implementations = dict[type, Callable[..., Any]]
Options = Any  # options of `numba.njit`


def by_kind(name: str, *groups: tuple[Implementations, Options]) -> Callable[..., Any]:
    """Return a function that calls the implementation for the type of an argument.

    name: name of the argument.
    groups: implementations by type, and their compilation options.
    """
    every: Implementations = {kind: function for found, _ in groups for kind, function in found.items()}
    first = next(iter(every.values()))
    place = list(inspect.signature(first).parameters).index(name)

    @wraps(first)
    def call(*arguments: Any) -> Any:
        return every[type(arguments[place])](*arguments)

    call.__signature__ = inspect.signature(first)  # type: ignore[attr-defined]  # which numba compares
    for implementations, options in groups:
        _compile_by_kind(call, place, implementations, options)
    return call


def _compile_by_kind(
    function: Callable[..., Any], place: int, implementations: Implementations, options: Options
) -> None:
    """Let kernels that call the function compile the implementation for the type of their argument."""

    @overload(function, jit_options=options)
    @wraps(function)
    def choose(*types: Any) -> Callable[..., Any] | None:
        return implementations.get(types[place].instance_class)
