"""Programs on a ring whose ranks all have the whole dataset: each rank updates some of the parts and receives the rest.

Every rank has all arrays of the program. In each phase, a rank updates a range of the parts. Then the ranks exchange
the changes and the return values of the parts, so that `aggregate` has the same arguments on all ranks, and every rank
reaches the same state as a single machine, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from msgspec import msgpack
from xxhash import xxh3_64_hexdigest

from blocks.errors import RequestError, WorkFailed
from blocks.stored_dataset import StoredDataset
from ooc.program import Arrays, Phase, StaticProgram
from ooc.ring.ranks import RankCollectives
from ooc.ring.value_packing import pack_value, unpack_value
from ooc.workers.dispatch import StageScheduler
from ooc.workers.worker import unit_parts

_BOUNDS = {"row": "block_bounds", "column": "slice_bounds"}  # attributes of a dataset
_CHANGED_IN = {"block": "row", "grid": "row", "slice": "column"}  # order of a phase: which arrays the phase changes


def is_replicated(dataset: StoredDataset, program: StaticProgram, ranks: int) -> bool:
    """Return whether there are several ranks and each of them has the whole dataset.

    Raises RequestError if the ranks have shards and the program does not train on shards, or if they have the whole
    dataset and the work of the program cannot be divided among ranks.
    """
    name = type(program).__name__
    if ranks == 1 or program.trains_on_shards:
        return False
    if dataset.shards > 1:
        raise RequestError(
            f"{dataset.path} is a shard, and the program {name} does not train on shards",
            "Use the whole dataset on every rank; each rank then does a part of the work.",
        )
    if staged := [phase.name for phase in (*program.initial, *program.phases) if phase.staged]:
        raise RequestError(
            f"the phase {staged[0]!r} of the program {name} has stages, which cannot be divided among ranks",
            "Train the program on one machine; a StochasticProgram trains on shards with the option on_ring=true.",
        )
    if program.local_state().width:
        raise RequestError(
            f"the program {name} has local state for each of the {dataset.unit}, which cannot be divided among ranks",
            "Keep this state in shared arrays of rows or columns, or train the program on one machine.",
        )
    return True


class PartBounds(NamedTuple):
    """Numbering of the parts of all units.

    units: int64 (U,), index of the first part of each unit.
    rows: int64 (P+1,), first row or column of each part, and the total number of rows or columns.
    """

    units: np.ndarray
    rows: np.ndarray


class PartReplication:
    """The parts that one of several ranks updates in each phase, and the exchange at the end of a phase."""

    def __init__(
        self, dataset: StoredDataset, program: StaticProgram, schedule: StageScheduler, ranks: RankCollectives
    ) -> None:
        self._dataset, self._schedule, self._ranks = dataset, schedule, ranks
        self._specs = program.shared_arrays()
        for name, spec in self._specs.items():
            if spec.per and spec.shape[0] != (count := int(getattr(dataset, _BOUNDS[spec.per])[-1])):
                raise RequestError(
                    f"the array {name!r} of the program {type(program).__name__} is declared per {spec.per}, but its"
                    f" shape is {spec.shape}, and {dataset.path} has {count:,} {spec.per}s",
                    f"Declare {count:,} elements along its first axis, or omit per={spec.per!r}.",
                )
        for name, spec in program.delta_arrays().items():
            if np.dtype(spec.dtype).kind not in "biu":
                raise RequestError(
                    f"the delta array {name!r} of {type(program).__name__} has dtype {np.dtype(spec.dtype)}, "
                    "which ranks cannot sum",
                    "Use an integer dtype.",
                )
        self._bounds: dict[str, PartBounds] = {}

    def schedule(self, phase: Phase, unit: int) -> Sequence[Sequence[int]]:
        """Return the parts of a unit that this rank updates, in scheduling order, as one stage."""
        first, own = self._part_bounds(phase.order).units[unit], self._mine(phase.order)
        return [[part for part in self._schedule(phase, unit)[0] if first + part in own]]

    def exchange(
        self, phase: Phase, answers: Sequence[Any], arrays: Arrays, deltas: Sequence[Arrays], *, changes: bool = True
    ) -> list[Any]:
        """Exchange the changed rows and add up the deltas of all ranks; returns the answers of all parts in order.

        answers: return values of this rank's parts, in the order of units and parts.
        changes: whether the phase changes arrays.
        """
        changed = [name for name, spec in self._specs.items() if changes and spec.per == _CHANGED_IN[phase.order]]
        self._check_alike(phase, [name for name in arrays if name not in changed], arrays)
        for name in changed:
            self._exchange_rows(phase.order, arrays[name])
        if changes:
            self._add_deltas(deltas)
        return [unpack_value(answer) for of_rank in self._exchanged([*map(pack_value, answers)]) for answer in of_rank]

    def _exchanged(self, value: Any) -> list[Any]:
        """Return the value of each rank, in rank order."""
        message = np.frombuffer(msgpack.encode(value), np.uint8)
        return [msgpack.decode(each.tobytes()) for (each,) in self._ranks.exchange([message])]

    def _check_alike(self, phase: Phase, names: Sequence[str], arrays: Arrays) -> None:
        """Raise WorkFailed on all ranks if arrays that the phase must not change differ among ranks."""
        own = {name: xxh3_64_hexdigest(np.ascontiguousarray(arrays[name]).data) for name in names}
        first, *others = self._ranks.gather(own)
        for rank, theirs in enumerate(others, 1):
            if different := [name for name in names if theirs[name] != first[name]]:
                raise WorkFailed(
                    f"after the phase {phase.name!r} the array {different[0]!r} of rank {rank} differs from that of "
                    "rank 0",
                    f"An array that `update` changes in phases of order {phase.order!r} must be declared with"
                    f" per={_CHANGED_IN[phase.order]!r}; and all ranks must have the same processors and packages.",
                )

    def _exchange_rows(self, order: str, array: np.ndarray) -> None:
        """Receive the rows that other ranks have changed."""
        ring, rows = self._ranks.ring, self._part_bounds(order).rows
        places = [
            slice(rows[parts.start], rows[parts.stop]) for parts in map(partial(self._share, order), range(ring.ranks))
        ]
        own = np.ascontiguousarray(array[places[ring.rank]])
        for rank, (theirs,) in enumerate(self._ranks.exchange([own.reshape(-1).view(np.uint8)])):
            if rank != ring.rank:
                array[places[rank]] = theirs.view(array.dtype).reshape(array[places[rank]].shape)

    def _mine(self, order: str) -> range:
        return self._share(order, self._ranks.ring.rank)

    def _share(self, order: str, rank: int) -> range:
        """Return the range of parts, numbered over all units, that a rank updates; ranks get equal numbers of parts."""
        parts, ranks = self._part_bounds(order).rows.size - 1, self._ranks.ring.ranks
        return range(parts * rank // ranks, parts * (rank + 1) // ranks)

    def _part_bounds(self, order: str) -> PartBounds:
        if order not in self._bounds:
            self._bounds[order] = part_bounds(self._dataset, order)
        return self._bounds[order]

    def _add_deltas(self, deltas: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Set the deltas of the first worker to the sum over all workers of all ranks, and the deltas of the others to
        0.
        """
        for name, first in deltas[0].items() if deltas else ():
            total = np.ascontiguousarray(sum((each[name] for each in deltas[1:]), first.copy()))
            exact = total.astype(np.int64)
            self._ranks.add_up(exact)
            for each in deltas[1:]:
                each[name][...] = 0
            first[...] = exact.astype(first.dtype)


def part_bounds(dataset: StoredDataset, order: str) -> PartBounds:
    """Return the boundaries of the parts of a phase, numbered consecutively over all units."""
    if order == "grid":  # one unit, whose parts are the blocks
        return PartBounds(np.zeros(1, np.int64), dataset.block_bounds)
    starts = dataset.block_bounds if order == "block" else dataset.slice_bounds
    bounds = [unit_parts(dataset, order, unit)[1] for unit in range(starts.size - 1)]
    rows = [start + each[:-1] for start, each in zip(starts, bounds, strict=False)]
    firsts = np.cumsum([0, *(each.size for each in rows)])
    return PartBounds(firsts[:-1], np.concatenate([*rows, starts[-1:]]))
