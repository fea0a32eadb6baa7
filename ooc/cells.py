"""Which cells are in memory: all of them (`Resident`), or a few units at a time, streamed from disk (`Streamed`).

Both hand out the units of a phase in order, as `Loaded`, and take them back when they are done. The engine cannot tell
them apart but by the time they take: what is computed is the same.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe
from typing import NamedTuple, Protocol

import numpy as np

from ooc.program import Phase
from ooc.shared import ArraySpec, SharedArrays
from ooc.state import CellFile, Generations, Layout

RESIDENT = "state"


class Loaded(NamedTuple):
    """A unit whose rows are in the shared array `buffer`."""

    unit: int
    buffer: str


class Pass(Protocol):
    """The units of one phase."""

    @property
    def wake(self) -> Connection | None:
        """Readable when `poll` may have more to give; None if it always has all."""
        ...

    def poll(self) -> Loaded | None:
        """The next unit, if it is in memory already."""
        ...

    def release(self, loaded: Loaded) -> None:
        """A unit is done: it may be written back and its buffer used again."""
        ...

    def close(self) -> None:
        """Wait until everything that was released is written, and end what runs in the background."""
        ...

    def check(self) -> None:
        """Raise what went wrong in the background, if anything did."""
        ...


class Resident:
    """All rows in one shared array. Generations are written from it whenever the caller commits."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @staticmethod
    def specs(layout: Layout) -> dict[str, ArraySpec]:
        return {RESIDENT: ArraySpec((layout.rows, layout.local.width), layout.local.dtype)}

    def load(self, generations: Generations, shared: SharedArrays) -> int:
        """Read the newest generation; returns the bytes read."""
        cells = generations.open()
        try:
            for block, slice_, rows in self._cells(shared[RESIDENT]):
                cells.read(block, slice_, rows)
        finally:
            cells.close()
        return shared[RESIDENT].nbytes

    def write(self, cells: CellFile, shared: SharedArrays) -> int:
        """Write all rows to a generation to come; returns the bytes written."""
        for block, slice_, rows in self._cells(shared[RESIDENT]):
            cells.write(block, slice_, rows)
        return shared[RESIDENT].nbytes

    def _cells(self, state: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
        for block in range(self._layout.blocks):
            for slice_ in range(self._layout.slices):
                first, last = self._layout.cell(block, slice_)
                yield block, slice_, state[first:last]


class ResidentPass:
    """A phase over state that is all in memory."""

    def __init__(self, units: int) -> None:
        self._units = iter(range(units))
        self.wake: Connection | None = None

    def poll(self) -> Loaded | None:
        unit = next(self._units, None)
        return None if unit is None else Loaded(unit, RESIDENT)

    def release(self, loaded: Loaded) -> None:
        pass

    def close(self) -> None:
        pass

    def check(self) -> None:
        pass


class StreamedPass:
    """A phase over state on disk: a thread loads units ahead into free buffers, another writes back those done.

    source: where cells are read from; None for a phase that fills them. target: where they are written, or None for a
    phase that only reads. Attributes: `bytes_read`, `bytes_written`.
    """

    def __init__(
        self,
        phase: Phase,
        layout: Layout,
        shared: SharedArrays,
        buffers: int,
        source: CellFile | None,
        target: CellFile | None,
    ) -> None:
        self._phase, self._layout, self._shared = phase, layout, shared
        self._source, self._target = source, target
        self.bytes_read = self.bytes_written = 0
        self.wake: Connection | None
        self.wake, self._waker = Pipe(duplex=False)
        self._free: queue.Queue[str | None] = queue.Queue()
        self._ready: queue.Queue[Loaded | None] = queue.Queue()
        self._done: queue.Queue[Loaded | None] = queue.Queue()
        self._failure: BaseException | None = None
        for number in range(buffers):
            self._free.put(f"buffer{number}")
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._load_all, self._write_all)
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def specs(layout: Layout, buffers: int) -> dict[str, ArraySpec]:
        rows = max(int(layout.unit_rows(order).max(initial=1)) for order in ("block", "slice"))
        return {
            f"buffer{number}": ArraySpec((rows, layout.local.width), layout.local.dtype) for number in range(buffers)
        }

    def poll(self) -> Loaded | None:
        self.check()
        try:
            return self._ready.get_nowait()
        except queue.Empty:
            return None

    def release(self, loaded: Loaded) -> None:
        self._done.put(loaded)

    def close(self) -> None:
        self._done.put(None)
        self._free.put(None)  # ends a loader that still waits, after a failure
        for thread in self._threads:
            thread.join()
        self._waker.close()

    def check(self) -> None:
        if self._failure:
            raise self._failure

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = error
            self._waker.send_bytes(b"!")

    def _load_all(self) -> None:
        for unit in range(self._layout.units(self._phase.order)):
            buffer = self._free.get()
            if buffer is None:
                return
            if self._source:
                for block, slice_, rows in self._rows(unit, buffer):
                    self._source.read(block, slice_, rows)
                    self.bytes_read += rows.nbytes
            self._ready.put(Loaded(unit, buffer))
            self._waker.send_bytes(b".")

    def _write_all(self) -> None:
        while loaded := self._done.get():
            if self._target:
                for block, slice_, rows in self._rows(*loaded):
                    self._target.write(block, slice_, rows)
                    self.bytes_written += rows.nbytes
            self._free.put(loaded.buffer)

    def _rows(self, unit: int, buffer: str) -> Iterator[tuple[int, int, np.ndarray]]:
        at = 0
        for block, slice_ in self._layout.unit_cells(self._phase.order, unit):
            first, last = self._layout.cell(block, slice_)
            yield block, slice_, self._shared[buffer][at : at + last - first]
            at += last - first
