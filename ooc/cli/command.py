"""Features that all commands share.

Command          `--quiet`, `--log-format`, `--config FILE.toml`, options from environment variables, and
                 `--skip-existing` for commands with an output; `ooc train` stores its options in the run
TrainingCommand  also `--watch`, `--metrics-file` and `--resume`
Commands         the group of all commands

The value of an option comes from the first of these that sets it: command line, environment variable OOC_..., config
file, default.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from blocks.errors import Interrupted, OocError, RequestError
from ooc.cli import console
from ooc.cli.help import in_order, usage_of, write_commands, write_options
from ooc.cli.variables import variable
from samplers.options import GENERAL, OUTPUT

_TABLES = ("csv", "assignments", "documents")  # options whose value is a table to write, in some commands
_NOT_NOTED = {  # options that only affect how a run is started and reported
    *("overwrite", "resume", "quiet", "json", "watch", "transport"),
    *("rendezvous", "key-file", "ring-rank", "ring-size", "join-timeout", "patience", "ports"),
}
TYPED_ONLY = ("program", "ssh-config", "trust-pickle")  # these let other code run: no file or variable may set them


class OocCommand(TyperCommand):
    """A command of ooc."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for param in self.params:
            if param.param_type_name == "argument" and param.metavar is None:
                param.metavar = str(param.name).upper()
        if _makes_out(self.params):
            self.params += _parameters(_skip_existing)
        names = {param.name for param in self.params}
        self.params += [
            param
            for param in (*_parameters(_quiet), *_parameters(_config), *_parameters(_log_format))
            if param.name not in names
        ]
        _set_variables(self)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, grouped under headings."""
        write_options(self, ctx, formatter)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line."""
        return usage_of(super().collect_usage_pieces(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except OocError as error:
            error.what = _with_variables(ctx, error.what)
            raise
        except Exception as error:
            if (param := getattr(error, "param", None)) is not None:
                error.param_hint = _hint(ctx, param) or error.param_hint  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return self._invoke(ctx)
        except Interrupted as stopped:
            if ctx.params.get("json") and stopped.facts:
                console.print_json(stopped.facts)
            raise
        except OocError as error:
            error.what = _with_variables(ctx, error.what)
            raise
        except BrokenPipeError as error:  # typer would exit with 1
            raise console.OutputPipeClosed from error

    def _invoke(self, ctx: Any) -> Any:
        words, out = words_of(ctx), ctx.params.get("out")
        if ctx.params.pop("skip_existing", False) and _is_there(ctx):
            told = f"{out} already exists and is left unchanged"
            console.print_json({"path": str(out), "skipped": True}) if ctx.params["json"] else console.print_line(told)
            return None
        _keep_standard_output(ctx)
        if words[0] != "train":
            return super().invoke(ctx)
        from ooc.runs.start_command import record_command

        noted = {
            name: ctx.params[param.name]
            for name, param in command_options(self).items()
            if name not in _NOT_NOTED and param.name in ctx.params
        }
        resumes = ctx.params.pop("resume", False)
        if resumes and ctx.params["overwrite"]:
            raise RequestError(
                "--resume and --overwrite are mutually exclusive: one continues a run, the other replaces it",
                "Use only one of them.",
            )
        with record_command(" ".join(words), noted, resumes=resumes):
            return super().invoke(ctx)


class TrainingCommand(OocCommand):
    """A command that trains a run."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params += _parameters(_training)
        if any(param.name == "overwrite" for param in self.params):  # the command starts new runs
            self.params += _parameters(_resume)

    def invoke(self, ctx: Any) -> Any:
        watch, path = ctx.params.pop("watch"), ctx.params.pop("metrics_file")
        if path is None:
            return self._train(ctx, watch=watch)
        from ooc.runs.metrics_file import keep_metrics_file

        with keep_metrics_file(path):
            return self._train(ctx, watch=watch)

    def _train(self, ctx: Any, *, watch: bool) -> Any:
        if not watch:
            return super().invoke(ctx)
        from ooc.cli.watch import watching

        if ctx.params.get("transport") or ctx.params.get("rendezvous"):
            raise RequestError("--watch can only be used on one machine", "Watch the run of a rank with: ooc watch RUN")
        ctx.params["quiet"] = True
        result = io.StringIO()
        try:
            with redirect_stdout(result), watching(ctx.params["run"]):
                return super().invoke(ctx)
        finally:
            print(result.getvalue(), end="")  # after the last redraw


def _makes_out(params: list[Any]) -> bool:
    """Return whether a command has an argument OUT, the path of its output."""
    kinds = {param.name: param.param_type_name for param in params}
    return kinds.get("out") == "argument" and "overwrite" in kinds


def _is_there(ctx: Any) -> bool:
    """Return whether the output of a command already exists and will be neither replaced nor continued.

    An existing output is complete, because outputs are renamed into place.
    """
    from blocks.files import is_free

    for name in ("append", "overwrite", "rendezvous", "transport"):
        if ctx.params.get(name):
            raise RequestError(f"--skip-existing cannot be used with --{name}", "Use only one of them.")
    out = Path(ctx.params["out"])
    return (out.is_file() or out.is_dir()) and not is_free(out)


def _keep_standard_output(ctx: Any) -> None:
    """Move messages to standard error if OUT or a table is written to standard output, or OUT to a pipe."""
    out = ctx.params.get("out")
    piped = ["OUT"] if str(out) == "-" else []
    piped += [f"--{name}" for name in _TABLES if str(ctx.params.get(name)) == "-"]
    if piped and ctx.params.get("json"):
        raise RequestError(f"--json and {piped[0]} - both write to standard output", "Use only one of them.")
    if piped or (out is not None and _is_stream(Path(out))):
        console.keep_standard_output()


def _is_stream(out: Path) -> bool:
    """Return whether the output goes to standard output or a pipe."""
    if not out.exists() or out.is_file() or out.is_dir():
        return False
    from blocks.outputs import is_passed_on

    return is_passed_on(out)


class OocCommandGroup(TyperGroup):
    """All commands, in sections by subject."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return in_order(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, grouped by section."""
        write_commands(self.commands, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:  # do not suggest hidden commands
            self.commands = {name: command for name, command in self.commands.items() if not command.hidden}
        return super().resolve_command(ctx, args)


CONFIG = "Read options from a TOML file, with lines such as topics = 100; options on the command line take precedence."


@cache
def _parameters(function: Callable[..., None]) -> tuple[Any, ...]:
    """Return the parameters that a function declares, without --help."""
    app = typer.Typer(add_completion=False)
    app.command()(function)
    command = get_command(app)
    _set_variables(command)
    return tuple(command.params)


def _set_variables(command: Any) -> None:
    """Give every option of a command an environment variable.

    The help does not list these variables, which would double its length.
    """
    for name, param in command_parameters(command).items():
        param.show_envvar = False
        if param.param_type_name == "option":
            param.envvar = None if name in TYPED_ONLY else variable(name)
        elif param.nargs == -1:
            param.envvar = []  # no variable; before click 8.3, None would keep the argument from being read from a file


def command_options(command: Any) -> dict[str, Any]:
    """Return the options of a command by name, such as `evaluate-every`."""
    options = (param for param in command.params if param.param_type_name == "option")
    return {max(param.opts, key=len).lstrip("-"): param for param in options}


def command_parameters(command: Any) -> dict[str, Any]:
    """Return the arguments and options of a command by their names in a config file."""
    arguments = (param for param in command.params if param.param_type_name == "argument")
    return {param.name.replace("_", "-"): param for param in arguments} | command_options(command)


def words_of(ctx: Any) -> tuple[str, ...]:
    """Return the words that invoke a command, such as ("train", "lda")."""
    above = words_of(ctx.parent) if ctx.parent and ctx.parent.parent else ()
    return (*above, *ctx.command.name.split())  # the name of a command that a rank runs has two words


def parameter_source(ctx: Any, name: str) -> str:
    """Return the source of a parameter's value: COMMANDLINE, ENVIRONMENT, DEFAULT_MAP (the config file) or DEFAULT."""
    source = ctx.get_parameter_source(name)
    return source.name if source else "DEFAULT"


def is_overruled(ctx: Any, name: str, by: str) -> bool:
    """Return whether the source of the parameter `by` takes precedence over the source of the parameter `name`.

    For example, the command line takes precedence over a config file.
    """
    order = ("COMMANDLINE", "ENVIRONMENT", "DEFAULT_MAP", "DEFAULT")
    return order.index(parameter_source(ctx, by)) < order.index(parameter_source(ctx, name))


def _hint(ctx: Any, param: Any) -> str | None:
    """Return the name of a parameter for an error message; None to use click's own hint."""
    if (source := parameter_source(ctx, param.name)) == "ENVIRONMENT":
        return str(param.envvar)
    return f"'{max(param.opts, key=len)}' in {ctx.obj[param.name].where}" if source == "DEFAULT_MAP" else None


def _with_variables(ctx: Any, text: str) -> str:
    """Return a message in which each option set by an environment variable is replaced with the variable's name."""
    for name, option in command_options(ctx.command).items():
        if parameter_source(ctx, option.name) == "ENVIRONMENT":
            text = re.sub(rf"--{name}(?![\w-])", option.envvar, text)
    return text


def _read_config(ctx: typer.Context, param: typer.CallbackParam, value: Path | None) -> Path | None:
    if value is not None:
        from ooc.cli.config import read_config

        shared = parameter_source(ctx, param.name) == "ENVIRONMENT"
        ctx.obj = read_config(value, words_of(ctx), command_parameters(ctx.command), shared=shared)
        ctx.default_map = {name: found.value for name, found in ctx.obj.items()}
    return value


def _quiet(
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", help=console.QUIET, callback=console.be_quiet, expose_value=False, rich_help_panel=GENERAL
        ),
    ] = False,
) -> None: ...


def _config(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help=CONFIG,
            callback=_read_config,
            is_eager=True,
            expose_value=False,
            rich_help_panel=GENERAL,
        ),
    ] = None,
) -> None: ...


def _resume(
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the run if RUN exists and was started with the same options; otherwise, start it.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
) -> None: ...


def _skip_existing(
    skip_existing: Annotated[
        bool,
        typer.Option(
            "--skip-existing",
            help="Do nothing if OUT exists; OUT is created only when it is complete.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
) -> None: ...


def _log_format(
    log_format: Annotated[
        str | None,
        console.choice_option(
            "text|json",
            "Format of messages and progress on standard error [default: text].",
            callback=console.use_log_format,
            expose_value=False,
            rich_help_panel=GENERAL,
        ),
    ] = None,
) -> None: ...


def _training(
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Show a live view of training.", rich_help_panel=OUTPUT),
    ] = False,
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Write the latest metrics to this file for Prometheus (textfile collector of node_exporter).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None: ...
