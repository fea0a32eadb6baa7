"""Pairwise sums of parts that the threads of a pool have computed.

The number of parts does not depend on the number of threads, and parts are added in pairs, pairs of pairs, and so on;
so the sum does not depend on the number of threads either. A pair that belongs to one thread is added by that thread,
since reading what another thread has written takes longer.
"""

from __future__ import annotations

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.columns import copy


@reordered_kernel
def own_parts(member, parts):
    """Return the member's range of parts."""
    return parts * member.rank // member.size, parts * (member.rank + 1) // member.size


@reordered_kernel
def of_one_member(member, parts, begin, end):
    """Return whether the parts from `begin` to `end` (exclusive) all belong to one member."""
    return ((begin + 1) * member.size - 1) // parts == (end * member.size - 1) // parts


@reordered_kernel
def add_up_own(member, parts, size):
    """Add up the member's own parts, float64 (P, .), `size` numbers each; P is a power of two. The sum of a pair
    replaces its first part.
    """
    first, last = own_parts(member, len(parts))
    apart = 1
    while apart < last - first:
        for p in range(0, len(parts), 2 * apart):
            if first <= p and p + 2 * apart <= last:
                some, others = parts[p, :size], parts[p + apart, :size]
                for k in range(size):
                    some[k] += others[k]
        apart *= 2


@reordered_kernel
def add_up(member, parts, sums, begin, end, found):
    """Add up the remaining sums, numbers `begin` to `end` (exclusive), after all members have called `add_up_own`.

    sums: float64 (P, .), receives sums over several members, so that the parts stay in the cache of the processor that
        writes them next.
    found: set to the total.
    """
    apart = 1
    while apart < len(parts):
        for p in range(0, len(parts), 2 * apart):
            if not of_one_member(member, len(parts), p, p + 2 * apart):
                some, others = parts[p, begin:end], parts[p + apart, begin:end]
                if not of_one_member(member, len(parts), p, p + apart):
                    some = sums[p, begin:end]
                if not of_one_member(member, len(parts), p + apart, p + 2 * apart):
                    others = sums[p + apart, begin:end]
                both = found[begin:end] if 2 * apart == len(parts) else sums[p, begin:end]
                for k in range(both.size):
                    both[k] = some[k] + others[k]
        apart *= 2
    if of_one_member(member, len(parts), 0, len(parts)):
        copy(parts[0, begin:end], found[begin:end])
