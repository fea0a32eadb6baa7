"""Choose the documents to hold out of a corpus, from their text and a seed alone.

The same document is held out whatever other documents the corpus has, and copies of a document are never in both sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import xxhash

from blocks.errors import RequestError


class HeldOutFraction(NamedTuple):
    """One side of a split.

    share: fraction of the documents that is held out.
    held: whether this is the held-out side.
    """

    share: float
    seed: int
    held: bool

    def has(self, texts: Iterable[str | list[str]]) -> list[bool]:
        """Return which documents, given as strings or lists of words, are on this side."""
        limit = int(self.share * 2.0**64)
        return [(_hash(text, self.seed) < limit) == self.held for text in texts]


def _hash(text: str | list[str], seed: int) -> int:
    written = text if isinstance(text, str) else "\n".join(text)
    return xxhash.xxh3_64_intdigest(written.encode("utf-8", "replace"), seed & (1 << 64) - 1)


def parse_share(text: str, option: str) -> float:
    """Parse a fraction written as 5% or 0.05.

    Raises RequestError unless it is above 0 and below 1.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(%?)", text)
    share = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0.0 < share < 1.0:
        raise RequestError(f"{option} must be a fraction of the documents such as 5% or 0.05, got {text!r}")
    return share
