"""The launcher's view of a rank on another machine: an ssh process with JSON lines in both directions."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from ooc.launch.hosts import HostsFileLine
from ooc.launch.ssh_connections import (
    LAST_WORDS,
    SharedConnection,
    SshOptions,
    kill_ssh,
    printable_text,
    start_ssh,
)
from ooc.launch.supervisor import LONGEST

_KILLING = 5.0  # seconds for a second ssh to kill processes that do not end
_NO_DIRECTORY = 121  # exit code of the remote shell if the directory does not exist
_NO_COMMAND = (126, 127)  # exit codes of a shell that cannot run or find a program
_LOST = 255  # exit code of ssh itself
_DROPPED = ("kex_exchange_identification", "Connection closed by", "Connection reset by")  # parts of ssh's messages
_SIGNALS = {each.value: each.name for each in signal.Signals}


def pack_json_line(message: Any) -> bytes:
    """Encode a message as one line of JSON."""
    return json.dumps(message).encode() + b"\n"


class RemoteRank:
    """The ssh process of one rank, from `start` on.

    Puts events into the queue `events`: (self, "here", None) when the connection is established, (self, "told", dict)
    for each message, (self, "log", str) for each line of text, and (self, "gone", None) when the process has ended.

    control: socket through which commands reach this ssh process; by default, it cannot be reached.
    shared: connection that the ssh process uses, if it is established; by default, the process has its own.
    """

    def __init__(
        self,
        rank: int,
        host: HostsFileLine,
        ssh: SshOptions,
        events: SimpleQueue[Any],
        *,
        control: Path | None = None,
        shared: SharedConnection | None = None,
    ) -> None:
        self.rank, self.host = rank, host
        self._control, self._shared = control, shared
        self.last_words = ""  # last line on standard error
        self.code: int | None = None  # exit code, once ssh has ended
        self.tries = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._ssh, self._events = ssh, events
        self._directory, self._python = host.directory or str(Path.cwd()), host.python or sys.executable
        places = _quoted(self._directory), _quoted(self._python)
        # The echo ends an unfinished line of the login shell's output.
        self._remote = f"echo; cd {places[0]} || exit {_NO_DIRECTORY}; exec {places[1]} -P -m ooc rank"

    def start(self, task: bytes) -> None:
        """Start ssh and send the task, a line of JSON."""
        self.tries += 1
        process = self._process = start_ssh(self._command(self._remote, opens=self._control))
        assert process.stdin and process.stdout and process.stderr
        os.set_blocking(process.stdin.fileno(), False)  # an ssh that does not read must not block the launcher
        readers = [
            threading.Thread(target=self._hear, args=[process.stdout], daemon=True),
            threading.Thread(target=self._log, args=[process.stderr], daemon=True),
        ]
        for thread in readers:
            thread.start()
        threading.Thread(target=self._wait, args=[process, readers], daemon=True).start()
        self.send(task)

    @property
    def name(self) -> str:
        return f"rank {self.rank} ({self.host.name})"

    def control_command(self, *words: str) -> list[str]:
        """Return the command that gives an order to the ssh process of this rank, such as -O forward."""
        return self._ssh.call(self.host, "-S", str(self._control), *words)

    def _command(self, remote: str, opens: Path | None = None) -> list[str]:
        return self._ssh.command(self.host, remote, opens=opens, uses=self._shared.socket if self._shared else None)

    def send(self, line: bytes) -> None:
        """Send a line to the rank; drops the line if the rank is gone or does not read."""
        if self._process and self._process.stdin:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), line)

    @property
    def was_dropped(self) -> bool:
        """Return whether sshd dropped the connection, as it may if many connections start at the same time."""
        return self.code == _LOST and any(words in self.last_words for words in _DROPPED)

    def ending(self, begun: bool) -> str:
        """Describe, for a message, an end without a report.

        begun: whether the rank had sent its description.
        """
        code, words = self.code or 0, f": {self.last_words}" if self.last_words else ""
        if code == _LOST:
            return f"{'lost its connection or was killed' if begun else 'could not be reached'}{words}"
        if code == _NO_DIRECTORY and not begun:
            return f"cannot change to the directory {self._directory}{words}"
        if code in _NO_COMMAND and not begun:
            return f"cannot run the Python {self._python}{words}"
        if code - 128 in _SIGNALS:
            return f"was killed by {_SIGNALS[code - 128]}"
        if -code in _SIGNALS:
            return f"lost its connection: its ssh process was killed by {_SIGNALS[-code]}"
        return f"ended with exit code {code}{words}"

    @property
    def is_lost(self) -> bool:
        """Return whether the rank ended because its connection broke or because a signal killed it."""
        return self.code == _LOST or (self.code or 0) - 128 in _SIGNALS

    @property
    def remedy(self) -> str:
        """Return the remedy for a rank that ended before it sent its description."""
        if self.code == _LOST:
            check = shlex.join([*self._ssh.call(self.host), "true"])
            return f"ssh must be able to log in without a password. Check with: {check}"
        if self.code == _NO_DIRECTORY:
            return "Create the directory on the host, or add another directory to the host's line of --hosts: dir=PATH"
        if self.code in _NO_COMMAND or "No module named" in self.last_words:
            return "Install the same ooc on the host, or add its Python to the host's line of --hosts: python=PATH"
        return ""

    def kill(self, group: int, supervisor: int) -> None:
        """Kill an unresponsive rank through a second ssh connection, and then its own ssh process.

        group: process group of the rank.
        supervisor: process id of its supervisor.
        """
        if group:
            remote = f"kill -KILL {supervisor:d} -{group:d}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    self._command(remote),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=_KILLING,
                    check=False,
                )
        if self._process:
            kill_ssh(self._process)

    def _hear(self, output: IO[bytes]) -> None:
        here = False
        while line := output.readline(LONGEST):
            if not here:
                here = True
                self._events.put((self, "here", None))
            try:
                message = json.loads(line)
                if not isinstance(message, dict):
                    raise ValueError
            except ValueError:  # for example, output of the login shell
                if text := printable_text(line):
                    self._events.put((self, "log", text))
                continue
            self._events.put((self, "told", message))

    def _log(self, errors: IO[bytes]) -> None:
        while line := errors.readline(LONGEST):
            if text := printable_text(line):
                self.last_words = text
                self._events.put((self, "log", text))

    def _wait(self, process: subprocess.Popen[bytes], readers: Sequence[threading.Thread]) -> None:
        """Wait until ssh ends, and report this after its output was read; its background processes may keep the output
        open."""
        self.code = process.wait()
        for thread in readers:
            thread.join(LAST_WORDS)
        if self.code == _LOST and self._shared and not self.last_words:
            self.last_words = self._shared.wait_for_last_words()
        self._events.put((self, "gone", None))


def end_all(remotes: Sequence[RemoteRank], processes: dict[int, tuple[int, int]]) -> None:
    """Kill several ranks in parallel.

    processes: process group and supervisor by rank, where known.
    """
    threads = [
        threading.Thread(target=remote.kill, args=processes.get(remote.rank, (0, 0)), daemon=True) for remote in remotes
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 2 * _KILLING
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))


def _quoted(path: str) -> str:
    """Return a path quoted for a shell, except for a leading ~, which the shell expands."""
    home, slash, rest = path.partition("/")
    if not re.fullmatch(r"~[\w.-]*", home, re.ASCII):
        return shlex.quote(path)
    return f"{home}{slash}{shlex.quote(rest) if rest else ''}"
