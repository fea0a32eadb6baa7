"""Documents as bags of words."""

from __future__ import annotations

import numpy as np

from blocks.corpus.dataset import TokenBlock


def document_counts(block: TokenBlock, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct words of the documents `first` to `last` (exclusive) of a block, and their counts.

    Returns int64 (D+1,), the start of each document, from 0; uint32 (N,), the ranks of its words, ascending; and
    float32 (N,), the count of each word.
    """
    bounds = block.offsets[first : last + 1]
    by_place = np.repeat(block.words, np.diff(block.word_offsets))  # the word at each word-major position
    words = by_place[block.positions[bounds[0] : bounds[-1]]]  # positions ascend within a document, so words do
    begins = np.ones(words.size, bool)
    begins[1:] = words[1:] != words[:-1]
    starts = bounds[:-1] - bounds[0]
    begins[starts[starts < words.size]] = True
    places = np.flatnonzero(begins)
    counts = np.diff(np.append(places, words.size)).astype(np.float32)
    return np.searchsorted(places, bounds - bounds[0]).astype(np.int64), words[places], counts
