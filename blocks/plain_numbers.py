"""Numbers as text, one at a time; `blocks.fields` has the kernel that reads many, by the same rule."""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def plain_number(text: str) -> float | None:
    """The number that is written there, without blanks around it; None if there is none, or none that is finite.

    Python's `float` takes more for a number: `nan`, `inf`, `1_0`, digits of other scripts.
    """
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None
