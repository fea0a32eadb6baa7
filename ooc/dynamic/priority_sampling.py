"""Priority sampler: draws parameter j with probability p(j) proportional to priority_j + eta.

STRADS uses the square of a parameter's last change as its priority (supplement, section 3), because a parameter that
changed is likely to change again. eta gives a chance to all other parameters. Draws are with replacement, and a
parameter that is drawn repeatedly counts once. Without replacement, most draws would be of parameters with priority 0
whenever there are fewer parameters with a priority than draws. Priorities are summed in groups, and the sums of groups
in a binary tree. Each node is computed from its two children, so the tree depends only on the priorities, not on the
order of changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blocks.compiled import unmanaged_kernel

GROUP = 64  # priorities summed sequentially; a draw reads one group, and a pair of sums on each level of the tree
_LARGEST = 1e200


class PrioritySumTree(NamedTuple):
    """Sums of n priorities in G groups, a power of two, as a binary tree.

    The children of node i are nodes 2i and 2i + 1; node 1 is the root, and nodes G to 2G - 1 are groups.
    """

    priorities: np.ndarray  # float64 (2G,)
    parameters: np.ndarray  # int64 (2G,), number of parameters below each node


def empty_sums(parameters: int) -> PrioritySumTree:
    """Return the sums of `parameters` priorities of 0."""
    size = 2 << max(-(-parameters // GROUP) - 1, 0).bit_length()
    return PrioritySumTree(np.zeros(size), np.zeros(size, np.int64))


@unmanaged_kernel
def sum_priorities(priorities, sums):
    """Fill `sums` from nonnegative priorities, float64 (n,)."""
    groups = sums.priorities.size // 2
    for node in range(2 * groups - 1, 0, -1):
        add_up_node(priorities, sums, node, groups)


@unmanaged_kernel
def clip_priorities(priorities):
    """Turn numbers, float64 (k,), into valid priorities in place: take absolute values, clip them, and replace NaN with
    0."""
    for place in range(priorities.size):
        number = abs(priorities[place])
        priorities[place] = min(number, _LARGEST) if number >= 0 else 0.0


@unmanaged_kernel
def change_priorities(priorities, sums, parameters, changed):
    """Set the priorities of parameters, integers (k,), to `changed`, float64 (k,), and update `sums`."""
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
    """Compute the sums of a node from its children or, for a group, from its priorities."""
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
def draw_parameters(priorities, sums, eta, uniforms, drawn):
    """Draw parameters, each with p(j) proportional to priority_j + eta; returns the number of distinct parameters.

    uniforms: float64 (k,) in [0, 1).
    Filled: drawn int64 (k,), the distinct parameters in the order of their first draw. Priorities are unchanged after
    the call; during the call, those of drawn parameters have the opposite sign.
    """
    count = 0
    for uniform in uniforms:
        parameter = find(priorities, sums, eta, uniform * (sums.priorities[1] + eta * sums.parameters[1]))
        if not math.copysign(1.0, priorities[parameter]) < 0:  # 0.0 also has a sign
            priorities[parameter] *= -1.0
            drawn[count] = parameter
            count += 1
    for parameter in drawn[:count]:
        priorities[parameter] *= -1.0
    return count


@unmanaged_kernel
def find(priorities, sums, eta, rest):
    """Return the first parameter at which the cumulative sum of |priority| + eta exceeds `rest`.

    If, because of rounding, the sum stays below `rest` in the group searched, the last parameter of this group is
    returned.
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
