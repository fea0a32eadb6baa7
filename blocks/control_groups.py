"""Limits of Linux control groups (versions 1 and 2): the smallest limit of a process's group and its ancestors
applies."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_HERE = Path("/")
_UNLIMITED = 1 << 60  # bytes: the limit of the root group of version 1 is larger


class ProcessorLimit(NamedTuple):
    """Limit on processor time.

    amount: seconds per second.
    source: file with the limit.
    """

    amount: float
    source: Path


class MemoryLimit(NamedTuple):
    """Limit on memory.

    left: the limit minus the usage of the group, in bytes.
    limit: in bytes.
    source: file with the limit.
    """

    left: int
    limit: int
    source: Path


def cpu_limit(root: Path = _HERE) -> ProcessorLimit | None:
    """Return the smallest processor limit, if any.

    root: directory that contains `proc` and `sys`.
    """
    return min(_cpu_limits(root), default=None)


def memory_limit(root: Path = _HERE) -> MemoryLimit | None:
    """Return the memory limit with the least memory left, if any.

    root: directory that contains `proc` and `sys`.
    """
    return min(_memory_limits(root), default=None)


def _cpu_limits(root: Path) -> Iterator[ProcessorLimit]:
    for group, version in _groups("cpu", root):
        with suppress(OSError, ValueError):  # "max", or a group that is not visible inside a container
            if version == 1:
                source = group / "cpu.cfs_quota_us"
                quota, period = int(source.read_text()), int((group / "cpu.cfs_period_us").read_text())
            else:
                source = group / "cpu.max"
                quota, period = map(int, source.read_text().split())
            if quota > 0:  # -1: unlimited
                yield ProcessorLimit(quota / period, source)


def _memory_limits(root: Path) -> Iterator[MemoryLimit]:
    for group, version in _groups("memory", root):
        for name in ("memory.limit_in_bytes",) if version == 1 else ("memory.max", "memory.high"):
            with suppress(OSError, ValueError):
                limit = int((group / name).read_text())
                if limit < _UNLIMITED:
                    yield MemoryLimit(max(limit - _held(group, version), 0), limit, group / name)


def _held(group: Path, version: int) -> int:
    """Return the memory usage of a group in bytes, excluding the page cache of files, like `MemAvailable` of the
    machine."""
    usage, total = ("memory.usage_in_bytes", "total_") if version == 1 else ("memory.current", "")
    try:
        held = int((group / usage).read_text())
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return max(held - sum(int(counts.get(f"{total}{kind}_file", 0)) for kind in ("active", "inactive")), 0)


def _groups(controller: str, root: Path) -> Iterator[tuple[Path, int]]:
    """Yield the group directories of this process, each followed by its ancestors, with their version."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mounted = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # If version 1 is mounted, too, version 2 has its own directory.
        for top in {mounted / controllers, mounted / (controller if controllers else "unified")}:
            group = top / path.lstrip("/")  # inside a container, its own group is often the root
            for directory in (group, *group.parents):
                yield directory, 1 if controllers else 2
                if directory == top:
                    break


def core_count() -> int:
    """Return the number of usable cores, limited by control groups, rounded up."""
    limit = cpu_limit()
    return min(usable_cores(), math.ceil(limit.amount)) if limit else usable_cores()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
