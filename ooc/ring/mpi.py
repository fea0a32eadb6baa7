"""Ring over MPI, for clusters with a scheduler and a fast network; its ranks are started by mpirun or srun.

Slices, partial sums and heartbeats each have a communicator. In most MPI libraries, blocking calls keep a core busy, so
this module polls and sleeps. If a rank is killed, mpirun ends all others. A rank that fails informs the others and, at
its exit, aborts those that do not exit by themselves.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from blocks.errors import RequestError
from blocks.workers import resume_stopped_workers
from ooc.ring.collectives import FRAME_BYTES, Collectives
from ooc.ring.ring import (
    FAILURE_BYTES,
    LEFT,
    PATIENCE,
    FirstRingFailure,
    HeartbeatSilence,
    LocalRing,
    Ring,
    StoppedWorkersMeter,
    too_long,
)

ALIVE, FAILED, LEAVING = range(3)  # tags of messages on the heartbeat communicator
_SLICE = struct.Struct("<QQ")  # number of the slice, its size in bytes
_HOST_BYTES = 256
_DEBIAN = "libmpich.so.12"  # name of MPICH's library on Debian and Ubuntu
_YIELDS = 100  # polls of a request in progress before the first sleep
_SOON = 5e-5  # seconds between polls of a request in progress after that
_LATER = 1e-3  # maximum seconds between polls of a request that may take long
_GLANCE = 0.01  # seconds between checks for heartbeats
_GRACE = 1.0  # seconds for messages in flight to arrive
_END = 5.0  # seconds for all ranks of a failed ring to exit


def join(communicator: Any = None, *, patience: float = PATIENCE) -> Ring:
    """Return the ring of all ranks of an mpi4py communicator, by default of all ranks that mpirun started.

    All ranks must call this function; each waits for the others.

    patience: see `tcp.join`.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RequestError(f"MPI cannot be used: {str(error).splitlines()[0]}", _what_to_install()) from None
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RequestError(
            f"this MPI library does not support multiple threads: {MPI.Get_library_version().splitlines()[0]}",
            "Use a library with MPI_THREAD_MULTIPLE, or start the ranks with `ooc launch`, which uses TCP.",
        )
    communicator = communicator or MPI.COMM_WORLD
    return LocalRing() if communicator.size == 1 else MpiRing(MPI, communicator, patience)


def _what_to_install() -> str:
    """Return the remedy for a missing mpi4py, or for one that finds no MPI library."""
    try:
        ctypes.CDLL(_DEBIAN)
    except OSError:
        return "Install it with: python -m pip install 'ooc[mpi]', and an MPI library: MPICH, Intel MPI or Open MPI."
    maps = Path("/proc/self/maps").read_text()
    library = next((word for word in maps.split() if word.startswith("/") and "/libmpich.so" in word), _DEBIAN)
    return (
        f"MPICH is installed as {library}, but mpi4py looks for libmpi.so.12. Create a link with that name:"
        f" mkdir -p ~/mpi; ln -s {library} ~/mpi/libmpi.so.12; export LD_LIBRARY_PATH=~/mpi"
    )


class MpiRing(Collectives):
    """Ring over MPI, created by `join`. MPI: the module mpi4py.MPI."""

    def __init__(self, MPI: Any, communicator: Any, patience: float) -> None:
        super().__init__(communicator.rank, communicator.size)
        self.bytes_sent = 0
        self._mpi, self._world = MPI, communicator
        self._slices, self._sums = communicator.Dup(), communicator.Dup()
        self._failure = FirstRingFailure(self._hosts())
        self._under_way: deque[Any] = deque()  # requests that send partial sums, oldest first
        self._abandoned: list[Any] = []  # requests that are no longer waited for, but whose memory MPI may still use
        self._watch = HeartbeatThread(MPI, communicator.Dup(), self._failure, (self.previous, self.next), patience)

    def _hosts(self) -> list[str]:
        names = np.zeros((self.ranks, _HOST_BYTES), np.uint8)
        own = self._mpi.Get_processor_name().encode()[:_HOST_BYTES]
        names[self.rank, : len(own)] = np.frombuffer(own, np.uint8)
        self._world.Allgather(self._mpi.IN_PLACE, names)
        return [name.tobytes().rstrip(b"\0").decode(errors="replace") for name in names]

    def send(self, number: int, data: memoryview) -> None:
        """Implement `ring.Ring.send`; waits until the next rank receives, lest small slices pile up there."""
        self._failure.check()
        self._wait(self._slices.Issend(self._bytes(_SLICE.pack(number, len(data))), self.next), self.next)
        self._wait(self._slices.Isend(self._bytes(data), self.next), self.next, soon=True)
        self.bytes_sent += len(data)

    def receive(self, into: memoryview) -> tuple[int, int]:
        """Implement `ring.Ring.receive`."""
        self._failure.check()
        header = bytearray(_SLICE.size)
        self._wait(self._slices.Irecv(self._bytes(header), self.previous), self.previous)
        number, length = _SLICE.unpack(header)
        if length > len(into):
            self._blame(self.previous, too_long(length, len(into)))
        self._wait(self._slices.Irecv(self._bytes(into[:length]), self.previous), self.previous, soon=True)
        return number, length

    def fail(self, reason: str) -> None:
        """Implement `ring.Ring.fail`."""
        self._watch.fail(self.rank, f"stopped: {reason}")
        self._watch.settle()

    def close(self) -> None:
        """Implement `ring.Ring.close`."""
        deadline = time.monotonic() + _GRACE
        while self._unsent() and not self._failure.known and time.monotonic() < deadline:
            time.sleep(_SOON)
        self._watch.close()
        self._failure.record(self.rank, LEFT)

    def _bytes(self, data: Any) -> list[Any]:
        return [data, len(data), self._mpi.BYTE]

    def _wait(self, request: Any, rank: int, *, soon: bool = False, status: Any = None) -> None:
        """Wait for a request to or from a neighbour.

        soon: the request is already in progress.
        """
        pauses = _pauses(soon)
        while not request.Test(status):
            if self._watch.is_gone(rank):
                self._watch.fail(rank, LEFT)
            if self._failure.known:
                self._abandoned.append(request)
                self._failure.check()
            time.sleep(next(pauses))

    def _pass_on(self, frame: bytes) -> None:
        self._failure.check()
        self._unsent()
        self._under_way.append(self._sums.Isend(self._bytes(frame), self.next))

    def _unsent(self) -> bool:
        while self._under_way and self._under_way[0].Test():
            self._under_way.popleft()
        return bool(self._under_way)

    def _from_previous(self) -> bytes:
        frame, status = bytearray(FRAME_BYTES), self._mpi.Status()
        self._wait(self._sums.Irecv(self._bytes(frame), self.previous), self.previous, status=status)
        return bytes(frame[: status.Get_count(self._mpi.BYTE)])

    def _blame(self, rank: int, reason: str) -> NoReturn:
        self._watch.fail(rank, reason)
        self._failure.check()
        raise AssertionError("a failure that is recorded is raised")


