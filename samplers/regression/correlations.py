"""Correlations of columns with a residual that changes, read anew only where what is known of them does not suffice.

The correlation c of a column x is its inner product with the residual r (all rows times the roots of their weights).
What it was when the residual was q bounds what it is now: with r = a q + d, d orthogonal to q,

    |c - a x.q| <= |d| root(|x|^2 - (x.q)^2 / |q|^2)

Some residuals are kept, and with each column the last that it was read for. So along a path of penalties most columns
are read once in ten levels, and columns far from having a coefficient hardly ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from blocks.compiled import reordered_kernel
from samplers.regression.features import Features
from samplers.regression.runs import BLOCK, is_run
from samplers.regression.screening import strong_rule
from samplers.regression.selection import largest
from samplers.regression.team import closed_up
from samplers.regression.vectors import inner, products

_KEPT = 24  # residuals, with `_NOTHING`
_NOTHING = 0  # the number of none
REACH = 2.2  # levels that differ by a larger factor are too far apart for the strong rule
_FAR = 1e150  # |d| or a spread, where nothing is known
_NEAR = 1e-100  # |d| at least: what nothing is known of is read for any residual
_ROUNDED = 1e-14  # of |r|^2, which is what is lost of |d|^2


class Seen(NamedTuple):
    """Correlations of m candidates, as they are until the next look."""

    bounds: np.ndarray  # float64 (p,), of all columns: none of the candidates' is larger
    chosen: np.ndarray  # int64 (l,), the columns that were read; of all others they are allowed
    values: np.ndarray  # float64 (l,), the correlations of these


class Wanted(NamedTuple):
    """Correlations that somebody wants to see."""

    residual: np.ndarray  # float64 (n,)
    level: float
    l1: np.ndarray  # float64 (p,): exactly if they may be above level * l1
    always: np.ndarray  # int64, of these columns exactly


class Known(NamedTuple):
    """What is known of p columns."""

    numbers: np.ndarray  # uint8 (p,), of q
    values: np.ndarray  # float64 (p,), x.q
    spreads: np.ndarray  # float64 (p,), what |d| is multiplied by


@reordered_kernel
def bound_run(numbers, values, spreads, along, away, bounds):
    for i in range(bounds.size):
        bounds[i] = abs(along[numbers[i]] * values[i]) + away[numbers[i]] * spreads[i]


@reordered_kernel
def bound(known, along, away, candidates, level, l1, bounds, chosen):
    """Bound the correlations of candidates, int64 (m,), given a and |d| of each q; returns how many have to be read.

    These, whose bounds are above level * l1, are written to `chosen`, int64 (m,).
    """
    count = 0
    for begin in range(0, candidates.size, BLOCK):
        some = candidates[begin : begin + BLOCK]
        if is_run(some):
            run = slice(some[0], some[-1] + 1)
            bound_run(known.numbers[run], known.values[run], known.spreads[run], along, away, bounds[run])
        else:
            for i in range(some.size):
                j = some[i]
                number = known.numbers[j]
                bounds[j] = abs(along[number] * known.values[j]) + away[number] * known.spreads[j]
        for i in range(some.size):  # all are written, and most written over: the processor guesses branches wrong
            j = some[i]
            chosen[count] = j
            count += bounds[j] > level * l1[j]
    return count


@reordered_kernel
def count(numbers, counts):
    """Count some numbers, uint8, which are often all the same: to add one after the other waits for each."""
    same = 0
    for i in range(numbers.size):
        same += numbers[i] == numbers[0]
    counts[numbers[0]] += same
    if same < numbers.size:
        for i in range(numbers.size):
            counts[numbers[i]] += numbers[i] != numbers[0]


@reordered_kernel
def learn_run(known, bounds, values, number, square, norms):
    for i in range(values.size):
        known.numbers[i], known.values[i], bounds[i] = number, values[i], abs(values[i])
        known.spreads[i] = np.sqrt(max(norms[i] * norms[i] - values[i] * values[i] / square, 0.0))


@reordered_kernel
def learn(known, lost, bounds, chosen, values, number, square, norms):
    """Note the correlations of chosen columns with the residual of a number, and of so large a square, and bounds.

    lost: int64, zeros, get how many of the columns knew each residual.
    """
    for begin in range(0, chosen.size, BLOCK):
        some, found = chosen[begin : begin + BLOCK], values[begin : begin + BLOCK]
        if is_run(some):
            run = slice(some[0], some[-1] + 1)
            count(known.numbers[run], lost)
            of_run = Known(known.numbers[run], known.values[run], known.spreads[run])
            learn_run(of_run, bounds[run], found, number, square, norms[run])
        else:
            for i in range(some.size):
                j = some[i]
                lost[known.numbers[j]] += 1
                known.numbers[j], known.values[j], bounds[j] = number, found[i], abs(found[i])
                known.spreads[j] = np.sqrt(max(norms[j] * norms[j] - found[i] * found[i] / square, 0.0))


@reordered_kernel
def forget(known, counts, number, norms):
    """Let the columns that know the residual of a number know nothing."""
    for j in range(norms.size):
        if known.numbers[j] == number:
            known.numbers[j], known.values[j], known.spreads[j] = _NOTHING, 0.0, norms[j]
    counts[_NOTHING] += counts[number]
    counts[number] = 0


class Correlations:
    """Those of p columns. roots: of the weights of the rows, float64 (n,), or None. norms: float64 (p,), of the
    columns, projected as the residuals are. columns_read: so far."""

    def __init__(self, features: Features, roots: np.ndarray | None, norms: np.ndarray) -> None:
        self._features, self._roots, self._norms = features, roots, norms
        # All is written to here, by one thread: what is fresh takes several much longer to get.
        values, spreads, self._bounds, self._values = np.full((4, norms.size), 0.0)
        spreads[:] = norms
        self._known = Known(np.full(norms.size, _NOTHING, np.uint8), values, spreads)
        self._chosen = np.full(norms.size, 0)
        self._residuals, self._squares = np.zeros((_KEPT, features.rows)), np.zeros(_KEPT)
        self._counts = np.zeros(_KEPT, np.int64)
        self._counts[_NOTHING] = norms.size
        self.columns_read = 0

    def see(self, wanted: Wanted, candidates: np.ndarray) -> Seen:
        """Those of candidates, int64 (m,)."""
        chosen = self._bounded(wanted, candidates)
        values = self._features.correlations(chosen, self._weighted(wanted.residual), self._values[: chosen.size])
        self.columns_read += chosen.size
        self._learn(wanted.residual, chosen, values)
        return Seen(self._bounds, chosen, values)

    def see_all(self, wanted: Sequence[Wanted], candidates: np.ndarray) -> Iterator[Seen]:
        """As `see` for each of several residuals, columns being read once."""
        needed = np.zeros(self._norms.size, bool)
        for one in wanted:
            needed[self._bounded(one, candidates)] = True
        chosen = np.flatnonzero(needed)
        vectors = np.stack([self._weighted(one.residual) for one in wanted], axis=1)
        values = self._features.several_correlations(chosen, vectors)
        self.columns_read += chosen.size
        for one, found in zip(wanted, values.T, strict=True):
            self._bounded(one, candidates)
            self._learn(one.residual, chosen, found)
            yield Seen(self._bounds, chosen, found)

    def _bounded(self, wanted: Wanted, candidates: np.ndarray) -> np.ndarray:
        """Bound all candidates; returns which have to be read."""
        along, away = self._relations(wanted.residual)
        self._known.spreads[wanted.always] = _FAR
        chosen = self._chosen[: candidates.size]

        def work(begin: int, end: int) -> tuple[int, int]:
            fixed = self._known, along, away, candidates[begin:end], wanted.level, wanted.l1
            return begin, bound(*fixed, self._bounds, chosen[begin:end])

        return closed_up(self._features.team.share(candidates.size, work), chosen)

    def _weighted(self, residual: np.ndarray) -> np.ndarray:
        return residual if self._roots is None else residual * self._roots

    def strong(self, residual: np.ndarray, level: float, before: float, l1: np.ndarray, most: int) -> np.ndarray:
        """Columns that the strong rule proposes, int64, ascending, those that are most likely if there are more than
        `most`; nothing is read, correlations are as is likely."""
        if before > REACH * level:
            return np.empty(0, np.int64)
        along, _ = self._relations(residual)
        found = np.empty(l1.size, np.int64)

        def work(begin: int, end: int) -> tuple[int, int]:
            some = [array[begin:end] for array in (self._known.numbers, self._known.values, l1, found)]
            return begin, strong_rule(level, before, along, *some, begin)

        found = closed_up(self._features.team.share(l1.size, work), found).copy()
        if found.size > most:
            likely = np.abs(along[self._known.numbers[found]] * self._known.values[found]) / l1[found]
            return largest(likely.astype(np.float32), found, most, self._features.team)
        return found

    def arrays(self) -> dict[str, np.ndarray]:
        """What is known, flat, as `restore` takes it."""
        known = {f"known_{name}": array for name, array in self._known._asdict().items()}
        return known | {"residuals": self._residuals.reshape(-1), "squares": self._squares, "counts": self._counts}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Know what `arrays` was."""
        for name, array in self.arrays().items():
            array[:] = arrays[name]

    def _relations(self, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """a and |d| of each of the residuals that are kept, the latter no less than what rounding makes it."""
        used = int(self._counts.size - np.argmax(self._counts[::-1] > 0))
        along, away = np.zeros(_KEPT), np.full(_KEPT, _FAR)
        known, square = self._squares[:used] > 0, inner(residual, residual)
        squares = np.where(known, self._squares[:used], 1.0)
        along[:used] = products(self._residuals[:used], residual) / squares
        left = np.maximum(square - along[:used] ** 2 * squares, 0.0) + _ROUNDED * square
        away[:used] = np.where(known, np.maximum(np.sqrt(left), _NEAR), _FAR)
        return along, away

    def _learn(self, residual: np.ndarray, chosen: np.ndarray, values: np.ndarray) -> None:
        """Keep a residual, if need be in the place of the one that the fewest columns know, and what was read for it:
        `values` of chosen columns."""
        square = inner(residual, residual)
        if square == 0:
            self._bounds[chosen] = 0.0
            return
        number = 1 + int(np.argmin(self._counts[1:]))
        if self._counts[number]:
            forget(self._known, self._counts, number, self._norms)
        self._residuals[number], self._squares[number] = residual, square

        def work(begin: int, end: int) -> np.ndarray:
            lost = np.zeros(_KEPT, np.int64)
            some = chosen[begin:end], values[begin:end]
            learn(self._known, lost, self._bounds, *some, number, square, self._norms)
            return lost

        for lost in self._features.team.share(chosen.size, work):
            self._counts -= lost
        self._counts[number] += chosen.size
