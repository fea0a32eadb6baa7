"""The command line. What takes long to start is started here, before the command line itself is imported."""

from __future__ import annotations

import sys
from typing import NoReturn

from blocks.workers import start_ahead


def main() -> NoReturn:
    """Run the command that `sys.argv` asks for."""
    if sys.argv[1:2] == ["ingest"] and not {"synthetic", "--help"} & set(sys.argv):
        start_ahead(f"blocks.{'ratings' if sys.argv[2:3] == ['ratings'] else 'corpus'}.worker:load")
    from cli.app import run

    run()
