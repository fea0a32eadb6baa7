"""Check before a run that all ranks are compatible: versions, shards, disk space, addresses and clocks."""

from __future__ import annotations

import ipaddress
import platform
import socket
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from blocks.errors import RequestError, WorkFailed
from blocks.shards.whole_dataset import check_shards_complete
from ooc.ring.message_relay import gather_values

if TYPE_CHECKING:
    from ooc.ring.ring import Ring

_CLOCKS = 5.0  # seconds by which clocks may differ without a warning
_MOST_PAIRS = 4  # pairs of ranks that a message names
_MOST_CLOCKS = 1800.0  # maximum seconds by which clocks may differ, as certificates are valid from one hour ago


class RankDescription(NamedTuple):
    """Description of a rank and its machine.

    packages: versions from `own_packages`.
    data: path of the dataset, if the command takes one.
    shard: the "shard" entry of the dataset's manifest.
    address, port: where the rank listens.
    group: process group to kill.
    supervisor: process id of the supervisor to kill.
    free, needed: bytes of disk space.
    clock: seconds since 1970.
    """

    version: str
    packages: dict[str, str]
    hostname: str
    group: int
    supervisor: int
    address: str
    port: int
    free: int
    needed: int
    clock: float
    data: str
    shard: dict[str, Any] | None


def own_version() -> str:
    """Return the version of ooc and a hash of its source files; both must be equal on all ranks."""
    digest = xxhash.xxh3_64()
    root = Path(__file__).resolve().parents[2]
    for package in ("blocks", "ooc", "samplers"):
        for source in sorted((root / package).rglob("*.py")):
            digest.update(str(source.relative_to(root)).encode() + b"\0" + source.read_bytes())
    return f"{version('ooc')} ({digest.hexdigest()})"


