"""`ooc rank`: hidden command that `ooc launch` starts on each host to run one rank."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ooc.cli.console import explain_error
from ooc.cli.session import CommandSession, RingCommand, choose, in_launch, rank_path
from ooc.cli.variables import forget_options
from ooc.runs.start_command import run_identity

if TYPE_CHECKING:
    from ooc.launch.launcher_connection import LauncherConnection
    from ooc.ring.ring import Ring


_MEETING = 30.0  # seconds for neighbours to connect; all of them are listening by then


def rank() -> None:
    """Run one rank of `ooc launch`, whose task is read from standard input."""
    from ooc.launch.supervisor import become_supervised

    become_supervised()
    from ooc.launch.launcher_connection import LauncherConnection

    forget_options()  # the task contains the effective options, equal on all ranks
    launcher = LauncherConnection()
    sys.exit(_work(launcher, launcher.receive()))


def _work(launcher: LauncherConnection, task: dict[str, Any]) -> int:
    """Run a task and report how it ended; returns the exit code."""
    ring: Ring | None = None
    run, before = None, None
    try:
        chosen = choose(task["arguments"], task["ranks"])
        run = rank_path(chosen.makes, task["rank"])
        before = run_identity(run) if chosen.name != "resume" else None
        ring = _join(launcher, task, chosen, run)
        with in_launch(_session(ring, task, chosen.parameters)), _streams(launcher, task):
            if chosen.call() == 130:  # typer turns a KeyboardInterrupt into 130
                raise KeyboardInterrupt
        ring.barrier()
        launcher.send(ended={"code": 0})
        return 0
    except BaseException as error:
        return _failed(launcher, task, error, ring, run, before)
    finally:
        if ring:
            ring.close()


def _failed(
    launcher: LauncherConnection,
    task: dict[str, Any],
    error: BaseException,
    ring: Ring | None,
    run: Path | None,
    before: tuple[int, int] | None,
) -> int:
    """Report to the launcher why the task failed; returns the exit code.

    before: identity (`run_identity`) of the run that was at the path before the task.
    """
    from ooc.ring.ring import RingFailed
    from ooc.runs.run import RunInUse

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a stop request from other ranks no longer matters
    what, remedy, code = explain_error(error)
    if ring:
        ring.fail(what)
    if task["debug"]:
        traceback.print_exception(error)
    launcher.send(
        ended={
            "code": code,
            "what": what,
            "remedy": remedy.replace(f"ooc resume {run}", task["resume"]),
            "ring": type(error) is RingFailed,  # caused by other ranks
            "transient": isinstance(error, (RingFailed, RunInUse)),
            "begun": run is not None and run_identity(run) not in (None, before),
        }
    )
    return code


def _join(launcher: LauncherConnection, task: dict[str, Any], chosen: RingCommand, run: Path) -> Ring:
    """Send this rank's description to the launcher, and connect to the other ranks."""
    from ooc.launch.ports import listen_on
    from ooc.ring import tcp
    from ooc.ring.credentials import RankCredentials

    def agree(problem: str) -> None:
        launcher.send(reached=problem)
        launcher.receive()  # if a rank has a problem, the launcher ends all ranks instead

    address = task["address"] or os.environ.get("SSH_CONNECTION", "127.0.0.1 0 127.0.0.1 0").split()[2]
    listening = listen_on(address, range(task["ports"][0], task["ports"][1] + 1))
    launcher.send(hello=_hello(task, chosen, run, address, listening.getsockname()[1]))
    told = launcher.receive()
    addresses = [(str(host), int(port)) for host, port in told["addresses"]]
    credentials = RankCredentials(**task["credentials"])
    return tcp.join(
        task["rank"],
        addresses,
        listening,
        credentials,
        insecure=task["insecure"],
        patience=task["patience"],
        deadline=_MEETING,
        names=told["names"],
        agree=agree,
    )


