"""From text to word ids, without a Python loop per token: split, look up in a dictionary that grows, count."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, filterfalse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel
from blocks.errors import RequestError
from blocks.records import Text

TOKEN_PATTERN = r"(?u)\b\w\w+\b"
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_SPACES = {code: " " for code in range(128) if chr(code) not in _WORD}
_LOWER_SPACES = _SPACES | {ord(letter): letter.lower() for letter in string.ascii_uppercase}
_ENTRY_BYTES = 170  # of a word in memory, besides its letters: dictionary entry, string header, id, counts
_BATCH = 1 << 12  # tokens looked up at a time: while they are in the cache

KEPT, STOP_WORD, TOO_SHORT, UNKNOWN = range(4)  # what becomes of the tokens of a word


class Rules(NamedTuple):
    """How text becomes tokens."""

    token_pattern: str = TOKEN_PATTERN
    lower: bool = True
    stop_words: tuple[str, ...] = ()
    ngrams: int = 1


class Vocabulary(dict[str, int]):
    """Ids of words; a word that is new gets the next one. `fates[id]` says what becomes of its tokens."""

    def __init__(self, stop_words: Iterable[str] = (), shortest: int = 1) -> None:
        super().__init__()
        self.fates = bytearray()
        self.letters = 0
        self._stop_words = frozenset(stop_words)
        self._shortest = shortest

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self.fates)
        self.letters += len(word)
        too_short = len(word) < self._shortest
        self.fates.append(STOP_WORD if word in self._stop_words else TOO_SHORT if too_short else KEPT)
        return number

    def bytes(self) -> int:
        """About what it takes in memory, with the counts that go with it."""
        return _ENTRY_BYTES * len(self.fates) + self.letters


class FixedVocabulary(Vocabulary):
    """The words of a dataset; all others share one id, after the last."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__()
        self.update(zip(words, range(len(words)), strict=True))
        self.fates.extend(bytes([KEPT]) * len(words) + bytes([UNKNOWN]))
        self._unknown = len(words)

    def __missing__(self, word: str) -> int:
        return self._unknown


class Tokenizer:
    """Splits texts and numbers their tokens with a vocabulary."""

    def __init__(self, rules: Rules, fixed: Sequence[str] | None = None) -> None:
        self._rules = rules
        self._find = compiled_pattern(rules.token_pattern).findall
        self._plain = rules.token_pattern == TOKEN_PATTERN
        self._stop_words = frozenset(rules.stop_words)
        shortest = 2 if self._plain else 1
        self.vocabulary = (
            Vocabulary(rules.stop_words, shortest if rules.ngrams == 1 else 1)
            if fixed is None
            else FixedVocabulary(fixed)
        )

    def __call__(self, texts: Sequence[Text]) -> tuple[np.ndarray, np.ndarray, dict[int, int]]:
        """Word ids and lengths of the documents, and how many tokens were dropped for which fate.

        Returns ids uint32 (N,), lengths uint32 (D,) and {fate: tokens}. Lists of tokens are taken as they are.
        """
        ids, ends = self._numbered(texts)
        fates = np.array(self.vocabulary.fates, np.uint8)[ids]
        if any(isinstance(text, list) for text in texts):
            given = np.repeat([isinstance(text, list) for text in texts], np.diff(ends))
            fates[given & (fates != UNKNOWN)] = KEPT
        keep = fates == KEPT
        lengths = np.diff(np.concatenate(([0], np.cumsum(keep)))[ends]).astype(np.uint32)
        dropped = {fate: int(np.count_nonzero(fates == fate)) for fate in (STOP_WORD, UNKNOWN)}
        return ids[keep], lengths, dropped

    def _numbered(self, texts: Sequence[Text]) -> tuple[np.ndarray, list[int]]:
        """Ids of all tokens, uint32 (N,), and where each document ends in them, after a leading 0."""
        parts: list[np.ndarray] = []
        tokens: list[str] = []
        ends, before = [0], 0
        for place, text in enumerate(texts, 1):
            tokens.extend(self._split(text) if isinstance(text, str) else text)
            ends.append(before + len(tokens))
            if len(tokens) >= _BATCH or place == len(texts):
                parts.append(np.fromiter(map(self.vocabulary.__getitem__, tokens), np.uint32, len(tokens)))
                before = ends[-1]
                tokens.clear()
        return np.concatenate([*parts, np.empty(0, np.uint32)]), ends

    def _split(self, text: str) -> Iterable[str]:
        if self._plain and text.isascii():
            words = text.translate(_LOWER_SPACES if self._rules.lower else _SPACES).split()
            if self._rules.ngrams > 1:
                words = [word for word in words if len(word) > 1]
        else:
            words = self._find(text.lower() if self._rules.lower else text)
        return words if self._rules.ngrams == 1 else self._joined(words)

    def _joined(self, words: list[str]) -> Iterator[str]:
        """Runs of 1 to n words that are left when stop words are out, joined by underscores."""
        words = list(filterfalse(self._stop_words.__contains__, words))
        runs = (zip(*(words[i:] for i in range(n)), strict=False) for n in range(2, self._rules.ngrams + 1))
        return chain(words, *(map("_".join, run) for run in runs))


class Counts:
    """Tokens and documents of each word id, in arrays that grow with the vocabulary."""

    def __init__(self) -> None:
        self.tokens = np.zeros(0, np.int64)
        self.documents = np.zeros(0, np.int64)
        self._last_seen = np.zeros(0, np.int64)
        self._documents_seen = 0

    def add(self, ids: np.ndarray, lengths: np.ndarray, vocabulary_size: int) -> None:
        """Count documents. ids: uint32 (N,), below `vocabulary_size`. lengths: uint32 (D,)."""
        if vocabulary_size > self.tokens.size:
            more = max(vocabulary_size, 2 * self.tokens.size) - self.tokens.size
            self.tokens = np.concatenate((self.tokens, np.zeros(more, np.int64)))
            self.documents = np.concatenate((self.documents, np.zeros(more, np.int64)))
            self._last_seen = np.concatenate((self._last_seen, np.full(more, -1, np.int64)))
        count_words(ids, lengths, self.tokens, self.documents, self._last_seen, self._documents_seen)
        self._documents_seen += lengths.size


@kernel
def count_words(ids, lengths, tokens, documents, last_seen, first):
    """Count the tokens of each word and the documents it occurs in.

    ids: uint32 (N,). lengths: uint32 (D,). Changed: tokens, documents, and last_seen (document in which each word was
    seen last), int64 (V,). first: number of the first document.
    """
    token = 0
    for document in range(lengths.size):
        for _ in range(lengths[document]):
            word = ids[token]
            token += 1
            tokens[word] += 1
            if last_seen[word] != first + document:
                last_seen[word] = first + document
                documents[word] += 1


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
