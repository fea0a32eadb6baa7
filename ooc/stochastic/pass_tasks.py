"""The tasks of a pass of the stochastic engine, in stages.

A pass is split into rounds, and each round into as many ranges of elements as there are workers: a worker processes one
range between synchronizations. There may be more workers than processes, and more than fit in memory, so workers are
run in batches, in slots. Results do not depend on which process runs a task, and when within its stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple


class ProcessElements(NamedTuple):
    """Process the elements from `first` to `last` (exclusive), each with a weight, as the worker in a slot."""

    first: int
    last: int
    slot: int
    degree: int


class GatherVariables(NamedTuple):
    """Sum a share of all variables over the workers in the first slots.

    share, shares: index of the share, and number of shares.
    workers: number of slots.
    begins, ends: whether this is the first, or last, batch of the round.
    degree: total number of workers.
    """

    share: int
    shares: int
    workers: int
    begins: bool
    ends: bool
    degree: int


class CombineVariables(NamedTuple):
    """Set a share of all variables to the combination of all `degree` workers.

    workers: number of workers, if all of them are in the first slots; 0 if their results were gathered.
    """

    share: int
    shares: int
    degree: int
    workers: int = 0


class SaveVariables(NamedTuple):
    """Copy a share of the shared variables, so that a pass can be undone, or so that a group in a trial can change the
    copy.
    """

    share: int
    shares: int


class RestoreVariables(NamedTuple):
    """Restore a share of the shared variables to their values before the pass."""

    share: int
    shares: int


class RestoreLocalVariables(NamedTuple):
    """Restore the local variables of the elements from `first` to `last` (exclusive)."""

    first: int
    last: int


class ComputeHeldOutLosses(NamedTuple):
    """Compute the losses of the elements from `first` to `last` (exclusive); in a trial, with a group's variables.

    place: index of the job within the stage.
    """

    place: int
    first: int
    last: int


Task = (
    ProcessElements
    | GatherVariables
    | CombineVariables
    | SaveVariables
    | RestoreVariables
    | RestoreLocalVariables
    | ComputeHeldOutLosses
)
Stage = Sequence[Task]


def cut(first: int, last: int, pieces: int) -> list[int]:
    """Return bounds that split a range of elements into pieces whose sizes differ by at most one element."""
    return [first + (last - first) * piece // pieces for piece in range(pieces + 1)]


def synchronized(bounds: Sequence[int], degree: int, slots: int, shares: int) -> Iterator[Stage]:
    """Yield the stages of one synchronization: the workers, each processing the elements between two `bounds`, and
    their combination.

    degree: number of workers on all machines.
    """
    here = len(bounds) - 1
    if here == degree <= slots:
        yield [ProcessElements(first, last, slot, degree) for slot, (first, last) in enumerate(pairwise(bounds))]
        yield [CombineVariables(share, shares, degree, here) for share in range(shares)]
        return
    for before in range(0, here, slots):
        batch = list(pairwise(bounds[before : before + slots + 1]))
        yield [ProcessElements(first, last, slot, degree) for slot, (first, last) in enumerate(batch)]
        ends = before + slots >= here
        yield [GatherVariables(share, shares, len(batch), before == 0, ends, degree) for share in range(shares)]
    yield [CombineVariables(share, shares, degree) for share in range(shares)]


def pass_stages(rounds: Sequence[Sequence[int]], degree: int, slots: int, shares: int) -> list[list[Stage]]:
    """Return the stages of each round of a pass.

    rounds: bounds of the elements of this machine's workers.
    """
    return [list(synchronized(bounds, degree, slots, shares)) for bounds in rounds]


def sample_size(elements: int) -> int:
    """Return the size of the sample that checks a pass: a sixteenth of the elements, but not below a minimum."""
    return max(elements // 16, min(elements, 256))


def check_stage(elements: int, tests: int) -> Stage:
    """Return the stage that computes the losses of a fixed sample of evenly spaced elements."""
    runs = enumerate(pairwise(cut(0, elements, tests)))
    size = sample_size(elements)
    return [
        ComputeHeldOutLosses(place, first, first - (first - last) * size // elements) for place, (first, last) in runs
    ]


def trial_stages(
    elements: int, rounds: int, groups: Sequence[int], slots: int, shares: int, tests: int, machines: int = 1
) -> list[list[Stage]]:
    """Return the stages of a trial for each group. All groups together process about as many elements as a pass.

    Each group trains on some of the elements of each round, the same number for every worker. Then it is tested on
    elements at the end, on which no group was trained. Each machine has the same number of workers of each group.
    """
    held_out = elements - min(sample_size(elements), elements // 2)
    pieces = [(min(first, held_out), min(last, held_out)) for first, last in pairwise(cut(0, elements, rounds))]
    test: Stage = [
        ComputeHeldOutLosses(place, *run) for place, run in enumerate(pairwise(cut(held_out, elements, tests)))
    ]
    begin, stages = 0, []
    for size in groups:
        end = begin + size // machines
        stages.append(keep_stages(shares))
        for piece in pieces:
            bounds = cut(*piece, sum(groups) // machines)[begin : end + 1]
            stages.append(list(synchronized(bounds, size, slots, shares)))
        stages.append([test])
        begin = end
    return stages


def keep_stages(shares: int) -> list[Stage]:
    """Return the stages that save the shared variables."""
    return [[SaveVariables(share, shares) for share in range(shares)]]


def undo_stages(bounds: Sequence[int], pieces: int, shares: int) -> list[list[Stage]]:
    """Return the stages that undo a pass.

    bounds: bounds of the pieces of local variables that are restored one after the other.
    """
    pairs = [pairwise(cut(first, last, pieces)) for first, last in pairwise(bounds)]
    local: list[list[Stage]] = [[[RestoreLocalVariables(*pair) for pair in piece]] for piece in pairs]
    return [*local, [[RestoreVariables(share, shares) for share in range(shares)]]]
