"""Word segmentation for languages written without spaces, using the usual library for each language."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from blocks.errors import RequestError

Segmenter = Callable[[str], Iterable[str]]


def _chinese(rjieba: Any) -> Segmenter:
    return rjieba.cut


def _japanese(fugashi: Any) -> Segmenter:
    tagger = fugashi.Tagger("-Owakati")
    return lambda text: (word.surface for word in tagger(text))


def _thai(tokenize: Any) -> Segmenter:
    return tokenize.word_tokenize


_LIBRARIES: dict[str, tuple[str, Callable[[Any], Segmenter]]] = {
    "chinese": ("rjieba", _chinese),
    "japanese": ("fugashi", _japanese),
    "thai": ("pythainlp.tokenize", _thai),
}
LANGUAGES = tuple(_LIBRARIES)


@cache
def segmenter(language: str) -> Segmenter:
    """Return a function that splits text into words and the characters between them.

    Japanese and Thai dictionaries take 40 to 100 MB in each process.
    Raises RequestError if the library is missing.
    """
    if language not in _LIBRARIES:
        raise RequestError(f"--segment: unknown language {language!r}", f"Choose one of: {', '.join(LANGUAGES)}.")
    module, make = _LIBRARIES[language]
    os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")  # else the import creates a directory in the user's home
    try:
        return make(importlib.import_module(module))
    except ImportError:
        package = module.partition(".")[0]
        raise RequestError(
            f"--segment {language} needs the package {package}, which is not installed",
            f"Install it with: pip install 'ooc[{language}]'",
        ) from None


def separate_words(text: str, language: str) -> str:
    """Return the text with spaces between its words."""
    return "\n".join(" ".join(segmenter(language)(line)) for line in text.split("\n"))
