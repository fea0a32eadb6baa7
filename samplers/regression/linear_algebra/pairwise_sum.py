"""Sums that are made of parts, of which each of the threads of a pool has some.

There are as many for any number of threads, and they are added up in pairs, pairs of pairs, and so on, so that the sum
is the same, too. A pair that is all of one thread is added by it: what another has written takes longer to read.
"""

from __future__ import annotations

from blocks.compiled import reordered_kernel
from samplers.regression.linear_algebra.columns import copy


@reordered_kernel
def own_parts(member, parts):
    """The first of so many parts that is the member's, and the one after its last."""
    return parts * member.rank // member.size, parts * (member.rank + 1) // member.size


@reordered_kernel
def of_one_member(member, parts, begin, end):
    """Whether some of so many parts, up to `end` (exclusive), are all of one member, whichever that is."""
    return ((begin + 1) * member.size - 1) // parts == (end * member.size - 1) // parts


@reordered_kernel
def add_up_own(member, parts, size):
    """Add up the first numbers, so many, of those of the parts, float64 (P, .), that are the member's. P is a power of
    two. What comes of a pair is in the place of its first part."""
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
    """Go on with that for the numbers from `begin` to `end` (exclusive), when all have done it: `found` gets the sums
    of all parts. What is of several members comes to sums, float64 (P, .), as the parts are to stay in the cache of the
    processor that writes them next."""
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
