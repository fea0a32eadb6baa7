"""What is done in a pass of the stochastic engine, in which order: stages of tasks.

A pass is cut into rounds, each into as many runs of elements as there are workers: a run is a worker's, from one
synchronisation to the next. There may be more workers than processes, and than there is memory for: they come in
batches, a slot for each. Who does a task, and when within its stage, makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple


class Process(NamedTuple):
    """Process the elements from `first` to `last` (exclusive), each with a weight, as the worker in a slot."""

    first: int
    last: int
    slot: int
    degree: int


class Gather(NamedTuple):
    """Add up a share, number `share` of `shares`, of all variables, of the `workers` in the first slots.

    begins: whether no others of the round came before. ends: whether these are the last ones. degree: of all.
    """

    share: int
    shares: int
    workers: int
    begins: bool
    ends: bool
    degree: int


class Combine(NamedTuple):
    """Set a share, number `share` of `shares`, of all variables to what all `degree` workers have come to.

    workers: in the first slots, if these are all; 0 if what they have is gathered.
    """

    share: int
    shares: int
    degree: int
    workers: int = 0


class Keep(NamedTuple):
    """Copy a share, number `share` of `shares`, of all shared variables: so that a pass can be undone, or for a group
    of a trial, which changes the copy."""

    share: int
    shares: int


class Restore(NamedTuple):
    """Set a share of all shared variables to what they were before the pass."""

    share: int
    shares: int


class RestoreLocal(NamedTuple):
    """Set what the elements from `first` to `last` (exclusive) have to what it was before the pass."""

    first: int
    last: int


class HeldOut(NamedTuple):
    """The losses of the elements from `first` to `last` (exclusive); in a trial by what a group has come to.

    place: of the test among those of the stage.
    """

    place: int
    first: int
    last: int


Task = Process | Gather | Combine | Keep | Restore | RestoreLocal | HeldOut
Stage = Sequence[Task]


def cut(first: int, last: int, pieces: int) -> list[int]:
    """Where to cut a run of elements into pieces that are as long as each other, but for one element."""
    return [first + (last - first) * piece // pieces for piece in range(pieces + 1)]


def synchronised(bounds: Sequence[int], degree: int, slots: int, shares: int) -> Iterator[Stage]:
    """As many workers, of `degree` on all machines, as there are runs of elements between bounds; their combination."""
    here = len(bounds) - 1
    if here == degree <= slots:
        yield [Process(first, last, slot, degree) for slot, (first, last) in enumerate(pairwise(bounds))]
        yield [Combine(share, shares, degree, here) for share in range(shares)]
        return
    for before in range(0, here, slots):
        batch = list(pairwise(bounds[before : before + slots + 1]))
        yield [Process(first, last, slot, degree) for slot, (first, last) in enumerate(batch)]
        ends = before + slots >= here
        yield [Gather(share, shares, len(batch), before == 0, ends, degree) for share in range(shares)]
    yield [Combine(share, shares, degree) for share in range(shares)]


def pass_stages(rounds: Sequence[Sequence[int]], degree: int, slots: int, shares: int) -> list[list[Stage]]:
    """The stages of each round of a pass. rounds: where the runs of the elements of the workers that are here begin and
    end."""
    return [list(synchronised(bounds, degree, slots, shares)) for bounds in rounds]


def sample_size(elements: int) -> int:
    """How many of some elements tell whether a pass did any good: a sixteenth, but not too few."""
    return max(elements // 16, min(elements, 256))


def check_stage(elements: int, tests: int) -> Stage:
    """The losses of a fixed sample of the elements, spread evenly over all."""
    runs = enumerate(pairwise(cut(0, elements, tests)))
    size = sample_size(elements)
    return [HeldOut(place, first, first - (first - last) * size // elements) for place, (first, last) in runs]


def trial_stages(
    elements: int, rounds: int, groups: Sequence[int], slots: int, shares: int, tests: int, machines: int = 1
) -> list[list[Stage]]:
    """The stages of a trial, of each round of each group; all together process about as much as a pass does.

    Each group trains on a part of the elements of each round, each worker of them on as much as the others; then
    elements at the end, which none trained on, test it. Each of some machines has as many workers of each group.
    """
    held_out = elements - min(sample_size(elements), elements // 2)
    pieces = [(min(first, held_out), min(last, held_out)) for first, last in pairwise(cut(0, elements, rounds))]
    test: Stage = [HeldOut(place, *run) for place, run in enumerate(pairwise(cut(held_out, elements, tests)))]
    begin, stages = 0, []
    for size in groups:
        end = begin + size // machines
        stages.append(keep_stages(shares))
        for piece in pieces:
            bounds = cut(*piece, sum(groups) // machines)[begin : end + 1]
            stages.append(list(synchronised(bounds, size, slots, shares)))
        stages.append([test])
        begin = end
    return stages


def keep_stages(shares: int) -> list[Stage]:
    """The stages that keep the shared variables."""
    return [[Keep(share, shares) for share in range(shares)]]


def undo_stages(bounds: Sequence[int], pieces: int, shares: int) -> list[list[Stage]]:
    """The stages that undo a pass, one of the pieces between bounds of what elements have after the other."""
    pairs = [pairwise(cut(first, last, pieces)) for first, last in pairwise(bounds)]
    local: list[list[Stage]] = [[[RestoreLocal(*pair) for pair in piece]] for piece in pairs]
    return [*local, [[Restore(share, shares) for share in range(shares)]]]
