"""Hold documents out of a corpus: which ones depends on their text and a seed alone.

So the same document is held out whatever stands beside it, and copies of a document are never on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import xxhash

from blocks.errors import RequestError


class HeldOutShare(NamedTuple):
    """One side of a split. share: of the documents that are held out. held: whether this side is theirs."""

    share: float
    seed: int
    held: bool

    def has(self, texts: Iterable[str | list[str]]) -> list[bool]:
        """Return which documents, texts or lists of words, are on this side."""
        limit = int(self.share * 2.0**64)
        return [(_hash(text, self.seed) < limit) == self.held for text in texts]


def _hash(text: str | list[str], seed: int) -> int:
    written = text if isinstance(text, str) else "\n".join(text)
    return xxhash.xxh3_64_intdigest(written.encode("utf-8", "replace"), seed & (1 << 64) - 1)


def parse_share(text: str, option: str) -> float:
    """Return a share written as 5% or 0.05. Raises RequestError unless it is above 0 and below 1."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(%?)", text)
    share = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0.0 < share < 1.0:
        raise RequestError(f"{option} must be a share of the documents such as 5% or 0.05, got {text!r}")
    return share
