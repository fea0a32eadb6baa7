"""Document excerpts in which the words of a topic are marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

WORDS = 30  # most probable words of a topic that are marked
_BEFORE = 40  # letters before the first marked word of an excerpt
Pieces = list[tuple[str, bool]]  # text, and whether it is marked


class TopicWordMarker:
    """Finds the words of a topic in texts.

    words: vocabulary words, most probable first; n-grams are joined by "_".
    options: options with which the dataset was ingested, see `blocks.schemas.IngestionRecord`.
    """

    def __init__(self, words: Iterable[str], options: dict[str, Any]) -> None:
        import regex  # takes 12 ms

        listed = sorted(list(words)[:WORDS], key=len, reverse=True)
        forms = [
            "[_\\W]+".join(map(regex.escape, filter(None, word.split("_")))) or regex.escape(word) for word in listed
        ]
        edge = ("", "") if options.get("segment") else (r"(?<!\w)", r"(?!\w)")
        flags = regex.IGNORECASE if options.get("lower", True) else 0
        self._found = regex.compile(f"{edge[0]}(?:{'|'.join(forms)}){edge[1]}", flags) if forms else None

    def excerpt(self, text: str, width: int) -> Pieces:
        """Return the part of a text that contains most of the words, as pieces: at most `width` letters, cut at
        spaces.
        """
        text = " ".join(text.split())
        spans = [found.span() for found in self._found.finditer(text)] if self._found else []
        first, last = _window(text, spans, width)
        pieces: Pieces = [("… ", False)] if first else []
        at = first
        for begin, end in spans:
            if begin >= first and end <= last:
                pieces += [(text[at:begin], False), (text[begin:end], True)]
                at = end
        pieces += [(text[at:last], False), *([(" …", False)] if last < len(text) else [])]
        return [piece for piece in pieces if piece[0]]


def _window(text: str, spans: Sequence[tuple[int, int]], width: int) -> tuple[int, int]:
    """Return the start and end of the part with the most spans, the first of several."""
    if len(text) <= width:
        return 0, len(text)
    best, most, end = 0, -1, 0
    for place, (begin, _) in enumerate(spans):
        start = max(begin - _BEFORE, 0)
        while end < len(spans) and spans[end][1] <= start + width:
            end += 1
        if end - place > most:
            best, most = start, end - place
    first = text.rfind(" ", 0, best + 1) + 1 if best else 0
    last = min(first + width, len(text))
    return first, last if last == len(text) else max(text.rfind(" ", first, last), first + width // 2)


def plain_excerpt(pieces: Pieces) -> str:
    """Return pieces as text, with marked words between asterisks."""
    return "".join(f"*{text}*" if marked else text for text, marked in pieces)
