"""What the commands share: options that mean the same everywhere, progress bars, JSON."""

from __future__ import annotations

import errno
import io
import sys
from inspect import Parameter
from typing import Annotated, Any, NamedTuple

import typer

from blocks import stderr
from blocks.errors import OocError, out_of_memory
from samplers.options import GENERAL, OUTPUT, RESOURCES

Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Number of worker processes [default: all cores, or the CPU quota].",
        rich_help_panel=RESOURCES,
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the output if it exists.", rich_help_panel=OUTPUT)
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=GENERAL)]
JSON = Parameter("json", Parameter.KEYWORD_ONLY, default=False, annotation=Json)


def one_of(names: str, help: str, *flags: str, **more: Any) -> Any:
    """An option that takes one of some names, as a|b|c, which the shell completes; one in capitals stands for any."""
    known = [name for name in names.split("|") if name.islower()]

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return typer.Option(*flags, metavar=names, help=help, autocompletion=complete, **more)


QUIET = "Print only results, warnings and errors."
quiet = False  # set by `--quiet`: progress, summaries and notes are not printed
_told_on_error = False  # set where standard output is what the command makes


def be_quiet(value: bool) -> bool:
    """The callback of `--quiet`."""
    global quiet  # noqa: PLW0603  (all of the command is)
    quiet = value
    return value


def use_log_format(value: str | None) -> str | None:
    """The callback of `--log-format`."""
    if value is not None:
        stderr.use_format(value)
    return value


def say(text: str) -> None:
    """Tell on standard output what was done, unless `--quiet`; what was asked for is printed, and not said.

    Where standard output is what the command makes, it is told on standard error.
    """
    if not quiet:
        stderr.note(text) if _told_on_error else print(text)


def keep_standard_output() -> None:
    """Have standard output for what the command makes, OUT being `-` or a pipe."""
    global _told_on_error  # noqa: PLW0603  (all of the command is)
    _told_on_error = True


def note(text: str) -> None:
    """Tell on standard error what a user should know of what was done, unless `--quiet`; `--json` has it, too."""
    if not quiet:
        stderr.note(text)


def progress_bar(what: str, total: int | None, unit: str) -> Any:
    """A bar on standard error; a line a minute if that is not a terminal."""
    from blocks.progress_bar import ProgressBar

    return ProgressBar(what, total, unit, quiet=quiet)


def print_json(content: Any) -> None:
    """Print one JSON document on standard output, as `json_text` writes it."""
    from blocks.json_files import json_text

    print(json_text(content, indent=1))


_CONTROLS = [*range(9), *range(11, 32), *range(127, 160)]  # but for the ends of lines and tabulators
_DIRECTIONS = [0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]  # of writing, and separators of lines
_SHOWN = {code: ascii(chr(code))[1:-1] for code in _CONTROLS + _DIRECTIONS}


def visible(text: str) -> str:
    """A text in which characters that a terminal would obey are seen, as \\x1b: it may have words and names of files
    from anywhere."""
    return text.translate(_SHOWN)


class Terminal(io.TextIOWrapper):
    """A stream to a terminal: all that is written is `visible`, but for the return with which a progress bar begins."""

    def write(self, text: str) -> int:
        start = text[: text.startswith("\r")]
        return super().write(start + visible(text[len(start) :]))


def prepare_output() -> None:
    """Let standard output and standard error print any text: what they cannot encode is escaped.

    If they are a terminal they become a `Terminal`; `sys.__stdout__` is still what it was.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
        if isinstance(stream, io.TextIOWrapper) and stream.isatty():
            setattr(sys, name, Terminal(stream.buffer, stream.encoding, stream.errors, line_buffering=True))


class BrokenPipe(Exception):
    """A pipe, most likely standard output, has lost its reader."""


class Explained(NamedTuple):
    """A failure as the user is told of it."""

    what: str
    remedy: str
    code: int


def explained(error: BaseException) -> Explained:
    """A line that says what, one that says what to do, and an exit code."""
    if isinstance(error, OocError):
        return Explained(error.what, error.remedy, error.exit_code)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = error.filename or "standard output or a temporary file"
        return Explained(f"{where}: the disk is full", "Free some disk space, then run the same command again.", 1)
    if lack := out_of_memory(error):
        return Explained(lack.what, lack.remedy, lack.exit_code)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return Explained("interrupted", "", 130)
    if (told := getattr(error, "format_message", None)) is not None:  # unknown options and the like
        meant = getattr(error, "possibilities", None)
        said: str = error.message  # type: ignore[attr-defined]
        what = f"{said}; did you mean {' or '.join(meant)}?" if meant and "Did you mean" not in said else told()
        return Explained(what, f"Try: {_help_command(error)}", 2)
    return Explained(
        f"{type(error).__name__}: {error}", "This is a bug in ooc; `ooc --debug ...` shows the traceback.", 1
    )


def _help_command(error: BaseException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'ooc'} --help"
