"""Merge the names (words, users, items) to which workers have assigned ids independently, with their counts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from blocks.ingestion.word_counter import WordCounter
    from blocks.ingestion.word_table import WordTable


class WorkerNameFiles(NamedTuple):
    """Files of a worker: names, one per line, and counts, int64 tokens (V,) and documents (V,)."""

    worker: int
    terms: str | None  # None if all workers use the ids of one shared vocabulary
    counts: str
    size: int


class MergedNames(NamedTuple):
    """The V distinct names of all workers."""

    terms: list[str]
    tokens: np.ndarray  # int64 (V,)
    documents: np.ndarray  # int64 (V,)
    numbers: dict[int, np.ndarray | None]  # for each worker, uint32: position in `terms` of each id; None: identical


class _NameIds(dict[str, int]):
    """Dictionary that assigns ids to names in order of first use."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


class NameCounts:
    """Names in order of first use, and the sums of their counts."""

    def __init__(self) -> None:
        self._number_of = _NameIds()
        self._counts = np.zeros((2, 0), np.int64)

    def add(self, terms: Sequence[str], counts: np.ndarray) -> np.ndarray:
        """Add the token and document counts, int64 (2, n), of distinct names; return the ids of the names, uint32."""
        numbers = np.fromiter(map(self._number_of.__getitem__, terms), np.uint32, len(terms))
        missing = len(self._number_of) - self._counts.shape[1]
        self._counts = np.concatenate((self._counts, np.zeros((2, missing), np.int64)), axis=1)
        self._counts[:, numbers] += counts
        return numbers

    def merged(self, numbers: dict[int, np.ndarray | None]) -> MergedNames:
        """Return all added names and counts.

        numbers: see `MergedNames`.
        """
        tokens, documents = self._counts
        return MergedNames(list(self._number_of), tokens, documents, numbers)


def leave_names(spill: Path, kind: str, table: WordTable | None, counts: WordCounter, size: int) -> WorkerNameFiles:
    """Write the names and counts of a worker to files.

    table: None if all workers share a vocabulary of `size` words.
    """
    me = os.getpid()
    counts_file, terms = spill / f"{kind}-counts-{me}", None
    counts.write(counts_file, size)
    if table is not None:
        terms = spill / f"{kind}-names-{me}"
        terms.write_bytes(table.words())
    return WorkerNameFiles(me, str(terms) if terms else None, str(counts_file), size)


def merge_names(reports: Sequence[WorkerNameFiles], shared: list[str] | None) -> MergedNames:
    """Sum the counts of all workers.

    shared: vocabulary whose ids all workers use, None if each has its own.
    """
    counts = [np.fromfile(report.counts, np.int64).reshape(2, report.size) for report in reports]
    if shared is not None:
        tokens, documents = sum(counts, np.zeros((2, len(shared)), np.int64))
        return MergedNames(shared, tokens, documents, {report.worker: None for report in reports})
    tally = NameCounts()
    numbers: dict[int, np.ndarray | None] = {}
    for report, of_worker in zip(reports, counts, strict=True):
        terms = Path(str(report.terms)).read_bytes().decode("utf-8").split("\n") if report.size else []
        numbers[report.worker] = tally.add(terms, of_worker)
    return tally.merged(numbers)


def write_places(spill: Path, kind: str, merged: MergedNames, place_of_term: np.ndarray) -> None:
    """Write the final position of each id of each worker.

    place_of_term: uint32, position of each merged name, or DROPPED.
    """
    for worker, numbers in merged.numbers.items():
        places = place_of_term if numbers is None else place_of_term[numbers]
        places_file(spill, kind, worker).write_bytes(places.data)


def places_file(spill: Path, kind: str, worker: int) -> Path:
    """Return the path of a worker's positions, uint32."""
    return spill / f"{kind}-places-{worker}"
