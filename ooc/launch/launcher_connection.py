"""A rank's side of `ooc launch`: JSON lines to and from the launcher, and output streams forwarded to it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from blocks.errors import Interrupted
from ooc.launch.remote_rank import pack_json_line
from ooc.launch.supervisor import LONGEST


class LauncherConnection:
    """Connection of a rank to its launcher over standard input and output.

    Other output of the process is redirected to standard error.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._out = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def receive(self) -> dict[str, Any]:
        """Wait for a message from the launcher.

        Raises Interrupted if the launcher is gone.
        """
        line = sys.stdin.buffer.readline(LONGEST)
        if not line:
            raise Interrupted("the launcher has exited or is unreachable")
        return json.loads(line)

    def send(self, **message: Any) -> None:
        """Send a message to the launcher; does nothing if the launcher is gone."""
        with self._lock, contextlib.suppress(OSError):
            self._out.write(pack_json_line(message))
            self._out.flush()


class RelayedOutput(io.TextIOBase):
    """Text stream whose content the launcher prints on its standard output."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def write(self, text: str) -> int:
        for first in range(0, len(text), LONGEST // 16):
            self._tell(text[first : first + LONGEST // 16])
        return len(text)


class RelayedErrorStream(io.TextIOBase):
    """Standard error stream of a rank whose progress bar is drawn on the launcher's terminal."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._log = tell, sys.stderr

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text.startswith("\r"):
            self._tell(text)
        elif text:
            self._log.write(text)
            self._log.flush()
        return len(text)
