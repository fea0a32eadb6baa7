"""Simulate several machines on one: network namespaces on a bridge, each with a directory and an sshd, and one
namespace for the launcher.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil

from benchmarks.sshd import client_config, make_keys, serve, wait_for

_NUMBERS = itertools.count()
_PREFIX = "ooc-"  # of the names of namespaces; the number of the process follows
PORT = 22
_BURST = "256kb"  # that a shaped link takes at once: more than a packet that the card is to cut up


def run(*command: object) -> str:
    """Return the output of a command."""
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


def ip(*arguments: object) -> str:
    return run("ip", *arguments)


def sweep() -> None:
    """Delete namespaces left by killed processes."""
    for line in ip("netns", "list").splitlines():
        made = re.match(rf"{_PREFIX}(\d+)-\S+", line)
        if made and not psutil.pid_exists(int(made[1])):
            ip("netns", "del", made[0])


class NamespaceMachines:
    """The simulated machines. Attributes: `folder`, with a directory for each machine (host-0 and so on), and with
    `hosts.txt` and `config` for launches.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        self.names = [f"host-{number}" for number in range(count)]
        self.places = [folder / name for name in self.names]
        self.addresses = [f"10.77.0.{number + 1}" for number in range(count + 1)]  # that of the launcher last
        self._prefix = f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}"
        self._switch = f"{self._prefix}-switch"
        self.launcher = self._inside("launcher")
        for place in self.places:
            place.mkdir()
        self.write_hosts()

    def write_hosts(self, **fields: str) -> None:
        """Write hosts.txt, with additional fields for some hosts, such as host_1="cores=3"."""
        lines = [f"{name} dir={place} {fields.get(name.replace('-', '_'), '')}\n" for name, place in self._pairs()]
        (self.folder / "hosts.txt").write_text("".join(lines))

    def _pairs(self) -> list[tuple[str, Path]]:
        return list(zip(self.names, self.places, strict=True))

    def inside(self, number: int) -> list[str]:
        """Return the prefix of commands that run on a machine."""
        return self._inside(self.names[number])

    def _inside(self, name: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self._prefix}-{name}"]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        sweep()
        with ExitStack() as stack:
            self._add(stack, "switch")
            ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self._switch, "link", "set", "bridge", "up")
            for name, address in zip([*self.names, "launcher"], self.addresses, strict=True):
                self._add(stack, name)
                self._connect(name, address)
            make_keys(self.folder)
            hosts = {name: (address, PORT) for name, address in zip(self.names, self.addresses, strict=False)}
            for name, (address, port) in hosts.items():
                stack.enter_context(serve(self.folder, address, port, self._inside(name)))
            wait_for(client_config(self.folder, hosts), self.names, self.launcher)
            yield

    def _add(self, stack: ExitStack, name: str) -> None:
        ip("netns", "add", f"{self._prefix}-{name}")
        stack.callback(ip, "netns", "del", f"{self._prefix}-{name}")

    def _connect(self, name: str, address: str) -> None:
        """Connect a machine to the bridge."""
        own, plug = f"{self._prefix}-{name}", f"to-{name}"
        ip("-n", self._switch, "link", "add", plug, "type", "veth", "peer", "name", "eth0", "netns", own)
        ip("-n", self._switch, "link", "set", plug, "master", "bridge", "up")
        ip("-n", own, "address", "add", f"{address}/24", "dev", "eth0")
        ip("-n", own, "link", "set", "eth0", "up")
        ip("-n", own, "link", "set", "lo", "up")

    def shape(self, rate: str) -> None:
        """Limit the sending rate of all machines.

        rate: rate in the syntax of `tc`.
        """
        for name in self.names:
            limit = ["tbf", "rate", rate, "burst", _BURST, "latency", "50ms"]
            run("tc", "-n", f"{self._prefix}-{name}", "qdisc", "add", "dev", "eth0", "root", *limit)

    def plug(self, number: int, *, in_: bool) -> None:
        """Disconnect a machine from all others, or reconnect it."""
        ip("-n", self._switch, "link", "set", f"to-{self.names[number]}", "up" if in_ else "down")

    def let_through(self, machine: int | str, other: int, *, goes: bool) -> None:
        """Block or allow traffic from one machine to another; both still reach all other machines.

        machine: number of a machine, or "launcher".
        """
        name = machine if isinstance(machine, str) else self.names[machine]
        route = ["route", "del" if goes else "add", "unreachable", self.addresses[other]]
        ip("-n", f"{self._prefix}-{name}", *route)

    @contextlib.contextmanager
    def firewall(self) -> Iterator[None]:
        """Block all traffic between machines except ssh."""
        rules: tuple[list[object], ...] = (
            ["sport", PORT, "lookup", "main"],
            ["dport", PORT, "lookup", "main"],
            ["unreachable"],
        )
        with ExitStack() as stack:
            for name, (number, rule) in itertools.product([*self.names, "launcher"], enumerate(rules, 1)):
                own = ["-n", f"{self._prefix}-{name}", "rule"]
                ip(*own, "add", "priority", number, "ipproto", "tcp", *rule)
                stack.callback(ip, *own, "del", "priority", number)
            yield

    @contextlib.contextmanager
    def small_disk(self, number: int, name: str, size: str) -> Iterator[Path]:
        """Yield a directory of one machine on a small disk of its own; on other machines it is on the usual disk."""
        for place in self.places:
            (place / name).mkdir()
        place = self.places[number] / name
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], check=True)
        try:
            yield place
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


def possible() -> bool:
    """Return whether this process may create namespaces and mount file systems."""
    if os.geteuid() != 0:
        return False
    name = f"{_PREFIX}{os.getpid()}-possible"
    try:
        ip("netns", "add", name)
        ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
