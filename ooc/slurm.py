"""Environment variables of batch schedulers: the end of the job, the number of ranks, and the node's own disk.

SLURM_JOB_END_TIME     of Slurm: seconds since 1970
SLURM_STEP_NUM_TASKS   of srun: number of started ranks
SLURM_TMPDIR, TMPDIR   directory on the node's own disk for the time of the job; set by the site, or by PBS and LSF
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from blocks.errors import RequestError

_SHARE = 0.1  # of the remaining time, reserved to finish a phase, to commit and to stop
_LEAST, _MOST = 60.0, 600.0  # seconds: bounds of the reserved time
_DISKS = ("SLURM_TMPDIR", "TMPDIR")
_TASKS = "SLURM_STEP_NUM_TASKS"


class JobTime(float):
    """Seconds that a scheduler leaves a training, as opposed to a limit by `--max-time`."""


def time_to_train() -> JobTime | None:
    """Return the seconds that a training may take to stop before the job ends; None if the end of the job is
    unknown."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    if not end.isdecimal():
        return None
    left = int(end) - time.time()
    reserve = min(max(_SHARE * left, _LEAST), _MOST)
    if left <= reserve:
        raise RequestError(
            f"the job ends in {max(left, 0):.0f} s, but saving a training can take {reserve:.0f} s",
            "Request more time for the job.",
        )
    return JobTime(left - reserve)


def check_ranks(ranks: int) -> None:
    """Raise RequestError if a scheduler started more ranks than MPI connects."""
    started = os.environ.get(_TASKS, "")
    if ranks == 1 and started.isdecimal() and int(started) > 1:
        raise RequestError(
            f"srun started {started} tasks, but MPI finds only 1 rank in each task",
            "Give srun the interface of your MPI library, such as `srun --mpi=pmix`; or start with mpirun.",
        )


def starter(ranks: int, otherwise: str = "") -> str:
    """Return the command that starts `ranks` ranks as these were started. otherwise: what started them if not srun."""
    command = "srun" if _TASKS in os.environ else otherwise
    return f"{command} -n {ranks} " if command else ""


def node_directory() -> Path:
    """Return the directory on the node's own disk; RequestError if there is none."""
    for name in _DISKS:
        if (place := os.environ.get(name)) and Path(place).is_dir():
            return Path(place)
    raise RequestError(
        f"--scratch node: neither {' nor '.join(_DISKS)} is a directory on this node",
        "Give --scratch the path of a directory.",
    )
