"""Options, progress bars and output functions shared by commands."""

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


def choice_option(names: str, help: str, *flags: str, **more: Any) -> Any:
    """Return an option whose value is one of several names, shown as a|b|c; a name in upper case stands for any
    value.
    """
    known = [name for name in names.split("|") if name.islower()]

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return typer.Option(*flags, metavar=names, help=help, autocompletion=complete, **more)


QUIET = "Print only results, warnings and errors."
quiet = False  # set by `--quiet`: do not print progress, summaries and notes
_told_on_error = False  # whether standard output is reserved for the result of the command


def be_quiet(value: bool) -> bool:
    """Handle `--quiet`."""
    global quiet  # noqa: PLW0603  (it applies to the whole command)
    quiet = value
    return value


def use_log_format(value: str | None) -> str | None:
    """Handle `--log-format`."""
    if value is not None:
        stderr.set_log_format(value)
    return value


def print_line(text: str) -> None:
    """Print a line about finished work where `show` prints results, unless --quiet is given."""
    if not quiet:
        show(text)


def show(text: str) -> None:
    """Print a result on standard output, or on standard error if a file or table is written to standard output."""
    stderr.print_note(text) if _told_on_error else print(text)


def keep_standard_output() -> None:
    """Reserve standard output for the result of the command, as OUT is `-` or a pipe."""
    global _told_on_error  # noqa: PLW0603  (it applies to the whole command)
    _told_on_error = True


def note(text: str) -> None:
    """Print a note about finished work on standard error, also with --json, but not with --quiet."""
    if not quiet:
        stderr.print_note(text)


def progress_bar(what: str, total: int | None, unit: str) -> Any:
    """Return a progress bar on standard error; it prints a line every minute if this is not a terminal."""
    from blocks.progress_bar import ProgressBar

    return ProgressBar(what, total, unit, quiet=quiet)


def print_json(content: Any) -> None:
    """Print a JSON document on standard output, as `json_text` formats it."""
    from blocks.json_files import json_text

    print(json_text(content, indent=1))


_CONTROLS = [*range(9), *range(11, 32), *range(127, 160)]  # except tabs and line feeds
_DIRECTIONS = [0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]  # text direction, line separators
_SHOWN = {code: ascii(chr(code))[1:-1] for code in _CONTROLS + _DIRECTIONS}


def visible(text: str) -> str:
    """Return a text with control characters escaped, such as \\x1b, as words and file names may be untrusted."""
    return text.translate(_SHOWN)


class EscapingTerminal(io.TextIOWrapper):
    """Terminal stream that escapes control characters, except the carriage return that starts a progress bar."""

    def write(self, text: str) -> int:
        start = text[: text.startswith("\r")]
        return super().write(start + visible(text[len(start) :]))


def prepare_output() -> None:
    """Make standard output and standard error print any text, by escaping the characters that they cannot encode.

    Streams that are terminals are wrapped as `EscapingTerminal`; `sys.__stdout__` stays the original stream.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
        if isinstance(stream, io.TextIOWrapper) and stream.isatty():
            setattr(sys, name, EscapingTerminal(stream.buffer, stream.encoding, stream.errors, line_buffering=True))


class OutputPipeClosed(Exception):
    """A pipe, usually standard output, no longer has a reader."""


class ExplainedError(NamedTuple):
    """A failure as the user sees it."""

    what: str
    remedy: str
    code: int


def explain_error(error: BaseException) -> ExplainedError:
    """Return the message, the remedy and the exit code of an error."""
    if isinstance(error, OocError):
        return ExplainedError(error.what, error.remedy, error.exit_code)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = error.filename or "standard output or a temporary file"
        return ExplainedError(f"{where}: the disk is full", "Free some disk space, then run the same command again.", 1)
    if lack := out_of_memory(error):
        return ExplainedError(lack.what, lack.remedy, lack.exit_code)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return ExplainedError("interrupted", "", 130)
    if (told := getattr(error, "format_message", None)) is not None:  # unknown options and the like
        meant = getattr(error, "possibilities", None)
        said: str = error.message  # type: ignore[attr-defined]
        what = f"{said}; did you mean {' or '.join(meant)}?" if meant and "Did you mean" not in said else told()
        return ExplainedError(what, f"Try: {_help_command(error)}", 2)
    return ExplainedError(
        f"{type(error).__name__}: {error}", "This is a bug in ooc; `ooc --debug ...` shows the traceback.", 1
    )


def _help_command(error: BaseException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'ooc'} --help"