def _hello(task: dict[str, Any], chosen: RingCommand, run: Path, address: str, port: int) -> dict[str, Any]:
    from blocks.kinds import open_any
    from ooc.launch.preflight import RankDescription, own_packages, own_version
    from ooc.runs.chains import chain_paths, is_chains
    from ooc.runs.run import Run

    data: Path | None = None
    state, needed = run, 0
    if chosen.name == "resume":
        resumed, moved = Run(chain_paths(run)[0] if is_chains(run) else run), chosen.parameters.get("data")
        state = resumed.scratch
        data = (moved and rank_path(moved, task["rank"])) or resumed.dataset_path
    elif not chosen.ingests:
        state = rank_path(chosen.parameters.get("scratch") or run, task["rank"])
        data = rank_path(chosen.parameters["data"], task["rank"])
        needed = _disk_needed(chosen, data)
    there = next(parent for parent in (state, *state.absolute().parents) if parent.exists())
    return RankDescription(
        version=own_version(),
        packages=own_packages(),
        hostname=socket.gethostname(),
        group=os.getpid(),
        supervisor=os.getppid(),
        address=address,
        port=port,
        free=shutil.disk_usage(there).free,
        needed=needed,
        clock=time.time(),
        data=str(data or ""),
        shard=open_any(data).manifest.get("shard") if data else None,
    )._asdict()


def _disk_needed(chosen: RingCommand, data: Path) -> int:
    """Return the maximum number of bytes that a new run can take on disk."""
    from samplers import custom_program
    from samplers.factorization import training as factorization_training
    from samplers.lda import training as lda_training
    from samplers.regression.path import path_memory_plan
    from samplers.regression.softmax import training as softmax_training

    if chosen.name == "train program":
        return custom_program.disk_needed(data, chosen.parameters["program"], chosen.parameters["settings"] or ())
    if chosen.name in ("train lasso", "train logistic", "train poisson"):
        return path_memory_plan.disk_needed(data, chosen.parameters["folds"] or 0)
    if chosen.name == "train softmax":
        return softmax_training.disk_needed(data)
    if chosen.name == "train mf":
        return factorization_training.disk_needed(data, chosen.parameters["rank"], chosen.parameters["method"])
    of_chain = lda_training.disk_needed(data, *(chosen.parameters[name] for name in ("topics", "sampler", "mh_steps")))
    return max(chosen.parameters["chains"], 1) * of_chain


def _session(ring: Ring, task: dict[str, Any], parameters: dict[str, Any]) -> CommandSession:
    """Return the session of this rank.

    Ranks on the same machine share its cores and memory equally, unless options or the hosts file say otherwise.
    """
    from blocks.control_groups import core_count
    from blocks.memory import available_memory, parse_size
    from samplers.training_preparation import MEMORY_SHARE

    share, workers = task["share"], task["workers"] or parameters["workers"]
    given = parameters["memory_bytes"]
    memory = task["memory"] or (parse_size(given) if given else None)
    if share > 1:
        workers = workers or max(1, core_count() // share)
        memory = memory or int(MEMORY_SHARE * available_memory() / share)
    return CommandSession(ring, workers, memory)


@contextlib.contextmanager
def _streams(launcher: LauncherConnection, task: dict[str, Any]) -> Iterator[None]:
    """Send rank 0's output to the launcher, and its progress bar if the launcher has a terminal."""
    from blocks.progress_bar import ProgressBar
    from ooc.launch.launcher_connection import RelayedErrorStream, RelayedOutput

    if task["rank"] > 0:
        ProgressBar.is_hidden = True
        yield
        return
    before = sys.stderr
    if task["columns"]:
        os.environ |= {"COLUMNS": str(task["columns"]), "LINES": "24"}
        sys.stderr = RelayedErrorStream(lambda text: launcher.send(bar=text))
    try:
        with contextlib.redirect_stdout(RelayedOutput(lambda text: launcher.send(out=text))):
            yield
    finally:
        sys.stderr = before
