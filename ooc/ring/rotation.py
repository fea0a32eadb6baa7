"""A phase with rotating slices: one slice is updated while the next one arrives and the previous one leaves.

Three threads run: one loads the slices stored on this rank, one receives slices from the previous rank, and one sends
finished slices. They share the slots: one slot is for this rank's own slices, the others are for slices in transit.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

from blocks.errors import WorkFailed
from ooc.ring.packet_slots import SLOTS, PacketSlots
from ooc.ring.packet_store import PacketStore
from ooc.ring.ring import Ring
from ooc.ring.rotation_schedule import SliceVisit
from ooc.state.unit_passes import LoadedUnit, ThreadWaker, UnitPass

_OWN = 1  # slots for this rank's own slices; the other slots are for slices in transit


class RotationPass:
    """Pass over the slices of a phase, in order of arrival, with their cells of the local state.

    cells: function that creates the pass over the local state, given its order and the bell to ring.
    source: store of the slices before the trip; None if there are none yet.
    target: store of the slices after the trip; None for a phase that does not change slices, which then stay in
        `source`.
    """

    def __init__(
        self,
        stops: Sequence[SliceVisit],
        cells: Callable[[Sequence[int], ThreadWaker], UnitPass],
        slots: PacketSlots,
        ring: Ring,
        source: PacketStore | None,
        target: PacketStore | None,
    ) -> None:
        self._stops = {stop.slice_: stop for stop in stops}
        self.order = [stop.slice_ for stop in stops]
        self._slots, self._ring, self._source, self._target = slots, ring, source, target
        self._bell = ThreadWaker()
        self.wake: Connection | None = self._bell.connection
        self._cells = cells(self.order, self._bell)
        self._following = deque(self.order)
        self._loaded: deque[LoadedUnit] = deque()
        self._arrived: dict[int, int] = {}  # slot of each slice
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._own: queue.Queue[int | None] = queue.Queue()
        self._passing: queue.Queue[int | None] = queue.Queue()
        self._done: queue.Queue[LoadedUnit | None] = queue.Queue()
        for slot in range(SLOTS):
            (self._own if slot < _OWN else self._passing).put(slot)
        self._threads = [self._start(work) for work in (self._take, self._receive, self._pass_on)]

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                self._failure = self._failure or error
                self._bell.ring()

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    @property
    def waits_for(self) -> str:
        """Return the resource that the next slice is waiting for."""
        return self._cells.waits_for if not self._loaded else "network"

    @property
    def bytes_read(self) -> int:
        return self._cells.bytes_read

    @property
    def bytes_written(self) -> int:
        return self._cells.bytes_written

    def poll(self, most: int) -> list[LoadedUnit]:
        self.check()
        found: list[LoadedUnit] = []
        while len(found) < most and self._following:
            self._loaded.extend(self._cells.poll(1) if not self._loaded else ())
            if not self._loaded or (found and found[-1].buffer != self._loaded[0].buffer):
                break
            if (slot := self._slot_of(self._loaded[0].unit)) is None:
                break
            found.append(self._loaded.popleft()._replace(slot=slot))
            self._following.popleft()
        return found

    def _slot_of(self, slice_: int) -> int | None:
        with self._lock:
            return self._arrived.pop(slice_, None)

    def release(self, loaded: LoadedUnit) -> None:
        self._cells.release(loaded)
        self._done.put(loaded)

    def close(self) -> None:
        for waited_for in (self._own, self._passing, self._done):
            waited_for.put(None)
        for thread in self._threads:
            thread.join()
        self._cells.close()
        self._bell.close()

    def check(self) -> None:
        if self._failure:
            raise self._failure
        self._cells.check()

    def _take(self) -> None:
        """Load the slices stored on this rank, each as soon as the previous one has left."""
        for slice_ in [slice_ for slice_ in self.order if self._stops[slice_].own]:
            if (slot := self._own.get()) is None:
                return
            size = self._source.get(slice_, self._slots.arrived(slot)) if self._source else 0
            self._arrive(slot, slice_, size)

    def _receive(self) -> None:
        """Receive slices from the previous rank."""
        for slice_ in [slice_ for slice_ in self.order if not self._stops[slice_].own]:
            if (slot := self._passing.get()) is None:
                return
            number, size = self._ring.receive(self._slots.arrived(slot))
            if number != slice_:
                previous = (self._ring.rank - 1) % self._ring.ranks
                raise WorkFailed(f"rank {previous} sent slice {number}, but slice {slice_} was expected")
            self._arrive(slot, slice_, size)

    def _arrive(self, slot: int, slice_: int, size: int) -> None:
        self._slots.check(slot, slice_, size)
        with self._lock:
            self._arrived[slice_] = slot
        self._bell.ring()

    def _pass_on(self) -> None:
        """Send finished slices to the next rank, or store them at the end of their trip, in order."""
        done: dict[int, int] = {}  # slot of each slice
        for slice_ in self.order:
            while slice_ not in done:
                if (loaded := self._done.get()) is None:
                    return
                done[loaded.unit] = loaded.slot
            stop, slot = self._stops[slice_], done.pop(slice_)
            packet = self._slots.close(slot, slice_) if self._target else self._slots.packet(slot, slice_)
            if not stop.last:
                self._ring.send(slice_, packet)
            elif self._target:
                self._target.put(slice_, packet)
            (self._own if stop.own else self._passing).put(slot)
