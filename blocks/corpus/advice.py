"""Whether the words of a corpus look as if its text had been split in the wrong way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import regex

_SHARE = 0.1  # of the tokens, from which on it is worth telling
_LONG = 40  # letters
# Runs of letters that are longer than nearly all words of these languages, which have no spaces between words.
_RUNS = {
    "Chinese": regex.compile(r"\p{Han}{5}"),
    "Japanese": regex.compile(r"[\p{Hiragana}\p{Katakana}][\p{Han}\p{Hiragana}\p{Katakana}]*\p{Hiragana}.*\p{Han}"),
    "Thai": regex.compile(r"\p{Thai}{12}"),
}


def advice_on(words: Sequence[str], frequencies: np.ndarray) -> list[str]:
    """Sentences about words that are probably none, each with what to do; empty if there are few.

    frequencies: int64 (V,), tokens of each word.
    """
    total = max(int(frequencies.sum()), 1)
    if advice := [line for language in _RUNS if (line := _on_runs(language, words, frequencies, total))]:
        return advice
    long = int(frequencies[[number for number, word in enumerate(words) if len(word) > _LONG]].sum())
    if long < _SHARE * total:
        return []
    return [
        f"{long / total:.0%} of the tokens have more than {_LONG} letters, as few words have: see whether this is "
        "text, and whether --token-pattern fits it."
    ]


def _on_runs(language: str, words: Sequence[str], frequencies: np.ndarray, total: int) -> str | None:
    find = _RUNS[language].search
    others = (number for number, word in enumerate(words) if not word.isascii() and find(word))
    tokens = int(frequencies[list(others)].sum())
    if tokens < _SHARE * total:
        return None
    return (
        f"{tokens / total:.0%} of the tokens are several words of {language} in one, as there are no spaces between "
        f"them: find the words with --segment {language.lower()}."
    )
