"""Convert JSON files that contain one array to JSON Lines as they are read."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator

from blocks.errors import RequestError
from blocks.text_inputs import record_too_long

_BLANK = " \t\r\n"
_LEAST = 1 << 16  # minimum number of characters scanned at a time
_decode = json.JSONDecoder(strict=False).raw_decode


def begins_array(start: bytes) -> bool:
    """Return whether a JSON file that starts with these bytes contains an array."""
    return start.lstrip(_BLANK.encode()).startswith(b"[")


def elements_as_lines(pieces: Iterator[bytes], name: str, longest: int) -> Iterator[bytes]:
    """Yield the elements of the array in a file, one per line.

    longest: maximum number of bytes in an element.
    Raises RequestError for an element that is not JSON, an array that is not closed, or text after the array.
    """
    reader = _JsonTextReader(pieces, name, longest)
    reader.take("[")
    if reader.next_is("]"):
        reader.take("]")
    else:
        lines = [reader.element()]
        while reader.next_is(","):
            reader.take(",")
            lines.append(reader.element())
            if len(lines) == 1 << 10:
                yield "".join(lines).encode("utf-8", "surrogateescape")
                lines = []
        yield "".join(lines).encode("utf-8", "surrogateescape")
        reader.take("]")
    if not reader.is_at_end():
        raise RequestError(
            f"{name}: text follows the end of the JSON array", "A file must be one array, or have one object per line."
        )


class _JsonTextReader:
    """Text that is read on demand.

    number: index of the next element, from 1.
    """

    def __init__(self, pieces: Iterator[bytes], name: str, longest: int) -> None:
        self._pieces, self._name, self._longest = pieces, name, longest
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._text, self._at, self._ended = "", 0, False
        self.number = 1

    def next_is(self, mark: str) -> bool:
        """Return whether the next character after white space is `mark`."""
        self._skip()
        return self._text.startswith(mark, self._at)

    def take(self, mark: str) -> None:
        if not self.next_is(mark):
            found = self._text[self._at : self._at + 20]
            what = f"expected {mark!r}, got {found!r}" if found else "the JSON array is not closed"
            raise RequestError(f"{self._name}, element {self.number}: {what}", "Check that the file is complete.")
        self._at += 1

    def is_at_end(self) -> bool:
        self._skip()
        return self._at == len(self._text)

    def element(self) -> str:
        """Return the text of the next value, on one line."""
        self._skip()
        while True:
            try:
                _, end = _decode(self._text, self._at)
                if end < len(self._text) or self._ended:
                    break
            except (json.JSONDecodeError, RecursionError) as error:
                if self._ended:
                    where = f"{self._name}, element {self.number}"
                    raise RequestError(f"{where}: not valid JSON: {error}", "Correct the file.") from None
            if len(self._text) - self._at > self._longest:
                raise record_too_long(f"{self._name}, element {self.number}", self._longest)
            self._read(2 * (len(self._text) - self._at))
        found, self._at = self._text[self._at : end], end
        self.number += 1
        return found.replace("\n", " ") + "\n"

    def _skip(self) -> None:
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANK:
                self._at += 1
            if self._at < len(self._text) or self._ended:
                return
            self._read(_LEAST)

    def _read(self, size: int) -> None:
        """Read until `size` characters are buffered, or the file ends."""
        parts = [self._text[self._at :]]
        length = len(parts[0])
        while length < max(size, _LEAST) and not self._ended:
            piece = next(self._pieces, None)
            self._ended = piece is None
            parts.append(self._decoder.decode(piece or b"", final=self._ended))
            length += len(parts[-1])
        self._text, self._at = "".join(parts), 0
