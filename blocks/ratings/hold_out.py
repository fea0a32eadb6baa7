"""Choose the ratings to hold out: a fraction of all, or the last ones of each user.

A fraction is chosen by hashes of the names of user and item with a seed, so that whether a rating is held out does not
depend on other ratings, but for one: at least one rating of each user remains.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash

from blocks.corpus.held_out_fraction import parse_share
from blocks.errors import RequestError
from blocks.ratings.matrix_writer import Entries

_SIDES = ("rows", "columns")
_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of splitmix64


class HoldOutRule(NamedTuple):
    """Which ratings to hold out.

    share: fraction of all ratings, or 0.
    last: number of ratings of each user, or 0.
    """

    share: float
    last: int

    @property
    def told(self) -> float | str:
        """Return the choice as manifests record it."""
        return f"last-{self.last}" if self.last else self.share

    def held(self, entries: Entries, keys: np.ndarray) -> np.ndarray:
        """Return which entries are held out, bool (N,).

        entries: all entries of some rows, in input order, without duplicates.
        keys: float64 (N,), times, or uint64 (N,), hashes from `entry_hashes`.
        """
        order = np.lexsort((keys, entries.rows))  # stable: of equal times, the later in the input is the last
        rows = entries.rows[order]
        ends = np.flatnonzero(np.append(rows[1:] != rows[:-1], True))
        starts = np.append(0, ends[:-1] + 1)
        sizes = ends - starts + 1
        left = np.repeat(ends, sizes) - np.arange(rows.size)  # number of the user's ratings that follow
        held = np.empty(rows.size, bool)
        if self.last:
            held[order] = left < np.minimum(self.last, np.repeat(sizes, sizes) - 1)
        else:
            held[order] = (keys[order] < np.uint64(self.share * 2.0**64)) & (left > 0)
        return held


def parse_hold_out(text: str) -> HoldOutRule:
    """Parse the value of `--hold-out`.

    Raises RequestError if it is neither a fraction nor `last-N`.
    """
    if found := re.fullmatch(r"last-([1-9][0-9]{0,8})", text):
        return HoldOutRule(0.0, int(found[1]))
    try:
        return HoldOutRule(parse_share(text, "--hold-out"), 0)
    except RequestError:
        raise RequestError(
            f"--hold-out must be a fraction of the ratings or last-N, got {text!r}",
            "Use a fraction such as 10% or 0.1; or last-1, for the last rating of each user.",
        ) from None


def write_hashes(spill: Path, rows: Sequence[str], columns: Sequence[str], seed: int) -> None:
    """Write the hash of each name, for `entry_hashes`.

    rows, columns: names by position and by rank.
    """
    for side, names in zip(_SIDES, (rows, columns), strict=True):
        hashes = (xxhash.xxh3_64_intdigest(name.encode(), seed & (1 << 64) - 1) for name in names)
        np.fromiter(hashes, np.uint64, len(names)).tofile(_hashes_file(spill, side))


def entry_hashes(spill: Path, entries: Entries) -> np.ndarray:
    """Return a hash of row and column of each entry, uint64 (N,)."""
    of_rows, of_columns = (np.memmap(_hashes_file(spill, side), np.uint64, "r") for side in _SIDES)
    mixed = of_rows[entries.rows] * np.uint64(_MIX[0]) + of_columns[entries.columns]
    for shift, factor in zip((30, 27), _MIX[1:], strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _hashes_file(spill: Path, side: str) -> Path:
    return spill / f"hashes-{side}"
