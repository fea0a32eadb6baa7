"""Before anything begins: what each rank says of itself and its machine, and whether a ring can be made of that."""

from __future__ import annotations

import ipaddress
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from blocks.errors import RequestError, WorkFailed
from blocks.shards.whole import check_together

_CLOCKS = 5.0  # seconds by which clocks may differ without a warning
_MOST_CLOCKS = 1800.0  # seconds by which they may differ: certificates are valid from an hour ago on


class Hello(NamedTuple):
    """What a rank says of itself. data: its dataset, if the command takes one. shard: what its manifest says of that.

    address, port: where it listens. group, guard: the processes to kill if they do not end. free, needed: bytes of the
    disk that the run is on. clock: seconds since 1970.
    """

    version: str
    python: str
    hostname: str
    group: int
    guard: int
    address: str
    port: int
    free: int
    needed: int
    clock: float
    data: str
    shard: dict[str, Any] | None


def own_version() -> str:
    """The version of ooc, and a hash of its sources: ranks of a run must all have the same."""
    digest = xxhash.xxh3_64()
    root = Path(__file__).resolve().parents[2]
    for package in ("blocks", "ooc", "samplers"):
        for source in sorted((root / package).rglob("*.py")):
            digest.update(str(source.relative_to(root)).encode() + b"\0" + source.read_bytes())
    return f"{version('ooc')} ({digest.hexdigest()})"


def own_python() -> str:
    return platform.python_version()


def check(hellos: Sequence[Hello], names: Sequence[str], clocks: Sequence[float]) -> list[str]:
    """Raise unless these ranks can make a ring; returns what they are to be warned of.

    names: rank and host of each, for the user. clocks: by how many seconds each is ahead of this machine.
    """
    mine = own_version()
    for name, hello in zip(names, hellos, strict=True):
        if hello.version != mine:
            raise RequestError(
                f"{name} has ooc {hello.version}, but this machine has {mine}",
                "Install the same version everywhere, or say with python= which one to use.",
            )
        if hello.free < hello.needed:
            raise WorkFailed(
                f"{name}: the run needs {hello.needed / 1e6:,.0f} MB of disk, but {hello.free / 1e6:,.0f} MB are free",
                "Make room, or use another directory.",
            )
    if any(hello.shard for hello in hellos):  # else all have the whole; commands that need shards refuse that
        places = [f"{name}: {hello.data}" for name, hello in zip(names, hellos, strict=True)]
        check_order(places, [hello.shard for hello in hellos])
    _check_addresses(hellos, names)
    return _check_clocks(names, clocks)


def check_order(places: Sequence[str], shards: Sequence[dict[str, Any] | None]) -> None:
    """Raise RequestError unless these are all shards of a dataset, in the order of ranks.

    places: where they are, for the user. shards: what their manifests say under "shard", if anything.
    """
    if list(shards) == [None]:
        return
    check_together(dict(zip(places, shards, strict=True)))
    for rank, (place, shard) in enumerate(zip(places, shards, strict=True)):
        if shard and shard["number"] != rank:
            raise RequestError(
                f"{place} is shard {shard['number']}",
                "Put the hosts in the order of their shards, or the number into the path: data/shard-{rank}",
            )


def _check_addresses(hellos: Sequence[Hello], names: Sequence[str]) -> None:
    local = [ipaddress.ip_address(hello.address).is_loopback for hello in hellos]
    if any(local) and not all(local):
        name = names[local.index(True)]
        raise RequestError(
            f"{name} is at {hellos[local.index(True)].address}, where no other machine finds it",
            "Say in its line of the hosts where they do, with address=IP.",
        )


def _check_clocks(names: Sequence[str], clocks: Sequence[float]) -> list[str]:
    warnings = []
    for name, ahead in zip(names, clocks, strict=True):
        told = f"the clock of {name} is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the one here"
        if abs(ahead) > _MOST_CLOCKS:
            raise RequestError(told, "Set it: certificates that prove who is who would not be valid.")
        if abs(ahead) > _CLOCKS:
            warnings.append(f"{told}; times in logs will not agree")
    return warnings
