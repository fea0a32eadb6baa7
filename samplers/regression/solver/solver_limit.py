"""Limits at which a solver stops with the best solution so far."""

from __future__ import annotations

import math
from collections.abc import Callable


class SolverLimitReached(Exception):
    """A pass over columns was abandoned because a `SolverLimit` was reached; the state before the pass is unchanged."""


class SolverLimit:
    """A limit on the work of a solver.

    most: maximum number of rounds.
    is_wanted: function that returns whether to stop. Attributes: `taken`, number of rounds so far.
    """

    def __init__(self, most: float = math.inf, is_wanted: Callable[[], bool] = lambda: False) -> None:
        self.taken, self._most, self._is_wanted = 0, most, is_wanted

    @property
    def reached(self) -> bool:
        return self.taken >= self._most or self._is_wanted()
