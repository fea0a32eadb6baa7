"""The command line. What takes long to start is started here, before the command line itself is imported."""

from __future__ import annotations

import sys
from typing import NoReturn

from blocks import interpreters
from blocks.workers import start_ahead

_DESIGNS = {"svmlight", "mtx", "npz", "plink"}


def main() -> NoReturn:
    """Run the command that `sys.argv` asks for."""
    interpreters.ours = True
    if sys.argv[1:2] == ["ingest"] and not {"synthetic", "--by-rows", "--help"} & set(sys.argv):
        start_ahead(f"blocks.{_kind(sys.argv[2:])}.worker:load")
    from cli.app import run

    run()


def _kind(arguments: list[str]) -> str:
    """Of the dataset that an ingestion makes."""
    if arguments[:1] == ["ratings"]:
        return "ratings"
    has_target = any(argument.partition("=")[0] == "--target" for argument in arguments)
    return "design" if has_target or _DESIGNS & set(arguments[:1]) else "corpus"
