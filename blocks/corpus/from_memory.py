"""Write corpora from arrays in memory, for scripts and tests, and from documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from blocks.corpus.block_writer import write_block
from blocks.corpus.dataset import Dataset
from blocks.corpus.partition import BLOCK_TOKENS, PART_TOKENS, blocks_of_buckets, bucket_count, rank_words, slice_count
from blocks.corpus.writer import RankedWords, finish_corpus_files
from blocks.errors import RequestError
from blocks.files import publish_directory
from blocks.given_arrays import integers
from blocks.ingestion.word_counter import count_words
from blocks.shuffle import partition, shuffle_documents
from blocks.stored_dataset import write_lines


def write_corpus(
    out: str | Path,
    offsets: np.ndarray,
    words: np.ndarray,
    vocabulary: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    seed: int = 0,
    block_tokens: int = BLOCK_TOKENS,
    part_tokens: int = PART_TOKENS,
    slices: int | None = None,
    vocab_from: str | Path | None = None,
    made: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Write a dataset from arrays and return it.

    offsets: int64 (D+1,), start of each document in `words`.
    words: uint32 (N,), position of each token in `vocabulary`.
    slices: number of slices, None for `slice_count`.
    vocab_from: dataset with the same vocabulary whose ranks and slices are used.
    Raises RequestError if `out` exists, if there are no tokens and no `vocab_from`, or if the arrays are inconsistent.
    """
    offsets, words = integers("offsets", offsets), integers("words", words)
    if isinstance(vocabulary, str):
        raise RequestError(
            f"vocabulary must be a list of words, got the string {_shortened(vocabulary)}", "Pass a list of words."
        )
    if words.size == 0 and vocab_from is None:
        raise RequestError("the documents have no tokens: a dataset must have at least one document with a word")
    lengths = _checked_lengths(offsets, words, len(vocabulary), names)
    frequencies = np.bincount(words, minlength=len(vocabulary)).astype(np.int64)
    if vocab_from is None:
        word_ids, slice_bounds = rank_words(frequencies, slices or slice_count(words.size), seed)
    else:
        index = Dataset(vocab_from).index
        word_ids, slice_bounds = np.array(index.word_ids), np.array(index.slice_bounds)
    rank_of = np.empty(len(vocabulary), np.uint32)
    rank_of[word_ids] = np.arange(word_ids.size, dtype=np.uint32)

    buckets = bucket_count(words.size, block_tokens)
    in_buckets = partition(rank_of[words], lengths, 0, seed, buckets)
    with publish_directory(Path(out), overwrite=overwrite) as root:
        blocks = _write_blocks(root, in_buckets, seed, slice_bounds)
        texts = {"vocabulary": write_lines(root, "vocabulary.txt", vocabulary)}
        if names is not None:
            texts["documents"] = write_lines(root, "documents.txt", names)
        finish_corpus_files(
            root,
            blocks=blocks,
            words=RankedWords(
                word_ids, slice_bounds, frequencies, _document_frequencies(offsets, words, len(vocabulary))
            ),
            texts=texts,
            made=made or {"kind": "arrays", "seed": seed},
            part_tokens=part_tokens,
        )
    return Dataset(out)


def ingest_documents(
    documents: Iterable[str | Sequence[str]], out: str | Path, *, names: Iterable[object] | None = None, **options: Any
) -> Dataset:
    """Write a dataset from documents given as strings or lists of words.

    Parameters
    ----------
    documents : iterable of str or of sequences of str
        A list, or a generator that is read one document at a time, in memory that does not grow with the number of
        documents.
    out : str or Path
        Directory of the dataset.
    names : iterable, optional
        Document names.
    **options
        Keyword arguments of `Dataset.create`.

    Returns
    -------
    Dataset
        The dataset in `out`.
    """
    with Dataset.create(out, **options) as writer:
        writer.add(documents, names)
    return Dataset(out)


def _write_blocks(
    root: Path, in_buckets: tuple[np.ndarray, ...], seed: int, slice_bounds: np.ndarray
) -> list[dict[str, Any]]:
    """Write the blocks and return their manifest entries.

    in_buckets: documents from `partition`.
    """
    documents, lengths, ranks, document_bounds, token_bounds = in_buckets
    (root / "blocks").mkdir()
    blocks = []
    for number, (first, last) in enumerate(pairwise(blocks_of_buckets(np.diff(token_bounds)))):
        of_block = slice(document_bounds[first], document_bounds[last])
        tokens = ranks[token_bounds[first] : token_bounds[last]]
        block = shuffle_documents(documents[of_block], lengths[of_block], tokens, seed, number)
        blocks.append(write_block(root, number, *block, slice_bounds))
    return blocks


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _checked_lengths(
    offsets: np.ndarray, words: np.ndarray, vocabulary_size: int, names: Sequence[str] | None
) -> np.ndarray:
    """Check that the arrays are consistent.

    Returns the number of tokens in each document, uint32 (D,).
    """
    lengths = np.diff(offsets)
    if not offsets.size or offsets[0] != 0 or offsets[-1] != words.size or (lengths < 0).any():
        raise RequestError(
            f"offsets must ascend from 0 to the number of tokens, {words.size}; they end at {offsets[-1]}"
        )
    if words.size and int(words.max()) >= vocabulary_size:
        raise RequestError(f"word id {words.max()} is outside the vocabulary, which has {vocabulary_size} words")
    if names is not None and len(names) != lengths.size:
        raise RequestError(f"names has {len(names)} elements, but there are {lengths.size} documents")
    return lengths.astype(np.uint32)


def _document_frequencies(offsets: np.ndarray, words: np.ndarray, vocabulary_size: int) -> np.ndarray:
    """Return the number of documents that contain each word, int64 (V,)."""
    tokens, documents, last_seen = np.zeros((3, vocabulary_size), np.int64)
    count_words(words, np.diff(offsets).astype(np.uint32), tokens, documents, last_seen - 1, 0)
    return documents
