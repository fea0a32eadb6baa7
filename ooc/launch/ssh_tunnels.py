"""Tunnels: connections between ranks that go through the ssh connections of the launcher.

The launcher already has an ssh connection to each rank, so a cluster in which only ssh is open needs nothing else. For
each rank the launcher has a Unix socket, which its ssh connects to the port on which the rank listens. On the host of
the previous rank, sshd listens on a port of the loopback interface and connects it to this socket. The ranks
authenticate each other and encrypt as they do without tunnels.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from blocks.errors import WorkFailed
from ooc.launch.remote_rank import RemoteRank
from ooc.ring.handshake import Address

LOOPBACK = "127.0.0.1"
_SECONDS = 30.0  # seconds for one ssh to set up the forwarding
_AT_ONCE = 8  # number of ssh commands that run at a time


class TunnelSockets:
    """Directory of the Unix sockets of a launch, which only the user who launches can open."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="ooc-", ignore_cleanup_errors=True)

    def control(self, rank: int) -> Path:
        """Return the path of the socket by which commands reach the ssh process of a rank (ControlPath)."""
        return Path(self._folder.name) / f"ssh-{rank}"

    def open(self, remotes: Sequence[RemoteRank], ports: Sequence[int]) -> list[Address]:
        """Set up a tunnel to each rank; returns, for each rank, the address on its host that leads to the next rank.

        ports: port on which each rank listens, on the loopback interface of its host.
        """
        sockets = [Path(self._folder.name) / f"rank-{remote.rank}" for remote in remotes]

        def forward(remote: RemoteRank) -> Address:
            after = (remote.rank + 1) % len(remotes)
            incoming = f"{sockets[remote.rank]}:{LOOPBACK}:{ports[remote.rank]}"
            words = ["-O", "forward", "-L", incoming, "-R", f"{LOOPBACK}:0:{sockets[after]}"]
            return LOOPBACK, _allocated_port(remote, words)

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(threads.map(forward, remotes))

    def close(self) -> None:
        """Remove the sockets, so that no new connections can be made; existing connections stay open."""
        self._folder.cleanup()


def _allocated_port(remote: RemoteRank, words: Sequence[str]) -> int:
    """Have the ssh process of a rank forward ports; returns the port that sshd has chosen on the rank's host."""
    try:
        done = subprocess.run(
            remote.control_command(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode == 0:
            return int(done.stdout)
        why = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    except (subprocess.TimeoutExpired, ValueError):
        why = ["no reply"]
    raise WorkFailed(
        f"--tunnel: the sshd of {remote.name} does not forward ports: {why[0]}", forwarding_remedy(remote.name)
    )


def forwarding_remedy(names: str) -> str:
    """Return a remedy for hosts that do not forward ports.

    names: ranks on these hosts.
    """
    return (
        f"The sshd of {names} must allow forwarding in its sshd_config: AllowTcpForwarding yes, and no PermitOpen,"
        " PermitListen or DisableForwarding against it. Otherwise, open ports between the hosts and omit --tunnel."
    )
