"""When a solver is to end with the best that it has found so far."""

from __future__ import annotations

import math
from collections.abc import Callable


class Stopped(Exception):
    """A pass over columns was given up, as a `Limit` was reached; what was known before it is as it was."""


class Limit:
    """most: rounds that may be taken. is_wanted: says whether somebody wants the end. Attributes: `taken`, rounds."""

    def __init__(self, most: float = math.inf, is_wanted: Callable[[], bool] = lambda: False) -> None:
        self.taken, self._most, self._is_wanted = 0, most, is_wanted

    @property
    def reached(self) -> bool:
        return self.taken >= self._most or self._is_wanted()
