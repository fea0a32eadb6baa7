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


class Combine(NamedTuple):
    """Combine a share, number `share` of `shares`, of all variables, of the `workers` in the first slots.

    before: workers that were combined before. degree: of all.
    """

    share: int
    shares: int
    before: int
    workers: int
    degree: int


class HeldOut(NamedTuple):
    """The losses of the elements from `first` to `last` (exclusive), by what a group has come to."""

    first: int
    last: int


Task = Process | Combine | HeldOut
Stage = Sequence[Task]


def cut(first: int, last: int, pieces: int) -> list[int]:
    """Where to cut a run of elements into pieces that are as long as each other, but for one element."""
    return [first + (last - first) * piece // pieces for piece in range(pieces + 1)]


def synchronised(bounds: Sequence[int], slots: int, shares: int) -> Iterator[Stage]:
    """As many workers as there are runs of elements between bounds, and their combination."""
    degree = len(bounds) - 1
    for before in range(0, degree, slots):
        batch = list(pairwise(bounds[before : before + slots + 1]))
        yield [Process(first, last, slot, degree) for slot, (first, last) in enumerate(batch)]
        yield [Combine(share, shares, before, len(batch), degree) for share in range(shares)]


def pass_stages(elements: int, rounds: int, degree: int, slots: int, shares: int) -> list[list[Stage]]:
    """The stages of each round of a pass."""
    bounds = cut(0, elements, rounds)
    return [list(synchronised(cut(first, last, degree), slots, shares)) for first, last in pairwise(bounds)]


def trial_stages(elements: int, groups: Sequence[int], slots: int, shares: int, tests: int) -> list[Stage]:
    """The stages of a trial over some elements: each group trains on a part of the first half, each worker of them on
    as much as the others; then the second half tests it."""
    half, begin = elements // 2, 0
    bounds = cut(0, half, sum(groups))
    stages: list[Stage] = []
    for size in groups:
        stages += synchronised(bounds[begin : begin + size + 1], slots, shares)
        stages.append([HeldOut(first, last) for first, last in pairwise(cut(half, elements, tests))])
        begin += size
    return stages


def tested(elements: int) -> int:
    """Of so many elements of a trial, those that test."""
    return elements - elements // 2
