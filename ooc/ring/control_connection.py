"""Control connections between neighbours on a TCP ring, and the thread that serves them.

A frame consists of the length of the payload (uint32), a kind (uint8) and the payload. Heartbeats and failures are sent
in both directions of a connection, and each rank forwards a failure to its other neighbour; partial sums are only sent
to the next rank.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol

from blocks.workers import resume_stopped_workers
from ooc.ring.collectives import FRAME_BYTES
from ooc.ring.credentials import MOST_RECORDS, RECORD_BYTES
from ooc.ring.ring import FAILURE_BYTES, LEFT, FirstRingFailure, HeartbeatSilence, SliceFlowMonitor, StoppedWorkersMeter

_HEADER = struct.Struct("<IB")
ALIVE, FAILED, LEAVING, SUM, RENEW = range(5)
_SENT = struct.Struct("<Q")  # payload of a heartbeat: bytes of slices that have been sent
_MOST_BYTES = {ALIVE: _SENT.size, FAILED: FAILURE_BYTES, LEAVING: 0, SUM: FRAME_BYTES, RENEW: 0}
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_GLANCE = 0.02  # seconds between polls
_GRACE = 1.0  # seconds for the last frames to be sent, and received by the neighbours


class InvalidFrame(Exception):
    """A frame that no correct rank sends."""


class KeyRenewal(Protocol):
    """Protocol for renewing the keys of a connection; implemented by `handshake.Authentication`."""

    def renew(self, connection: socket.socket, *, accepted: bool) -> ssl.SSLSocket: ...

    def check_renewed(self, connection: ssl.SSLSocket) -> None: ...


class FrameChannel:
    """Non-blocking exchange of frames with a neighbour. Any thread may call `put`; only one may call the other methods.

    An encrypted channel renews its keys before too many records are encrypted with them: the rank that opened the
    connection sends a request and then stops sending; the other end does the same when it receives the request; then
    both do a handshake.

    manners: authentication of this rank; None if the connection is not encrypted.
    accepted: whether the neighbour opened the connection.
    """

    def __init__(
        self, connection: socket.socket, rank: int, manners: KeyRenewal | None = None, *, accepted: bool = False
    ) -> None:
        connection.setblocking(False)
        self.connection, self.rank = connection, rank
        self.open, self.left = True, False  # whether the connection is open; whether the neighbour has said goodbye
        self._manners, self._accepted = manners, accepted
        self._records, self._most_records = 0, math.inf if manners is None or accepted else MOST_RECORDS
        self._to_send = math.inf  # frames that this end may still send with the old keys
        # Whether the neighbour has stopped sending, and whether the handshake has begun.
        self._is_asked = self._is_shaking = False
        self._lock = threading.Lock()
        self._unsent: deque[memoryview] = deque()
        self._frame = memoryview(bytearray(_HEADER.size + max(_MOST_BYTES.values())))
        self._filled, self._length = 0, _HEADER.size

    @property
    def unsent(self) -> bool:
        return self.open and bool(self._unsent) and self._to_send > 0

    def put(self, kind: int, payload: bytes = b"") -> None:
        """Queue a frame for sending."""
        with self._lock:
            self._unsent.append(memoryview(_frame(kind, payload)))

    def flush(self) -> None:
        """Send as much as is possible without blocking."""
        if self._records >= self._most_records and self._to_send == math.inf:
            self._ask()
        try:
            self._shake_hands()
            while self.unsent:
                sent = self.connection.send(self._unsent[0])
                self._records += 1 + sent // RECORD_BYTES
                if sent == len(self._unsent[0]):
                    self._unsent.popleft()
                    self._to_send -= 1
                else:
                    self._unsent[0] = self._unsent[0][sent:]
            self._shake_hands()
        except _LATER:
            pass
        except OSError:  # the received frames give the reason
            self._unsent.clear()

    def _ask(self) -> None:
        """Request a key renewal; the next thing that this end sends is a handshake."""
        with self._lock:
            self._unsent.append(memoryview(_frame(RENEW)))
            self._to_send = len(self._unsent)

    def _is_to_renew(self) -> None:
        """Handle the neighbour's request for new keys, or its answer."""
        if self._is_asked or self._manners is None or (not self._accepted and self._to_send > 0):
            raise InvalidFrame
        self._is_asked = True
        if self._accepted:
            self._ask()
        self.flush()

    def _shake_hands(self) -> None:
        """Continue a handshake if one is due.

        Raises one of the _LATER errors until it is complete.
        """
        if not self._is_asked or self._to_send > 0:
            return
        assert self._manners
        if not self._is_shaking:
            self._is_shaking = True
            self.connection = self._manners.renew(self.connection, accepted=self._accepted)
            self.connection.setblocking(False)
        assert isinstance(self.connection, ssl.SSLSocket)
        self.connection.do_handshake()
        self._manners.check_renewed(self.connection)
        self._is_asked = self._is_shaking = False
        self._records, self._to_send = 0, math.inf

    def arrived(self) -> Iterator[tuple[int, bytes]]:
        """Yield the kind and payload of each received frame. Sets `open` to False when the connection has ended."""
        while True:
            try:
                self._shake_hands()
                if self._is_asked:
                    return
                got = self.connection.recv_into(self._frame[self._filled : self._length])
            except _LATER:
                return
            except OSError:
                got = 0
            if got == 0:
                self.open = False
                return
            self._filled += got
            if self._filled == _HEADER.size:
                self._length += self._payload_bytes()
            if self._filled == self._length:
                kind = self._frame[_HEADER.size - 1]
                if kind == RENEW:
                    self._is_to_renew()
                else:
                    yield kind, bytes(self._frame[_HEADER.size : self._length])
                self._filled, self._length = 0, _HEADER.size

    def _payload_bytes(self) -> int:
        length, kind = _HEADER.unpack_from(self._frame)
        if length > _MOST_BYTES.get(kind, -1):
            raise InvalidFrame
        return int(length)


