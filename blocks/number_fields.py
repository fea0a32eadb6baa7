"""Kernels that find the fields of text lines and parse numbers."""

from __future__ import annotations

import re

import numpy as np

from blocks.compiled import inlined, unmanaged_kernel

BLANK, TAB, BREAK, RETURN, QUOTE, POINT, COMMA = 32, 9, 10, 13, 34, 46, 44
_POWERS = 10.0 ** np.arange(23)  # the powers that float64 represents exactly
_MANY_DIGITS = 10**18  # a number below this fits in 64 bits with one more digit


@inlined
def is_blank(byte):
    """Return whether a byte is a space, tab or carriage return."""
    return byte in (BLANK, TAB, RETURN)


@inlined
def trim_blanks(text, begin, end):
    """Return the start and end of a field without surrounding blanks."""
    while begin < end and is_blank(text[begin]):
        begin += 1
    while begin < end and is_blank(text[end - 1]):
        end -= 1
    return begin, end


@inlined
def word_end(text, at, end):
    """Return the position of the first blank at or after `at`, or `end`."""
    while at < end and not is_blank(text[at]):
        at += 1
    return at


@inlined
def line_end(text, at):
    """Return the end of the line that contains `at`.

    text: uint8, ends with a line break.
    """
    while text[at] != BREAK:
        at += 1
    return at


@unmanaged_kernel
def parse_number(text, at, end, point):
    """Parse a decimal number between `at` and `end`; return the number and whether it is valid.

    point: decimal mark, a byte.

    The result is the nearest float64 for up to 15 digits and powers of ten up to 22, otherwise it is accurate to a few
    units in the last place.
    """
    negative = at < end and text[at] == 45
    if at < end and (text[at] == 43 or text[at] == 45):
        at += 1
    digits, scale, seen, fraction = np.uint64(0), 0, False, False
    while at < end and (48 <= text[at] <= 57 or (text[at] == point and not fraction)):
        if text[at] == point:
            fraction = True
        elif digits < np.uint64(_MANY_DIGITS):
            digits = np.uint64(10) * digits + np.uint64(text[at] - 48)
            scale -= fraction
            seen = True
        else:
            scale += not fraction
        at += 1
    if seen and at < end and (text[at] == 101 or text[at] == 69):
        power, at = whole_number(text, at + 1, end)
        scale += power
        seen = at == end
    value = scaled(np.float64(digits), scale) if digits else 0.0
    return -value if negative else value, seen and at == end and value < np.inf


@unmanaged_kernel
def whole_number(text, at, end):
    """Parse an exponent, capped at 9999; return it and its end, which is -1 if there are no digits."""
    negative = at < end and text[at] == 45
    if at < end and (text[at] == 43 or text[at] == 45):
        at += 1
    begin, number = at, 0
    while at < end and 48 <= text[at] <= 57:
        number = min(10 * number + (text[at] - 48), 9999)
        at += 1
    return -number if negative else number, at if at > begin else -1


@inlined
def scaled(digits, scale):
    """Return digits * 10**scale, float64."""
    if scale >= 0:
        return digits * (_POWERS[scale] if scale < 23 else 10.0**scale)
    if scale > -23:
        return digits / _POWERS[-scale]
    return digits / 10.0**-scale if scale > -300 else digits / 1e300 / 10.0 ** (-scale - 300)


def split_words(line: bytes) -> list[bytes]:
    """Split a line into words (bytes) as `word_end` does; bytes.split treats more characters as blanks."""
    return [word for word in re.split(rb"[ \t\r]", line) if word]


def is_number(field: bytes, largest: float = np.inf, point: int = POINT) -> bool:
    """Return whether `parse_number` accepts a field, and the number does not exceed the largest."""
    text = np.frombuffer(field, np.uint8)
    value, good = parse_number(text, 0, text.size, point)
    return bool(good and abs(value) <= largest)
