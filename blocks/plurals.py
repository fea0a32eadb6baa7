"""Numbers with their nouns, in every line that a person reads."""

from __future__ import annotations


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun, as "1 block" or "2,000 blocks".

    plural: of a noun that takes more than an s.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
