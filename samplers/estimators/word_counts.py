"""Word counts of documents passed to topic models as counts, texts or tokens."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from blocks.arrow_frames import from_arrow
from blocks.corpus.partition import DROPPED
from blocks.corpus.stop_words import read_stop_words
from blocks.corpus.tokenization_rules import SEGMENT_PATTERN, TOKEN_PATTERN, TokenizationRules, checked_rules
from blocks.corpus.tokenizer import Tokenizer
from blocks.corpus.vocabulary import NO_FILTERS, WordFilters, require_ngrams, select_words
from blocks.corpus.vocabulary_advice import vocabulary_advice
from blocks.errors import RequestError, in_parameters
from blocks.ingestion.name_merging import MergedNames
from blocks.ingestion.word_counter import WordCounter
from blocks.plurals import count_of
from samplers.estimators.base import reword_errors
from samplers.estimators.document_inputs import (
    DOCUMENTS,
    checked_documents,
    document_texts,
    require_counts,
    require_one_line,
)
from samplers.estimators.feature_tables import CsrRows, FeatureTable, Names, read_table

_MOST = 1 << 32  # maximum number of tokens in a document
_BATCH = 1 << 12  # number of documents that are tokenized together


class WordCounts(NamedTuple):
    """Word counts of D documents over V words, as E entries with a word and its count."""

    offsets: np.ndarray  # int64 (D+1,), start of each document's tokens
    entries: np.ndarray  # int64 (D+1,), start of each document's entries
    words: np.ndarray  # uint32 (E,), indices of words in the vocabulary
    counts: np.ndarray | None  # integers (E,) of any dtype; None if all are 1
    size: int  # V
    names: Names  # the words

    def tokens(self, first: int, last: int) -> np.ndarray:
        """Return the word of each token in documents first, ..., last - 1, uint32."""
        some = slice(self.entries[first], self.entries[last])
        if self.counts is None:
            return self.words[some]
        return np.repeat(self.words[some], self.counts[some].astype(np.int64))

    @property
    def longest(self) -> int:
        """Return the number of tokens in the longest document."""
        return int(np.diff(self.offsets).max())

    @property
    def vocabulary(self) -> Sequence[str]:
        """Return the words, or their indices if they have no names."""
        return list(map(str, range(self.size))) if self.names is None else self.names


def read_documents(
    X: Any,
    rules: TokenizationRules,
    filters: WordFilters = NO_FILTERS,
    vocabulary: Sequence[str] | None = None,
    room: Callable[[int], None] | None = None,
) -> WordCounts:
    """Return documents from rows of counts, texts, or lists of tokens, with sorted words.

    X: anything for `read_table`; or texts or lists of tokens in an iterable, an array or a data frame column.

    rules: tokenization rules.
    filters: word filters for texts and tokens.
    vocabulary: words to keep instead; None for the words of the documents, empty if unknown.
    room: function called with the number of tokens read, which may raise.
    Raises RequestError if X is invalid.
    """
    X = from_arrow(X)
    if (documents := document_texts(X)) is None:
        require_counts(X)
        return _of_table(read_table(X))
    if vocabulary is not None and not vocabulary:
        raise RequestError(
            "X contains texts, but the model was fitted to counts without word names",
            "Pass counts with the same columns; or fit to texts, or to a data frame whose columns are the words.",
        )
    return _of_texts(documents, rules, filters, vocabulary, room or (lambda tokens: None))


def vectorizer_rules(parameters: dict[str, Any]) -> tuple[TokenizationRules, WordFilters]:
    """Return tokenization rules and word filters from parameters of `LatentDirichletAllocation`.

    Raises RequestError if a parameter is invalid.
    """
    stop_words, segment, (_, ngrams) = (parameters[name] for name in ("stop_words", "segment", "ngram_range"))
    pattern = parameters["token_pattern"] or (SEGMENT_PATTERN if segment else TOKEN_PATTERN)
    filters = WordFilters(*(parameters[name] for name in ("min_df", "max_df", "max_features", "min_npmi")))
    with reword_errors({"ngrams": "ngram_range"}):
        if stop_words is None or isinstance(stop_words, str):
            stop_words = read_stop_words(stop_words or "none")
        listed = tuple(sorted(set(stop_words)))
        rules = checked_rules(TokenizationRules(pattern, parameters["lowercase"], listed, ngrams, segment))
        require_ngrams(filters, rules)
    return rules, filters


def _of_texts(
    documents: Iterable[Any],
    rules: TokenizationRules,
    filters: WordFilters,
    vocabulary: Sequence[str] | None,
    room: Callable[[int], None],
) -> WordCounts:
    tokenizer, counts, checked = Tokenizer(rules, vocabulary), WordCounter(), checked_documents(documents)
    found = [tokenizer([])[:2]]
    while batch := list(islice(checked, _BATCH)):
        found.append(tokenizer(batch)[:2])
        counts.add(*found[-1], len(tokenizer.table))
        room(sum(ids.size for ids, _ in found))
    ids, lengths = map(np.concatenate, zip(*found, strict=True))
    if not lengths.size:
        raise RequestError("X is empty; expected at least one document", f"Pass {DOCUMENTS}.")
    if not ids.size and vocabulary is None:
        raise RequestError(
            f"X has no tokens: no word of its {count_of(lengths.size, 'document')} is kept",
            "Check token_pattern (words of two letters or more by default) and stop_words.",
        )
    if vocabulary is None:
        terms = tokenizer.table.words().decode().split("\n")
        vocabulary, ids, lengths = _selected(terms, counts, filters, ids, lengths)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    return WordCounts(offsets, offsets, ids, None, len(vocabulary), vocabulary)


def _selected(
    terms: list[str], counts: WordCounter, filters: WordFilters, ids: np.ndarray, lengths: np.ndarray
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Apply the filters.

    Returns the kept words in alphabetical order; the tokens as indices of these words, uint32; and the number of these
    tokens in each document.
    """
    tokens, documents = counts.tokens[: len(terms)], counts.documents[: len(terms)]
    with reword_errors({"max_vocab": "max_features"}):
        kept, _ = select_words(MergedNames(terms, tokens, documents, {}), lengths.size, filters, in_order=False)
    if not kept.size:
        raise RequestError(
            f"min_df, max_df and max_features keep none of the {len(terms)} words of X",
            "Decrease min_df or increase max_df.",
        )
    words = [terms[term] for term in kept.tolist()]
    for line in vocabulary_advice(words, tokens[kept]):
        warnings.warn(in_parameters(line), stacklevel=2)
    place_of = np.full(len(terms), DROPPED, np.uint32)
    place_of[kept] = np.arange(kept.size, dtype=np.uint32)
    places = place_of[ids]
    if (known := places != DROPPED).all():
        return words, places, lengths
    ends = np.concatenate(([0], np.cumsum(known)))[np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))]
    return words, places[known], np.diff(ends)


def _of_table(table: FeatureTable) -> WordCounts:
    if isinstance(table.values, CsrRows):
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
            f"X: document {number} (counted from 0) has {tokens[number + 1] - tokens[number]:,} tokens;"
            f" it must have fewer than {_MOST:,}",
            "Split the document.",
        )
    return WordCounts(tokens, offsets, columns.astype(np.uint32), counts, table.columns, table.names)


def _check_counts(counts: np.ndarray) -> None:
    if counts.size and counts.min() < 0:
        raise RequestError(
            f"Negative values in data passed to a topic model: {counts.min()}", "Counts must be at least 0."
        )
    if counts.dtype.kind == "f" and (broken := counts != np.floor(counts)).any():
        raise RequestError(
            f"X must be word counts (whole numbers), got {counts[broken][0]:g}",
            "Pass the counts of CountVectorizer, without tf-idf or other weights.",
        )
    if counts.size and counts.max() >= _MOST:
        raise RequestError(f"X has a count of {counts.max():g}; a count must be less than {_MOST:,}")
