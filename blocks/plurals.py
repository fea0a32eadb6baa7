"""Format numbers with their nouns, for all messages."""

from __future__ import annotations


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as "1 block" or "2,000 blocks". plural: of nouns that do not just take an
    s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