def own_packages() -> dict[str, str]:
    """Return the versions of Python and the numerical packages, as different versions may round differently."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, **{name: version(name) for name in ("numpy", "numba", "llvmlite")}}


def check(hellos: Sequence[RankDescription], names: Sequence[str], clocks: Sequence[float]) -> list[str]:
    """Check that the ranks can form a ring; returns warnings.

    Raises RequestError or WorkFailed if they cannot.

    names: rank and host of each rank, for messages.
    clocks: seconds by which each rank's clock is ahead of this machine's clock.
    """
    mine = own_version()
    for name, hello in zip(names, hellos, strict=True):
        if hello.version != mine:
            raise RequestError(
                f"{name} has ooc {hello.version}, but this machine has {mine}",
                "Install the same version on all hosts, or choose one with python=PATH on its line of --hosts.",
            )
        if hello.free < hello.needed:
            raise WorkFailed(
                f"{name}: the run needs {hello.needed / 1e6:,.0f} MB of disk space, but only"
                f" {hello.free / 1e6:,.0f} MB are free",
                "Free some disk space, or use another directory.",
            )
    check_packages(names, [hello.packages for hello in hellos])
    # Without shards, all ranks have the whole dataset, which commands that need shards refuse.
    if any(hello.shard for hello in hellos):
        places = [f"{name}: {hello.data}" for name, hello in zip(names, hellos, strict=True)]
        check_order(places, [hello.shard for hello in hellos])
    return check_clocks(names, clocks)


def check_packages(names: Sequence[str], packages: Sequence[dict[str, str]]) -> None:
    """Raise RequestError if the package versions of ranks differ.

    names: rank and host of each rank, for messages.
    """
    if found := _different(packages):
        package, rank = found
        raise RequestError(
            f"{names[rank]} has {package} {packages[rank][package]}, {names[0]} has {packages[0][package]}",
            "Install the same versions on all ranks: ranks must compute the same results.",
        )


def check_start(ring: Ring, asked: dict[str, str]) -> None:
    """Raise RequestError on all ranks if ranks started with MPI run different commands or versions.

    asked: options of this rank by name; ranks whose options have different names run different commands.
    """
    told = gather_values(ring, [socket.gethostname(), {"ooc": own_version()} | own_packages(), asked])
    hosts, packages, commands = zip(*told, strict=True)
    names = [f"rank {rank} ({host})" for rank, host in enumerate(hosts)]
    check_packages(names, packages)
    if found := _different(commands):
        option, rank = found
        raise RequestError(
            f"{option} is {commands[0][option]} on {names[0]}, but {commands[rank][option]} on {names[rank]}",
            "Start all ranks with the same command; only paths, --workers, --memory and --max-time may differ.",
        )


def _different(told: Sequence[dict[str, str]]) -> tuple[str, int] | None:
    """Return the first name whose value on some rank differs from its value on rank 0, and this rank; None if all are
    equal.
    """
    for rank, theirs in enumerate(told):
        for name, value in told[0].items():
            if theirs.get(name) != value:
                return name, rank
    return None


def check_order(places: Sequence[str], shards: Sequence[dict[str, Any] | None]) -> None:
    """Raise RequestError unless the ranks' datasets are the shards of one dataset, in rank order.

    places: paths, for messages.
    shards: "shard" entry of each manifest, or None.
    """
    if list(shards) == [None]:
        return
    check_shards_complete(dict(zip(places, shards, strict=True)))
    for rank, (place, shard) in enumerate(zip(places, shards, strict=True)):
        if shard and shard["number"] != rank:
            raise RequestError(
                f"{place} is shard {shard['number']}; rank {rank} must have shard {rank}",
                "List the hosts in the order of their shards, or use {rank} in the path, such as data/shard-{rank}.",
            )


def check_addresses(addresses: Sequence[str], hostnames: Sequence[str], names: Sequence[str], remedy: str) -> None:
    """Raise RequestError if only its own machine can reach a rank's address, unless all ranks are on one machine.

    names: rank and host of each rank, for messages.
    """
    local = [ipaddress.ip_address(address).is_loopback for address in addresses]
    if any(local) and not (all(local) and len(set(hostnames)) == 1):
        first = local.index(True)
        raise RequestError(f"{names[first]} is at {addresses[first]}, which other machines cannot reach", remedy)


def check_reached(names: Sequence[str], problems: Sequence[str], remedy: Callable[[Sequence[int]], str]) -> None:
    """Raise WorkFailed, naming every pair of ranks of which the first cannot connect to the second.

    names: rank and host of each rank.
    problems: why each rank cannot reach the next one, as it reported (see `tcp.join`); "" if it can.
    remedy: function of the ranks that cannot be reached, which returns what can be done.
    """
    failed = [rank for rank, problem in enumerate(problems) if problem]
    if failed:
        pairs = [f"{names[rank]} {problems[rank]}" for rank in failed[:_MOST_PAIRS]]
        more = f"; and {len(failed) - _MOST_PAIRS} other pairs" if len(failed) > _MOST_PAIRS else ""
        raise WorkFailed("; ".join(pairs) + more, remedy([(rank + 1) % len(names) for rank in failed]))


def list_names(names: Sequence[str]) -> str:
    """Return names as text; a long list is cut after the first few."""
    first = names[:_MOST_PAIRS]
    return ", ".join(first) + (" and others" if len(names) > len(first) else "")


def check_clocks(names: Sequence[str], clocks: Sequence[float]) -> list[str]:
    """Return warnings about clocks that differ.

    Raises RequestError if a clock is too far off.

    names: rank and host of each rank.
    clocks: seconds by which each rank's clock is ahead of this machine's clock.
    """
    warnings = []
    for name, ahead in zip(names, clocks, strict=True):
        told = f"the clock of {name} is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine"
        if abs(ahead) > _MOST_CLOCKS:
            raise RequestError(told, "Set the clock; otherwise, the ranks' certificates are not valid.")
        if abs(ahead) > _CLOCKS:
            warnings.append(f"{told}; times in logs will differ")
    return warnings
