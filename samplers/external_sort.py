"""External sort: read rows of a file in another order than the stored one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from blocks.compiled import kernel
from blocks.files import disk_errors

RUN = 1 << 22  # bytes of rows to sort at a time
_LINES = 1 << 13  # number of lines to sort at a time


class ReorderedRows:
    """Rows read in an order other than the stored one. Use as a context manager.

    numbers: (N,), mapped.
    starts: int64 (n+1,), start of each row.
    source: int64 (m,), the stored row of each new row, or -1 for an empty row; no row occurs twice.
    directory: where to create an anonymous file with the rows grouped by run, needed if there is more than one run: if
        not everything fits in memory, reading single rows would load pages of other rows again and again. Attributes:
        `offsets`, int64 (m+1,), start of each row in the new order.
    """

    def __init__(self, directory: Path, numbers: np.ndarray, starts: np.ndarray, source: np.ndarray) -> None:
        self._directory, self._numbers, self._starts, self._source = directory, numbers, starts, source
        self.offsets = np.zeros(source.size + 1, np.int64)
        _offsets_in_order(starts, source, self.offsets)
        self._bounds = _cut(self.offsets, numbers.itemsize)
        self._file: Any = None

    def __enter__(self) -> ReorderedRows:
        if len(self._bounds) > 2:
            with disk_errors(self._directory), ExitStack() as stack:
                self._file = stack.enter_context(tempfile.TemporaryFile(dir=self._directory))
                self._bring_together()
                stack.pop_all()  # from here on, `__exit__` closes the file
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def runs(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield batches of rows in the new order: first row, last row (exclusive), and their numbers, concatenated."""
        for first, last in pairwise(self._bounds):
            rows = self._source[first:last]
            rows = rows[rows >= 0]
            if self._file is None:
                yield first, last, _gathered(self._numbers, self._starts, rows)
                continue
            lie = np.argsort(rows)  # positions of the rows in the order in which the rows were copied
            starts = np.concatenate(([0], np.cumsum(self._starts[rows[lie] + 1] - self._starts[rows[lie]])))
            places = np.empty_like(lie)
            places[lie] = np.arange(lie.size)
            held = np.empty(starts[-1], self._numbers.dtype)
            self._file.seek(self.offsets[first] * held.itemsize)
            self._file.readinto(held)
            yield first, last, _gathered(held, starts, places)

    def _bring_together(self) -> None:
        """Copy all rows to the anonymous file, grouped by run and in stored order within each run."""
        size, places = self._numbers.itemsize, np.full(self._starts.size - 1, -1)
        _note_places(self._source, places)
        ends = self.offsets[self._bounds] * size  # number of bytes copied to each run so far
        for first, last in pairwise(_cut(self._starts, size)):
            runs = np.searchsorted(self._bounds, places[first:last], side="right") - 1
            order = np.argsort(runs, kind="stable")
            order = order[np.count_nonzero(runs < 0) :]
            copied = _gathered(self._numbers, self._starts, first + order)
            present, begins = np.unique(runs[order], return_index=True)
            sizes = np.concatenate(([0], np.cumsum(self._starts[first + order + 1] - self._starts[first + order])))
            for run, (begin, end) in zip(present, pairwise([*sizes[begins], copied.size]), strict=True):
                self._file.seek(ends[run])
                self._file.write(copied[begin:end].data)
                ends[run] += (end - begin) * size


def _cut(starts: np.ndarray, itemsize: int) -> list[int]:
    """Return the bounds that cut rows into runs."""
    marks = np.searchsorted(starts, np.arange(0, starts[-1], RUN // itemsize), side="right") - 1
    return [0, *np.unique(marks[marks > 0]).tolist(), starts.size - 1]


def _gathered(numbers: np.ndarray, starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    found = np.empty((starts[rows + 1] - starts[rows]).sum(), numbers.dtype)
    _gather_rows(numbers, starts, rows, found)
    return found


@kernel
def _offsets_in_order(starts, source, offsets):
    """Set `offsets` to the start of each row in the new order, in which row i is the stored row source[i]."""
    for i in range(source.size):
        row = source[i]
        offsets[i + 1] = offsets[i] + (starts[row + 1] - starts[row] if row >= 0 else 0)


@kernel
def _note_places(source, places):
    """Set places[source[i]] = i for each i with source[i] >= 0."""
    for i in range(source.size):
        if source[i] >= 0:
            places[source[i]] = i


@kernel
def _gather_rows(numbers, starts, rows, found):
    filled = 0
    for row in rows:
        for i in range(starts[row], starts[row + 1]):
            found[filled] = numbers[i]
            filled += 1


def lines_in_order(text: np.ndarray, order: np.ndarray) -> Iterator[bytes]:
    """Yield the lines of a text, uint8 (n,), in batches and in the given order, int64: line order[0] comes first."""
    ends = np.concatenate(list(_ends(text)))
    starts = np.concatenate(([0], ends[:-1]))
    for first in range(0, order.size, _LINES):
        some = order[first : first + _LINES]
        lengths = ends[some] - starts[some]
        before = np.cumsum(lengths) - lengths
        yield text[np.repeat(starts[some] - before, lengths) + np.arange(lengths.sum())].tobytes()


def _ends(text: np.ndarray, step: int = 1 << 24) -> Iterator[np.ndarray]:
    """Yield the end of each line of a text (the index of the byte after it), for one range of the text at a time."""
    yield np.empty(0, np.int64)
    for first in range(0, text.size, step):
        yield np.flatnonzero(text[first : first + step] == ord("\n")) + first + 1
