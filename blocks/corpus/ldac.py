"""LDA-C files: one document per line, `terms term:count term:count ...`; terms are positions in a vocabulary, from
0."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from blocks.corpus.uci import LDAC_LINE, LONGEST
from blocks.corpus.uci_bags import BagsOfWords, require_length, split_bags
from blocks.errors import RequestError, quoted


def parse(data: bytes, source: str, line: int, words: int, longest: int = LONGEST) -> Iterator[BagsOfWords]:
    """Parse whole lines; see `uci_bags.parse_documents`.

    words: size of the vocabulary. Documents are numbered from the first line.
    """
    lines = [(number, text) for number, text in enumerate(data.split(b"\n"), line) if text.strip()]
    terms = np.array([_terms(text, source, number) for number, text in lines], np.int64)
    numbers = np.fromstring(b" ".join(text for _, text in lines).replace(b":", b" "), np.int64, sep=" ")
    pairs = np.delete(numbers, np.cumsum(2 * terms + 1) - (2 * terms + 1)).reshape(-1, 2)
    documents = np.repeat(np.arange(terms.size), terms)
    bad = (pairs[:, 0] >= words) | (pairs[:, 1] < 1)
    if bad.any():
        at = int(np.argmax(bad))
        term, count = pairs[at].tolist()
        range_ = f"the term must be from 0 to {words - 1}, as in the vocabulary; got {term}"
        what = range_ if count >= 1 else f"the count must be at least 1, got {count}"
        raise RequestError(f"{source}, line {lines[documents[at]][0]}: {what}")
    rows = np.column_stack([documents + 1, pairs[:, 0] + 1, pairs[:, 1]])
    lengths = np.bincount(documents, weights=pairs[:, 1], minlength=terms.size).astype(np.int64)
    require_length(lengths, 1, source, longest)
    return split_bags(rows, lengths, 1)


def _terms(text: bytes, source: str, line: int) -> int:
    """Return the number of terms on a line."""
    found = LDAC_LINE.fullmatch(text)
    if not found:
        raise RequestError(
            f"{source}, line {line}: expected `terms term:count ...` in whole numbers, got {quoted(text)}"
        )
    terms = found[2].count(b":")
    if int(found[1]) != terms:
        raise RequestError(
            f"{source}, line {line}: the first number says {int(found[1])} terms, but {terms} follow",
            "Correct the line: its first number is the number of distinct terms in the document.",
        )
    return terms
