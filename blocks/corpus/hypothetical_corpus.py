"""Predict the blocks and slices that ingestion would make of a corpus of a given size, for `ooc plan`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blocks.corpus.dataset import CorpusIndex, Dataset, WholeCorpusCounts
from blocks.corpus.partition import BLOCK_TOKENS, PART_TOKENS, bucket_count, least_slices, slice_count
from blocks.corpus.synthetic import SHIFT
from blocks.errors import RequestError

_LONGEST = 10  # assumed maximum length, relative to the mean: most natural documents are shorter


class HypotheticalCorpus(Dataset):
    """A corpus with sizes, word frequencies and a grid, but no files.

    tokens: number of tokens in `documents` documents over `vocabulary` words, whose frequencies follow a power law with
        exponent `zipf`.
    shards: number of equal shards, one of which this corpus is.
    """

    def __init__(self, *, tokens: int, documents: int, vocabulary: int, zipf: float = 1.1, shards: int = 1) -> None:
        for name, value in (("tokens", tokens), ("documents", documents), ("vocabulary", vocabulary)):
            if value < 1:
                raise RequestError(f"--{name} must be at least 1, got {value}")
        self.path, self.identity = Path(), ""
        self.tokens, self.documents, self.vocabulary_size = tokens, documents, vocabulary
        self.samples, self.part_size = tokens, PART_TOKENS
        self.block_count = bucket_count(tokens, BLOCK_TOKENS)
        self.slice_count = max(slice_count(shards * tokens), least_slices(shards) if shards > 1 else 1)
        self.index = self._index(zipf)
        block = {"documents": -(-documents // self.block_count), "longest": _LONGEST * -(-tokens // documents)}
        self.manifest = {"blocks": [block] * self.block_count}
        self.whole = WholeCorpusCounts(shards * documents, shards * tokens, shards * self.index.frequencies)
        if shards > 1:
            self.manifest["shard"] = {"number": 0, "shards": shards}

    def _index(self, zipf: float) -> CorpusIndex:
        """Return an index in which words are dealt to the slices in turn and blocks have equal size."""
        law = (np.arange(self.vocabulary_size) + 1 + SHIFT) ** -zipf
        frequencies = np.rint(self.tokens * law / law.sum()).astype(np.int64)
        dealt = [np.arange(number, frequencies.size, self.slice_count) for number in range(self.slice_count)]
        words = np.concatenate(dealt)
        bounds = np.concatenate(([0], np.cumsum([ranks.size for ranks in dealt]))).astype(np.int64)
        shares = np.cumsum([law[ranks].sum() for ranks in dealt]) / law.sum()
        block_tokens = np.diff(np.arange(self.block_count + 1) * self.tokens // self.block_count)
        cells = np.diff(np.rint(np.outer(block_tokens, shares)), axis=1, prepend=0).astype(np.int64)
        documents = np.minimum(frequencies, self.documents)
        return CorpusIndex(words.astype(np.uint32), frequencies[words], documents[words], bounds, cells)

    @property
    def data_bytes(self) -> int:
        frequencies = self.index.frequencies / self.block_count
        runs = self.block_count * float((1.0 - np.exp(-frequencies)).sum())  # (word, block) pairs of random documents
        return int(4 * self.tokens + 16 * self.documents + (12 + 12) * runs + 16 * self.vocabulary_size)
