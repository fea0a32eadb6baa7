"""Positions of the entries of some columns in runs sorted by column. See `blocks.design.sparse_spill`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

LANDMARK = 512  # interval between entries whose columns are known without reading the run


class SparseRunFile(NamedTuple):
    """A sorted run of an external sort: sparse entries, ordered by column, in one file.

    landmarks: uint32, column of every `LANDMARK`th entry, an index for binary search.
    wide: whether values are float64.
    """

    path: str
    wide: bool
    entries: int
    landmarks: np.ndarray


class SparseRunSegment(NamedTuple):
    """The entries of a run from `begin` to `end` (exclusive).

    place: the row from which their rows are counted.
    """

    path: str
    wide: bool
    begin: int
    end: int
    place: int


def segments(runs: Sequence[SparseRunFile], places: Sequence[int], first: int, last: int) -> Iterator[SparseRunSegment]:
    """Yield the segment of each run that contains the columns from `first` to `last` (exclusive), extended to
    landmarks."""
    for run, place in zip(runs, places, strict=True):
        begin, end = (LANDMARK * int(mark) for mark in np.searchsorted(run.landmarks, (first, last)))
        begin, end = max(begin - LANDMARK, 0), min(end, run.entries)
        if begin < end:
            yield SparseRunSegment(run.path, run.wide, begin, end, place)
