"""Ports on which ranks listen for other ranks until all are connected; a firewall has to allow them."""

from __future__ import annotations

import re
import socket

from blocks.errors import RequestError
from ooc.ring.handshake import listen_at


def parse_ports(text: str, option: str) -> range:
    """Parse a port or a range of ports FIRST-LAST.

    option: name for the error message.
    """
    found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", text, re.ASCII)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 0 < first <= last < 1 << 16:
        raise RequestError(
            f"{option} {text}: expected a port or two ports, from 1 to 65535",
            "Use a range such as 40000-40010.",
        )
    return range(first, last + 1)


def format_ports(ports: range) -> str:
    """Return ports as text, such as 40000-40010."""
    return f"{ports[0]}-{ports[-1]}" if len(ports) > 1 else str(ports[0])


def listen_on(address: str, ports: range) -> socket.socket:
    """Return a socket that listens on the first free port.

    Raises RequestError if none is free.

    address: IP address of this machine at which other ranks reach it.
    """
    listening = listen_at(address, ports)
    if listening is None:
        one = len(ports) == 1
        raise RequestError(
            f"port {ports[0]} is not free at {address}"
            if one
            else f"no port of {format_ports(ports)} is free at {address}",
            "Choose at least as many free ports as the machine has ranks: --ports FIRST-LAST"
            " or port= on its line of --hosts.",
        )
    return listening
