"""Tokenization rules: normalization, token pattern, stop words, n-grams."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from blocks.corpus.segmentation import segmenter
from blocks.errors import RequestError

if TYPE_CHECKING:
    import regex

TOKEN_PATTERN = r"(?u)\b\w\w+\b"  # in `regex`, \w includes the combining marks of Hindi, Arabic and others
SEGMENT_PATTERN = r"(?u)\b\w+\b"  # for segmented text, where a word may be one character
_DOTTED_I = "i\N{COMBINING DOT ABOVE}"  # result of lower() for a Turkish capital I with a dot


class TokenizationRules(NamedTuple):
    """Tokenization rules."""

    token_pattern: str = TOKEN_PATTERN
    lower: bool = True
    stop_words: tuple[str, ...] = ()
    ngrams: int = 1
    segment: str | None = None  # language, see `blocks.corpus.segmentation`


def normalize_text(text: str, lower: bool) -> str:
    """Return text in Unicode normalization form C, so that equal letters have equal code points.

    lower: lowercase it.
    """
    if text.isascii():
        return text.lower() if lower else text
    text = unicodedata.normalize("NFC", text)
    return text.lower().replace(_DOTTED_I, "i") if lower else text


def checked_rules(rules: TokenizationRules) -> TokenizationRules:
    """Return the rules.

    Raises RequestError for an invalid pattern, n-gram size or language.
    """
    if rules.token_pattern not in (TOKEN_PATTERN, SEGMENT_PATTERN):
        compiled_pattern(rules.token_pattern)
    if rules.ngrams < 1:
        raise RequestError(f"--ngrams must be at least 1, got {rules.ngrams}")
    if rules.segment:
        segmenter(rules.segment)
    return rules


def compiled_pattern(pattern: str) -> regex.Pattern[str]:
    """Compile a token pattern.

    Raises RequestError if it is not a regular expression or has more than one group.
    """
    import regex  # takes 12 ms, which most commands need not spend

    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise RequestError(f"--token-pattern: {pattern!r} is not a regular expression: {error}") from None
    if compiled.groups > 1:
        raise RequestError(
            f"--token-pattern has {compiled.groups} capturing groups; at most 1 is allowed",
            "Write the other groups as (?:...).",
        )
    if compiled.fullmatch(""):
        raise RequestError(
            "--token-pattern matches the empty string", "Change the pattern so that a token has at least one character."
        )
    return compiled
