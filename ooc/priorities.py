"""The priority sampler: parameters are drawn with probability p(j) ~ priority_j + eta, none of them twice.

STRADS takes the square of a parameter's last change for its priority (supplement, section 3): what has moved will move
again. eta lets the others have a chance. Priorities are summed up in groups, and the sums of groups in a binary tree,
whose every sum is made anew from the two below it: it depends on the priorities alone, not on how they came about.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel

GROUP = 64  # priorities summed up one after the other; a draw reads one group and a pair of sums on each level above
_LARGEST = 1e200


class Sums(NamedTuple):
    """Over n priorities in G groups, a power of two. Below node i are the nodes 2i and 2i + 1; node 1 is the root, and
    nodes from G on are groups."""

    priorities: np.ndarray  # float64 (2G,), of parameters that are left
    left: np.ndarray  # int64 (2G,), how many are: not drawn


def empty_sums(parameters: int) -> Sums:
    """Room for the sums over so many priorities."""
    size = 2 << max(-(-parameters // GROUP) - 1, 0).bit_length()
    return Sums(np.zeros(size), np.zeros(size, np.int64))


@unmanaged_kernel
def add_up(priorities, sums):
    """Fill `sums`, given priorities float64 (n,), none below 0."""
    groups = sums.left.size // 2
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
    for place in range(parameters.size):
        priorities[parameters[place]] = changed[place]
    add_up_changed(priorities, sums, parameters)


@unmanaged_kernel
def add_up_changed(priorities, sums, parameters):
    """Bring `sums` up to date after the priorities of some parameters, integers (k,), have changed."""
    groups = sums.left.size // 2
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
        sums.left[node] = sums.left[2 * node] + sums.left[2 * node + 1]
        return
    total, left = 0.0, 0
    for priority in priorities[GROUP * (node - groups) : GROUP * (node - groups + 1)]:
        if not is_drawn(priority):
            total += priority
            left += 1
    sums.priorities[node], sums.left[node] = total, left


@inlined
def is_drawn(priority):
    """Whether a parameter has been drawn: meanwhile its priority has the other sign, 0.0 too."""
    return math.copysign(1.0, priority) < 0


@unmanaged_kernel
def draw(priorities, sums, eta, uniforms, drawn):
    """Draw parameters one after the other, each with p(j) ~ priority_j + eta among those that are left.

    uniforms: float64 (k,) in [0, 1). Filled: drawn int64 (k,). Returns how many there are: k, or all n if these are
    fewer. Priorities and sums are as before in the end.
    """
    count = min(drawn.size, sums.left[1])
    for place in range(count):
        rest = uniforms[place] * (sums.priorities[1] + eta * sums.left[1])
        drawn[place] = find(priorities, sums, eta, rest)
        priorities[drawn[place]] *= -1.0
        add_up_changed(priorities, sums, drawn[place : place + 1])
    for parameter in drawn[:count]:
        priorities[parameter] *= -1.0
    add_up_changed(priorities, sums, drawn[:count])
    return count


@unmanaged_kernel
def find(priorities, sums, eta, rest):
    """The first parameter up to which priority + eta, over those that are left, add up to more than `rest`.

    Rounding may leave a little of it at the end: then it is the last parameter that is left where the search ends.
    """
    groups = sums.left.size // 2
    node = 1
    while node < groups:
        node *= 2
        below = sums.priorities[node] + eta * sums.left[node]
        if sums.left[node] == 0 or (rest >= below and sums.left[node + 1] > 0):
            rest -= below
            node += 1
    found = -1
    for parameter in range(GROUP * (node - groups), min(GROUP * (node - groups + 1), priorities.size)):
        if is_drawn(priorities[parameter]):
            continue
        found = parameter
        rest -= priorities[parameter] + eta
        if rest < 0:
            break
    return found
