"""UCI bag-of-words files (three header lines D, W, NNZ, then `document word count`, ids from 1), and LDA-C files."""

from __future__ import annotations

import re
from typing import NamedTuple

from blocks.encodings import decode_utf8
from blocks.errors import RequestError, quoted
from blocks.text_inputs import TextInput, first_line_end, last_line_end

LONGEST = (1 << 32) - 1  # maximum number of tokens in a document
TOKEN_BYTES = 20  # memory for each token of a document while its block, which may be a single document, is written
LDAC_LINE = re.compile(rb"[ \t]*(\d{1,12})((?:[ \t]+\d{1,12}:\d{1,12})*)[ \t]*")  # a document, see `ldac`
LARGEST = 1 << 40  # maximum of any number in the file, so that sums over a chunk fit in 64 bits


class UciHeader(NamedTuple):
    """Numbers in the first three lines: documents, words, and entries (the lines that follow).

    An LDA-C file has no header; its number of words comes from the vocabulary.
    """

    documents: int
    words: int
    entries: int
    is_ldac: bool = False


def is_ldac(line: bytes) -> bool:
    """Return whether a line is a document of an LDA-C file with words."""
    found = LDAC_LINE.fullmatch(line.rstrip(b"\n"))
    return bool(found and found[2])


def read_header(source: TextInput) -> UciHeader:
    """Read and consume the header of a source.

    Raises RequestError if it has no valid header.
    """
    numbers: list[int] = []
    for meaning in ("documents", "words", "non-zero counts"):
        line = source.take(first_line_end)
        if not line.strip(b" \t\n").isdigit() or not 0 <= int(line) < LARGEST:
            raise RequestError(
                f"{source.name}, line {max(source.line - 1, 1)}: expected the number of {meaning}, got {quoted(line)}",
                "A UCI file must begin with three lines: numbers of documents, words and nonzero counts.",
            )
        numbers.append(int(line))
    documents, words, entries = numbers
    return UciHeader(documents, words, entries)


def require_words(header: UciHeader, name: str, most: int) -> None:
    """Raise RequestError if the number of words in a header exceeds what fits in memory."""
    if header.words > most:
        raise RequestError(
            f"{name}, line 2: the header says {header.words:,} words, but only {most:,} fit in --memory",
            "Increase --memory; or correct the header if it is wrong.",
        )


def whole_documents(buffer: bytearray) -> int:
    """Return the start of the last document, where a chunk of whole documents can end; 0 if it is the first
    document."""
    end = last_line_end(buffer)
    last = buffer.rfind(b"\n", 0, max(end - 1, 0)) + 1
    fields = buffer[last:end].split(None, 1)
    if len(fields) < 2:
        return last
    number = buffer[last : buffer.index(fields[0], last) + len(fields[0]) + 1]
    return 0 if buffer.startswith(number) else buffer.find(b"\n" + number) + 1


def unsorted_error(where: str, document: int) -> RequestError:
    """Return the error for a document that follows one with a higher number."""
    return RequestError(
        f"{where}: document {document} comes after a document with a higher number",
        "Lines must be sorted by document. "
        "Sort them with: (head -n 3 FILE; tail -n +4 FILE | sort -s -n -k 1,1) > SORTED",
    )


def read_vocabulary(path: str, encoding: str | None = None) -> list[str]:
    """Return the words of a vocabulary file, word i on line i.

    Raises RequestError if a line is empty or repeated.
    """
    data = b"".join(data for _, data in TextInput(path, encoding=encoding).chunks(last_line_end))
    words = decode_utf8(data, path).removesuffix("\n").split("\n")
    line_of: dict[str, int] = {}
    for line, word in enumerate(words, 1):
        if not word.strip():
            raise RequestError(f"{path}, line {line}: the line is empty; expected a word")
        if line_of.setdefault(word, line) != line:
            raise RequestError(f"{path}, line {line}: the word {word!r} is already on line {line_of[word]}")
    return words
