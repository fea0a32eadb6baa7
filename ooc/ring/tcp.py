"""Ring over TCP, for machines with an ordinary network; encrypted by default."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import xxhash

from ooc.ring.collectives import Collectives, waiting_frames
from ooc.ring.control_connection import ControlThread, FrameChannel
from ooc.ring.credentials import MOST_RECORDS, RECORD_BYTES, RankCredentials
from ooc.ring.handshake import (
    CONTROL,
    SLICES,
    Address,
    Authentication,
    NeighbourConnections,
    connect_neighbours,
    hang_up,
)
from ooc.ring.ring import LEFT, PATIENCE, FirstRingFailure, LocalRing, Ring, SliceFlowMonitor, too_long

DEADLINE = 60.0  # seconds
_SLICE = struct.Struct("<QQQ")  # number of the slice, its size in bytes, its checksum: 0 on an encrypted connection
_RENEWAL = _SLICE.pack(0, 2**64 - 1, 0)  # header that requests new keys instead of announcing a slice


def join(
    rank: int,
    addresses: Sequence[Address],
    listening: socket.socket,
    credentials: RankCredentials,
    *,
    insecure: bool = False,
    patience: float = PATIENCE,
    deadline: float = DEADLINE,
    names: Sequence[str] | None = None,
    agree: Callable[[str], None] = lambda problem: None,
) -> Ring:
    """Connect this rank to its neighbours and return the ring.

    addresses: addresses of all ranks.
    listening: this rank's socket, from `handshake.listen`; closed at the end.
    credentials: this rank's credentials, from `credentials.issue_credentials`.
    insecure: do not encrypt connections; must be equal on all ranks.
    patience: seconds without a heartbeat after which a rank counts as lost.
    deadline: seconds within which the neighbours must be connected.
    names: host name of each rank, for messages; by default, the host of its address.
    agree: function that is called with "" when this rank is connected to the next rank, or with the reason why it is
        not, and that returns when all ranks are connected, or raises an error.
    Raises RingFailed if the neighbours are not connected in time.
    """
    until = time.monotonic() + deadline
    failure = FirstRingFailure(names or [host for host, _ in addresses])
    with listening:
        if len(addresses) == 1:
            agree("")
            return LocalRing()
        manners = Authentication(rank, len(addresses), credentials, insecure=insecure)
        links = connect_neighbours(manners, listening, addresses, failure, until, agree)
    allowance = max(until - time.monotonic(), 0.0)
    ring = TcpRing(manners, links, failure, checked=insecure, patience=patience, allowance=allowance)
    try:
        ring.barrier()
    except BaseException:
        ring.close()
        raise
    return ring


class TcpRing(Collectives):
    """Ring over TCP, created by `join`.

    checked: whether slices carry a checksum.
    allowance: seconds beyond `patience` to wait for a neighbour's first heartbeat.
    """

    def __init__(
        self,
        manners: Authentication,
        links: NeighbourConnections,
        failure: FirstRingFailure,
        *,
        checked: bool,
        patience: float,
        allowance: float,
    ) -> None:
        super().__init__(manners.rank, manners.ranks)
        self.bytes_sent = 0
        self._failure, self._checked, self._manners = failure, checked, manners
        self._records = 0  # TLS records sent with the current keys of the slice connection
        self._in, self._out = links.previous[SLICES], links.next[SLICES]
        own = None if checked else manners
        self._previous = FrameChannel(links.previous[CONTROL], self.previous, own, accepted=True)
        self._next = FrameChannel(links.next[CONTROL], self.next, own)
        self._flow = SliceFlowMonitor(patience)
        self._control = ControlThread(
            self.rank,
            self._previous,
            self._next,
            failure,
            self._hang_up,
            waiting_frames(self.ranks),
            self._flow,
            patience,
            allowance,
        )

    def send(self, number: int, data: memoryview) -> None:
        """Implement `ring.Ring.send`."""
        self._failure.check()
        checksum = xxhash.xxh3_64_intdigest(data) if self._checked else 0
        self._flow.sent += _SLICE.size + len(data)
        try:
            if self._records >= MOST_RECORDS:
                self._out.sendall(_RENEWAL)
                self._out = self._manners.renew(self._out, accepted=False)
                self._shake_hands(self._out)
                self._records = 0
            self._records += 0 if self._checked else 2 + len(data) // RECORD_BYTES
            self._out.sendall(_SLICE.pack(number, len(data), checksum))
            self._out.sendall(data)
        except OSError as error:
            self._control.explain(self._next, error)
        self.bytes_sent += len(data)

    def receive(self, into: memoryview) -> tuple[int, int]:
        """Implement `ring.Ring.receive`."""
        self._failure.check()
        header = bytearray(_SLICE.size)
        self._fill(memoryview(header))
        while header == _RENEWAL and not self._checked:
            self._renew_in()
            self._fill(memoryview(header))
        number, length, checksum = _SLICE.unpack(header)
        if length > len(into):
            self._blame(self.previous, too_long(length, len(into)))
        self._fill(into[:length])
        if self._checked and xxhash.xxh3_64_intdigest(into[:length]) != checksum:
            self._blame(self.previous, f"sent slice {number}, whose checksum does not match")
        return number, length

    def _renew_in(self) -> None:
        """Renew the keys when the previous rank requests it."""
        self._flow.arrived -= _SLICE.size  # do not count the header of a request as part of a slice
        with self._awaiting():
            self._in = self._manners.renew(self._in, accepted=True)
            self._shake_hands(self._in)

    def _shake_hands(self, connection: ssl.SSLSocket) -> None:
        connection.settimeout(None)
        self._failure.check()  # after `_hang_up` the socket is no longer connected
        connection.do_handshake()
        self._manners.check_renewed(connection)

    @contextmanager
    def _awaiting(self) -> Iterator[None]:
        """Mark this rank as waiting for the previous rank, within the context."""
        self._flow.is_awaited = True
        try:
            yield
        except ssl.SSLError as error:
            self._blame(self.previous, f"sent data that cannot be decrypted: {error.reason}")
        except OSError as error:
            self._control.explain(self._previous, error)
        finally:
            self._flow.is_awaited = False

    def _fill(self, view: memoryview) -> None:
        with self._awaiting():
            while view:
                got = self._in.recv_into(view)
                if got == 0:
                    raise ConnectionError("the other rank closed the connection")
                self._flow.arrived += got
                view = view[got:]

    def fail(self, reason: str) -> None:
        """Implement `ring.Ring.fail`."""
        self._control.fail(self.rank, f"stopped: {reason}")
        self._control.flush()

    def close(self) -> None:
        """Implement `ring.Ring.close`."""
        if self._in.fileno() < 0:
            return
        self._control.close()
        self._failure.record(self.rank, LEFT)  # for threads that are waiting, or will wait later
        self._hang_up()
        for connection in (self._in, self._out):
            connection.close()

    def _hang_up(self) -> None:
        """Wake the threads that are waiting to send or receive slices."""
        for connection in (self._in, self._out):
            hang_up(connection)

    def _pass_on(self, frame: bytes) -> None:
        self._control.send(frame)

    def _from_previous(self) -> bytes:
        return self._control.receive()

    def _blame(self, rank: int, reason: str) -> NoReturn:
        self._control.blame(rank, reason)
