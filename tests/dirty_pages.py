"""Measure the dirty file pages and the disk blocks of mapped files."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest


def dirty(pid: int) -> int:
    """Return the bytes of mapped files that a process has changed and the kernel has not written."""
    told = Path(f"/proc/{pid}/smaps_rollup").read_text()
    sizes = {name: int(size) for name, size in re.findall(r"^Pss_(\w+):\s+(\d+)", told, re.MULTILINE)}
    if "Dirty" not in sizes:
        pytest.skip("the kernel does not tell changed pages of files")
    return 1024 * (sizes["Dirty"] - sizes["Anon"] - sizes["Shmem"])


def on_disk(path: Path) -> None:
    """Skip a test if temporary files are kept in memory."""
    mounted = [disk for disk in psutil.disk_partitions(all=True) if path.is_relative_to(disk.mountpoint)]
    if max(mounted, key=lambda disk: len(disk.mountpoint)).fstype == "tmpfs":
        pytest.skip(f"{path} is in memory")


class Watch(threading.Thread):
    """Sample a quantity of this process and its children during training; `most` is the maximum."""

    def __init__(self, measure: Callable[[int], int]) -> None:
        super().__init__()
        self._measure, self._over = measure, threading.Event()
        self.most = 0

    def run(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.005):
            try:
                self.most = max(self.most, sum(map(self._measure, [p.pid for p in (me, *me.children(recursive=True))])))
            except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
                continue

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
