"""Kernels of the steps of a round that are the same for all programs: wait for other workers, choose the parameters of
a round, and set their priorities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel, unmanaged_kernel
from ooc.dynamic.priority_sampling import PrioritySumTree, change_priorities, clip_priorities, draw_parameters
from ooc.dynamic.round_schedule import AGGREGATE, SCHEDULE, UPDATE
from ooc.workers.atomics import have_reached, raise_to

LOOKS = 1_500  # polls of a counter, about 30 microseconds, before the worker yields the processor


class StepParameters(NamedTuple):
    """Numbers that determine the steps of a worker.

    depth, schedulers, waves, slots: see `ooc.dynamic.round_schedule.RoundPipeline`.
    workers: number of workers.
    worker: number of this worker.
    others: 1 if there are other machines, else 0.
    first: first round of the run.
    held: number of parameters held.
    """

    depth: int
    schedulers: int
    waves: int
    slots: int
    workers: int
    worker: int
    others: int
    first: int
    held: int


class RoundState(NamedTuple):
    """State of rounds in shared memory, for S schedulers."""

    # Counts of rounds scheduled, and of waves aggregated, by each scheduler; of waves updated by each worker, and by
    # all other machines; and the stop flag.
    counters: np.ndarray
    parameters: np.ndarray  # int64 (slots, parallel), parameters of each round
    counts: np.ndarray  # int64 (slots,), number of parameters of each round
    priorities: np.ndarray  # float64 (S, k); parameter j is at [j % S, j // S]
    tree_priorities: np.ndarray  # float64 (S, 2G), see `ooc.dynamic.priority_sampling.PrioritySumTree`
    tree_parameters: np.ndarray  # int64 (S, 2G)


class CandidateProposals(NamedTuple):
    """Random numbers or positions from which each of S schedulers chooses its c candidates in turns `first` to `first +
    T` (exclusive).

    eta: number added to each priority, as a fraction of the mean priority.
    uniforms: float64 (T, S, c), random numbers in [0, 1) for draws by priority, or empty.
    places: int64 (T, S, c), the candidates among the parameters of their scheduler, or empty.
    """

    first: int
    eta: float
    uniforms: np.ndarray
    places: np.ndarray


@unmanaged_kernel
def is_ready(what, number, wave, order, counters):
    """Return whether the steps that a step depends on are done, after at most `LOOKS` polls."""
    schedulers = order.schedulers
    scheduler, mark = number % schedulers, number * order.waves + wave + 1  # waves are counted from 1 over all rounds
    if what == SCHEDULE:
        for other in range(max(number - order.depth + 1, order.first), number):
            if not have_reached(counters, other % schedulers, other % schedulers + 1, other + 1, LOOKS):
                return False
        return True
    if what == UPDATE:
        return have_reached(counters, scheduler, scheduler + 1, number + 1, LOOKS)
    if what == AGGREGATE:
        first = 2 * schedulers
        return have_reached(counters, first, first + order.workers + order.others, mark, LOOKS)
    return have_reached(counters, schedulers + scheduler, schedulers + scheduler + 1, mark, LOOKS)


@unmanaged_kernel
def wave_places(number, wave, slots, waves, counts):
    """Return the slot of a round, and the first and last (exclusive) place of a wave among its parameters."""
    slot = number % slots
    return slot, counts[slot] * wave // waves, counts[slot] * (wave + 1) // waves


@unmanaged_kernel
def owned_parameter_count(scheduler, order):
    """Return the number of parameters that a scheduler owns."""
    return max((order.held - scheduler + order.schedulers - 1) // order.schedulers, 0)


@kernel
def parameters_in_flight(number, order, rounds, proposals):
    """Return the parameters, int64, that are being updated when a round is computed, followed by the candidates of the
    round, and the number of the former.

    By priority, parameters are drawn with p(j) proportional to priority_j + eta. The fewer parameters have a large
    priority, the fewer distinct parameters are drawn.
    """
    turn, scheduler = number // order.schedulers - proposals.first, number % order.schedulers
    size, taken, others = (
        owned_parameter_count(scheduler, order),
        0,
        range(max(number - order.depth + 1, order.first), number),
    )
    for other in others:
        taken += rounds.counts[other % order.slots]
    count = min(size, max(proposals.uniforms.shape[2], proposals.places.shape[2]))
    together, end = np.empty(taken + count, np.int64), 0
    for other in others:
        for place in range(rounds.counts[other % order.slots]):
            together[end] = rounds.parameters[other % order.slots, place]
            end += 1
    candidates = together[taken:]
    if proposals.uniforms.size > 0 and count > 0:
        sums = PrioritySumTree(rounds.tree_priorities[scheduler], rounds.tree_parameters[scheduler])
        mean, uniforms = sums.priorities[1] / size, proposals.uniforms[turn, scheduler, :count]
        eta = proposals.eta * mean if mean > 0 else 1.0
        count = draw_parameters(rounds.priorities[scheduler, :size], sums, eta, uniforms, candidates)
    elif count > 0:
        candidates[:] = proposals.places[turn, scheduler, :count]
    for place in range(count):
        candidates[place] = scheduler + order.schedulers * candidates[place]
    return together[: taken + count], taken


@kernel
def enter_round(number, chosen, order, rounds):
    """Enter the parameters, int64 (k,), of a round by descending priority, and count the round as scheduled."""
    scheduler, slot = number % order.schedulers, number % order.slots
    order_of = np.argsort(-rounds.priorities[scheduler][chosen // order.schedulers], kind="mergesort")
    for place in range(chosen.size):
        rounds.parameters[slot, place] = chosen[order_of[place]]
    rounds.counts[slot] = chosen.size
    raise_to(rounds.counters, scheduler, number + 1)


@unmanaged_kernel
def count_update(number, wave, order, counters):
    """Count a wave as updated by this worker."""
    raise_to(counters, 2 * order.schedulers + order.worker, number * order.waves + wave + 1)


@kernel
def set_priorities(number, wave, parameters, found, order, rounds):
    """Set the priorities of parameters to `found`, float64 (k,), and count the wave as aggregated."""
    clip_priorities(found)
    scheduler = number % order.schedulers
    priorities = rounds.priorities[scheduler, : owned_parameter_count(scheduler, order)]
    sums = PrioritySumTree(rounds.tree_priorities[scheduler], rounds.tree_parameters[scheduler])
    change_priorities(priorities, sums, parameters // order.schedulers, found)
    raise_to(rounds.counters, order.schedulers + scheduler, number * order.waves + wave + 1)
