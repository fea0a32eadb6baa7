"""The lines of UCI files to tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel
from blocks.corpus.uci import LARGEST, Header, not_sorted, quoted
from blocks.errors import RequestError

_MOST_TOKENS = 1 << 27  # in one chunk: half a gigabyte of token ids


class Bags(NamedTuple):
    """The tokens of consecutive documents, empty ones included."""

    first_document: int  # from 0
    lengths: np.ndarray  # uint32 (D,), tokens of each document
    words: np.ndarray  # uint32 (N,), word of each token, from 0
    entries: int  # lines


def parse(data: bytes, source: str, line: int, header: Header) -> Bags:
    """Read the lines of whole documents.

    line: number of the first line. Raises RequestError with the file and the line of whatever is wrong.
    """
    text = np.frombuffer(data if data.endswith(b"\n") else data + b"\n", np.uint8)
    rows = np.empty((data.count(b"\n") + 1, 3), np.int64)
    entries, bad_line, tokens = _parse_rows(text, rows, header.documents, header.words)
    if bad_line >= 0:
        raise _explained(data.split(b"\n"), bad_line, source, line, header)
    if entries == 0:
        return Bags(0, np.empty(0, np.uint32), np.empty(0, np.uint32), 0)
    if tokens > _MOST_TOKENS:
        raise RequestError(
            f"{source}, lines {line} to {line + entries - 1}: their counts sum to {tokens}",
            "Counts this large are probably not counts of words.",
        )
    rows = rows[:entries]
    first = int(rows[0, 0])
    per_document = np.bincount(rows[:, 0] - first, weights=rows[:, 2])
    words = np.repeat((rows[:, 1] - 1).astype(np.uint32), rows[:, 2])
    return Bags(first - 1, per_document.astype(np.uint32), words, entries)


@kernel
def _parse_rows(text, rows, documents, words):
    """Read and check rows of three numbers.

    text: uint8, lines that each end with a line break. rows: int64 (n, 3), filled.
    Returns the number of rows, the index of the first bad line or -1, and the sum of the counts.
    """
    row, column, line = 0, 0, 0
    value, tokens = -1, 0
    for byte in text:
        if 48 <= byte <= 57:
            value = (value * 10 if value > 0 else 0) + (byte - 48)
            if value > LARGEST:
                return row, line, tokens
            continue
        if byte not in (9, 10, 13, 32):
            return row, line, tokens
        if value >= 0:
            if column == 3:
                return row, line, tokens
            rows[row, column] = value
            column += 1
            value = -1
        if byte == 10:
            if column == 3:
                document, word, count = rows[row]
                sorted_so_far = row == 0 or document >= rows[row - 1, 0]
                if not (1 <= document <= documents and 1 <= word <= words and count >= 1 and sorted_so_far):
                    return row, line, tokens
                tokens += count
                row += 1
            elif column > 0:
                return row, line, tokens
            column = 0
            line += 1
    return row, -1, tokens


def _explained(lines: list[bytes], bad: int, source: str, line: int, header: Header) -> RequestError:
    """The error for one bad line, found again and read slowly."""
    where = f"{source}, line {line + bad}"
    fields = lines[bad].split()
    try:
        document, word, count = map(int, fields)
    except ValueError:
        return RequestError(
            f"{where}: {quoted(lines[bad])} is not `document word count`", "Each line holds three whole numbers."
        )
    if not 1 <= document <= header.documents:
        return RequestError(f"{where}: document {document}, but the header says 1 to {header.documents}")
    if not 1 <= word <= header.words:
        return RequestError(f"{where}: word {word}, but the header says 1 to {header.words}")
    if not 1 <= count < LARGEST:
        return RequestError(f"{where}: count {count}", "A word that does not occur has no line; counts begin at 1.")
    return not_sorted(where, document)
