"""Examine this machine, and give advice on faster training; the advice is a function of the facts found."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from blocks.control_groups import core_count, cpu_limit, memory_limit, usable_cores
from blocks.errors import OocError
from blocks.kernel_cache import cache_summary
from blocks.memory import available_memory
from ooc.plan.disk_speed import measure_disk

REQUIRED = ("numpy", "numba", "h5py", "psutil")
EXTRAS = {  # for each package, its use and the extra that installs it
    "matplotlib": ("ooc curves", "plot"),
    "vl-convert-python": ("ooc report", "report"),
    "cryptography": ("ooc launch", "ring"),
    "mpi4py": ("--transport mpi", "mpi"),
    "bed-reader": ("ooc ingest plink", "plink"),
}
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
_FLAGS = ("avx2", "avx512f", "neon", "asimd")  # instruction sets that kernels are compiled for, if available
SLOW_DISK = 200e6  # bytes per second, read and written: streaming is limited by slower disks
LITTLE_MEMORY = 2e9
FEW_FILES = 1024


class MachineAdvice(NamedTuple):
    """A piece of advice.

    what: the finding.
    why: its effect.
    remedy: what to do.
    """

    what: str
    why: str
    remedy: str


def examine(directory: Path, *, disk_bytes: int = 256 << 20) -> dict[str, Any]:
    """Return facts about this machine as JSON types; writes and reads `disk_bytes` bytes in a directory, twice."""
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in ("ooc", *REQUIRED)}},
        "extras": {name: _version(name) for name in EXTRAS},
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "memory": _memory(),
        "huge_pages": {name: _chosen(_HUGE_PAGES / name) for name in ("enabled", "shmem_enabled")},
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "kernel_cache": cache_summary(),
        "disk": _disk(directory, disk_bytes),
    }


def advice(facts: dict[str, Any]) -> list[MachineAdvice]:
    """Return advice for faster or safer training on a machine with the given facts."""
    found = [
        *_of_processor(facts["processor"]),
        *_of_memory(facts["memory"]),
        _if(
            facts["huge_pages"]["shmem_enabled"] in ("never", "deny"),
            "huge pages for shared memory are switched off",
            "with many topics, address translation takes 3 to 9 percent of the time of sparse-gibbs",
            f"As root: echo always > {_HUGE_PAGES / 'shmem_enabled'}",
        ),
        _if(
            facts["open_files"] < FEW_FILES,
            f"a process can only have {facts['open_files']} open files",
            "a dataset of many blocks needs more open files",
            "Raise the limit with: ulimit -n 4096",
        ),
        *_of_disk(facts["disk"]),
        _of_kernels(facts["kernel_cache"]),
    ]
    return [one for one in found if one]


def _of_processor(processor: dict[str, Any]) -> list[MachineAdvice | None]:
    return [
        _if(
            processor["quota"] is not None and processor["quota"] < processor["usable"],
            f"the control group limits the CPU time to {processor['quota'] or 0:.1f} of {processor['usable']} cores",
            "workers pause whenever this time is used up",
            f"Raise the limit in {processor['quota_source']}",
        ),
        _if(
            processor["usable"] < processor["logical"],
            f"only {processor['usable']} of {processor['logical']} cores can be used",
            "by default, there are no more workers than usable cores",
            "Start ooc without taskset, or ask the scheduler for more cores.",
        ),
        _if(
            processor["load"] > 0.5 * processor["usable"],
            f"other processes keep {processor['load']:.1f} cores busy",
            "they share cores, caches and memory bandwidth with the workers",
            "Wait until they have ended, or use fewer --workers.",
        ),
    ]


def _of_memory(memory: dict[str, Any]) -> list[MachineAdvice | None]:
    return [
        _if(
            memory["available"] < LITTLE_MEMORY,
            f"only {memory['available'] / 1e9:.1f} GB of memory are available",
            "data that does not fit into memory is streamed from disk",
            "Close other programs; --memory sets how much memory ooc uses.",
        ),
        _if(
            memory["swap_used"] > 0.1 * max(memory["total"], 1),
            f"{memory['swap_used'] / 1e9:.1f} GB of memory are swapped out",
            "swapping competes with training for the disk",
            "Close programs until the remaining ones fit into memory.",
        ),
    ]


def _of_disk(disk: dict[str, Any]) -> list[MachineAdvice | None]:
    if "error" in disk:
        remedy = "Choose a writable directory: ooc doctor DIR"
        return [MachineAdvice(f"the disk of {disk['path']} was not measured: {disk['error']}", "", remedy)]
    speed = disk["reading"] + disk["writing"]
    return [
        _if(
            speed < SLOW_DISK,
            f"the disk of {disk['path']} reads and writes {speed / 1e6:,.0f} MB/s in total",
            "training that streams its state from disk has to wait for it",
            "Put the state on a faster disk with --scratch DIR, or keep it in memory with a larger --memory.",
        ),
        _if(
            disk["free"] < 0.05 * disk["total"],
            f"{disk['free'] / 1e9:.1f} GB of {disk['total'] / 1e9:.0f} are free on the disk of {disk['path']}",
            "full disks are slow, and training keeps up to three copies of its state",
            "Free some space: `ooc clean` deletes temporary files of killed commands.",
        ),
    ]


def _of_kernels(cache: dict[str, Any]) -> MachineAdvice | None:
    chosen = cache["chosen"]
    return _if(
        chosen is not None and not (cache["path"] and Path(cache["path"]).is_relative_to(chosen)),
        f"OOC_CACHE_DIR is {chosen}, but kernels are not cached there",
        "the directory is not readable, or other users can write to it or to a directory above it",
        f"Check its owners and permissions with: namei -l {chosen}",
    )


def _if(found: bool, what: str, why: str, remedy: str) -> MachineAdvice | None:
    return MachineAdvice(what, why, remedy) if found else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> dict[str, Any]:
    """Return facts about processor cores.

    logical: number of cores of the machine.
    usable: number of cores that this process may use.
    quota: limit of the control group in cores.
    workers: default number of workers.
    load: mean number of cores used by all processes in the last minute.
    """
    lines = _read(Path("/proc/cpuinfo")).splitlines()
    told = dict(line.partition(":")[::2] for line in lines if ":" in line)
    told = {name.strip(): value.strip() for name, value in told.items()}
    flags = told.get("flags", told.get("Features", "")).split()
    limit = cpu_limit()
    return {
        "name": told.get("model name", platform.processor() or platform.machine()),
        "instructions": [flag for flag in _FLAGS if flag in flags],
        "logical": os.cpu_count() or 1,
        "usable": usable_cores(),
        "quota": limit and limit.amount,
        "quota_source": limit and str(limit.source),
        "workers": core_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def _memory() -> dict[str, Any]:
    """Return memory in bytes.

    limit: limit of the control group with the least memory left.
    """
    limit = memory_limit()
    return {
        "total": psutil.virtual_memory().total,
        "available": available_memory(),
        "limit": limit and limit.limit,
        "limit_source": limit and str(limit.source),
        "swap_used": psutil.swap_memory().used,
        "process_limit": None if (most := resource.getrlimit(resource.RLIMIT_AS)[0]) < 0 else most,
    }


def _disk(directory: Path, size: int) -> dict[str, Any]:
    """Return disk space in bytes, and bytes per second of simultaneous reading and writing."""
    path = str(directory.absolute())
    try:
        usage, speed = shutil.disk_usage(directory), measure_disk(directory, size)
    except (OocError, OSError) as error:
        return {"path": path, "error": error.what if isinstance(error, OocError) else error.strerror}
    return {
        "path": path,
        "kind": _file_system(directory),
        "total": usage.total,
        "free": usage.free,
        "reading": round(speed.reading),
        "writing": round(speed.writing),
    }


def _file_system(directory: Path) -> str | None:
    """Return the type of the file system that contains a directory."""
    place = str(directory.resolve()) + "/"
    mounts = [part for part in psutil.disk_partitions(all=True) if place.startswith(part.mountpoint.rstrip("/") + "/")]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else None


def _chosen(path: Path) -> str | None:
    """Return the word in brackets of a file that lists alternatives, such as transparent_hugepage/enabled."""
    words = [word[1:-1] for word in _read(path).split() if word.startswith("[")]
    return words[0] if words else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
