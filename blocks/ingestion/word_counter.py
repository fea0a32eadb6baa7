"""Count the occurrences of each name (word, user, item), and the documents that contain it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blocks.compiled import kernel


class WordCounter:
    """Token and document counts of each word id, in arrays that grow with the vocabulary."""

    def __init__(self) -> None:
        self.tokens = np.zeros(0, np.int64)
        self.documents = np.zeros(0, np.int64)
        self._last_seen = np.zeros(0, np.int64)
        self._documents_seen = 0

    def add(self, ids: np.ndarray, lengths: np.ndarray, vocabulary_size: int) -> None:
        """Count the words of documents.

        ids: uint32 (N,), below `vocabulary_size`.
        lengths: uint32 (D,).
        """
        if vocabulary_size > self.tokens.size:
            more = max(vocabulary_size, 2 * self.tokens.size) - self.tokens.size
            self.tokens = np.concatenate((self.tokens, np.zeros(more, np.int64)))
            self.documents = np.concatenate((self.documents, np.zeros(more, np.int64)))
            self._last_seen = np.concatenate((self._last_seen, np.full(more, -1, np.int64)))
        count_words(ids, lengths, self.tokens, self.documents, self._last_seen, self._documents_seen)
        self._documents_seen += lengths.size

    def write(self, path: Path, vocabulary_size: int) -> None:
        """Write the token and document counts of the first `vocabulary_size` words, int64 (2, V)."""
        self.add(np.empty(0, np.uint32), np.empty(0, np.uint32), vocabulary_size)
        path.write_bytes(self.tokens[:vocabulary_size].tobytes() + self.documents[:vocabulary_size].tobytes())


@kernel
def count_words(ids, lengths, tokens, documents, last_seen, first):
    """Count the tokens of each word and the documents that contain it.

    ids: uint32 (N,).
    lengths: uint32 (D,).
    tokens, documents: int64 (V,), updated.
    last_seen: int64 (V,), the last document in which each word occurred, updated.
    first: index of the first document.
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
