"""Detect, from its words, a corpus whose text was probably tokenized in the wrong way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_SHARE = 0.1  # fraction of the tokens above which advice is given
_LONG = 40  # letters
# Runs of letters longer than nearly all words of these languages, which are written without spaces.
_RUNS = {
    "Chinese": r"\p{Han}{5}",
    "Japanese": r"[\p{Hiragana}\p{Katakana}][\p{Han}\p{Hiragana}\p{Katakana}]*\p{Hiragana}.*\p{Han}",
    "Thai": r"\p{Thai}{12}",
}


def vocabulary_advice(words: Sequence[str], frequencies: np.ndarray) -> list[str]:
    """Return sentences about suspicious words, each with a remedy; empty if there are few such words.

    frequencies: int64 (V,), number of tokens of each word.
    """
    total = max(int(frequencies.sum()), 1)
    foreign = [number for number, word in enumerate(words) if not word.isascii()]
    if frequencies[foreign].sum() >= _SHARE * total:
        found = (_on_runs(language, words, foreign, frequencies, total) for language in _RUNS)
        if advice := list(filter(None, found)):
            return advice
    long = int(frequencies[[number for number, word in enumerate(words) if len(word) > _LONG]].sum())
    if long < _SHARE * total:
        return []
    return [
        f"{long / total:.0%} of the tokens have more than {_LONG} letters: check that the input is text, and that "
        "--token-pattern fits it"
    ]


def _on_runs(
    language: str, words: Sequence[str], foreign: Sequence[int], frequencies: np.ndarray, total: int
) -> str | None:
    """Return the advice for a language.

    foreign: the words that are not pure ASCII.
    """
    import regex  # takes 12 ms, which most commands need not spend

    find = regex.compile(_RUNS[language]).search
    tokens = int(frequencies[[number for number in foreign if find(words[number])]].sum())
    if tokens < _SHARE * total:
        return None
    return (
        f"{tokens / total:.0%} of the tokens are several words of {language}, which has no spaces between words: "
        f"split them with --segment {language.lower()}"
    )
