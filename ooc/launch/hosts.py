"""Read the hosts file, which has one line per rank, in rank order.

    [user@]host[:port] [dir=PATH] [cores=N] [memory=SIZE] [address=IP] [port=PORT] [python=PATH]    # a comment

The host is passed to ssh, so entries in ~/.ssh/config apply. A host that is on several lines runs several ranks.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from blocks.errors import RequestError
from blocks.memory import parse_size
from ooc.launch.ports import parse_ports

_PLACE = re.compile(
    r"(?:(?P<user>[^\s@:-][^\s@:]*)@)?(?P<name>[^\s@:\[\]-][^\s@:\[\]]*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d+))?"
)


class HostsFileLine(NamedTuple):
    """One line of the hosts file; fields that are not given are None or empty.

    directory: working directory; by default, the launcher's.
    cores: number of cores for this rank.
    memory: bytes for this rank.
    address: IP address at which other ranks can reach this rank; by default, the address that ssh uses.
    ports: ports on which this rank may listen for other ranks (port: the port of sshd).
    python: Python interpreter that has ooc; by default, the path of the launcher's interpreter.
    """

    name: str
    user: str = ""
    port: int | None = None
    directory: str = ""
    cores: int | None = None
    memory: int | None = None
    address: str = ""
    ports: range | None = None
    python: str = ""

    @property
    def destination(self) -> str:
        """Return the destination argument of ssh."""
        return f"{self.user}@{self.name}" if self.user else self.name


def read_hosts(path: Path) -> list[HostsFileLine]:
    """Return the hosts in a hosts file.

    Raises RequestError that names the line and the invalid field.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"--hosts {path} cannot be read: {error}") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        try:
            fields = shlex.split(line, comments=True)
        except ValueError as error:
            raise RequestError(f"{where}: {error}") from None
        if fields:
            hosts.append(_host(where, fields))
    if not hosts:
        raise RequestError(
            f"--hosts {path} lists no hosts", "Write a line for each rank, such as: me@host dir=/data cores=8"
        )
    return hosts


def _host(where: str, fields: list[str]) -> HostsFileLine:
    place, *others = fields
    found = _PLACE.fullmatch(place)
    port = int(found["port"]) if found and found["port"] else None
    if not found or (port is not None and not 0 < port < 1 << 16):
        raise RequestError(
            f"{where}: {place!r} is not the name of a host", "Start each line with host, user@host or user@host:port."
        )
    told: dict[str, Any] = {}
    for field in others:
        name, _, value = field.partition("=")
        if name not in _FIELDS or not value:
            raise RequestError(f"{where}: unknown field {field!r}", f"Valid fields are {'=, '.join(_FIELDS)}=.")
        attribute, convert = _FIELDS[name]
        if attribute in told:
            raise RequestError(f"{where}: {name}= is given twice")
        told[attribute] = convert(f"{where}: {name}=", value)
    return HostsFileLine(found["name"].strip("[]"), found["user"] or "", port, **told)


def _text(where: str, value: str) -> str:
    return value


def _count(where: str, value: str) -> int:
    if not value.isascii() or not value.isdecimal() or int(value) < 1:
        raise RequestError(f"{where}{value}: expected a number of cores, at least 1")
    return int(value)


def _address(where: str, value: str) -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise RequestError(f"{where}{value}: expected an IP address") from None


def _ports(where: str, value: str) -> range:
    return parse_ports(value, where)


def _size(where: str, value: str) -> int:
    return parse_size(value, where)


_FIELDS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "dir": ("directory", _text),
    "cores": ("cores", _count),
    "memory": ("memory", _size),
    "address": ("address", _address),
    "port": ("ports", _ports),
    "python": ("python", _text),
}
