"""Interface of the ring of ranks: send slices to the next rank, receive them from the previous one, and sum over all.

Three threads of a rank use a ring, each with its own calls: one sends slices, one receives them, and one (which also
creates and closes the ring) makes the collective calls, which all ranks make in the same order. Any failure is a
failure of the whole ring: every rank is informed within seconds, and all of these calls raise RingFailed.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import numpy as np

from blocks import workers
from blocks.errors import Interrupted, WorkFailed

PATIENCE = 8.0  # seconds without a heartbeat after which a rank counts as lost
_RANK = struct.Struct("<I")
FAILURE_BYTES = 2048  # bytes of a failure that is sent to other ranks; longer ones are truncated

Source = TypeVar("Source")  # of heartbeats


def error_reason(error: BaseException) -> str:
    """Return the first line of an error, or its type if it has no message, as the reason to report to other ranks."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


class RingFailed(WorkFailed):
    """The ring has failed; `what` names the rank at fault, its host and the reason."""


class Ring(Protocol):
    """Protocol of the transports. Memory to be sent or filled is passed as a memoryview of bytes (format "B")."""

    rank: int
    ranks: int
    bytes_sent: int  # bytes sent by `send`
    bytes_summed: int  # bytes sent by `all_reduce`

    def send(self, number: int, data: memoryview) -> None:
        """Send a slice, whose number is below 2**64, to the next rank.

        Blocks until `data` may be changed again. The slice may not have arrived by then, but at most some megabytes are
        in flight.
        """

    def receive(self, into: memoryview) -> tuple[int, int]:
        """Receive a slice from the previous rank at the start of `into`; returns its number and its size in bytes.

        A slice that is longer than `into` is a failure of the ring.
        """

    def all_reduce(self, array: np.ndarray) -> None:
        """Replace a contiguous int64 or float64 array by its sum over all ranks.

        Sums are accumulated in rank order, so all ranks and all runs get the same bits.
        """

    def all_gather(self, data: bytes) -> list[bytes]:
        """Return the bytes of each rank, in rank order. Each may be at most `collectives.MOST_GATHERED` bytes long."""

    def barrier(self) -> None:
        """Wait until all ranks have called this method."""

    def fail(self, reason: str) -> None:
        """Inform all other ranks why this rank stops. Only the first reason given on a ring is kept."""

    def close(self) -> None:
        """Leave the ring after the last barrier, or after a failure."""


