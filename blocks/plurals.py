"""Format numbers with their nouns and units for messages."""

from __future__ import annotations


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as "1 block" or "2,000 blocks".

    plural: plural of an irregular noun.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size_text(size: float) -> str:
    """Return a number of bytes in a suitable unit, such as "512 bytes" or "6.0 GB"."""
    for unit, bytes_ in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= 0.99995 * bytes_:  # as 999,950 bytes would read 1,000.0 kB
            return f"{size / bytes_:,.1f} {unit}"
    return count_of(round(size), "byte")


def seconds_text(seconds: float) -> str:
    """Return a duration in seconds, such as "64.1 s"."""
    return f"{seconds:,.1f} s" if seconds >= 0.1 else "under 0.1 s"


def rate_text(rate: float, noun: str) -> str:
    """Return a rate with three digits, such as "9,740,000 tokens per second".

    noun: plural.
    """
    return f"{float(f'{rate:.3g}'):,.0f} {noun} per second"
