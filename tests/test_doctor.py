"""`ooc doctor`: its facts are those of this machine, and its advice follows from facts."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import Ooc

from ooc.doctor import advice

HEALTHY: dict[str, Any] = {
    "versions": {"python": "3.13.0"},
    "extras": {"matplotlib": "3.9"},
    "processor": {
        "name": "x",
        "instructions": [],
        "logical": 8,
        "usable": 8,
        "quota": None,
        "quota_source": None,
        "load": 0.1,
    },
    "memory": {"total": 64e9, "available": 50e9, "limit": None, "swap_used": 0, "process_limit": None},
    "huge_pages": {"enabled": "madvise", "shmem_enabled": "always"},
    "open_files": 1024,
    "kernel_cache": {"path": "/home/x/.cache/ooc/kernels-1", "chosen": None, "writable": True},
    "disk": {"path": "/data", "kind": "ext4", "total": 1e12, "free": 5e11, "reading": 1e9, "writing": 5e8},
}


def test_there_is_nothing_to_say_of_a_healthy_machine() -> None:
    assert advice(HEALTHY) == []


@pytest.mark.parametrize(
    ("part", "changed", "said", "remedy"),
    [
        ("processor", {"quota": 3.5, "quota_source": "/sys/cpu.max"}, "3.5 of 8 cores", "/sys/cpu.max"),
        ("processor", {"usable": 2}, "2 of 8 cores", "taskset"),
        ("processor", {"load": 7.25}, "7.2 cores busy", "--workers"),
        ("memory", {"available": 1.5e9}, "1.5 GB of memory", "--memory"),
        ("memory", {"swap_used": 9e9}, "9.0 GB of memory are swapped out", "fit into memory"),
        ("huge_pages", {"shmem_enabled": "never"}, "huge pages for shared memory", "echo always"),
        ("open_files", 256, "256 open files", "ulimit -n"),
        ("disk", {"reading": 4e7, "writing": 5e7}, "90 MB/s", "--scratch"),
        ("disk", {"free": 1e10}, "10.0 GB of 1000 are free", "ooc clean"),
        ("kernel_cache", {"chosen": "/opt/kernels"}, "OOC_CACHE_DIR is /opt/kernels", "namei -l /opt/kernels"),
        ("disk", {"error": "the disk is full"}, "the disk is full", "ooc doctor DIR"),
    ],
)
def test_each_fact_has_its_advice(part: str, changed: Any, said: str, remedy: str) -> None:
    facts = copy.deepcopy(HEALTHY)
    facts[part] = {**facts[part], **changed} if isinstance(changed, dict) else changed
    (found,) = advice(facts)
    assert said in found.what
    assert remedy in found.remedy


def test_the_facts_are_those_of_this_machine(tmp_path: Path, ooc: Ooc) -> None:
    """As JSON and as lines; what the disk was tried with is gone; a directory that is not there is refused."""
    done = ooc("doctor", ".", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["memory"]["total"] == psutil.virtual_memory().total
    assert facts["processor"]["usable"] == len(os.sched_getaffinity(0))
    assert facts["versions"]["psutil"] == psutil.__version__
    assert facts["disk"]["reading"] > 0
    assert facts["disk"]["path"] == str(tmp_path)
    assert all(one["remedy"] for one in facts["advice"])
    told = ooc("doctor").stdout
    assert "huge pages" in told
    assert "MB/s" in told
    assert list(tmp_path.iterdir()) == []
    refused = ooc("doctor", "nowhere")
    assert refused.returncode == 2
    assert "there is no such file or directory" in refused.stderr
