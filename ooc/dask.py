"""Train on the workers of a Dask cluster, with a rank on each. Public name: `train`.

The ranks are separate processes beside Dask's workers, and authenticate with a key created for each start. Their data
goes over the encrypted ring; Dask carries the command, the key, log lines and metrics.
"""

from __future__ import annotations

import json
import re
import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from blocks import stderr
from blocks.errors import STOPPED, OocError, RequestError, WorkFailed, error_class
from ooc.launch.dask_rank import RankTask, free_port, run_rank
from ooc.ring.ring import PATIENCE

_JOIN_TIMEOUT = 120.0  # seconds for the ranks to join, once their tasks are sent
_WORKERS_TIMEOUT = 300.0  # seconds to wait for workers that replace lost ones
_GRACE = 30.0  # seconds for ranks to end after a failure, beyond the patience
_LONGEST_PAUSE = 60.0  # seconds before a restart
_GLANCE = 0.5  # seconds until lost workers are noticed
_LAST_WORDS = 5.0  # seconds for the last lines of the log to arrive
_AGAIN = "Everything committed is safe. Continue with ooc.dask.train and resume=True."
_MEMORY_SHARE = 0.8  # fraction of a worker's memory limit that its rank gets


class DaskRankPlacement(NamedTuple):
    """Dask worker of a rank.

    host: host of its address.
    cores: number of threads.
    memory: memory limit in bytes, 0 for none.
    """

    address: str
    host: str
    cores: int
    memory: int

    @property
    def limits(self) -> list[str]:
        """Return the options that limit a rank to the resources of its Dask worker."""
        return [f"--workers={self.cores}", *([f"--memory={int(_MEMORY_SHARE * self.memory)}"] if self.memory else [])]


