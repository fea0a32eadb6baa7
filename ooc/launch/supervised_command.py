"""Run an ooc command in a process that ends when the calling process does; see `ooc.launch.supervisor`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ooc.launch.supervisor import ALIVE, STOP

BEAT = 1.0  # seconds between heartbeats
_START = (
    "import sys; from ooc.launch.supervisor import become_supervised; become_supervised()\n"
    "from ooc.cli import main; sys.argv[0] = 'ooc'; main()"
)


def run_supervised(
    arguments: Sequence[str],
    *,
    started: Callable[[subprocess.Popen[str]], None] = lambda process: None,
    is_stopped: Callable[[], bool] = lambda: False,
    **options: Any,
) -> int:
    """Run `ooc` with arguments until it ends; returns its exit code, 128 plus the signal if a signal killed it.

    Ctrl-C, or `is_stopped` returning True, interrupts the command, which then saves its state; a second Ctrl-C ends it.
    started: function called with the process.
    options: keyword arguments of subprocess.Popen.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _START, *arguments],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C must reach only this process
        text=True,
        **options,
    )
    assert process.stdin
    stopping = False
    try:
        started(process)
        while True:
            try:
                stops = not stopping and is_stopped()
                _tell(process, STOP if stops else ALIVE)
                stopping |= stops
                code = process.wait(BEAT)
                return 128 - code if code < 0 else code
            except subprocess.TimeoutExpired:
                continue
            except KeyboardInterrupt:
                if stopping:
                    raise
                stopping = True
                _tell(process, STOP)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # interrupts a running command, which is killed after `supervisor.GRACE`
        process.wait()


def _tell(process: subprocess.Popen[str], line: bytes) -> None:
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line.decode())
        process.stdin.flush()
