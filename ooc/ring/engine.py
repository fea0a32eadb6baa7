"""The static engine on a ring of machines: each has blocks of its own, slices of the model travel from one to the next.

Phases over blocks are done as on one machine. In those of which slices travel, see `ooc.ring.travel`, a rank does the
cells of its own blocks. What ranks add to the summed arrays comes round, see `ooc.ring.totals`. A rank commits its own
state; where a generation is not at all ranks, that before it counts. Slices belong to the generation of the rank that
they rest with, or, if the program can, are made anew from the local state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from blocks.arrays import Pieces
from blocks.store import Store
from ooc.cells import Pass
from ooc.engine import StaticEngine, Told
from ooc.plan import Plan
from ooc.program import Phase
from ooc.ring.generations import check_all_have, fall_back_together
from ooc.ring.itinerary import Stop, itinerary, resting
from ooc.ring.packets import SLOTS, Slots
from ooc.ring.relay import Talk, collect, gather_values, pack_arrays, unpack_arrays
from ooc.ring.ring import Ring
from ooc.ring.shelf import Shelf
from ooc.ring.totals import Collective, Totals
from ooc.ring.travel import TravellingPass
from ooc.shared import ArraySpec
from ooc.slices import SLICES
from ooc.state import CellFile, Generations
from ooc.worker import ProgramSpec, travelling_rooms

# In a generation: int64, what this rank added that had not come round; uint8, packets of slices that rest here, one
# after the other; int64, bytes of each.
PENDING, RESTING, SIZES = "pending", "resting", "resting_sizes"


class RingEngine(StaticEngine):
    """Like StaticEngine, for the rank of a ring.

    staleness: of the summed arrays, in macro-steps. scratch: a directory for slices, if not beside the state.
    """

    def __init__(
        self,
        dataset: Store,
        spec: ProgramSpec,
        generations: Generations,
        plan: Plan,
        ring: Ring,
        staleness: int = 1,
        scratch: Path | None = None,
    ) -> None:
        self._ring = ring
        self._shelf: Shelf | None = None
        self._following: Shelf | None = None  # filled while the slices travel
        self._rooms = travelling_rooms(dataset, spec.build(dataset))
        super().__init__(dataset, spec, generations, plan)
        with ExitStack() as stack:
            stack.push(self._closing)
            self._slots = Slots(self._rooms, SLOTS, self.shared)
            self._collective = stack.enter_context(closing(Collective(ring)))
            stack.callback(self._close_shelves)
            self._closing = stack.pop_all()
        self._directory = scratch or generations.directory.with_name(SLICES)
        self._directory.mkdir(exist_ok=True)
        self._summed = {name: self.arrays[name] for name in self.program.summed_arrays()}
        self._staleness = staleness
        self._totals = Totals(self._summed, self._collective, staleness)
        self._keeps_slices = any(phase.travels for phase in self.program.initial)
        self._was: dict[str, np.ndarray] = {}  # in the generation that was restored, and of the ring alone
        self._sent_before = 0  # bytes, before this process
        self._sums_sent = 0  # bytes of partial sums, by this one

    def _close_shelves(self) -> None:
        for shelf in (self._shelf, self._following):
            if shelf:
                shelf.close()

    def _travelling_specs(self) -> dict[str, ArraySpec]:
        return Slots.specs(self._rooms, SLOTS)

    @property
    def is_first(self) -> bool:
        return self._ring.rank == 0

    def gather(self, value: Any) -> list[Any]:
        return self._together(lambda ring: gather_values(ring, value))

    def _together(self, work: Callable[[Ring], Any]) -> Any:
        """Do something together with all other ranks."""
        with self._watch.rather("network"):
            return self._collective.ask(work).result()

    def start(self, gives_up: Callable[[], object] = lambda: False) -> bool:
        have = self.gather(bool(self._generations))
        if any(have):
            check_all_have(have)
        return super().start(gives_up)

    def _resume(self) -> None:
        fall_back_together(self._generations, self.gather)
        super()._resume()

    def _trips(self) -> int:
        """How often the slices have been round."""
        phases = self.program.phases
        done = sum(phase.travels == "changed" for phase in phases[: self.cursor.phase])
        return self.cursor.iteration * sum(phase.travels == "changed" for phase in phases) + done

    def _pass(self, phase: Phase, source: CellFile | None, target: CellFile | None) -> Pass:
        if not phase.travels:
            return super()._pass(phase, source, target)
        self._following = Shelf(self._directory) if phase.travels in ("made", "changed") else None
        return TravellingPass(
            self._stops(phase),
            lambda order, bell: self._cells(phase, source, target, order, bell),
            self._slots,
            self._ring,
            None if phase.travels == "made" else self._shelf,
            self._following,
        )

    def _stops(self, phase: Phase) -> list[Stop]:
        if phase.travels == "looked at":
            return [Stop(slice_, own=True, last=True) for slice_ in self._resting()]
        trips = self._trips() - (phase.travels == "made")
        return itinerary(self._layout.slices, self._ring.ranks, self._ring.rank, trips)

    def _resting(self) -> range:
        return resting(self._layout.slices, self._ring.ranks, self._ring.rank, self._trips())

    @contextmanager
    def _open(self, phase: Phase, target: CellFile | None = None) -> Iterator[Pass]:
        with super()._open(phase, target) as units:
            try:
                yield units
            except BaseException as error:  # before anybody waits for what will not come any more
                self._ring.fail(str(error) or type(error).__name__)
                raise

    def _passed(self, phase: Phase) -> None:
        if self._following:
            if self._shelf:
                self._shelf.close()
            self._shelf, self._following = self._following, None

    def _sum_up(self, phase: Phase, unit: int, stage: int) -> None:
        before = self._ring.bytes_summed
        for sums in self.program.partial_sums(phase, unit, stage, self.arrays):
            self._add_up(sums)
        self._sums_sent += self._ring.bytes_summed - before

    def _add_up(self, array: np.ndarray) -> None:
        """Replace an array by its sum over all ranks."""
        self._together(lambda ring: ring.all_reduce(array))

    def _put_together(self, phase: Phase) -> None:
        if not self._summed:
            return
        with self._watch.on("network"):
            off = self._totals.advance()
            if phase in self.program.initial:
                self._totals.settle()
                return
        sums, name = self.cursor.sums, "s_error"
        sums[name] = sums.get(name, 0.0) + off / (len(self.program.phases) * self._ring.ranks)

    def _arrays_to_commit(self) -> dict[str, np.ndarray | Pieces]:
        arrays = super()._arrays_to_commit() | {PENDING: self._totals.pending.reshape(-1)}
        if self._keeps_slices:
            assert self._shelf
            slices = self._resting()
            arrays[SIZES] = sizes = self._shelf.sizes(slices)
            arrays[RESTING] = Pieces("uint8", int(sizes.sum()), self._shelf.packets(slices))
        return arrays

    def _committed_arrays(self) -> dict[str, np.ndarray]:
        arrays = super()._committed_arrays()
        self._was = {name: arrays.pop(name) for name in (PENDING, SIZES, RESTING) if name in arrays}
        return arrays

    def _restore(self) -> None:
        super()._restore()
        self._sent_before = self.cursor.bytes_sent
        width = sum(array.size for array in self._summed.values())
        self._totals.restore(list(self._was[PENDING].reshape(self._staleness, width)))
        if self._keeps_slices:
            self._shelf = self._filled_shelf(self._was[RESTING], self._was[SIZES])

    def _filled_shelf(self, packets: np.ndarray, sizes: np.ndarray) -> Shelf:
        """A shelf with the slices that rest here, as they are in a generation."""
        shelf, ends = Shelf(self._directory), np.cumsum(sizes).tolist()
        for slice_, size, end in zip(self._resting(), sizes.tolist(), ends, strict=True):
            shelf.put(slice_, memoryview(packets[end - size : end].data))
        return shelf

    def _adapt(self) -> None:
        if found := self.program.census(self.cursor.iteration, self.sweep, self.arrays):
            with self._watch.rather("network"):
                told = Talk(self._ring).exchange(pack_arrays(found))
                arrays = {**self.arrays, **self._totals.exact()}
            self.program.adapt([unpack_arrays(each) for each in told], arrays)

    def told(self) -> Told:
        self.cursor.bytes_sent = self._sent_before + self._ring.bytes_sent + self._sums_sent
        everybody = [Told(*each) for each in self.gather(super().told())]
        return Told(
            samples=sum(each.samples for each in everybody),
            samples_processed=sum(each.samples_processed for each in everybody),
            elapsed_s=max(each.elapsed_s for each in everybody),
            seconds=_added([each.seconds for each in everybody], 1 / len(everybody)),
            sums=_added([each.sums for each in everybody], 1.0),
            memory_bytes=[size for each in everybody for size in each.memory_bytes],
            bytes_read=sum(each.bytes_read for each in everybody),
            bytes_written=sum(each.bytes_written for each in everybody),
            bytes_sent=sum(each.bytes_sent for each in everybody),
        )

    def objective(self) -> dict[str, float]:
        mine = self.program.measure(self.sweep, self.arrays)
        sums = np.array(list(mine.values()), np.float64)
        self._add_up(sums)
        whole = dict(zip(mine, sums.tolist(), strict=True))
        return self.program.objective(whole, {**self.arrays, **self._totals.exact()})

    def export(self, directory: Path) -> None:
        """Write the model of the present state at rank 0; the others tell it what they have."""
        arrays = {**self.arrays, **self._totals.exact()}
        if self._ring.rank == 0:
            self.program.export(self._everywhere, arrays, directory)
        else:
            for phase in self.program.exported:
                deque(self._everywhere(phase), maxlen=0)

    def _everywhere(self, phase: Phase) -> Iterator[Any]:
        """Run a phase that only reads at all ranks; at rank 0 its answers, in the order of units, else none."""
        ranks = self._ring.ranks
        first = -self._trips() % ranks if phase.travels else 0  # has the first of the slices, or of the blocks
        answers = (pack_arrays(answer) for answer in self.sweep(phase))
        for message in collect(self._ring, answers, [(first + turn) % ranks for turn in range(ranks)]):
            yield unpack_arrays(message)


def _added(parts: Sequence[dict[str, float]], share: float) -> dict[str, float]:
    return {name: share * sum(part.get(name, 0.0) for part in parts) for name in dict.fromkeys(chain(*parts))}
