"""Parse the lines of UCI files into tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel
from blocks.corpus.uci import LARGEST, LONGEST, TOKEN_BYTES, UciHeader, unsorted_error
from blocks.errors import RequestError, quoted
from blocks.stored_dataset import range_parts

_SIZE = 1 << 18  # number of tokens expanded at a time; a longer document is expanded alone


class BagsOfWords(NamedTuple):
    """Tokens of consecutive documents, including empty ones."""

    first_document: int  # from 0
    lengths: np.ndarray  # uint32 (D,), number of tokens of each document
    words: np.ndarray  # uint32 (N,), word id of each token, from 0
    entries: int  # number of lines


def parse_documents(
    data: bytes, source: str, line: int, header: UciHeader, longest: int = LONGEST
) -> Iterator[BagsOfWords]:
    """Parse the lines of whole documents, and yield a few documents at a time, since documents may have far more tokens
    than lines.

    line: number of the first line.
    longest: maximum number of tokens in a document.
    Raises RequestError, naming file and line.
    """
    text = np.frombuffer(data if data.endswith(b"\n") else data + b"\n", np.uint8)
    rows = np.empty((data.count(b"\n") + 1, 3), np.int64)
    entries, bad_line = _parse_rows(text, rows, header.documents, header.words)
    if bad_line >= 0:
        raise _explained(data.split(b"\n"), bad_line, source, line, header)
    rows = rows[:entries]
    if not entries:
        return iter(())
    lengths = np.bincount(rows[:, 0] - rows[0, 0], weights=rows[:, 2]).astype(np.int64)
    first = int(rows[0, 0])
    require_length(lengths, first, source, longest)
    return split_bags(rows, lengths, first)


def split_bags(rows: np.ndarray, lengths: np.ndarray, first: int) -> Iterator[BagsOfWords]:
    """Yield whole documents, about `_SIZE` tokens at a time.

    rows: int64 (n, 3), numbers of document and word, both from 1, and count.
    lengths: int64 (D,), number of tokens of the documents from `first` on.
    """
    bounds = range_parts(np.concatenate(([0], np.cumsum(lengths))), _SIZE)
    lines = np.searchsorted(rows[:, 0], first + bounds)
    for (begin, end), (top, bottom) in zip(pairwise(bounds.tolist()), pairwise(lines.tolist()), strict=True):
        words = np.repeat((rows[top:bottom, 1] - 1).astype(np.uint32), rows[top:bottom, 2])
        yield BagsOfWords(first - 1 + begin, lengths[begin:end].astype(np.uint32), words, bottom - top)


def require_length(lengths: np.ndarray, first: int, source: str, longest: int) -> None:
    """Raise RequestError if a document is too long; see `split_bags`."""
    if lengths.max(initial=0) <= longest:
        return
    document, tokens = first + int(lengths.argmax()), int(lengths.max())
    takes, may = (f"{TOKEN_BYTES * count / 1e6:,.0f} MB" for count in (tokens, longest))
    raise RequestError(
        f"{source}: document {document} has {tokens:,} tokens, which take {takes}, but --memory leaves a worker {may}",
        "Increase --memory or reduce --workers; or check that the numbers are counts of words.",
    )


@kernel
def _parse_rows(text, rows, documents, words):
    """Parse and check rows of three numbers.

    text: uint8, lines that each end with a line break.
    rows: int64 (n, 3), filled.
    Returns the number of rows, and the index of the first bad line or -1.
    """
    row, column, line = 0, 0, 0
    value = -1
    for byte in text:
        if 48 <= byte <= 57:
            value = (value * 10 if value > 0 else 0) + (byte - 48)
            if value > LARGEST:
                return row, line
            continue
        if byte not in (9, 10, 13, 32):
            return row, line
        if value >= 0:
            if column == 3:
                return row, line
            rows[row, column] = value
            column += 1
            value = -1
        if byte == 10:
            if column == 3:
                document, word, count = rows[row]
                sorted_so_far = row == 0 or document >= rows[row - 1, 0]
                if not (1 <= document <= documents and 1 <= word <= words and count >= 1 and sorted_so_far):
                    return row, line
                row += 1
            elif column > 0:
                return row, line
            column = 0
            line += 1
    return row, -1


def _explained(lines: list[bytes], bad: int, source: str, line: int, header: UciHeader) -> RequestError:
    """Parse a bad line again in Python, and return the error that it raises."""
    where = f"{source}, line {line + bad}"
    fields = lines[bad].split()
    try:
        document, word, count = map(int, fields)
    except ValueError:
        return RequestError(f"{where}: expected `document word count` in whole numbers, got {quoted(lines[bad])}")
    if not 1 <= document <= header.documents:
        return RequestError(
            f"{where}: the document must be from 1 to {header.documents}, as the header says; got {document}"
        )
    if not 1 <= word <= header.words:
        return RequestError(f"{where}: the word must be from 1 to {header.words}, as the header says; got {word}")
    if not 1 <= count < LARGEST:
        return RequestError(
            f"{where}: the count must be from 1 to {LARGEST - 1}, got {count}",
            "Correct the count, or remove the line of a word that does not occur.",
        )
    return unsorted_error(where, document)