class ControlThread:
    """Thread that communicates with both neighbours until `close`.

    broken: function called once, in any thread, when the ring has failed.
    waiting_frames: maximum number of partial sums that may wait at this rank.
    flow: progress of the slices.
    allowance: see `HeartbeatSilence`.
    """

    def __init__(
        self,
        rank: int,
        previous: FrameChannel,
        following: FrameChannel,
        failure: FirstRingFailure,
        broken: Callable[[], None],
        waiting_frames: int,
        flow: SliceFlowMonitor,
        patience: float,
        allowance: float,
    ) -> None:
        self._rank, self._previous, self._next = rank, previous, following
        self._failure, self._broken, self._flow = failure, broken, flow
        self._patience, self._stopped = patience, StoppedWorkersMeter(patience)
        self._silence = HeartbeatSilence(
            self._channels, patience, allowance
        )  # two ranks have two channels to each other
        self._sums: deque[bytes] = deque()
        self._waiting_frames = waiting_frames
        self._changed = threading.Condition()
        self._leaving_until: float | None = None
        self._alarm, self._alarmed = socket.socketpair()
        self._alarm.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._alarmed, selectors.EVENT_READ)
        for channel in self._channels:
            self._selector.register(channel.connection, selectors.EVENT_READ, channel)
        self._thread = threading.Thread(target=self._run, name="ring-control", daemon=True)
        self._thread.start()

    @property
    def _channels(self) -> tuple[FrameChannel, FrameChannel]:
        return self._previous, self._next

    def send(self, frame: bytes) -> None:
        """Send a partial sum to the next rank."""
        self._failure.check()
        self._next.put(SUM, frame)
        self._wake()

    def receive(self) -> bytes:
        """Wait for a partial sum from the previous rank."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure.known or self._sums or self._previous.left)
            self._failure.check()
            if not self._sums:
                self.blame(self._previous.rank, LEFT)
            return self._sums.popleft()

    def fail(self, rank: int, reason: str) -> None:
        """Fail the ring, unless it has failed before, and inform the neighbours."""
        if self._failure.record(rank, reason):
            for channel in self._channels:
                channel.put(FAILED, self._failure.packed())
            self._broken()
            self._notify()
            self._wake()

    def blame(self, rank: int, reason: str) -> NoReturn:
        """Fail the ring because of a rank, and raise the ring's first failure."""
        self.fail(rank, reason)
        self._failure.check()
        raise AssertionError("a failure that is recorded is raised")

    def explain(self, channel: FrameChannel, error: OSError) -> NoReturn:
        """Raise RingFailed after a neighbour's slice connection ended.

        Waits up to the patience for the neighbour to give the reason on the control connection.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure.known or channel.left, self._patience)
        self.blame(channel.rank, LEFT if channel.left else f"closed its slice connection: {error.strerror or error}")

    def flush(self) -> None:
        """Wait until all frames are sent, or until the neighbours stop reading."""
        with self._changed:
            self._changed.wait_for(lambda: not any(channel.unsent for channel in self._channels), _GRACE)

    def close(self) -> None:
        """Say goodbye to the neighbours, and wait briefly for theirs."""
        for channel in self._channels:
            channel.put(LEAVING)
        self._leaving_until = time.monotonic() + _GRACE
        self._wake()
        self._thread.join()
        self._selector.close()
        for connection in (self._alarm, self._alarmed, *(channel.connection for channel in self._channels)):
            connection.close()

    def _run(self) -> None:
        try:
            then = alive_until = looked = time.monotonic()
            while not self._finished():
                if (now := time.monotonic()) >= alive_until:
                    self._look_after_workers(min(now - looked, self._patience / 2))
                    alive_until, looked = now + self._patience / 4, now
                    for channel in self._channels:
                        channel.put(ALIVE, _SENT.pack(self._flow.sent))
                self._listen(alive_until - now if self._leaving_until is None else _GLANCE)
                then, before = time.monotonic(), then
                for channel in self._silence.pass_time(then - before):
                    self.fail(channel.rank, f"has not responded for {self._patience:g} s")
                if self._flow.is_cut(then - before):
                    self.fail(self._previous.rank, f"sent slices that did not arrive within {self._patience:g} s")
        except Exception as error:  # without this thread, other threads would wait forever
            self.fail(self._rank, f"stopped: {error!r} in the control thread of its ring")
            raise

    def _look_after_workers(self, seconds: float) -> None:
        if why := self._stopped.pass_time(seconds):
            self.fail(self._rank, why)
            resume_stopped_workers()  # so that processes that wait for them learn of the failure

    def _finished(self) -> bool:
        """Return whether this rank is leaving and both neighbours have received its goodbye."""
        if self._leaving_until is None:
            return False
        heard = all(not channel.open or (channel.left and not channel.unsent) for channel in self._channels)
        return heard or time.monotonic() > self._leaving_until

    def _listen(self, seconds: float) -> None:
        """Send and receive for a number of seconds."""
        for channel in self._channels:
            if channel.open:
                channel.flush()
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.unsent else 0)
                self._selector.modify(channel.connection, events, channel)
        self._notify()
        for key, _ in self._selector.select(max(seconds, 0.0)):
            if key.data is None:
                self._alarmed.recv(4096)
            else:
                self._hear(key.data)

    def _hear(self, channel: FrameChannel) -> None:
        try:
            for kind, payload in channel.arrived():
                self._silence.heard(channel)
                self._deal_with(channel, kind, payload)
        except InvalidFrame:
            channel.open = False
            self.fail(channel.rank, "sent an invalid message")
        if not channel.open:
            self._selector.unregister(channel.connection)
            if not channel.left and self._leaving_until is None:
                self.fail(channel.rank, "closed the connection")
        self._notify()

    def _deal_with(self, channel: FrameChannel, kind: int, payload: bytes) -> None:
        if kind == ALIVE and channel is self._previous:
            if len(payload) != _SENT.size:
                raise InvalidFrame
            self._flow.announce(*_SENT.unpack(payload))
        elif kind == FAILED:
            try:
                self.fail(*self._failure.unpacked(payload))
            except ValueError:
                raise InvalidFrame from None
        elif kind == LEAVING:
            channel.left = True
            self._silence.leave(channel)
        elif kind == SUM:
            if channel is not self._previous or len(self._sums) == self._waiting_frames:
                raise InvalidFrame
            self._sums.append(payload)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the thread is about to wake up
            self._alarm.send(b"!")


def farewell(failure: FirstRingFailure) -> bytes:
    """Return the frame that informs a neighbour of a failure."""
    return _frame(FAILED, failure.packed())


def _frame(kind: int, payload: bytes = b"") -> bytes:
    return _HEADER.pack(len(payload), kind) + payload