def train(
    client: Any,
    model: str,
    data: str | Path,
    run: str | Path,
    *,
    addresses: Sequence[str] | None = None,
    restarts: int = 3,
    patience: float = PATIENCE,
    callback: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train a model with a rank on each worker of a Dask cluster, and return the last line of its metrics.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    model : str
        "lda", "mf", "lasso", "logistic", "poisson" or "softmax", as for ``ooc train``; "program MODULE:CLASS" for a
        program.
    data, run : str or Path
        Dataset and run directory on the machines of the workers; ``{rank}`` is replaced by the rank. Absolute paths are
        best: relative paths are relative to the worker's working directory.
    addresses : sequence of str, optional
        Addresses of the workers, in the order of ranks; by default all workers, in the order of their addresses.
    restarts : int
        Maximum number of restarts after a worker or a connection was lost. A restart waits until there are as many
        workers as before, and continues from the newest state that all ranks have; a rank that moves to another machine
        needs its shard and run there.
    patience : float
        Seconds of silence after which a rank counts as lost.
    callback : callable, optional
        Called with each line of the metrics of rank 0, a dict; if it raises, training stops.
    **options
        Options of ``ooc train``, such as ``topics=100``, ``max_time=3600`` or ``resume=True``. ``workers`` and
        ``memory`` default to the number of threads of a Dask worker and four fifths of its memory limit.

    Returns
    -------
    dict
        The last line of the metrics, with "run", the run directory of rank 0.

    Raises
    ------
    RequestError
        If the request is invalid, or the cluster has no workers.
    WorkFailed
        If training fails, or a worker is lost again after the last restart.
    Interrupted
        If training stopped with everything saved (``max_time``, or Ctrl-C, which stops all ranks).
    """
    words = ["train", *model.split(), str(data), str(run), *_words(options)]
    return _train_with_restarts(client, words, str(run), _places(client, addresses), restarts, patience, callback)


def _train_with_restarts(
    client: Any,
    words: list[str],
    run: str,
    places: list[DaskRankPlacement],
    restarts: int,
    patience: float,
    callback: Callable[[dict[str, Any]], None] | None,
) -> dict[str, Any]:
    """Run a command on the workers, again after a loss, and return the result of rank 0."""
    for restart in range(restarts + 1):
        attempt = _RanksStart(client, words, run, places, patience, callback)
        ended = attempt.follow()
        if isinstance(ended, dict):
            return ended
        if restart == restarts or not attempt.is_transient:
            raise ended
        pause = min(2.0 ** (restart + 1), _LONGEST_PAUSE)
        stderr.print_warning(f"{ended.what.rstrip('.')}; restart {restart + 1} of {restarts} in {pause:.0f} s")
        time.sleep(pause)
        places = _replaced(client, places)
        if attempt.has_begun:
            words = [*(word for word in words if word not in ("--overwrite", "--resume")), "--resume"]
    raise AssertionError("the last restart returns or raises")


def _words(options: dict[str, Any]) -> list[str]:
    """Convert keyword arguments to command-line options."""
    words = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            words += [f"{option}={each}" for each in value]
        elif value is not None and value is not False:
            words.append(f"{option}={value}")
    return words


def _alive(client: Any) -> list[DaskRankPlacement]:
    """Return the workers of the cluster, ordered by address."""
    found = client.scheduler_info(n_workers=-1)["workers"]
    return [
        DaskRankPlacement(address, _host(address), each["nthreads"], each["memory_limit"])
        for address, each in sorted(found.items())
    ]


def _host(address: str) -> str:
    """Return the host of a worker address, such as tcp://10.0.0.2:4711, tls://[::1]:4711 or inproc://10.0.0.2/6/1."""
    return re.sub(r"^\w+://(\[.*\]|[^:/]*).*", r"\1", address)


def _places(client: Any, addresses: Sequence[str] | None) -> list[DaskRankPlacement]:
    alive = {place.address: place for place in _alive(client)}
    if unknown := [each for each in addresses or () if each not in alive]:
        raise RequestError(f"{unknown[0]} is not a worker of the cluster", f"The workers are: {', '.join(alive)}")
    found = [alive[each] for each in addresses or alive]
    if not found or len(set(found)) < len(found):
        what = "a worker is listed twice" if found else "the cluster has no workers"
        raise RequestError(what, "Start a worker for every rank; see client.wait_for_workers.")
    return found


def _replaced(client: Any, places: Sequence[DaskRankPlacement]) -> list[DaskRankPlacement]:
    """Return workers for the same ranks; a lost worker is replaced by another, on the same host if possible."""
    deadline = time.monotonic() + _WORKERS_TIMEOUT
    while len(alive := _alive(client)) < len(places):
        if time.monotonic() > deadline:
            raise WorkFailed(
                f"the cluster has {len(alive)} workers, but the run has {len(places)} ranks",
                f"Start {len(places)} workers, then call ooc.dask.train again with resume=True.",
            )
        time.sleep(_GLANCE)
    free = [place for place in alive if place not in places]
    found = [*places]
    for rank, place in enumerate(places):
        if place not in alive:
            found[rank] = next((other for other in free if other.host == place.host), free[0])
            free.remove(found[rank])
    return found


class _RanksStart:
    """One start of all ranks."""

    def __init__(
        self,
        client: Any,
        words: Sequence[str],
        run: str,
        places: Sequence[DaskRankPlacement],
        patience: float,
        callback: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self.is_transient = False  # whether a restart may succeed
        self.has_begun = False  # whether there may be a run to continue
        self._interrupted = False  # with Ctrl-C
        self._client, self._places, self._patience, self._callback = client, places, patience, callback
        self._words, self._run = words, run
        self._name = f"ooc-{uuid.uuid4().hex}"
        self._events: SimpleQueue[tuple[float, dict[str, Any]]] = SimpleQueue()  # time and content
        self._silent: set[int] = set()  # ranks that send no more lines

    def _tasks(self, port: int) -> Iterator[RankTask]:
        ranks, key, meeting = len(self._places), secrets.token_hex(32), f"{self._places[0].host}:{port}"
        given = {word.partition("=")[0] for word in self._words}
        for rank, place in enumerate(self._places):
            limits = [word for word in place.limits if word.partition("=")[0] not in given]
            yield RankTask(
                topic=self._name,
                words=[*self._words, *limits],
                run=self._run,
                rank=rank,
                ranks=ranks,
                meeting=meeting,
                key=key,
                patience=self._patience,
                join_timeout=_JOIN_TIMEOUT,
            )

    def follow(self) -> dict[str, Any] | OocError:
        """Run all ranks to the end; returns the result of rank 0, or the error to raise."""
        from distributed import Event

        client, stop = self._client, Event(f"{self._name}-stop", client=self._client)
        try:
            port = self._port()
        except OocError as error:
            return error
        client.subscribe_topic(self._name, self._events.put)
        futures = [
            client.submit(
                run_rank,
                task,
                key=f"{self._name}-{task.rank}",
                workers=[place.address],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            for task, place in zip(self._tasks(port), self._places, strict=True)
        ]
        try:
            reports = self._ended(futures, stop)
            self._wait_for_last_words()
            return self._outcome(reports)
        finally:
            stop.set()
            client.unsubscribe_topic(self._name)
            client.cancel(futures, force=True)

    def _port(self) -> int:
        """Return a port for rank 0.

        Raises WorkFailed if a worker is lost, RequestError if it has no ooc.
        """
        addresses = [place.address for place in self._places]
        try:
            found = self._client.run(free_port, workers=addresses, on_error="return")
        except (OSError, KeyError) as error:
            found = dict.fromkeys(addresses, error)
        for rank, address in enumerate(addresses):
            who, told = f"rank {rank}: the Dask worker {address}", found.get(address)
            if told is None or isinstance(told, (OSError, KeyError)):
                self.is_transient = True
                raise WorkFailed(f"{who} was lost{f': {told}' if told else ''}", _AGAIN)
            if isinstance(told, BaseException):
                raise RequestError(
                    f"{who} cannot run ooc: {told}", "Install the same version of ooc[dask] on all workers and here."
                )
        return int(found[addresses[0]])

    def _ended(self, futures: Sequence[Any], stop: Any) -> dict[int, dict[str, Any]]:
        """Wait until all ranks have ended, and return their reports by rank.

        After a failure, the other ranks have `patience` seconds to end by themselves; then they are stopped.
        """
        deadline = float("inf")
        reports: dict[int, dict[str, Any]] = {}
        while len(reports) < len(futures) and time.monotonic() < deadline:
            try:
                alive = _alive(self._client)
                for rank, (future, place) in enumerate(zip(futures, self._places, strict=True)):
                    if rank not in reports and future.done():
                        reports[rank] = _report(future)
                    elif rank not in reports and place not in alive:
                        reports[rank] = {"lost": True}
                        self._silent.add(rank)
                if any(report.get("code") != 0 for report in reports.values()):
                    deadline = min(deadline, time.monotonic() + self._patience + _GRACE)
                if time.monotonic() > deadline - _GRACE:
                    stop.set()
                time.sleep(_GLANCE)
                self._hear()
            except KeyboardInterrupt:
                if self._interrupted:
                    raise
                self._interrupted = True
                stop.set()
        self.has_begun = any(report.get("begun", True) for report in reports.values())
        return reports

    def _wait_for_last_words(self) -> None:
        deadline = time.monotonic() + _LAST_WORDS
        while len(self._silent) < len(self._places) and time.monotonic() < deadline:
            time.sleep(_GLANCE / 10)
            self._hear()

    def _outcome(self, reports: dict[int, dict[str, Any]]) -> dict[str, Any] | OocError:
        """Return the result, or the error because of which the other ranks ended."""
        if len(reports) == len(self._places) and all(report.get("code") == 0 for report in reports.values()):
            return dict(reports[0]["result"])
        failed = {rank: report for rank, report in sorted(reports.items()) if report.get("code") != 0}
        for rank, report in failed.items():
            if report.get("lost") or report["code"] > 128 + 2:
                self.is_transient = not self._interrupted
                how = "was lost" if report.get("lost") else f"killed its rank by signal {report['code'] - 128}"
                return WorkFailed(f"rank {rank}: the Dask worker {self._places[rank].address} {how}", _AGAIN)
        for rank, report in failed.items():
            if report["code"] not in STOPPED and not report["transient"]:
                return error_class(report["code"])(f"rank {rank}: {report['what']}", report["remedy"])
        if not failed:
            return WorkFailed("not all ranks have ended", _AGAIN)
        report = min(failed.values(), key=lambda each: each["code"] in STOPPED)
        self.is_transient = report["code"] not in STOPPED and not self._interrupted
        return error_class(report["code"])(report["what"], _AGAIN)

    def _hear(self) -> None:
        """Handle the lines of logs and metrics that ranks have sent."""
        while not self._events.empty():
            _, told = self._events.get()
            if told.get("end"):
                self._silent.add(told["rank"])
            elif "metrics" not in told:
                stderr.relay_line(told["line"] if stderr.is_json() else _text(told["line"]), told["rank"])
            elif self._callback:
                self._callback(told["metrics"])


def _report(future: Any) -> dict[str, Any]:
    """Return the result of a rank's task; a task that Dask has cancelled belongs to a lost worker."""
    if future.status == "finished":
        return dict(future.result())
    error = future.exception() if future.status == "error" else None
    if error is None or type(error).__name__ in ("KilledWorker", "FutureCancelledError"):
        return {"lost": True}
    return {"code": 1, "what": f"{type(error).__name__}: {error}", "remedy": "", "transient": False}


def _text(line: str) -> str:
    """Return a log line as text."""
    try:
        said = json.loads(line)
        level = {"info": "", "warning": "warning: ", "error": "ooc: "}[said["level"]]
        return f"{level}{said['message']}"
    except (ValueError, KeyError, TypeError):
        return line
