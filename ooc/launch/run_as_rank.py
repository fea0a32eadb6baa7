"""Run a function or a command from Python as one rank of a ring whose ranks authenticate with a shared key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from blocks.errors import error_class
from ooc.launch.ports import format_ports
from ooc.launch.rendezvous import join
from ooc.launch.rendezvous import rendezvous as meeting_of
from ooc.launch.rendezvous_settings import JOIN_TIMEOUT, Rendezvous
from ooc.launch.supervised_command import run_supervised
from ooc.ring.ring import PATIENCE, Ring, leave_ring_together


def run(
    task: Callable[[Ring], Any] | Sequence[str],
    *,
    rendezvous: str,
    key_file: str | Path,
    rank: int | None = None,
    ranks: int | None = None,
    join_timeout: float = JOIN_TIMEOUT,
    patience: float = PATIENCE,
    ports: str | None = None,
) -> Any:
    """Run a function or an ooc command as one rank of a ring; every rank calls this function.

    Parameters
    ----------
    task : callable or sequence of str
        A function that is called with the ring, for example to pass it on to `ooc.fit`; or the arguments of an ooc
        command, such as ``["train", "lda", "shard-{rank}", "run-{rank}", "--topics", "100"]``, which runs in a separate
        process.
    rendezvous : str
        "host:port" at which rank 0 listens and to which the other ranks connect.
    key_file : str or Path
        File with the key that all ranks share: 64 hexadecimal digits. Only its owner may be able to read the file.
    rank, ranks : int, optional
        Rank of this process, counted from 0, and number of ranks; by default from the variables of the scheduler, such
        as RANK and WORLD_SIZE, or SLURM_PROCID and SLURM_NTASKS (docs/schedulers.md).
    join_timeout : float
        Seconds to wait for all ranks to join.
    patience : float
        Seconds without a heartbeat after which a rank counts as lost.
    ports : str, optional
        Ports on which this rank listens for the rank before it, such as "40000-40010"; by default, the port of rank 0,
        or any port if that is taken.

    Returns
    -------
    object
        The return value of the function; None for a command.

    Raises
    ------
    RequestError
        If the ranks are not compatible, or the command is invalid.
    WorkFailed
        If a rank does not join in time or is lost (RingFailed), or if the command fails.
    Interrupted
        If the command saved its state and stopped, because of a signal or its time limit (TimeOver).
    """
    meeting = meeting_of(rendezvous, key_file, rank, ranks, join_timeout=join_timeout, patience=patience, ports=ports)
    if callable(task):
        ring = join(meeting)
        with leave_ring_together(ring):
            return task(ring)
    code = run_supervised([*task, *options_of(meeting, key_file)])
    if code:
        told = f"`ooc {' '.join(task[:2])}` on rank {meeting.rank} ended with exit code {code}"
        raise error_class(code)(told, "See its message on standard error.")
    return None


def options_of(meeting: Rendezvous, key_file: str | Path) -> list[str]:
    """Return the options with which a command joins the rendezvous."""
    told = {
        "rendezvous": meeting.at,
        "key-file": key_file,
        "ring-rank": meeting.rank,
        "ring-size": meeting.ranks,
        "join-timeout": meeting.join_timeout,
        "patience": meeting.patience,
    }
    told |= {"ports": format_ports(meeting.ports)} if meeting.ports else {}
    return [f"--{name}={value}" for name, value in told.items()]
