"""How text becomes tokens: the pattern of a token, stop words, n-grams."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from blocks.errors import RequestError

TOKEN_PATTERN = r"(?u)\b\w\w+\b"


class Rules(NamedTuple):
    """How text becomes tokens."""

    token_pattern: str = TOKEN_PATTERN
    lower: bool = True
    stop_words: tuple[str, ...] = ()
    ngrams: int = 1


def compiled_pattern(pattern: str) -> re.Pattern[str]:
    """A token pattern; raises RequestError if it is not a regular expression or has more than one group."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise RequestError(f"--token-pattern: {pattern!r} is not a regular expression: {error}") from None
    if compiled.groups > 1:
        raise RequestError("--token-pattern may have one group at most", "Write the other groups as (?:...).")
    if compiled.fullmatch(""):
        raise RequestError("--token-pattern matches nothing at all", "A token has at least one letter.")
    return compiled


def read_stop_words(name: str) -> tuple[str, ...]:
    """The words of `english`, `none`, or a file with one word per line, sorted."""
    if name == "none":
        return ()
    path = Path(__file__).with_name("stop_words_english.txt") if name == "english" else Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            f"--stop-words {name}: cannot be read ({error})", "Give `english`, `none`, or a file of one word per line."
        ) from None
    return tuple(sorted({word.strip() for word in text.split("\n")} - {""}))
