"""Rings for tests, and actions for their ranks: in threads over TCP, or in processes over TCP or under mpiexec.

Run as a program, this is a rank that does what it is told: see `RankProcesses`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from blocks import Interrupted, WorkFailed
from ooc.ring import handshake, tcp
from ooc.ring.credentials import RankCredentials, issue_credentials
from ooc.ring.ring import Ring, RingFailed

HOST = "127.0.0.1"
LONG = 120.0  # seconds until something that must happen is taken not to


def in_all(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return the results of calls made at the same time in threads."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [future.result() for future in [threads.submit(call) for call in calls]]


def until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Check that no thread of a ring, socket or other file is left after the context."""

    def open_now() -> tuple[int, int]:
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("ring-")]
        return len(threads), psutil.Process().num_fds()

    before = open_now()
    yield
    until(lambda: all(now <= then for now, then in zip(open_now(), before, strict=True)))


@contextlib.contextmanager
def tcp_rings(ranks: int, *, insecure: bool, **options: float) -> Iterator[list[Ring]]:
    """Yield a ring whose ranks are objects in this process."""
    credentials = issue_credentials(ranks, insecure=insecure)
    doors = [handshake.listen(HOST) for _ in range(ranks)]
    places = [door.getsockname()[:2] for door in doors]
    settings: dict[str, Any] = {"insecure": insecure, "patience": 60.0, "deadline": LONG, **options}

    def member(rank: int) -> Ring:
        return tcp.join(rank, places, doors[rank], credentials[rank], **settings)

    rings = in_all([lambda rank=rank: member(rank) for rank in range(ranks)])
    try:
        yield rings
    finally:
        in_all([ring.close for ring in rings])


def on_ring(ranks: int, deed: Callable[[Ring], Any]) -> list[Any]:
    """Return the results of a function on ranks in threads, over TCP."""
    with tcp_rings(ranks, insecure=True) as rings:
        return in_all([lambda ring=ring: _done(ring, deed) for ring in rings])


class ThreadRings:
    """Rings over TCP whose ranks are threads; all ranks run an action at the same time."""

    def __init__(self, *, insecure: bool) -> None:
        self._insecure = insecure

    @contextlib.contextmanager
    def ring(self, ranks: int) -> Iterator[Callable[..., list[Any]]]:
        with tcp_rings(ranks, insecure=self._insecure) as rings:

            def do(deed: Callable[..., Any], *arguments: Any) -> list[Any]:
                return in_all([lambda ring=ring: _done(ring, deed, arguments) for ring in rings])

            yield do


def _done(ring: Ring, deed: Callable[..., Any], arguments: Sequence[Any] = ()) -> Any:
    """Run an action; a rank that fails does not leave the others waiting, and all ranks agree on an interrupt."""
    try:
        return deed(ring, *arguments)
    except Interrupted:
        raise
    except Exception as error:
        ring.fail(repr(error))
        raise


class RankProcesses:
    """Processes that are each a `RankProcess` of a ring; those of `mpi` are started by mpiexec."""

    def __init__(self, directory: Path, count: int, *, mpi: bool) -> None:
        path = str(directory / "fleet")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen(count)
        listening.settimeout(LONG)
        program = [sys.executable, __file__, path]
        commands = [[str(mpiexec()), "-n", str(count), *program]] if mpi else [[*program, str(n)] for n in range(count)]
        self.processes = [subprocess.Popen(command) for command in commands]
        self.pids = [0] * count
        self._members: list[Connection] = [None] * count  # type: ignore[list-item]
        for _ in range(count):
            connection = Connection(listening.accept()[0].detach())
            rank, pid = connection.recv()
            self._members[rank], self.pids[rank] = connection, pid
        listening.close()

    def tell(self, rank: int, what: str, *arguments: Any) -> None:
        self._members[rank].send((what, arguments))

    def answer(self, rank: int) -> Any:
        """Return the result of a member, or raise its error here."""
        assert wait([self._members[rank]], LONG), f"rank {rank} does not answer"
        answer = self._members[rank].recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def ask(
        self, ranks: Sequence[int], what: str, arguments: Callable[[int], Sequence[Any]] = lambda _: ()
    ) -> list[Any]:
        """Return the results of some members, which work at the same time."""
        for rank in ranks:
            self.tell(rank, what, *arguments(rank))
        return [self.answer(rank) for rank in ranks]

    def join_tcp(self, *, insecure: bool, patience: float) -> None:
        ranks = range(len(self._members))
        places, credentials = self.ask(ranks, "listen"), issue_credentials(len(ranks), insecure=insecure)
        self.ask(ranks, "join_tcp", lambda rank: (rank, places, credentials[rank], insecure, patience))

    @contextlib.contextmanager
    def ring(self, ranks: int, patience: float = 60.0) -> Iterator[Callable[..., list[Any]]]:
        """Return a ring over MPI of the first ranks."""
        members = range(ranks)
        self.ask(members, "join_mpi", lambda _: (ranks, patience))

        def do(deed: Callable[..., Any], *arguments: Any) -> list[Any]:
            return self.ask(members, "do", lambda _: (deed.__name__, *arguments))

        try:
            yield do
        finally:
            self.ask(members, "close")

    def close(self) -> None:
        for member in self._members:
            member.close()
        for process in self.processes:
            process.wait(LONG)


