"""What all commands can do besides their own work.

Command     `--quiet`; a training notes its options in the run
Configured  also `--config FILE.toml`, which holds options by their names
Training    also `--watch`
Commands    those that there are
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from blocks.errors import Interrupted
from cli import console

_NOT_NOTED = ("overwrite", "quiet", "json", "watch", "transport")  # how it is told and begun, not what it is


class Command(TyperCommand):
    """A command of ooc."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for param in self.params:
            if param.param_type_name == "argument" and param.metavar is None:
                param.metavar = str(param.name).upper()
        if all(param.name != "quiet" for param in self.params):
            self.params += _parameters(_quiet)

    def invoke(self, ctx: Any) -> Any:
        try:
            return self._invoke(ctx)
        except Interrupted as stopped:
            if ctx.params.get("json") and stopped.facts:
                console.print_json(stopped.facts)
            raise
        except BrokenPipeError as error:  # typer would exit with 1
            raise console.BrokenPipe from error

    def _invoke(self, ctx: Any) -> Any:
        words = (self.name if self.name and " " in self.name else ctx.command_path).split()  # "train lda", of a rank
        if "train" not in words:
            return super().invoke(ctx)
        from ooc.beginning import begun_by

        noted = {
            name: ctx.params[param.name]
            for name, param in options_of(self).items()
            if name not in _NOT_NOTED and param.name in ctx.params
        }
        with begun_by(" ".join(words[words.index("train") :]), noted):
            return super().invoke(ctx)


class Configured(Command):
    """A command whose options can come from a file; those of the command line count before them."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params += _parameters(_config)


class Training(Configured):
    """A command that trains a run."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params += _parameters(_watch)

    def invoke(self, ctx: Any) -> Any:
        if not ctx.params.pop("watch"):
            return super().invoke(ctx)
        from blocks.errors import RequestError
        from cli.watch import watching

        if ctx.params.get("transport"):
            raise RequestError("--watch is for one machine", "Look at a rank's run with: ooc watch RUN")
        ctx.params["quiet"] = True
        result = io.StringIO()
        try:
            with redirect_stdout(result), watching(ctx.params["run"]):
                return super().invoke(ctx)
        finally:
            print(result.getvalue(), end="")  # once the picture stands still


class Commands(TyperGroup):
    """Groups of commands come first: data and models are what all else is about."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=lambda name: not hasattr(self.commands[name], "commands"))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:  # one that is hidden is not what was meant
            self.commands = {name: command for name, command in self.commands.items() if not command.hidden}
        return super().resolve_command(ctx, args)


@cache
def _parameters(function: Callable[..., None]) -> tuple[Any, ...]:
    """Those that a function declares, but for --help."""
    app = typer.Typer(add_completion=False)
    app.command()(function)
    return tuple(get_command(app).params)


def options_of(command: Any) -> dict[str, Any]:
    """The options of a command by their names, as `evaluate-every`."""
    options = (param for param in command.params if param.param_type_name == "option")
    return {max(param.opts, key=len).lstrip("-"): param for param in options}


def _read_config(ctx: typer.Context, value: Path | None) -> None:
    if value is not None:
        from cli.config import read_config

        ctx.default_map = read_config(value, options_of(ctx.command))


def _quiet(
    quiet: Annotated[
        bool, typer.Option("--quiet", help=console.QUIET, callback=console.be_quiet, expose_value=False)
    ] = False,
) -> None: ...


def _config(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Options in a file, as lines topics = 100; those given here count before them.",
            callback=_read_config,
            is_eager=True,
            expose_value=False,
        ),
    ] = None,
) -> None: ...


def _watch(
    watch: Annotated[
        bool, typer.Option("--watch", help="Show live how it goes, in place of plan and progress bar.")
    ] = False,
) -> None: ...
