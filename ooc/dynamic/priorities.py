"""The priority sampler: each draw is of parameter j with probability p(j) ~ priority_j + eta.

STRADS takes the square of a parameter's last change for its priority (supplement, section 3): what has moved will move
again. eta lets the others have a chance. A parameter that is drawn again counts once: were it not put back, draws of
more parameters than have a priority would mostly be of others. Priorities are summed up in groups, and the sums of
groups in a binary tree, whose every sum is made anew from the two below it: it depends on the priorities alone, not on
how they came about.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import unmanaged_kernel

GROUP = 64  # priorities summed up one after the other; a draw reads one group and a pair of sums on each level above
_LARGEST = 1e200


class Sums(NamedTuple):
    """Over n priorities in G groups, a power of two. Below node i are the nodes 2i and 2i + 1; node 1 is the root, and
    nodes from G on are groups."""

    priorities: np.ndarray  # float64 (2G,)
    parameters: np.ndarray  # int64 (2G,), how many there are


def empty_sums(parameters: int) -> Sums:
    """Room for the sums over so many priorities."""
    size = 2 << max(-(-parameters // GROUP) - 1, 0).bit_length()
    return Sums(np.zeros(size), np.zeros(size, np.int64))


@unmanaged_kernel
def add_up(priorities, sums):
    """Fill `sums`, given priorities float64 (n,), none below 0."""
    groups = sums.priorities.size // 2
    for node in range(2 * groups - 1, 0, -1):
        add_up_node(priorities, sums, node, groups)


@unmanaged_kernel
def bound(priorities):
    """Make numbers, float64 (k,), priorities: none is below 0, or too large to be summed up, or not a number."""
    for place in range(priorities.size):
        number = abs(priorities[place])
        priorities[place] = min(number, _LARGEST) if number >= 0 else 0.0


@unmanaged_kernel
def change(priorities, sums, parameters, changed):
    """Give some parameters, integers (k,), other priorities, float64 (k,), and bring `sums` up to date."""
    groups = sums.priorities.size // 2
    for place in range(parameters.size):
        priorities[parameters[place]] = changed[place]
    for parameter in parameters:
        node = groups + parameter // GROUP
        while node >= 1:
            add_up_node(priorities, sums, node, groups)
            node //= 2


@unmanaged_kernel
def add_up_node(priorities, sums, node, groups):
    """Make the sums at a node anew from what is right below it."""
    if node < groups:
        sums.priorities[node] = sums.priorities[2 * node] + sums.priorities[2 * node + 1]
        sums.parameters[node] = sums.parameters[2 * node] + sums.parameters[2 * node + 1]
        return
    group = priorities[GROUP * (node - groups) : GROUP * (node - groups + 1)]
    total = 0.0
    for priority in group:
        total += priority
    sums.priorities[node], sums.parameters[node] = total, group.size


@unmanaged_kernel
def draw(priorities, sums, eta, uniforms, drawn):
    """Draw parameters, each with p(j) ~ priority_j + eta.

    uniforms: float64 (k,) in [0, 1). Filled: drawn int64 (k,), with those that were drawn, each once, in their order.
    Returns how many they are. Priorities are as before in the end; meanwhile those of parameters that are drawn have
    the other sign.
    """
    count = 0
    for uniform in uniforms:
        parameter = find(priorities, sums, eta, uniform * (sums.priorities[1] + eta * sums.parameters[1]))
        if not math.copysign(1.0, priorities[parameter]) < 0:  # 0.0 has a sign, too
            priorities[parameter] *= -1.0
            drawn[count] = parameter
            count += 1
    for parameter in drawn[:count]:
        priorities[parameter] *= -1.0
    return count


@unmanaged_kernel
def find(priorities, sums, eta, rest):
    """The first parameter up to which priority + eta add up to more than `rest`, whatever signs priorities have.

    Rounding may leave a little of it at the end: then it is the last parameter where the search ends.
    """
    groups = sums.priorities.size // 2
    node = 1
    while node < groups:
        node *= 2
        below = sums.priorities[node] + eta * sums.parameters[node]
        if rest >= below and sums.parameters[node + 1] > 0:
            rest -= below
            node += 1
    last = min(GROUP * (node - groups + 1), priorities.size) - 1
    for parameter in range(GROUP * (node - groups), last):
        rest -= abs(priorities[parameter]) + eta
        if rest < 0:
            return parameter
    return last
