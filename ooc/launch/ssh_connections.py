"""The ssh commands of a launch, and connections that several ranks on one host share.

A shared connection is authenticated once and carries the sessions of up to eight ranks (ssh's ControlMaster), so a
launch of many ranks on one host stays below the limits of its sshd on connections (MaxStartups). Ranks whose shared
connection cannot be established, or is lost before they start, open their own connections.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from blocks.errors import WorkFailed
from ooc.launch.hosts import HostsFileLine
from ooc.launch.supervisor import LONGEST

LAST_WORDS = 1.0  # seconds to read the output of an ssh process that has ended
_CONNECT = 10  # seconds for ssh to reach a host
_OPEN = 20.0  # seconds for ssh to reach a host and authenticate
_MISSED = 3  # keepalive replies of a host that may be missed (ssh's ServerAliveCountMax)
_MAX_RANKS = 8  # ranks on one connection; by default, sshd accepts ten sessions (MaxSessions)


class SshOptions(NamedTuple):
    """Options of the ssh commands.

    patience: seconds of silence after which a host counts as lost.
    config: file to use instead of ~/.ssh/config.
    """

    patience: float
    config: Path | None = None

    def command(
        self, host: HostsFileLine, remote: str, *, opens: Path | None = None, uses: Path | None = None
    ) -> list[str]:
        """Return the ssh command that runs a command line on a host.

        The command checks host keys and never asks for a password.

        opens: socket through which other ssh commands will be able to use this connection.
        uses: socket of a connection to use.
        """
        seconds = max(1, int(self.patience / _MISSED))
        options = {"BatchMode": "yes", "ConnectTimeout": _CONNECT}
        if socket := opens or uses:
            options |= {"ControlMaster": "yes" if opens else "no", "ControlPath": str(socket), "ControlPersist": "no"}
        options |= {"ServerAliveInterval": seconds, "ServerAliveCountMax": _MISSED}
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return [*self.call(host, "-T", *words), remote]

    def call(self, host: HostsFileLine, *words: str) -> list[str]:
        """Return an ssh command for a host with additional words."""
        return [
            *("ssh", *words),
            *(("-F", str(self.config)) if self.config else ()),
            *(("-p", str(host.port)) if host.port else ()),
            *("--", host.destination),
        ]


def start_ssh(command: Sequence[str], stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """Start an ssh command with pipes, in its own session: Ctrl-C is for the launcher alone."""
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE, start_new_session=True
        )
    except FileNotFoundError:
        raise WorkFailed("the command ssh is not installed on this machine", "Install the OpenSSH client.") from None


def kill_ssh(process: subprocess.Popen[bytes]) -> None:
    """Kill an ssh process together with its child processes, in case ssh is a script."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class SharedConnection:
    """One connection to a host, which the ssh processes of several ranks use.

    Its own session on the host only reads its input, so the connection ends with the launcher.
    """

    def __init__(self, host: HostsFileLine, ssh: SshOptions, socket: Path) -> None:
        self.last_words = ""  # last line on standard error
        self._host, self._ssh, self._socket = host, ssh, socket
        self._process: subprocess.Popen[bytes] | None = None
        self._until = 0.0
        self._reader = threading.Thread(target=self._read_errors, daemon=True)

    def start(self) -> None:
        """Start to establish the connection."""
        command = self._ssh.command(self._host, "exec cat > /dev/null", opens=self._socket)
        self._process = start_ssh(command, stdout=subprocess.DEVNULL)
        self._until = time.monotonic() + _OPEN
        self._reader.start()

    @property
    def is_started(self) -> bool:
        return self._process is not None

    @property
    def is_opening(self) -> bool:
        return bool(self._runs and not self._socket.exists() and time.monotonic() < self._until)

    @property
    def socket(self) -> Path | None:
        """Return the socket for ssh commands that use this connection; None if it is not established."""
        return self._socket if self._runs and self._socket.exists() else None

    def wait_for_last_words(self) -> str:
        """Return the last line on standard error, once the process has ended; "" if it goes on."""
        if self._process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LAST_WORDS)
                self._reader.join(LAST_WORDS)
                return self.last_words
        return ""

    def close(self) -> None:
        """End the connection, with the sessions that use it."""
        if self._process:
            kill_ssh(self._process)
            self._process.wait()

    @property
    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _read_errors(self) -> None:
        assert self._process and self._process.stderr
        while line := self._process.stderr.readline(LONGEST):
            self.last_words = printable_text(line) or self.last_words


class SharedConnections:
    """The shared connections of a launch.

    by_rank: connection of each rank; None for a rank that has its own.
    """

    def __init__(self, hosts: Sequence[HostsFileLine], ssh: SshOptions) -> None:
        self._folder = TemporaryDirectory(prefix="ooc-", ignore_cleanup_errors=True)
        self._connections: list[SharedConnection] = []
        self.by_rank: list[SharedConnection | None] = [None] * len(hosts)
        for ranks in _groups(hosts):
            if len(ranks) > 1:
                socket = Path(self._folder.name) / f"shared-{ranks[0]}"
                self._connections.append(SharedConnection(hosts[ranks[0]], ssh, socket))
                for rank in ranks:
                    self.by_rank[rank] = self._connections[-1]

    def open(self, at_once: int) -> bool:
        """Start to establish connections, at most `at_once` at a time; returns whether none is being established."""
        opening = sum(connection.is_opening for connection in self._connections)
        for connection in self._connections:
            if opening < at_once and not connection.is_started:
                connection.start()
                opening += 1
        return not opening

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._folder.cleanup()


def _groups(hosts: Sequence[HostsFileLine]) -> list[list[int]]:
    """Return groups of at most _MAX_RANKS ranks on the same host."""
    groups: dict[tuple[str, int | None, int], list[int]] = {}
    counts: Counter[tuple[str, int | None]] = Counter()
    for rank, host in enumerate(hosts):
        place = host.destination, host.port
        groups.setdefault((*place, counts[place] // _MAX_RANKS), []).append(rank)
        counts[place] += 1
    return [*groups.values()]


def printable_text(line: bytes) -> str:
    """Return a line of output without control characters and without white space at its end."""
    text = line.decode(errors="replace").rstrip()
    return "".join(letter if letter.isprintable() or letter == "\t" else " " for letter in text)
