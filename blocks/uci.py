"""UCI bag-of-words files: three header lines D, W, NNZ, then `document word count`, ids from 1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel
from blocks.errors import RequestError
from blocks.sources import Source, first_line, whole_line

_LARGEST = 1 << 40  # of any number in the file: sums of a chunk then fit in 64 bits
_MOST_TOKENS = 1 << 27  # in one chunk: half a gigabyte of token ids


class Header(NamedTuple):
    """What the first three lines say: documents, words, and lines that follow."""

    documents: int
    words: int
    entries: int


class Bags(NamedTuple):
    """The tokens of consecutive documents, empty ones included."""

    first_document: int  # from 0
    lengths: np.ndarray  # uint32 (D,), tokens of each document
    words: np.ndarray  # uint32 (N,), word of each token, from 0
    entries: int  # lines


def read_header(source: Source) -> Header:
    """Take the header from a source; raises RequestError if it is not one."""
    numbers = []
    for meaning in ("documents", "words", "non-zero counts"):
        line = source.take(first_line)
        if not line.strip().isdigit() or not 0 <= int(line) < _LARGEST:
            raise RequestError(
                f"{source.name}, line {max(source.line - 1, 1)}: {_quoted(line)} is not a number of {meaning}",
                "A UCI file begins with three lines: documents, words, non-zero counts.",
            )
        numbers.append(int(line))
    return Header(*numbers)


def whole_documents(buffer: bytearray) -> int:
    """Where the last document begins, so that a chunk that ends there holds whole documents; 0 if it begins first."""
    end = whole_line(buffer)
    last = buffer.rfind(b"\n", 0, max(end - 1, 0)) + 1
    fields = buffer[last:end].split(None, 1)
    if len(fields) < 2:
        return last
    number = buffer[last : buffer.index(fields[0], last) + len(fields[0]) + 1]
    return 0 if buffer.startswith(number) else buffer.find(b"\n" + number) + 1


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
            if value > _LARGEST:
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
            f"{where}: {_quoted(lines[bad])} is not `document word count`", "Each line holds three whole numbers."
        )
    if not 1 <= document <= header.documents:
        return RequestError(f"{where}: document {document}, but the header says 1 to {header.documents}")
    if not 1 <= word <= header.words:
        return RequestError(f"{where}: word {word}, but the header says 1 to {header.words}")
    if not 1 <= count < _LARGEST:
        return RequestError(f"{where}: count {count}", "A word that does not occur has no line; counts begin at 1.")
    return not_sorted(where, document)


def not_sorted(where: str, document: int) -> RequestError:
    """The error for a document whose lines come after those of a later one."""
    return RequestError(
        f"{where}: document {document} comes after a document with a higher number",
        "The lines of a document must stand together, in order of documents. "
        "Sort them: (head -n 3 FILE; tail -n +4 FILE | sort -s -n -k 1,1) > SORTED",
    )


def read_vocabulary(path: str) -> list[str]:
    """The words of a vocabulary file: word i on line i. Raises RequestError if a line is empty or repeated."""
    data = b"".join(data for _, data in Source(path).chunks(whole_line))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{path}, line {line}: not UTF-8", "Convert it with iconv.") from None
    words = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    line_of: dict[str, int] = {}
    for line, word in enumerate(words, 1):
        if not word.strip():
            raise RequestError(f"{path}, line {line}: no word stands here")
        if line_of.setdefault(word, line) != line:
            raise RequestError(f"{path}, line {line}: {word!r} stands in line {line_of[word]} already")
    return words


def _quoted(line: bytes) -> str:
    return repr(line[:60].decode("utf-8", "replace").strip())