class HeartbeatThread:
    """Thread that exchanges heartbeats with the neighbours, and failures with all ranks, until `close`."""

    def __init__(
        self, MPI: Any, communicator: Any, failure: FirstRingFailure, neighbours: Sequence[int], patience: float
    ) -> None:
        self._left: dict[int, float] = {}  # by rank: time of the neighbour's goodbye, on the clock of `time.monotonic`
        self._mpi, self._communicator, self._failure = MPI, communicator, failure
        self._neighbours = sorted(set(neighbours))
        self._patience, self._silence = patience, HeartbeatSilence(self._neighbours, patience)
        self._stopped = StoppedWorkersMeter(patience)
        self._said: list[Any] = []  # send requests that may not be complete
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ring-watch", daemon=True)
        self._thread.start()

    def fail(self, rank: int, reason: str) -> None:
        """Fail the ring, unless it has failed before, and inform all ranks."""
        if self._failure.record(rank, reason):
            atexit.register(self._end)
            for other in range(self._communicator.size):
                if other != self._communicator.rank:
                    self._say(FAILED, other, self._failure.packed())

    def is_gone(self, rank: int) -> bool:
        """Return whether a neighbour left so long ago that everything it sent has arrived."""
        return time.monotonic() - self._left.get(rank, math.inf) > _GRACE

    def settle(self) -> None:
        """Wait briefly until all messages are sent."""
        deadline = time.monotonic() + _GRACE
        while not self._all_sent() and time.monotonic() < deadline:
            time.sleep(_LATER)

    def close(self) -> None:
        """Say goodbye to the neighbours."""
        if not self._closed.is_set():
            for rank in self._neighbours:
                self._say(LEAVING, rank)
            self.settle()
            self._closed.set()
            self._thread.join()

    def _say(self, tag: int, rank: int, payload: bytes = b"") -> None:
        with self._lock:
            self._said.append(self._communicator.Isend([payload, len(payload), self._mpi.BYTE], rank, tag))

    def _all_sent(self) -> bool:
        with self._lock:
            self._said = [request for request in self._said if not request.Test()]
            return not self._said

    def _run(self) -> None:
        try:
            self._keep_watch()
        except Exception as error:  # without this thread, other threads would wait forever
            self.fail(self._communicator.rank, f"stopped: {error!r} in the watch thread of its ring")
            raise

    def _keep_watch(self) -> None:
        alive_until = then = looked = time.monotonic()
        while not self._closed.wait(_GLANCE):
            if (now := time.monotonic()) >= alive_until:
                if why := self._stopped.pass_time(min(now - looked, self._patience / 2)):
                    self.fail(self._communicator.rank, why)
                    resume_stopped_workers()  # so that processes that wait for them learn of the failure
                alive_until, looked = now + self._patience / 4, now
                self._all_sent()
                for rank in self._neighbours:
                    self._say(ALIVE, rank)
            self._hear()
            for rank in self._silence.pass_time(now - then):
                self.fail(rank, f"has not responded for {self._patience:g} s")
            then = now

    def _hear(self) -> None:
        status = self._mpi.Status()
        while self._communicator.Iprobe(self._mpi.ANY_SOURCE, self._mpi.ANY_TAG, status):
            told = bytearray(FAILURE_BYTES)
            self._communicator.Recv([told, len(told), self._mpi.BYTE], status.source, status.tag, status)
            if status.source in self._neighbours:
                self._silence.heard(status.source)
            if status.tag == FAILED:
                self.fail(*self._failure.unpacked(bytes(told[: status.Get_count(self._mpi.BYTE)])))
            elif status.tag == LEAVING:
                self._left[status.source] = time.monotonic()
                self._silence.leave(status.source)

    def _end(self) -> None:
        """Wait briefly for all ranks to exit after a failure, then abort them."""
        exiting, deadline = self._communicator.Ibarrier(), time.monotonic() + _END
        while not exiting.Test() and time.monotonic() < deadline:
            time.sleep(_LATER)
        sys.stdout.flush()
        sys.stderr.flush()
        self._communicator.Abort(1)


def _pauses(soon: bool) -> Iterator[float]:
    """Yield the seconds to sleep between polls."""
    if soon:
        yield from repeat(0.0, _YIELDS)
        yield from repeat(_SOON)
    pause = _SOON
    while True:
        yield pause
        pause = min(2 * pause, _LATER)
