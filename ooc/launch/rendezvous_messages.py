"""Messages of a rendezvous: the introduction that each rank sends to rank 0, and the answer.

A message consists of its length and a JSON object. Every sender has the key, but may run another version of ooc.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from blocks.errors import OocError, RequestError, error_class
from ooc.ring.credentials import RankCredentials
from ooc.ring.handshake import MANNERS, Address, read_exactly

_LENGTH = struct.Struct("<I")  # length of a message
_MOST_INTRODUCTION, _MOST_ANSWER = 1 << 14, 1 << 24  # bytes
_LONGEST_NAME = 253  # characters of a host's name
_LONGEST_PROBLEM = 1000  # characters
OTHER_VERSION = "Install the same version of ooc on all ranks."


class RankIntroduction(NamedTuple):
    """Description of a rank, sent by the rank itself.

    address, port: where the rank listens for its neighbour.
    clock: when sent, seconds since 1970; after arrival, seconds ahead of rank 0's clock.
    """

    rank: int
    ranks: int
    hostname: str
    process: int
    packages: dict[str, str]
    address: str
    port: int
    clock: float

    @property
    def name(self) -> str:
        return f"rank {self.rank} ({self.hostname})"


_KINDS = (int, int, str, int, dict, str, int, float)  # types of the fields of an introduction


def read_introduction(connection: socket.socket, deadline: float) -> RankIntroduction | None:
    """Receive the introduction of a rank; returns None if this version does not understand it.

    Raises the error with which the rank refuses to join, OSError if the message is late or invalid.
    """
    message = _read(connection, _MOST_INTRODUCTION, deadline)
    _check_refused(message)
    try:
        found = RankIntroduction(**message)
        ipaddress.ip_address(found.address)
    except (TypeError, ValueError):
        return None
    valid = all(type(value) is kind for value, kind in zip(found, _KINDS, strict=True))
    valid = valid and all(type(version) is str for version in found.packages.values())
    valid = valid and _is_name(found.hostname)
    return found if valid and 0 < found.port < 1 << 16 else None


def answer(addresses: Sequence[Address], names: Sequence[str], credentials: RankCredentials) -> dict[str, Any]:
    """Return the answer of rank 0 to a rank.

    addresses, names: addresses and host names of all ranks.
    credentials: credentials of the rank that receives the answer.
    """
    return {"addresses": [*addresses], "names": [*names], "credentials": credentials._asdict()}


def refusal(error: OocError) -> dict[str, Any]:
    """Return the message of a rank that ends with an error: the answer of rank 0, or instead of an introduction."""
    return {"refused": [error.what, error.remedy], "code": error.exit_code}


def read_answer(
    connection: socket.socket, ranks: int, deadline: float
) -> tuple[list[Address], list[str], RankCredentials]:
    """Return the addresses and host names of all ranks and the credentials of this one, as rank 0 answers.

    Raises the error with which rank 0 refuses, RequestError if this version does not understand the answer, OSError if
    it is late or invalid.
    """
    message = _read(connection, _MOST_ANSWER, deadline)
    _check_refused(message)
    try:
        addresses = [(str(ipaddress.ip_address(host)), int(port)) for host, port in message["addresses"]]
        names = list(message["names"])
        if len(addresses) == len(names) == ranks and all(map(_is_name, names)):
            return addresses, names, RankCredentials(**message["credentials"])
    except (KeyError, TypeError, ValueError):
        pass
    raise _other_version()


def reached(problem: str) -> dict[str, Any]:
    """Return the message of a rank that has connected to the next rank, or could not.

    problem: see `tcp.join`.
    """
    return {"reached": problem[:_LONGEST_PROBLEM]}


def read_reached(connection: socket.socket, deadline: float) -> str:
    """Return the problem in the message of a rank.

    Raises OSError if the message is late or invalid.
    """
    problem = _read(connection, _MOST_INTRODUCTION, deadline).get("reached")
    if not isinstance(problem, str) or not problem.isprintable() or len(problem) > _LONGEST_PROBLEM:
        raise ConnectionError("it sent an invalid message")
    return problem


def go() -> dict[str, Any]:
    """Return the message of rank 0 when all ranks are connected."""
    return {"go": True}


def read_go(connection: socket.socket, deadline: float) -> None:
    """Wait until all ranks are connected.

    Raises the error with which rank 0 refuses, RequestError if this version does not understand the message, OSError if
    it is late or invalid.
    """
    message = _read(connection, _MOST_INTRODUCTION, deadline)
    _check_refused(message)
    if message != go():
        raise _other_version()


def _check_refused(message: dict[str, Any]) -> None:
    """Raise the error in a message, if it has one."""
    if "refused" not in message:
        return
    try:
        what, remedy = map(str, message["refused"])
        error: OocError = error_class(message["code"])(what, remedy)
    except (KeyError, TypeError, ValueError):
        raise _other_version() from None
    raise error


def _other_version() -> RequestError:
    return RequestError("rank 0 has an incompatible version of ooc", OTHER_VERSION)


def _is_name(text: Any) -> bool:
    """Return whether a value can be the name of a host."""
    return isinstance(text, str) and text.isprintable() and len(text) <= _LONGEST_NAME


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send a message.

    Raises OSError on a timeout.
    """
    data = json.dumps(message).encode()
    connection.settimeout(MANNERS)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _read(connection: socket.socket, most: int, deadline: float) -> dict[str, Any]:
    """Read a message of at most `most` bytes.

    Raises OSError if it is invalid or late.
    """
    (length,) = _LENGTH.unpack(read_exactly(connection, _LENGTH.size, deadline))
    try:
        if length <= most and isinstance(found := json.loads(read_exactly(connection, length, deadline)), dict):
            return found
    except (ValueError, RecursionError):
        pass
    raise ConnectionError("it sent an invalid message")