def mpiexec() -> Path | None:
    """Return mpiexec of the package mpich in this environment, or the system's."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = beside if beside.exists() else shutil.which("mpiexec")
    return Path(found) if found else None


class RankProcess:
    """A rank in a separate process."""

    ring: Ring
    _communicators: list[Any]

    def split(self) -> int:
        """Run the rank under MPI, with a communicator for each number of ranks."""
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        sizes = range(1, world.size + 1)
        self._communicators = [world.Split(0 if world.rank < size else MPI.UNDEFINED, world.rank) for size in sizes]
        return int(world.rank)

    def listen(self) -> tuple[str, int]:
        self._door = handshake.listen(HOST)
        return self._door.getsockname()[:2]

    def join_tcp(
        self, rank: int, places: list[tuple[str, int]], own: RankCredentials, insecure: bool, patience: float
    ) -> None:
        self.ring = tcp.join(rank, places, self._door, own, insecure=insecure, patience=patience)

    def join_mpi(self, ranks: int, patience: float) -> None:
        from ooc.ring import mpi

        self.ring = mpi.join(self._communicators[ranks - 1], patience=patience)

    def do(self, deed: str, *arguments: Any) -> Any:
        return _done(self.ring, globals()[deed], arguments)

    def close(self) -> None:
        self.ring.close()


def main(path: str, rank: str | None = None) -> None:
    member = RankProcess()
    number = member.split() if rank is None else int(rank)
    with Client(path) as test:
        test.send((number, os.getpid()))
        with contextlib.suppress(EOFError):
            while True:
                what, arguments = test.recv()
                try:
                    answer = getattr(member, what)(*arguments)
                except Exception as error:
                    answer = error
                test.send(answer)


# Deeds: what each rank of a ring does.


def content(rank: int, number: int, size: int) -> np.ndarray:
    """Return bytes, uint8 (size,), that differ from those of all other ranks."""
    return np.random.default_rng([rank, number, size]).integers(0, 256, size, np.uint8)


@contextlib.contextmanager
def sending(ring: Ring, sizes: Sequence[int]) -> Iterator[list[int]]:
    """Send slices of given sizes in a thread during the context; yields their numbers."""
    sent: list[int] = []

    def send() -> None:
        for number, size in enumerate(sizes):
            ring.send(number, memoryview(content(ring.rank, number, size)))
            sent.append(number)

    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(send)
        yield sent
        future.result()


def receive_all(ring: Ring, sizes: Sequence[int]) -> None:
    room = np.zeros(max(sizes) + 1, np.uint8)
    for number, size in enumerate(sizes):
        room[-1] = room[size] = 77
        assert ring.receive(memoryview(room)) == (number, size)
        assert np.array_equal(room[:size], content((ring.rank - 1) % ring.ranks, number, size))
        assert room[size] == 77


def pass_slices(ring: Ring, sizes: Sequence[int]) -> int:
    """Send slices to the next rank, and receive those of the previous one."""
    before = ring.bytes_sent
    with sending(ring, sizes):
        receive_all(ring, sizes)
    ring.barrier()
    return ring.bytes_sent - before


def hold_back(ring: Ring, size: int, count: int) -> int:
    """Receive only after the previous rank has stopped sending; returns how many slices this rank could send until
    then.
    """
    with sending(ring, [size] * count) as sent:
        before = -1
        while before != len(sent):
            before = len(sent)
            time.sleep(0.3)
        ring.barrier()
        receive_all(ring, [size] * count)
    ring.barrier()
    return before


def reduce(ring: Ring, arrays: Sequence[np.ndarray]) -> np.ndarray:
    own = arrays[ring.rank].copy()
    ring.all_reduce(own)
    return own


UNFIT = {"short": np.zeros(3, np.int32), "strided": np.zeros((4, 4))[:, 1], "complex": np.zeros(2, complex)}


def refused_sum(ring: Ring, kind: str) -> str:
    try:
        ring.all_reduce(UNFIT[kind])
    except RingFailed:
        raise
    except WorkFailed as error:
        return error.what
    return "nothing"


def gather(ring: Ring, data: Sequence[bytes]) -> list[bytes] | str:
    try:
        return ring.all_gather(data[ring.rank])
    except Exception as error:
        return str(error)


def wait_for_all(ring: Ring) -> tuple[float, float]:
    """Return when this rank reaches a barrier, delayed according to its rank, and when it leaves the barrier."""
    time.sleep(0.05 * ring.rank)
    came = time.monotonic()
    ring.barrier()
    return came, time.monotonic()


def slices_and_sums(ring: Ring, sizes: Sequence[int], size: int) -> int:
    """Return sums of arrays that are computed while slices rotate."""
    with sending(ring, sizes), ThreadPoolExecutor(1) as thread:
        receiving = thread.submit(receive_all, ring, sizes)
        for number in range(len(sizes)):
            array = np.full(size, number + ring.rank)
            ring.all_reduce(array)
            assert (array == ring.ranks * number + sum(range(ring.ranks))).all()
        receiving.result()
    return len(sizes)


def told(call: Callable[..., Any], *arguments: Any) -> str:
    """Return the message of the error that a call raises after the ring has failed."""
    try:
        call(*arguments)
    except RingFailed as error:
        return error.what
    return "nothing"


def until_told(call: Callable[..., Any], *arguments: Any) -> str:
    """Return the message of the error that a repeated call raises, once the ring has failed."""
    while (what := told(call, *arguments)) == "nothing":
        time.sleep(0.001)
    return what


def block_everywhere(ring: Ring, failing: int, reason: str) -> list[str]:
    """Make one rank fail while all ranks wait in every kind of call; returns the message of each call.

    Ranks with even numbers do not receive, so that their predecessors cannot send.
    """
    data, room = memoryview(bytes(1 << 20)), memoryview(bytearray(1 << 20))
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(until_told, ring.send, 0, data)]
        waiting += [threads.submit(until_told, ring.receive, room)] if ring.rank % 2 else []
        if ring.rank == failing:
            time.sleep(0.3)
            ring.fail(reason)
        found = [told(ring.barrier), *(call.result() for call in waiting)]
    return [*found, told(ring.receive, room), told(ring.all_gather, b"")]


def add_up_unlike(ring: Ring) -> str:
    """Call all_reduce with a longer array on the last rank."""
    return told(ring.all_reduce, np.zeros(4 if ring.rank == ring.ranks - 1 else 3))


def send_too_much(ring: Ring) -> str:
    """Send more from rank 0 than its neighbour has memory for; all ranks fail."""
    if ring.rank == 0:
        until_told(ring.send, 5, memoryview(bytes(11)))
    if ring.rank == 1:
        return told(ring.receive, memoryview(bytearray(10)))
    return until_told(ring.barrier)


def close_and_go_on(ring: Ring) -> list[str]:
    ring.barrier()
    ring.close()
    ring.close()
    room = memoryview(bytearray(3))
    return [told(ring.send, 0, room), told(ring.receive, room), told(ring.barrier), told(ring.fail, "late")]


def wait_for_failure(ring: Ring) -> list[str]:
    """Return the error message of a rank that waits for slices and for the other ranks."""
    with ThreadPoolExecutor(1) as thread:
        receiving = thread.submit(told, ring.receive, memoryview(bytearray(9)))
        return [told(ring.barrier), receiving.result()]


if __name__ == "__main__":
    main(*sys.argv[1:])
