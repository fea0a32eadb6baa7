"""Tokenize text and assign ids to its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby

import numpy as np

from blocks.corpus.minhash import MULTIPLIERS, sign_documents
from blocks.corpus.record_parsers import Text
from blocks.corpus.segmentation import separate_words
from blocks.corpus.tokenization_rules import TOKEN_PATTERN, TokenizationRules, compiled_pattern, normalize_text
from blocks.errors import RequestError
from blocks.ingestion.word_table import END_BYTE, LINES, LOWER_WORDS, WORDS, WordTable

# End of a sentence: a full stop counts only if white space follows, possibly after closing quotes.
_SENTENCE_END = r"[.…][\p{Pe}\p{Pf}\"']*(?=\s|$)|(?![.…])\p{Sentence_Terminal}|\n\s*\n"
_ENTRY_BYTES = 170  # memory for each word besides its letters: dictionary entry, string header, id, counts


class Tokenizer:
    """Splits texts and assigns ids to their words in `table`.

    With a fixed vocabulary, other words are dropped, and stop words in the vocabulary are kept.
    """

    def __init__(self, rules: TokenizationRules, fixed: Sequence[str] | None = None) -> None:
        self._rules = rules
        self._plain = rules.token_pattern == TOKEN_PATTERN and rules.ngrams == 1 and not rules.segment
        self._stop_words = frozenset(normalize_text(word, rules.lower) for word in rules.stop_words)
        self.table = WordTable(sorted(self._stop_words), fixed)
        if fixed is not None and len(self.table) != len(fixed):
            word = next((word for word, times in Counter(fixed).items() if times > 1), "")
            raise RequestError(f"the vocabulary has {f'the word {word!r} twice' if word else 'an empty word'}")

    def __call__(self, texts: Iterable[Text]) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
        """Return word ids uint32 (N,), lengths uint32 (D,), the number of dropped stop words, and the number of dropped
        unknown tokens of each document, uint32 (D,).

        Lists of tokens are used as they are, with stop words.
        Raises RequestError if a token has a line break.
        """
        ids, lengths, unknown = ([np.empty(0, np.uint32)] for _ in range(3))
        stopped = 0
        for given, text, letters, shortest in self._split_all(texts):
            of_words, of_documents, stops, others = self.table.add(
                text, letters, shortest, stop=not given and self._rules.ngrams == 1
            )
            for parts, part in zip((ids, lengths, unknown), (of_words, of_documents, others), strict=True):
                parts.append(part)
            stopped += stops
        return np.concatenate(ids), np.concatenate(lengths), stopped, np.concatenate(unknown)

    def sign(self, texts: Iterable[Text], size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return hashes, uint64 (D, 2), and MinHash signatures, uint16 (D, size), of the tokens of texts, with stop
        words. See `blocks.corpus.minhash`."""
        hashes, signatures = [np.empty((0, 2), np.uint64)], [np.empty((0, size), np.uint16)]
        for _, text, letters, shortest in self._split_all(texts):
            documents = text.count(END_BYTE)
            hashes.append(np.empty((documents, 2), np.uint64))
            signatures.append(np.empty((documents, size), np.uint16))
            buffer = np.frombuffer(text.translate(letters), np.uint8)
            sign_documents(buffer, shortest, MULTIPLIERS[:size], hashes[-1], signatures[-1])
        return np.concatenate(hashes), np.concatenate(signatures)

    def _split_all(self, texts: Iterable[Text]) -> Iterator[tuple[bool, bytes, bytes, int]]:
        """Yield texts of one kind at a time: whether they are lists of tokens, and the first three arguments of
        `WordTable.add` for them."""
        for given, group in groupby(texts, lambda text: isinstance(text, list)):
            letters = LINES if given or not self._plain else LOWER_WORDS if self._rules.lower else WORDS
            text = b"".join(self._split(text).encode("utf-8", "replace") + END_BYTE for text in group)
            yield given, text, letters, 1 if letters is LINES else 2

    @cached_property
    def _find(self) -> Callable[[str], list[str]]:
        return compiled_pattern(self._rules.token_pattern).findall

    @cached_property
    def _sentences(self) -> Callable[[str], list[str]]:
        return compiled_pattern(_SENTENCE_END).split

    def bytes(self) -> int:
        """Return the approximate size of the words, here and in the merged vocabulary of all workers."""
        return _ENTRY_BYTES * len(self.table) + self.table.letters

    def _split(self, text: Text) -> str:
        """Return the tokens of a text, one per line; or the text itself if its tokens are its runs of ASCII letters."""
        if isinstance(text, list):
            return "\n".join(text)
        if self._plain and text.isascii():
            return text
        text = normalize_text(text, self._rules.lower)
        if self._rules.segment:
            text = separate_words(text, self._rules.segment)
        words = self._find(text) if self._rules.ngrams == 1 else list(self._joined(text))
        lines = "\n".join(words)
        if lines.count("\n") != max(len(words) - 1, 0):
            raise RequestError(
                "--token-pattern matches line breaks", "Change the pattern so that a token has no line break."
            )
        return lines

    def _joined(self, text: str) -> Iterator[str]:
        """Yield n-grams of 1 to n words, joined by underscores; n-grams do not span stop words or sentence ends."""
        for sentence in self._sentences(text):
            for is_stop_word, group in groupby(self._find(sentence), self._stop_words.__contains__):
                run = [] if is_stop_word else list(group)
                for length in range(1, self._rules.ngrams + 1):
                    yield from map("_".join, zip(*(run[begin:] for begin in range(length)), strict=False))
