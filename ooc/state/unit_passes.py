"""Passes over local state that is in memory (`ResidentPass`) or streamed from disk, a few sections at a time
(`StreamedPass`).

Both hand out the units of a phase in order, as `LoadedUnit`, and take them back when they are done. Results are the
same with both.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection, Pipe
from typing import NamedTuple, Protocol

import numpy as np

from ooc.program import Phase
from ooc.state.cell_file import CellFile
from ooc.state.cell_layout import CellLayout
from ooc.state.generations import StateGenerations
from ooc.workers.shared_arrays import ArraySpec, SharedArrays

RESIDENT = "state"
_TILES = ("tile0", "tile1")  # buffers for tiles whose rows are arranged differently in memory and in the file


class LoadedUnit(NamedTuple):
    """A unit whose rows are in the shared array `buffer`.

    slot: slot of the unit's model slice, -1 if slices do not rotate.
    """

    unit: int
    buffer: str
    slot: int = -1


class ThreadWaker:
    """Wakes a thread that is waiting on `connection`."""

    def __init__(self) -> None:
        self.connection, self._ringer = Pipe(duplex=False)

    def ring(self) -> None:
        self._ringer.send_bytes(b".")

    def close(self) -> None:
        """End all waiting."""
        self._ringer.close()


class UnitPass(Protocol):
    """The units of one phase. Attributes: `order`, order of the units; `waits_for`, the resource that the next unit is
    waiting for; `bytes_read` and `bytes_written`, bytes of local state that were transferred."""

    @property
    def order(self) -> Sequence[int]: ...

    @property
    def waits_for(self) -> str: ...

    @property
    def bytes_read(self) -> int: ...

    @property
    def bytes_written(self) -> int: ...

    @property
    def wake(self) -> Connection | None:
        """Return a connection that is readable when `poll` may return more units; None if all units are in memory."""
        ...

    def poll(self, most: int) -> list[LoadedUnit]:
        """Return up to `most` of the next units that are in memory, all in the same buffer."""
        ...

    def release(self, loaded: LoadedUnit) -> None:
        """Take back a finished unit, which may then be written to disk and its buffer reused."""
        ...

    def close(self) -> None:
        """Wait until all released units are written, and end the background threads."""
        ...

    def check(self) -> None:
        """Raise an error of the background threads, if any."""
        ...


def read_stripe(cells: CellFile, layout: CellLayout, stripe: int, tile: np.ndarray, rows: np.ndarray) -> None:
    """Read the tiles of a stripe one by one into `tile`, and copy their cells to their positions in `rows`."""
    for slice_ in range(layout.slices):
        cells.read(stripe, slice_, tile[: layout.tile_rows[stripe, slice_]])
        for inside, place in layout.tile_cells(stripe, slice_):
            rows[place] = tile[inside]


def write_stripe(cells: CellFile, layout: CellLayout, stripe: int, tile: np.ndarray, rows: np.ndarray) -> None:
    """Write the tiles of a stripe from `rows`."""
    for slice_ in range(layout.slices):
        write_tile(cells, layout, stripe, slice_, tile, rows)


def write_tile(
    cells: CellFile, layout: CellLayout, stripe: int, slice_: int, tile: np.ndarray, rows: np.ndarray
) -> None:
    """Write a tile, after assembling it in `tile` from its cells in `rows`, the rows of the stripe."""
    filled = 0
    for inside, place in layout.tile_cells(stripe, slice_):
        tile[inside] = rows[place]
        filled = inside.stop
    whole = layout.tile_rows[stripe, slice_]
    tile[filled:whole] = 0
    cells.write(stripe, slice_, tile[:whole])


def read_slice(cells: CellFile, layout: CellLayout, slice_: int, rows: np.ndarray) -> None:
    """Read the tiles of a slice into consecutive rows."""
    at = 0
    for stripe, whole in enumerate(layout.tile_rows[:, slice_]):
        cells.read(stripe, slice_, rows[at : at + whole])
        at += whole


def write_slice(cells: CellFile, layout: CellLayout, slice_: int, rows: np.ndarray) -> None:
    """Write the tiles of a slice from rows arranged as `read_slice` leaves them."""
    at = 0
    for stripe, whole in enumerate(layout.tile_rows[:, slice_]):
        cells.write(stripe, slice_, rows[at : at + whole])
        at += whole


def _tile_spec(layout: CellLayout) -> ArraySpec:
    return ArraySpec((int(layout.tile_rows.max()), layout.local.width), layout.local.dtype)


class ResidentState:
    """Local state with all rows in one shared array, and a buffer for one tile."""

    def __init__(self, layout: CellLayout, shared: SharedArrays) -> None:
        self._layout, self._rows, self._tile = layout, shared[RESIDENT], shared[_TILES[0]]

    @staticmethod
    def specs(layout: CellLayout) -> dict[str, ArraySpec]:
        state = ArraySpec((layout.rows, layout.local.width), layout.local.dtype)
        return {RESIDENT: state, _TILES[0]: _tile_spec(layout)}

    def load(self, generations: StateGenerations) -> None:
        """Read the newest generation."""
        cells = generations.open()
        try:
            for stripe in range(self._layout.stripes):
                read_stripe(cells, self._layout, stripe, self._tile, self._stripe(stripe))
        finally:
            cells.close()

    def write(self, cells: CellFile, order: str, section: int) -> int:
        """Write the tiles of a section to a new generation; returns the bytes written."""
        if order == "block":
            write_stripe(cells, self._layout, section, self._tile, self._stripe(section))
        else:
            for stripe in range(self._layout.stripes):
                write_tile(cells, self._layout, stripe, section, self._tile, self._stripe(stripe))
        return self._layout.section_bytes(order, section)

    def write_all(self, cells: CellFile) -> int:
        """Write all tiles to a new generation; returns the bytes written."""
        return sum(self.write(cells, "block", stripe) for stripe in range(self._layout.stripes))

    def _stripe(self, stripe: int) -> np.ndarray:
        """Return the rows of the blocks of a stripe."""
        first, last = self._layout.block_rows[self._layout.stripe_bounds[stripe : stripe + 2]]
        return self._rows[first:last]


class SectionWriter:
    """Thread that writes a section when all its units are done.

    write: function that is called with a section and its buffer.
    failed: function that is called in the thread after an error.
    """

    def __init__(
        self, phase: Phase, layout: CellLayout, write: Callable[[int, str], object], failed: Callable[[], object]
    ) -> None:
        self._order, self._layout, self._write, self._failed = phase.order, layout, write, failed
        self._done: queue.Queue[LoadedUnit | None] = queue.Queue()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write_all, daemon=True)
        self._thread.start()

    def release(self, loaded: LoadedUnit) -> None:
        """Mark a unit as done."""
        self._done.put(loaded)

    def close(self) -> None:
        """Wait until all released units are written."""
        self._done.put(None)
        self._thread.join()

    def check(self) -> None:
        """Raise an error of the thread, if any."""
        if self._failure:
            raise self._failure

    def _write_all(self) -> None:
        missing: dict[int, int] = {}  # number of units of each section that are not done
        try:
            while loaded := self._done.get():
                section = self._layout.section_of(self._order, loaded.unit)
                units = self._layout.section_units(self._order, section)
                missing[section] = missing.get(section, len(units)) - 1
                if missing[section] == 0:
                    self._write(section, loaded.buffer)
        except BaseException as error:
            self._failure = error
            self._failed()


class ResidentPass:
    """Pass over state in memory.

    target: file to write in the background, or None.
    order: order of the units; None for ascending order.
    """

    waits_for = "disk"

    def __init__(
        self,
        phase: Phase,
        layout: CellLayout,
        resident: ResidentState,
        target: CellFile | None,
        order: Sequence[int] | None = None,
    ) -> None:
        self.order = range(layout.units(phase.order)) if order is None else order
        self._units = iter(self.order)
        self.wake: Connection | None = None
        self.bytes_read = self.bytes_written = 0
        self._writer = None
        if target:

            def write(section: int, _: str) -> None:
                self.bytes_written += resident.write(target, phase.order, section)

            self._writer = SectionWriter(phase, layout, write, failed=lambda: None)

    def poll(self, most: int) -> list[LoadedUnit]:
        return [LoadedUnit(unit, RESIDENT) for unit in islice(self._units, most)]

    def release(self, loaded: LoadedUnit) -> None:
        if self._writer:
            self._writer.release(loaded)

    def close(self) -> None:
        if self._writer:
            self._writer.close()

    def check(self) -> None:
        if self._writer:
            self._writer.check()


class StreamedPass:
    """Pass over state on disk: one thread loads sections into free buffers, and another one writes finished sections.

    source: file to read; None for a phase that initializes the state.
    target: file to write; None for a read-only phase.
    order: order of the slices; None for ascending order.
    bell: rung when more units are in memory.
    """

    waits_for = "disk"

    def __init__(
        self,
        phase: Phase,
        layout: CellLayout,
        shared: SharedArrays,
        buffers: int,
        source: CellFile | None,
        target: CellFile | None,
        order: Sequence[int] | None = None,
        bell: ThreadWaker | None = None,
    ) -> None:
        self._order, self._layout, self._shared = phase.order, layout, shared
        self.order = range(layout.units(phase.order)) if order is None else order
        self._source, self._target = source, target
        self.bytes_read = self.bytes_written = 0
        self._bell = bell or ThreadWaker()
        self.wake: Connection | None = self._bell.connection
        self._free: queue.Queue[str | None] = queue.Queue()
        self._ready: queue.Queue[deque[LoadedUnit]] = queue.Queue()
        self._section: deque[LoadedUnit] = deque()  # loaded units that are handed out next
        self._failure: BaseException | None = None
        for number in range(buffers):
            self._free.put(f"buffer{number}")
        self._writer = SectionWriter(phase, layout, self._write_back, failed=self._bell.ring)
        self._loader = threading.Thread(target=self._guarded_load, daemon=True)
        self._loader.start()

    @staticmethod
    def specs(layout: CellLayout, buffers: int) -> dict[str, ArraySpec]:
        rows = max(int(layout.section_rows(order).max()) for order in ("block", "slice"))
        buffer = ArraySpec((rows, layout.local.width), layout.local.dtype)
        return {f"buffer{number}": buffer for number in range(buffers)} | dict.fromkeys(_TILES, _tile_spec(layout))

    def poll(self, most: int) -> list[LoadedUnit]:
        self.check()
        with suppress(queue.Empty):
            self._section = self._section or self._ready.get_nowait()
        return [self._section.popleft() for _ in range(min(most, len(self._section)))]

    def release(self, loaded: LoadedUnit) -> None:
        self._writer.release(loaded)

    def close(self) -> None:
        self._writer.close()
        self._free.put(None)  # ends a loader thread that is still waiting after a failure
        self._loader.join()
        self._bell.close()

    def check(self) -> None:
        if self._failure:
            raise self._failure
        self._writer.check()

    def _guarded_load(self) -> None:
        try:
            self._load_all()
        except BaseException as error:
            self._failure = error
            self._bell.ring()

    def _load_all(self) -> None:
        for section in range(self._layout.stripes) if self._order == "block" else self.order:
            buffer = self._free.get()
            if buffer is None:
                return
            if self._source:
                self._load(self._source, section, self._shared[buffer])
            self._ready.put(
                deque(LoadedUnit(unit, buffer) for unit in self._layout.section_units(self._order, section))
            )
            self._bell.ring()

    def _load(self, source: CellFile, section: int, rows: np.ndarray) -> None:
        if self._order == "block":
            read_stripe(source, self._layout, section, self._shared[_TILES[0]], rows)
        else:
            read_slice(source, self._layout, section, rows)
        self.bytes_read += self._layout.section_bytes(self._order, section)

    def _write_back(self, section: int, buffer: str) -> None:
        if self._target:
            self._write(self._target, section, self._shared[buffer])
        self._free.put(buffer)

    def _write(self, target: CellFile, section: int, rows: np.ndarray) -> None:
        if self._order == "block":
            write_stripe(target, self._layout, section, self._shared[_TILES[1]], rows)
        else:
            write_slice(target, self._layout, section, rows)
        self.bytes_written += self._layout.section_bytes(self._order, section)
