"""Supervise a rank: end it and its workers when standard input closes or the launcher is silent for too long.

The supervisor does nothing but watch its child process, so it reacts even while the child computes, hangs or is
stopped. Lines on its standard input: `"stop"` interrupts the child, `"end"` kills the child and its workers, and an
empty line is a heartbeat; all other lines are forwarded to the child's standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time

STOP, END, ALIVE = b'"stop"\n', b'"end"\n', b"\n"
SILENCE = 60.0  # seconds without a heartbeat after which the launcher counts as gone
GRACE = 10.0  # seconds for the child to end by itself when the launcher is gone
LONGEST = 1 << 20  # maximum bytes of a line
_GLANCE = 0.1  # seconds between polls
_ENDED_BY_PARENT = 1  # PR_SET_PDEATHSIG


def become_supervised() -> None:
    """Continue in a new process with its own process group, and turn the calling process into its supervisor.

    The supervisor exits with the child's exit code. This function must be called before any thread is started.
    """
    reading, writing = os.pipe()
    supervisor = os.getpid()
    child = os.fork()
    with contextlib.suppress(PermissionError):
        os.setpgid(child, child)  # both processes call this, as either may be first
    if child:
        os.close(reading)
        os._exit(ProcessSupervisor(child, writing).watch())
    os.dup2(reading, 0)
    os.close(reading)
    os.close(writing)
    with contextlib.suppress(AttributeError):  # not available outside Linux, where the supervisor must not be killed
        ctypes.CDLL(None).prctl(_ENDED_BY_PARENT, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)


class ProcessSupervisor:
    """Supervisor of one child process.

    child: process id of the child.
    writing: file descriptor of the pipe to the child's standard input.
    """

    def __init__(self, child: int, writing: int) -> None:
        self._child, self._writing = child, writing
        self._line = b""
        self._heard = time.monotonic()
        self._until = float("inf")

    def watch(self) -> int:
        """Wait until the child ends; returns its exit code, or 128 plus the signal if a signal killed it."""
        for interrupting in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(interrupting, lambda *_: self._give_up())
        while True:
            ended, status = os.waitpid(self._child, os.WNOHANG)
            if ended:
                break
            self._look()
        self._kill()  # kill its remaining workers
        code = os.waitstatus_to_exitcode(status)
        return 128 - code if code < 0 else code

    def _look(self) -> None:
        if self._until < float("inf"):
            time.sleep(_GLANCE)
        elif select.select([0], [], [], _GLANCE)[0]:
            self._heard = time.monotonic()
            data = os.read(0, 1 << 16)
            self._line += data
            if not data or len(self._line) > LONGEST:
                self._give_up()
            while b"\n" in self._line:
                line, _, self._line = self._line.partition(b"\n")
                self._obey(line + b"\n")
        elif time.monotonic() - self._heard > SILENCE:
            self._give_up()
        if time.monotonic() > self._until:
            self._kill()

    def _obey(self, line: bytes) -> None:
        if line == STOP:
            self._interrupt()
        elif line == END:
            self._kill()
        elif line != ALIVE:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._writing, line)

    def _give_up(self) -> None:
        """Interrupt the child because the launcher is gone; it will be killed after GRACE seconds."""
        if self._until == float("inf"):
            self._until = time.monotonic() + GRACE
            self._interrupt()

    def _interrupt(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGINT)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child, signal.SIGKILL)
