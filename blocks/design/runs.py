"""Positions of the entries of some columns in runs that are sorted by column; see `blocks.design.sparse_spill`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

LANDMARK = 512  # entries between two whose columns are known without reading the run


class EntryRun(NamedTuple):
    """A file of entries by column. landmarks: uint32, column of every `LANDMARK`th entry. wide: values are float64."""

    path: str
    wide: bool
    entries: int
    landmarks: np.ndarray


class Segment(NamedTuple):
    """Entries of a run from `begin` to `end` (exclusive), whose rows are counted from row `place`."""

    path: str
    wide: bool
    begin: int
    end: int
    place: int


def segments(runs: Sequence[EntryRun], places: Sequence[int], first: int, last: int) -> Iterator[Segment]:
    """Yield what to read of each run for the columns from `first` to `last` (exclusive), plus up to a landmark
    more."""
    for run, place in zip(runs, places, strict=True):
        begin, end = (LANDMARK * int(mark) for mark in np.searchsorted(run.landmarks, (first, last)))
        begin, end = max(begin - LANDMARK, 0), min(end, run.entries)
        if begin < end:
            yield Segment(run.path, run.wide, begin, end, place)
