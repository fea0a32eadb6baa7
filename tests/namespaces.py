"""Machines to test with: network namespaces on a bridge, each with a directory and a sshd; and one that launches."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from sshd import client_config, make_keys, serve, wait_for

_NUMBERS = itertools.count()
PORT = 22


def ip(*arguments: object) -> None:
    subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True)


class Machines:
    """folder: has a directory for each machine, host-0 and so on, and `hosts.txt` and `config` to launch from."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        self.names = [f"host-{number}" for number in range(count)]
        self.places = [folder / name for name in self.names]
        self._prefix = f"ooc-{os.getpid()}-{next(_NUMBERS)}"
        self._switch = f"{self._prefix}-switch"
        self.launcher = self._inside("launcher")
        for place in self.places:
            place.mkdir()
        self.write_hosts()

    def write_hosts(self, **fields: str) -> None:
        """hosts.txt, with more fields for some, as host_1="cores=3"."""
        lines = [f"{name} dir={place} {fields.get(name.replace('-', '_'), '')}\n" for name, place in self._pairs()]
        (self.folder / "hosts.txt").write_text("".join(lines))

    def _pairs(self) -> list[tuple[str, Path]]:
        return list(zip(self.names, self.places, strict=True))

    def _inside(self, name: str) -> list[str]:
        """What a command begins with that is to run on a machine."""
        return ["nsenter", f"--net=/run/netns/{self._prefix}-{name}"]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            self._add(stack, "switch")
            ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self._switch, "link", "set", "bridge", "up")
            for number, name in enumerate([*self.names, "launcher"], 1):
                self._add(stack, name)
                self._connect(name, f"10.77.0.{number}")
            make_keys(self.folder)
            hosts = {name: (f"10.77.0.{number}", PORT) for number, name in enumerate(self.names, 1)}
            for name, (address, port) in hosts.items():
                stack.enter_context(serve(self.folder, address, port, self._inside(name)))
            wait_for(client_config(self.folder, hosts), self.names, self.launcher)
            yield

    def _add(self, stack: ExitStack, name: str) -> None:
        ip("netns", "add", f"{self._prefix}-{name}")
        stack.callback(ip, "netns", "del", f"{self._prefix}-{name}")

    def _connect(self, name: str, address: str) -> None:
        """Plug a machine in."""
        own, plug = f"{self._prefix}-{name}", f"to-{name}"
        ip("-n", self._switch, "link", "add", plug, "type", "veth", "peer", "name", "eth0", "netns", own)
        ip("-n", self._switch, "link", "set", plug, "master", "bridge", "up")
        ip("-n", own, "address", "add", f"{address}/24", "dev", "eth0")
        ip("-n", own, "link", "set", "eth0", "up")
        ip("-n", own, "link", "set", "lo", "up")

    def plug(self, number: int, *, in_: bool) -> None:
        """Cut a machine off from all others, or not any more."""
        ip("-n", self._switch, "link", "set", f"to-{self.names[number]}", "up" if in_ else "down")

    @contextlib.contextmanager
    def small_disk(self, number: int, name: str, size: str) -> Iterator[Path]:
        """A directory of one machine, on a small disk; all others have one, too, on theirs."""
        for place in self.places:
            (place / name).mkdir()
        place = self.places[number] / name
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], check=True)
        try:
            yield place
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


def possible() -> bool:
    """Whether this process may make namespaces, and mount."""
    if os.geteuid() != 0:
        return False
    try:
        ip("netns", "add", "ooc-possible")
        ip("netns", "del", "ooc-possible")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
