"""Correlations of columns with a changing residual, read again only if the known bounds do not suffice.

The correlation of a column x with the residual r (rows scaled by the roots of their weights) is |x| |r| times a cosine.
Several residuals are stored, and for each column its cosine with the residual for which the column was last read, which
bounds its cosine with any other residual: see `samplers.regression.solver.correlation_bounds`. Along a path, most
columns are read once in ten lambdas, and columns far from entering the model hardly ever.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from samplers.regression.data.features import FeatureColumns
from samplers.regression.linear_algebra.vectors import inner_product, inner_products
from samplers.regression.losses.loss import admissible_slopes
from samplers.regression.solver.column_selection import largest_gains
from samplers.regression.solver.correlation_bounds import (
    NOTHING,
    ResidualAngles,
    StoredCosines,
    block,
    bound,
    choose,
    find_angles,
    forget,
    largest_limit,
    learn,
    least_bound,
    set_limits,
)
from samplers.regression.solver.screening import strong_lambda
from samplers.regression.solver.solver_limit import SolverLimitReached

_KEPT = 24  # number of residuals, including the empty one
REACH = 2.2  # lambdas that differ by a larger factor are too far apart for the strong rule
_MOST = 1e25  # maximum of a lambda, expressed as a cosine
# fraction of the candidates above which all candidates are returned: their index array exists already, and it takes no
# longer
_MOST_OF_THEM = 2 / 3
_LONG = 1 << 18  # number of elements in all stored residuals: products with fewer are not worth a second thread


def side_by_side(count: int, *kinds: type) -> list[np.ndarray]:
    """Allocate one array of `count` numbers for each of several dtypes, the largest first, in a single allocation.

    The kernel backs a large allocation with pages of 2 MB; faulting a 4 KB page takes 2 microseconds, and longer with
    several threads.
    """
    ends = np.cumsum([count * np.dtype(kind).itemsize for kind in kinds])
    memory = np.empty(ends[-1], np.uint8)
    return [part.view(kind) for part, kind in zip(np.split(memory, ends[:-1]), kinds, strict=True)]


class CandidateCorrelations(NamedTuple):
    """Correlations of m candidates, valid until the next call of `see`, or until candidates are removed."""

    # int64 (l,), columns that were read; all others are within their limits. May be the array of candidates
    chosen: np.ndarray
    values: np.ndarray  # float64 (l,), correlations of these columns


class ResidualCorrelationRequest(NamedTuple):
    """A request for correlations."""

    residual: np.ndarray  # float64 (n,)
    lam: float  # correlations that may be above lam * l1 are exact
    always: np.ndarray  # int64, columns whose correlations are always exact


class CorrelationReading(NamedTuple):
    """Correlations that were read for one residual."""

    seen: CandidateCorrelations
    number: int  # index of the stored residual
    length: float  # squared norm of the residual


class ColumnCorrelations:
    """Correlations of p columns with residuals.

    roots: sqrt(sample_weight), float64 (n,), or None.
    norms: float64 (p,), norms of the columns, projected like the residuals.
    l1: float64 (p,), penalties, or (1,).
    positive: whether coefficients must be at least 0. Attributes: `usable`, int64, ascending, the nonzero penalized
        columns; `columns_read`, the number of columns read so far; working memory `gains`, float32 (p,), and `kept`,
        int64 (p,).
    """

    def __init__(
        self,
        features: FeatureColumns,
        roots: np.ndarray | None,
        norms: np.ndarray,
        l1: np.ndarray,
        *,
        positive: bool = False,
    ) -> None:
        self._features, self._roots, self._norms, self._positive = features, roots, norms, positive
        kinds = np.int64, np.int64, np.float64, np.float32, np.float32, np.float32, np.uint8, np.bool_
        memory = side_by_side(norms.size, *kinds)
        self.kept, self._chosen, self._values, self._limits, self.gains, *known, self._above = memory
        self._known = StoredCosines(*known)
        self._known.numbers[:], self._known.cosines[:] = NOTHING, 0.0

        def of_share(begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
            return l1[begin:end] if l1.size > 1 else l1, norms[begin:end]

        def work(begin: int, end: int) -> None:
            set_limits(*of_share(begin, end), self._scale, self._limits[begin:end])

        self._scale = max(features.pool.share(norms.size, lambda *share: largest_limit(*of_share(*share))))
        features.pool.share(norms.size, work)
        self._residuals, self._squares = np.zeros((_KEPT, features.rows)), np.zeros(_KEPT)
        self._counts = np.zeros(_KEPT, np.int64)
        self._counts[NOTHING] = norms.size
        self._last, self._square, self._products = np.empty(0), 0.0, np.zeros(_KEPT)  # see `_square_of`
        self.usable = features.every if self._limits.min(initial=1.0) > 0 else np.flatnonzero(self._limits)
        self._pending: CorrelationReading | None = None  # of all usable columns, counted but not yet recorded
        self.columns_read = 0

    def see(self, wanted: ResidualCorrelationRequest, candidates: np.ndarray) -> CandidateCorrelations:
        """Read the correlations of candidates, int64 (m,), with nonzero norms, and store them.

        Raises SolverLimitReached, and then stores nothing, since pending values may have been overwritten.
        """
        chosen = self._needed(wanted, candidates)
        every = chosen.size == self.usable.size
        if not every or self._square_of(wanted.residual) == 0:
            self._catch_up()
        try:
            values = self._features.correlations(chosen, self._weighted(wanted.residual), self._values[: chosen.size])
        except SolverLimitReached:
            self._forget_all()
            raise
        self.columns_read += chosen.size
        seen = CandidateCorrelations(self.usable if every else chosen, values)
        self._enter(wanted.residual, seen)
        return seen

    def see_all(
        self, wanted: Sequence[ResidualCorrelationRequest], candidates: np.ndarray
    ) -> list[CandidateCorrelations]:
        """Read the correlations with each of several residuals in one pass; call `learn` afterwards to store the
        correlations with one of them.
        """
        needed = np.zeros(self._norms.size, bool)
        for one in wanted:
            needed[self._needed(one, candidates)] = True
        chosen = np.flatnonzero(needed)
        vectors = np.stack([self._weighted(one.residual) for one in wanted])
        values = self._features.several_correlations(chosen, vectors)
        self.columns_read += chosen.size
        return [CandidateCorrelations(chosen, found) for found in values]

    def _needed(self, wanted: ResidualCorrelationRequest, candidates: np.ndarray) -> np.ndarray:
        """Return the candidates whose correlations must be read."""
        self._forget(wanted.always)
        return self.possible(wanted.residual, candidates, self._chosen[: candidates.size], wanted.lam)

    def possible(
        self, residual: np.ndarray, candidates: np.ndarray, found: np.ndarray, lam: float, spare: float = 0.0
    ) -> np.ndarray:
        """Return the candidates, int64 (m,), whose correlations c may satisfy |c| > lam * l1 - spare * |x| by the known
        bounds; all candidates if these are most of them.

        found: int64 (m,), receives the result unless all candidates are returned; may be `candidates`.
        """
        return self._those_above(residual, self._angles(residual), candidates, found, lam, spare)

    def _those_above(
        self,
        residual: np.ndarray,
        angles: ResidualAngles,
        candidates: np.ndarray,
        found: np.ndarray,
        lam: float,
        spare: float,
    ) -> np.ndarray:
        length = max(math.sqrt(self._square_of(residual)), sys.float_info.min)
        with np.errstate(over="ignore"):
            limits = np.clip(np.array([lam * self._scale, spare]) / length, -_MOST, _MOST).astype(np.float32)
        if least_bound(angles, self._counts) + limits[1] > limits[0]:
            return candidates
        self._catch_up()

        def look(begin: int, end: int) -> tuple[int, int]:
            some = candidates[begin:end], *limits, block(), self._above[begin:end]
            return begin, bound(self._known, self._limits, angles, *some)

        def write(begin: int, end: int) -> None:
            first, last = places[begin]
            choose(candidates[begin:end], self._above[begin:end], found[first:last])

        counts = self._features.pool.share(candidates.size, look)
        ends = np.cumsum([count for _, count in counts]).tolist()
        if ends[-1] > _MOST_OF_THEM * candidates.size:
            return candidates
        places = {begin: (last - count, last) for (begin, count), last in zip(counts, ends, strict=True)}
        if found is candidates:  # another thread may still have to read the candidates
            choose(candidates, self._above[: candidates.size], found[: ends[-1]])
        else:
            self._features.pool.share(candidates.size, write)
        return found[: ends[-1]]

    def _forget(self, columns: np.ndarray) -> None:
        """Discard the correlations of some columns, int64, without duplicates."""
        if not columns.size:
            return
        self._catch_up()
        self._counts -= np.bincount(self._known.numbers[columns], minlength=_KEPT)
        self._counts[NOTHING] += columns.size
        self._known.numbers[columns], self._known.cosines[columns] = NOTHING, 0.0

    def _forget_all(self) -> None:
        self._pending = None
        self._known.numbers[:], self._known.cosines[:] = NOTHING, 0.0
        self._counts[:], self._counts[NOTHING] = 0, self._norms.size

    def _weighted(self, residual: np.ndarray) -> np.ndarray:
        return residual if self._roots is None else residual * self._roots

    def strong(self, residual: np.ndarray, lam: float, before: float, candidates: np.ndarray, most: int) -> np.ndarray:
        """Return the candidates, int64 (m,), that the strong rule proposes, at most the `most` most likely ones; uses
        estimates and reads nothing.
        """
        if before > REACH * lam:
            return np.empty(0, np.int64)
        likely = self._angles(residual)._replace(sines=np.zeros(_KEPT, np.float32))
        found = self._chosen[: candidates.size]
        found = self._those_above(residual, likely, candidates, found, strong_lambda(lam, before), 0.0)
        if found.size <= most and not self._positive:
            return found.copy()
        self._catch_up()
        cosines = likely.cosines[self._known.numbers[found]] * self._known.cosines[found]
        cosines = np.abs(admissible_slopes(cosines, positive=self._positive))
        return largest_gains(cosines / self._limits[found], found, most, self._features.pool)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the state as flat arrays for `restore`."""
        self._catch_up()
        known = {f"known_{name}": array for name, array in self._known._asdict().items()}
        return known | {"residuals": self._residuals.reshape(-1), "squares": self._squares, "counts": self._counts}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the state of `arrays`."""
        self._pending = None
        for name, array in self.arrays().items():
            array[:] = arrays[name]
        if self._known.numbers.max(initial=0) >= _KEPT:
            raise ValueError("a residual that is not kept")
        self._last = np.empty(0)

    def _angles(self, residual: np.ndarray) -> ResidualAngles:
        """Return the angles between a residual and each stored residual."""
        angles, square = ResidualAngles(*np.empty((2, _KEPT), np.float32)), self._square_of(residual)
        find_angles(self._products, square, self._squares, angles)
        return angles

    def _square_of(self, residual: np.ndarray) -> float:
        """Return the squared norm of a residual, and cache its products with the stored residuals."""
        if residual is not self._last:  # most residuals are requested several times
            used = int(_KEPT - np.argmax(self._counts[::-1] > 0))
            self._last, self._square, self._products = residual, inner_product(residual, residual), np.zeros(_KEPT)
            if used * residual.size > _LONG:
                self._features.pool.each(range(used), self._multiply)
            else:
                self._products[:used] = inner_products(self._residuals[:used], residual)
        return self._square

    def _multiply(self, number: int) -> None:
        self._products[number] = inner_product(self._residuals[number], self._last)

    def learn(self, residual: np.ndarray, seen: CandidateCorrelations) -> None:
        """Store a residual and the correlations read for it, if needed in place of the residual to which the fewest
        columns refer.
        """
        self._enter(residual, seen)
        self._catch_up()

    def _enter(self, residual: np.ndarray, seen: CandidateCorrelations) -> None:
        """Store a residual; correlations of all columns are recorded only when needed, since often all columns are read
        again before that.
        """
        square = self._square_of(residual)
        if square == 0:
            return
        number = 1 + int(np.argmin(self._counts[1:]))
        look = CorrelationReading(seen, number, math.sqrt(square))
        if seen.chosen.size == self.usable.size:
            self._counts[1:], self._counts[NOTHING] = 0, self._norms.size - self.usable.size
            self._pending = look
        else:
            self._catch_up()
            if self._counts[number]:
                forget(self._known, number)
                self._counts[NOTHING] += self._counts[number]
                self._counts[number] = 0
            self._counts -= self._note(look)
        self._counts[number] += seen.chosen.size
        self._residuals[number], self._squares[number] = residual, square
        self._multiply(number)

    def _catch_up(self) -> None:
        """Record pending correlations."""
        if self._pending:
            self._note(self._pending)
            self._pending = None

    def _note(self, look: CorrelationReading) -> np.ndarray:
        """Record correlations; returns the number of columns that referred to each residual, int64."""
        (chosen, values), number, length = look

        def work(begin: int, end: int) -> np.ndarray:
            lost = np.zeros(_KEPT, np.int64)
            learn(self._known, lost, chosen[begin:end], values[begin:end], number, length, self._norms)
            return lost

        return np.sum(self._features.pool.share(chosen.size, work), axis=0)
