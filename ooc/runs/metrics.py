"""Format and parse the lines of metrics.jsonl: one JSON object with a checksum per iteration.

NaN and infinity, which JSON does not have, are written as null and read as NaN.
"""

from __future__ import annotations

import json
import math
from typing import Any

import xxhash

from blocks.json_files import json_text

CHECKSUM = "checksum"  # XXH3-64 of the rest of the line, in hex; earlier versions wrote none


def metrics_line(values: dict[str, Any]) -> str:
    """Format the line of an iteration, including the line break."""
    return json_text({**values, CHECKSUM: _checksum(values)}) + "\n"


def parse_metrics_line(line: bytes) -> dict[str, Any] | None:
    """Parse a line; returns None if the line is damaged."""
    try:
        values = json.loads(line)
        noted = values.pop(CHECKSUM, None)
        sound = isinstance(values["iteration"], int) and (noted == _checksum(values) if noted else _is_without(values))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return {name: math.nan if value is None else value for name, value in values.items()} if sound else None


def _is_without(values: dict[str, Any]) -> bool:
    """Return whether a line was written without a checksum, as earlier versions did.

    If the last value is the checksum of the others, the line has a checksum, of which only the key is damaged.
    """
    *rest, last = values.items()
    return last[1] != _checksum(dict(rest))


def _checksum(values: dict[str, Any]) -> str:
    return xxhash.xxh3_64_hexdigest(json_text(values).encode())
