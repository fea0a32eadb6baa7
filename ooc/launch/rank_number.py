"""The rank of this process and the number of ranks, from the environment variables that schedulers set."""

from __future__ import annotations

import os

from blocks.errors import RequestError

_MOST_RANKS = 1 << 16
_VARIABLES = (  # variables of the rank and of the number of ranks; those of an inner launcher come first
    ("RANK", "WORLD_SIZE"),  # PyTorch, and many scripts
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("JOB_COMPLETION_INDEX", ""),  # a Kubernetes Indexed Job, which does not give the number of ranks
)


def place(rank: int | None = None, ranks: int | None = None) -> tuple[int, int]:
    """Return the rank of this process and the number of ranks, by default from the environment.

    A variable of the rank alone counts if `ranks` is given and no scheduler has set both.
    Raises RequestError if the environment does not give them.
    """
    given = os.environ
    found = [pair for pair in _VARIABLES if pair[1] in given and (pair[0] in given or rank is not None)]
    found += [pair for pair in _VARIABLES if pair[0] in given and ranks is not None]
    if found:
        name, size = found[0]
        rank = _number(name) if rank is None else rank
        ranks = _number(size) if ranks is None else ranks
    if rank is None or ranks is None:
        missing = "which rank it is" if rank is None else "how many ranks there are"
        raise RequestError(
            f"--rendezvous: this process cannot tell {missing}",
            "Use --ring-rank and --ring-size, or start it with a scheduler that sets RANK and WORLD_SIZE, SLURM_PROCID"
            " and SLURM_NTASKS, OMPI_COMM_WORLD_RANK and _SIZE, PMI_RANK and PMI_SIZE, or JOB_COMPLETION_INDEX"
            " (with --ring-size).",
        )
    if not 0 <= rank < ranks <= _MOST_RANKS:
        raise RequestError(
            f"--rendezvous: this process is rank {rank} of {ranks}",
            "Number the ranks from 0 to the number of ranks minus 1.",
        )
    return rank, ranks


def _number(variable: str) -> int:
    value = os.environ[variable]
    if not value.isascii() or not value.isdecimal():
        raise RequestError(f"the environment variable {variable} must be an integer, got {value!r}")
    return int(value)
