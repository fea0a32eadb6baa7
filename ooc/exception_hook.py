"""Show uncaught errors in scripts without a traceback: message, line of the script, and remedy."""

from __future__ import annotations

import sys
import traceback
from itertools import takewhile
from pathlib import Path
from types import TracebackType

_ROOT = Path(__file__).parents[1]
_OURS = tuple(str(_ROOT / name) + "/" for name in ("blocks", "ooc", "samplers"))


def install_exception_hook() -> None:
    """Show errors of ooc without a traceback, unless another hook is installed."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _tell


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    from blocks import stderr
    from blocks.errors import OocError

    if not isinstance(error, OocError):
        sys.__excepthook__(kind, error, trace)
        return
    script = list(takewhile(lambda frame: not frame.filename.startswith(_OURS), traceback.extract_tb(trace)))
    where = f"{script[-1].filename}, line {script[-1].lineno}" if script else ""
    stderr.print_error(error.what, error.remedy, traceback=where)
