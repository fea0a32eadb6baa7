"""Environment variables of batch schedulers: end of the job, number of ranks, and the node's local disk.

SLURM_JOB_END_TIME     of Slurm: seconds since 1970
SLURM_STEP_NUM_TASKS   of srun: number of started ranks
SLURM_TMPDIR, TMPDIR   directory on the node's own disk for the time of the job; set by the site, or by PBS and LSF
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from blocks.errors import RequestError

_SHARE = 0.1  # fraction of the remaining time reserved for finishing a phase, committing and stopping
_LEAST, _MOST = 60.0, 600.0  # bounds of the reserved time in seconds
_DISKS = ("SLURM_TMPDIR", "TMPDIR")
_TASKS = "SLURM_STEP_NUM_TASKS"


class BatchJobTimeLimit(float):
    """Seconds that a batch scheduler leaves for training, as opposed to a limit set by `--max-time`."""


def time_to_train() -> BatchJobTimeLimit | None:
    """Return the seconds after which training must stop in order to end before the job; None if the end of the job is
    unknown."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    if not end.isdecimal():
        return None
    left = int(end) - time.time()
    reserve = min(max(_SHARE * left, _LEAST), _MOST)
    if left <= reserve:
        raise RequestError(
            f"the job ends in {max(left, 0):.0f} s, but saving the state can take {reserve:.0f} s",
            "Request more time for the job.",
        )
    return BatchJobTimeLimit(left - reserve)


def check_ranks(ranks: int) -> None:
    """Raise RequestError if a scheduler started more ranks than MPI connects."""
    started = os.environ.get(_TASKS, "")
    if ranks == 1 and started.isdecimal() and int(started) > 1:
        raise RequestError(
            f"srun started {started} tasks, but MPI finds only 1 rank in each task",
            "Select the PMI plugin of your MPI library, such as `srun --mpi=pmix`, or start the ranks with mpirun.",
        )


def starter(ranks: int, otherwise: str = "") -> str:
    """Return the command that starts `ranks` ranks in the same way as the current ones.

    otherwise: command if they were not started with srun.
    """
    command = "srun" if _TASKS in os.environ else otherwise
    return f"{command} -n {ranks} " if command else ""


def node_directory() -> Path:
    """Return the directory on the node's local disk.

    Raises RequestError if there is none.
    """
    for name in _DISKS:
        if (place := os.environ.get(name)) and Path(place).is_dir():
            return Path(place)
    raise RequestError(
        f"--scratch node: neither {' nor '.join(_DISKS)} is a directory on this node",
        "Set --scratch to the path of a directory.",
    )
