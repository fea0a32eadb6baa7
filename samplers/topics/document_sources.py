"""Documents for a trained model, from a dataset or from memory, in parts for a thread pool.

Attributes: `count`, number of documents; `word_ids`, uint32, vocabulary position of each rank; `range_parts`, arguments
for `read`; `largest`, approximate number of tokens in the largest part.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.corpus.partition import PART_TOKENS
from blocks.stored_dataset import range_parts
from samplers.estimators.word_counts import WordCounts
from samplers.topics.document_parts import DocumentPart, DocumentRange, read_documents, token_parts
from samplers.topics.model import read_only


class DatasetDocuments:
    """The documents of a dataset, read on demand."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self.count = dataset.documents
        self.word_ids = dataset.index.word_ids
        self.parts = token_parts(dataset)
        self.largest = max(dataset.longest_document, dataset.part_size)

    def read(self, part: DocumentRange) -> DocumentPart:
        return read_documents(self._dataset, part)


class InMemoryDocuments:
    """Documents in memory; the ranks of words are their positions in the vocabulary."""

    def __init__(self, documents: WordCounts) -> None:
        self._documents = documents
        self.count = documents.offsets.size - 1
        self.word_ids = read_only(np.arange(documents.size, dtype=np.uint32))
        self.parts = [
            DocumentRange(0, *bounds) for bounds in pairwise(range_parts(documents.offsets, PART_TOKENS).tolist())
        ]
        self.largest = max(documents.longest, PART_TOKENS)

    def read(self, part: DocumentRange) -> DocumentPart:
        offsets = self._documents.offsets[part.first : part.last + 1]
        lengths = np.diff(offsets)
        keys = np.repeat(np.arange(lengths.size, dtype=np.uint64) << np.uint64(32), lengths)
        keys |= self._documents.tokens(part.first, part.last)
        keys.sort()  # sort the words within each document
        numbers = read_only(np.arange(part.first, part.last, dtype=np.uint64))
        return DocumentPart(offsets - offsets[0], keys.astype(np.uint32), numbers)
