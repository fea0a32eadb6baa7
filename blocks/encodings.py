"""Decode inputs from any encoding, with any line breaks, to UTF-8 with line feeds."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from itertools import chain

from blocks.errors import RequestError

_MARKS = (  # longest first: the mark of UTF-32 starts with the mark of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LONGEST_MARK = 4


def require_encoding(name: str | None) -> None:
    """Raise RequestError if Python has no text encoding with this name."""
    if name is None:
        return
    try:
        known = codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError):
        known = False
    if not known:
        raise RequestError(
            f"--encoding: unknown encoding {name!r}",
            "Use one such as utf-8, utf-16, latin-1, cp1252 or gb18030.",
        )


def to_utf8(pieces: Iterator[bytes], name: str, encoding: str | None) -> Iterator[bytes]:
    """Yield text as UTF-8 without a byte order mark; text declared as UTF-8 is passed on unchanged.

    encoding: None for UTF-8. A byte order mark takes precedence.
    Raises RequestError, naming the line, for undecodable bytes.
    """
    first = next(pieces, b"")
    while len(first) < _LONGEST_MARK and (more := next(pieces, b"")):
        first += more
    mark, marked = next(((mark, codec) for mark, codec in _MARKS if first.startswith(mark)), (b"", None))
    codec = marked or encoding or "utf-8"
    rest = chain([first[len(mark) :]], pieces)
    if codecs.lookup(codec).name == "utf-8":
        yield from rest
        return
    decoder, line = codecs.getincrementaldecoder(codec)(), 1
    for piece in chain(rest, [b""]):
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode(codec, "replace").count("\n")
            byte = error.object[error.start]
            raise RequestError(
                f"{name}, line {line + before}: byte 0x{byte:02x} is not {codec}: {error.reason}",
                "Set --encoding to the file's encoding, or convert it with iconv.",
            ) from None
        line += text.count("\n")
        yield text.encode("utf-8", "replace")


def with_line_feeds(pieces: Iterator[bytes]) -> Iterator[bytes]:
    r"""Convert line ends of UTF-8 text from `\r\n` or `\r` to `\n`, as Python's `open` does."""
    held = b""
    for given in pieces:
        piece = held + given if held else given
        held = b"\r" if piece.endswith(b"\r") else b""  # the next piece may start with a line feed
        if b"\r" in piece:
            piece = piece.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        yield piece
    if held:
        yield b"\n"


def decode_utf8(data: bytes, name: str, first: int = 1) -> str:
    """Decode UTF-8.

    first: number of the first line.
    Raises RequestError, naming the line, for an invalid byte.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = first + data.count(b"\n", 0, error.start)
        raise RequestError(
            f"{name}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8",
            "Set --encoding to the file's encoding, or convert it with iconv.",
        ) from None


def likely_encoding(data: bytes) -> str:
    """Guess the encoding of text that is not UTF-8.

    data: some lines that contain invalid UTF-8.
    """
    if b"\0" in data:
        even, odd = data[::2].count(0), data[1::2].count(0)
        return "utf-16-be" if even > odd else "utf-16-le"
    for encoding in ("cp1252", "latin-1"):
        try:
            data.decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding
    raise AssertionError("latin-1 has all bytes")
