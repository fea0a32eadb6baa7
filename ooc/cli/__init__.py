"""Entry point of the command line; sets everything that must be set before numpy, numba and commands are imported."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

from blocks import interpreters
from blocks.errors import RequestError
from blocks.workers import start_first_interpreter

_DESIGNS = {"svmlight", "mtx", "npz", "plink"}


def main() -> NoReturn:
    """Run the command given in `sys.argv`."""
    _use_utf8()
    _open_standard_streams()
    interpreters.ours = True
    if sys.argv[1:2] == ["ingest"] and not {"synthetic", "--by-rows", "--help"} & set(sys.argv) and _says_text():
        with suppress(RequestError):  # errors are reported when workers are needed
            start_first_interpreter(f"blocks.{_kind(sys.argv[2:])}.worker:load")
    from ooc.cli.app import run

    run()


def _use_utf8() -> None:
    """Restart Python in UTF-8 mode if the locale is C and PYTHONUTF8=0 disables this mode.

    Otherwise, file names would be limited to ASCII, also in workers, and many words could not be printed.
    """
    if sys.getfilesystemencoding() == "ascii" and "utf8" not in sys._xoptions:
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def _open_standard_streams() -> None:
    """Open closed standard streams on /dev/null, so that no data file gets file descriptor 0, 1 or 2.

    `sys.stdin` stays None, so that a command that reads it can report that standard input is closed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free descriptor
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8")  # noqa: SIM115


def _says_text() -> bool:
    """Return whether messages are text: this module only prints notices in this log format."""
    return "OOC_LOG_FORMAT" not in os.environ and not any(word.startswith("--log-format") for word in sys.argv)


def _kind(arguments: list[str]) -> str:
    """Return the kind of dataset that an `ooc ingest` command creates."""
    if arguments[:1] == ["ratings"]:
        return "ratings"
    has_target = any(argument.partition("=")[0] == "--target" for argument in arguments)
    return "design" if has_target or _DESIGNS & set(arguments[:1]) else "corpus"
