"""The words of documents that users hand to topic models: counts, texts or tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from blocks.corpus.rules import Rules, read_stop_words
from blocks.corpus.tokens import Tokenizer
from blocks.errors import RequestError
from samplers.estimators.base import told_as
from samplers.estimators.documents import DOCUMENTS, checked_documents, require_counts, require_one_line, texts_of
from samplers.estimators.tables import Names, SparseRows, Table, read_table

_MOST = 1 << 32  # tokens of a document
_BATCH = 1 << 12  # documents that are split into words together


class WordCounts(NamedTuple):
    """Words of D documents over a vocabulary of V words, as E entries of a word and its count."""

    offsets: np.ndarray  # int64 (D+1,), where the tokens of each document begin
    entries: np.ndarray  # int64 (D+1,), where the entries of each document begin
    words: np.ndarray  # uint32 (E,), places in the vocabulary
    counts: np.ndarray | None  # whole numbers (E,) of any dtype; None if each is 1
    size: int  # V
    names: Names  # of the words

    def tokens(self, first: int, last: int) -> np.ndarray:
        """The words of the tokens of documents first, ..., last - 1: uint32."""
        some = slice(self.entries[first], self.entries[last])
        if self.counts is None:
            return self.words[some]
        return np.repeat(self.words[some], self.counts[some].astype(np.int64))

    @property
    def longest(self) -> int:
        """Tokens of the longest document."""
        return int(np.diff(self.offsets).max())

    @property
    def vocabulary(self) -> Sequence[str]:
        """The words; numbers if they have no names."""
        return list(map(str, range(self.size))) if self.names is None else self.names


def read_documents(
    X: Any, stop_words: Any, vocabulary: Sequence[str] | None, room: Callable[[int], None] | None = None
) -> WordCounts:
    """Documents as the rows of a table of counts, or as texts, or as lists of tokens, whose words are put in order.

    X: what `read_table` takes; or texts or lists of tokens in an iterable, an array or a column of a data frame.
    stop_words: left out of texts, see `rules_of`. vocabulary: all there is, for texts and tokens; None for what is in
    them, and empty if nothing is known of it. room: is told how many tokens of texts have been read, and may raise.
    Raises RequestError.
    """
    if (documents := texts_of(X)) is None:
        require_counts(X)
        return _of_table(read_table(X))
    if vocabulary is not None and not vocabulary:
        raise RequestError(
            "X has texts, but the model was fitted to counts whose columns have no names",
            "Give counts with the same columns; or fit to texts, or to a data frame whose columns are the words.",
        )
    return _of_texts(documents, rules_of(stop_words), vocabulary, room or (lambda tokens: None))


def rules_of(stop_words: Any) -> Rules:
    """How texts become tokens. stop_words: "english", None, a file of them, or a list."""
    if stop_words is None or isinstance(stop_words, str):
        with told_as({}):
            return Rules(stop_words=read_stop_words(stop_words or "none"))
    return Rules(stop_words=tuple(sorted(set(stop_words))))


def _of_texts(
    documents: Iterable[Any], rules: Rules, vocabulary: Sequence[str] | None, room: Callable[[int], None]
) -> WordCounts:
    tokenizer, checked = Tokenizer(rules, vocabulary), checked_documents(documents)
    found = [tokenizer([])[:2]]
    while batch := list(islice(checked, _BATCH)):
        found.append(tokenizer(batch)[:2])
        room(sum(ids.size for ids, _ in found))
    ids, lengths = map(np.concatenate, zip(*found, strict=True))
    if not lengths.size:
        raise RequestError("X is empty: documents are needed", f"Give {DOCUMENTS}.")
    if not ids.size and vocabulary is None:
        raise RequestError(
            f"X has no tokens: no word of its {lengths.size} documents is kept",
            "Words of texts have two letters or more; those of stop_words are left out.",
        )
    if vocabulary is None:
        vocabulary, ids = _sorted(tokenizer.table.words().decode().split("\n"), ids)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    return WordCounts(offsets, offsets, ids, None, len(vocabulary), vocabulary)


def _sorted(words: list[str], ids: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The words that occur in alphabetical order, and the places of the tokens among them."""
    occurring = np.unique(ids)
    order = sorted(occurring.tolist(), key=words.__getitem__)
    place_of = np.zeros(len(words), np.uint32)
    place_of[order] = np.arange(len(order), dtype=np.uint32)
    return [words[number] for number in order], place_of[ids]


def _of_table(table: Table) -> WordCounts:
    if isinstance(table.values, SparseRows):
        offsets, columns, counts = table.values
    else:
        rows, columns = np.nonzero(table.values)
        counts = table.values[rows, columns]
        offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=table.rows))))
    _check_counts(counts)
    require_one_line(table.names or (), "X has a column named")
    tokens = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))[offsets]
    if (long := np.diff(tokens) >= _MOST).any():
        number = int(long.argmax())
        raise RequestError(
            f"X: document {number} (counted from 0) has {tokens[number + 1] - tokens[number]:,} tokens",
            f"A document has less than {_MOST:,} tokens.",
        )
    return WordCounts(tokens, offsets, columns.astype(np.uint32), counts, table.columns, table.names)


def _check_counts(counts: np.ndarray) -> None:
    if counts.size and counts.min() < 0:
        raise RequestError(f"Negative values in data passed to a topic model: {counts.min()}", "Counts are from 0 on.")
    if counts.dtype.kind == "f" and (broken := counts != np.floor(counts)).any():
        raise RequestError(
            f"X has {counts[broken][0]:g}, which is no count: a topic model is of words that occur so many times",
            "Give counts of words, as of CountVectorizer, without weights.",
        )
    if counts.size and counts.max() >= _MOST:
        raise RequestError(
            f"X has a word {counts.max():g} times in a document", f"A document has less than {_MOST:,} tokens."
        )
