"""Parse single numbers by the same rules as the kernel in `blocks.number_fields`."""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def plain_number(text: str) -> float | None:
    """Parse a finite number without surrounding blanks; None if the text is not such a number.

    Python's `float` also accepts `nan`, `inf`, `1_0` and digits of other scripts.
    """
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None