class FirstRingFailure:
    """The first failure of a ring, shared by all threads of a rank.

    hosts: host name of each rank.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._first: tuple[int, str] | None = None
        self._lock = threading.Lock()

    @property
    def known(self) -> bool:
        return self._first is not None

    def record(self, rank: int, reason: str) -> bool:
        """Record a reason, which completes the text "rank 3 (host) "; returns whether it is the first."""
        with self._lock:
            if self._first is None:
                self._first = rank, reason
                return True
            return False

    def check(self) -> None:
        """Raise RingFailed if a failure was recorded."""
        if self._first is not None:
            raise RingFailed(
                self.text,
                "All ranks stop. When the cause is fixed, resume the run from the last state that all ranks saved.",
            )

    @property
    def text(self) -> str:
        """Return the failure as text: the rank, its host and the reason."""
        rank, reason = self._first or (0, "")
        return f"{self.name(rank)} {reason}"

    def name(self, rank: int) -> str:
        """Return a rank and its host, for messages."""
        return f"rank {rank} ({self._hosts[rank]})"

    def packed(self) -> bytes:
        """Return the failure as bytes for other ranks; b"" if there is none."""
        rank, reason = self._first or (0, "")
        return (_RANK.pack(rank) + reason.encode(errors="replace"))[:FAILURE_BYTES]

    def unpacked(self, told: bytes) -> tuple[int, str]:
        """Return the rank and reason, safe to print, that another rank sent.

        Raises ValueError for invalid bytes.
        """
        if not _RANK.size <= len(told) or (rank := _RANK.unpack_from(told)[0]) >= len(self._hosts):
            raise ValueError("a failure of an unknown rank")
        text = told[_RANK.size :].decode(errors="replace")
        return rank, "".join(letter if letter.isprintable() else " " for letter in text)


class HeartbeatSilence(Generic[Source]):
    """Seconds since the last heartbeat from each source, not counting time in which this rank itself was stopped.

    sources: the neighbours, or the connections to them.
    allowance: additional seconds to wait for the first heartbeat.
    """

    def __init__(self, sources: Sequence[Source], patience: float, allowance: float = 0.0) -> None:
        self._seconds = dict.fromkeys(sources, -allowance)
        self._patience = patience

    def heard(self, source: Source) -> None:
        self._seconds[source] = 0.0

    def leave(self, source: Source) -> None:
        """Stop expecting heartbeats from a source."""
        self._seconds[source] = float("-inf")

    def pass_time(self, seconds: float) -> list[Source]:
        """Return the sources that have been silent for too long.

        seconds: time since the last call.

        A rank that has not called this method for a long time may itself have been stopped, so a call counts for at
        most a quarter of the patience.
        """
        for source in self._seconds:
            self._seconds[source] += min(seconds, self._patience / 4)
        return [source for source, silent in self._seconds.items() if silent > self._patience]


class SliceFlowMonitor:
    """Detect slices that were sent but do not arrive: their connection can break while the control connection works.

    sent: bytes that this rank has started to send.
    arrived: bytes received from the previous rank.
    is_awaited: whether a thread is waiting for slices.
    """

    def __init__(self, patience: float) -> None:
        self.sent = self.arrived = 0
        self.is_awaited = False
        self._patience = patience
        self._announced = self._before = 0
        self._seconds = 0.0

    def announce(self, sent: int) -> None:
        """Record the number of bytes that the previous rank has started to send."""
        self._announced = sent

    def is_cut(self, seconds: float) -> bool:
        """Return whether bytes that were sent have failed to arrive for too long.

        seconds: time since the last call.
        """
        if self.arrived != self._before or not self.is_awaited or self.arrived >= self._announced:
            self._before, self._seconds = self.arrived, 0.0
        else:
            self._seconds += min(seconds, self._patience / 4)
        return self._seconds > self._patience


class StoppedWorkersMeter:
    """Measures for how many seconds worker processes of this rank have been stopped (SIGSTOP)."""

    def __init__(self, patience: float) -> None:
        self._seconds: dict[int, float] = {}
        self._patience = patience

    def pass_time(self, seconds: float) -> str:
        """Return an error message if a worker has been stopped for too long, else "".

        seconds: time since the last call.
        """
        self._seconds = {pid: self._seconds.get(pid, 0.0) + seconds for pid in workers.stopped_workers()}
        pid = next((pid for pid, still in self._seconds.items() if still > self._patience), None)
        return (
            ""
            if pid is None
            else f"failed: its worker process {pid} has been stopped (SIGSTOP) for {self._patience:g} s"
        )


@contextmanager
def leave_ring_together(ring: Ring) -> Iterator[None]:
    """Leave a ring together with the other ranks at the end of the context; inform them if this rank fails."""
    try:
        yield
        ring.barrier()
    except BaseException as error:
        if not isinstance(error, Interrupted):  # all ranks have agreed to an interrupt
            ring.fail(error_reason(error))
        raise
    finally:
        ring.close()


class LocalRing:
    """Ring of a single rank, whose next rank is itself. At most one slice can be in flight."""

    rank = 0
    ranks = 1

    def __init__(self) -> None:
        self.bytes_sent = self.bytes_summed = 0
        self._packet: tuple[int, bytes] | None = None
        self._changed = threading.Condition()
        self._failure = FirstRingFailure(["this host"])

    def send(self, number: int, data: memoryview) -> None:
        with self._changed:
            self._wait_until(lambda: self._packet is None)
            self._packet = number, bytes(data)
            self.bytes_sent += len(data)
            self._changed.notify_all()

    def receive(self, into: memoryview) -> tuple[int, int]:
        with self._changed:
            self._wait_until(lambda: self._packet is not None)
            assert self._packet is not None
            number, data = self._packet
            if len(data) > len(into):
                self._stop(too_long(len(data), len(into)))
                self._failure.check()
            into[: len(data)] = data
            self._packet = None
            self._changed.notify_all()
        return number, len(data)

    def all_reduce(self, array: np.ndarray) -> None:
        self._failure.check()

    def all_gather(self, data: bytes) -> list[bytes]:
        self._failure.check()
        return [data]

    def barrier(self) -> None:
        self._failure.check()

    def fail(self, reason: str) -> None:
        self._stop(f"stopped: {reason}")

    def close(self) -> None:
        self._stop(LEFT)

    def _stop(self, reason: str) -> None:
        with self._changed:
            self._failure.record(0, reason)
            self._changed.notify_all()

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._failure.known or ready())
        self._failure.check()


LEFT = "has left the ring"


def too_long(length: int, room: int) -> str:
    """Return the failure reason for a slice that is longer than the memory for it."""
    return f"sent a slice of {length} bytes to a rank that has room for {room}"
