"""The vocabulary of a dataset: merge the words of all workers, filter them by frequency, and order them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.corpus.partition import DROPPED, rank_words, slice_count
from blocks.corpus.tokenization_rules import TokenizationRules
from blocks.errors import RequestError
from blocks.ingestion.name_merging import MergedNames


class WordFilters(NamedTuple):
    """Filters for words. An int counts documents, a float is a fraction of all documents; None keeps all words."""

    min_df: int | float | None = None
    max_df: int | float | None = None
    max_vocab: int | None = None
    min_npmi: float | None = None  # minimum for n-grams, see `associations`


NO_FILTERS = WordFilters()


def require_ngrams(filters: WordFilters, rules: TokenizationRules) -> None:
    """Raise RequestError if a filter applies to n-grams, but there are none."""
    if filters.min_npmi is not None and rules.ngrams == 1:
        raise RequestError("--min-npmi can only be used with --ngrams 2 or more", "Add --ngrams 2, or omit --min-npmi.")


def select_words(
    merged: MergedNames, documents: int, filters: WordFilters, *, in_order: bool, stop_words: Sequence[str] = ()
) -> tuple[np.ndarray, dict[str, Any]]:
    """Choose the words to keep.

    documents: number of documents, for fractions.
    in_order: keep the order of `merged.terms` and words that never occur; otherwise words are sorted and words that
        never occur are dropped.
    Returns the positions of the kept words in `merged.terms`, int64 (V',), in vocabulary order, and {filter: {"words":
    dropped, "tokens": dropped}}.
    """
    alphabetical = np.array(sorted(range(len(merged.terms)), key=merged.terms.__getitem__), np.int64)
    if not in_order:
        alphabetical = alphabetical[merged.tokens[alphabetical] > 0]
    dropped: dict[str, Any] = {}

    def keep(chosen: np.ndarray, why: str) -> None:
        nonlocal alphabetical
        out = alphabetical[~chosen]
        dropped[why] = {"words": int(out.size), "tokens": int(merged.tokens[out].sum())}
        alphabetical = alphabetical[chosen]

    if stop_words:
        stops = frozenset(stop_words)
        keep(np.array([merged.terms[word] not in stops for word in alphabetical], bool), "stop_words")
    if filters.min_npmi is not None:
        keep(associations(merged)[alphabetical] >= filters.min_npmi, "min_npmi")
    if filters.min_df is not None:
        keep(merged.documents[alphabetical] >= _absolute(filters.min_df, documents, "--min-df"), "min_df")
    if filters.max_df is not None:
        keep(merged.documents[alphabetical] <= _absolute(filters.max_df, documents, "--max-df"), "max_df")
    if filters.max_vocab is not None:
        most_frequent = np.argsort(-merged.tokens[alphabetical], kind="stable")[: filters.max_vocab]
        keep(np.isin(np.arange(alphabetical.size), most_frequent), "max_vocab")
    return np.sort(alphabetical) if in_order else alphabetical, dropped


def associations(merged: MergedNames) -> np.ndarray:
    """Return the normalized pointwise mutual information (NPMI) of the words of each n-gram, float64 (V,).

    Bouma (GSCL 2009), equation 5, divided by n - 1 for n words: 1 if the words occur nowhere else, 0 if they are
    independent; infinite for single words. An n-gram is a term whose parts between underscores are terms.
    """
    number_of = dict(zip(merged.terms, range(len(merged.terms)), strict=True))
    joined = {
        number: [number_of[part] for part in term.split("_")]
        for term, number in number_of.items()
        if "_" in term and all(part in number_of for part in term.split("_"))
    }
    found, single = np.full(len(merged.terms), np.inf), np.ones(len(merged.terms), bool)
    single[list(joined)] = False
    total = merged.tokens[single].sum()
    for number, parts in joined.items():
        if count := merged.tokens[number]:
            together, apart = np.log(count / total), np.log(merged.tokens[parts] / total).sum()
            found[number] = (together - apart) / ((1 - len(parts)) * together)
    return found


def _absolute(limit: int | float, documents: int, option: str) -> float:
    if isinstance(limit, int):
        return limit
    if not 0 <= limit <= 1:
        raise RequestError(
            f"{option}: the fraction {limit} is not between 0 and 1", "A whole number from 1 is a number of documents."
        )
    return limit * documents


class ChosenVocabulary(NamedTuple):
    """The vocabulary of a dataset, and the mapping of input words to it."""

    words: list[str]
    word_ids: np.ndarray  # uint32 (V,), position in `words` of the word at each rank
    slice_bounds: np.ndarray  # int64 (S+1,)
    frequencies: np.ndarray  # int64 (V,), number of tokens in this input, in the order of `words`
    document_frequencies: np.ndarray  # int64 (V,), number of documents in this input, in the order of `words`
    rank_of_term: np.ndarray  # uint32, rank of each merged term, or DROPPED
    dropped: dict[str, Any]  # number of words and tokens dropped by each filter


def choose_vocabulary(
    merged: MergedNames, kept: np.ndarray, dropped: dict[str, Any], seed: int, slices: int | None = None
) -> ChosenVocabulary:
    """Make a new vocabulary of the words that `select_words` kept.

    slices: number of slices, None for `slice_count`.
    """
    frequencies = merged.tokens[kept]
    word_ids, slice_bounds = rank_words(frequencies, slices or slice_count(int(frequencies.sum())), seed)
    rank_of_term = np.full(len(merged.terms), DROPPED, np.uint32)
    rank_of_term[kept[word_ids]] = np.arange(word_ids.size, dtype=np.uint32)
    words = [merged.terms[term] for term in kept]
    return ChosenVocabulary(words, word_ids, slice_bounds, frequencies, merged.documents[kept], rank_of_term, dropped)


def keep_dataset_vocabulary(merged: MergedNames, dataset: Dataset, stop_words: Sequence[str]) -> ChosenVocabulary:
    """Return the vocabulary of a dataset with its ranks and slices.

    Other words are dropped, and stop words among them are counted separately.
    """
    index = dataset.index
    return use_given_vocabulary(
        merged, dataset.vocabulary(), np.array(index.word_ids), np.array(index.slice_bounds), stop_words
    )


def use_given_vocabulary(
    merged: MergedNames,
    words: list[str],
    word_ids: np.ndarray,
    slice_bounds: np.ndarray,
    stop_words: Sequence[str] = (),
) -> ChosenVocabulary:
    """Return a given vocabulary as `ChosenVocabulary`.

    Other words are dropped, and stop words among them are counted separately.
    """
    place_of = dict(zip(words, range(len(words)), strict=True))
    places = np.fromiter((place_of.get(term, -1) for term in merged.terms), np.int64, len(merged.terms))
    known = places >= 0
    rank_of_word = np.empty(len(words), np.uint32)
    rank_of_word[word_ids] = np.arange(len(words), dtype=np.uint32)
    rank_of_term = np.full(len(merged.terms), DROPPED, np.uint32)
    rank_of_term[known] = rank_of_word[places[known]]
    frequencies, document_frequencies = np.zeros((2, len(words)), np.int64)
    frequencies[places[known]] = merged.tokens[known]
    document_frequencies[places[known]] = merged.documents[known]
    stops = frozenset(stop_words)
    stopped = np.fromiter((term in stops for term in merged.terms), bool, len(merged.terms))
    dropped = {
        why: {"words": int(np.count_nonzero(merged.tokens[these])), "tokens": int(merged.tokens[these].sum())}
        for why, these in (("stop_words", ~known & stopped), ("unknown", ~known & ~stopped))
    }
    return ChosenVocabulary(words, word_ids, slice_bounds, frequencies, document_frequencies, rank_of_term, dropped)
