"""Parse sizes, and measure the memory of processes that the kernel cannot reclaim."""

from __future__ import annotations

import re
import time
from pathlib import Path

import psutil

from blocks.control_groups import memory_limit
from blocks.errors import RequestError

_REST = 200  # pause between two measurements, relative to the duration of one
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def parse_size(text: str, option: str = "--memory") -> int:
    """Parse a size such as "512MB", "2GB" or "1.5GiB" to bytes.

    option: name in errors.
    Raises RequestError.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", text, re.IGNORECASE)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or float(match[1]) == 0:
        raise RequestError(
            f"{option}: {text!r} is not a size", "Use a number and a unit, such as 512MB, 2GB or 1.5GiB."
        )
    return int(float(match[1]) * unit)


def parse_rate(text: str, option: str) -> float:
    """Parse a rate such as "500MB/s" or "1Gbps" (bits) to bytes per second.

    option: name in errors.
    Raises RequestError.
    """
    bits = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:bps|bit/s)\s*", text, re.IGNORECASE)
    if bits and float(bits[1]):
        return float(bits[1]) * _UNITS[f"{bits[2].upper()}B"] / 8
    if not text.rstrip().lower().endswith("/s"):
        raise RequestError(f"{option}: {text!r} is not a rate", "Use a number and a unit, such as 500MB/s or 1Gbps.")
    return float(parse_size(text.rstrip()[:-2], option))


def available_memory() -> int:
    """Return the memory available to this process in bytes: of the machine, or of its control groups if that is
    less."""
    limit = memory_limit()
    free = psutil.virtual_memory().available
    return min(free, limit.left) if limit else free


def held_memory(pids: list[int]) -> int:
    """Return how many bytes of memory processes hold that the kernel cannot reclaim, counting shared pages once.

    These are anonymous and shared memory and dirty pages of mapped files, from smaps_rollup; where that is missing, the
    sum of the resident set sizes. Linux before 6.0 does not report dirty pages of files.
    """
    return sum(map(_held, pids))


class MemoryMeter:
    """Memory of processes, measured so rarely that measuring takes at most half a percent of the time.

    For each measurement the kernel walks all pages of the processes.
    """

    def __init__(self) -> None:
        self._due, self._bytes = 0.0, 0

    def __call__(self, pids: list[int]) -> int:
        """Return the memory as `held_memory` does, from the latest measurement."""
        began = time.monotonic()
        if began >= self._due:
            self._bytes, ended = held_memory(pids), time.monotonic()
            self._due = ended + _REST * (ended - began)
        return self._bytes


def _held(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        try:
            return psutil.Process(pid).memory_info().rss if not Path("/proc/self/smaps_rollup").exists() else 0
        except psutil.NoSuchProcess:
            return 0
    kilobytes = {name: int(size) for name, size in re.findall(r"^Pss_(\w+):\s+(\d+)", text, re.MULTILINE)}
    return 1024 * max(kilobytes["Anon"] + kilobytes["Shmem"], kilobytes.get("Dirty", 0))  # Dirty includes the first two
