"""Before an ingestion, find documents that repeat earlier ones exactly or nearly.

Exact duplicates have the same tokens in the same order. Near duplicates have at least a given Jaccard similarity, as
estimated by MinHash (`blocks.corpus.minhash`): two documents are compared if a band of their signatures agrees, and
each is compared with up to LEADERS earlier documents that have the same band. Documents linked through other documents
belong to the same cluster, of which the first document is kept. Documents without tokens are kept. The result depends
only on the documents, not on the number of workers. Signatures and bands are stored in files; memory holds 5 bytes per
document, and the hashes of a part of the documents at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.compiled import kernel
from blocks.corpus.duplicates import ChunkSignatures
from blocks.corpus.minhash import SIZE
from blocks.number_spool import NumberSpool

LEADERS = 64
_ROWS = (16, 8, 4, 2)  # possible numbers of values in a band: the more values, the fewer documents are compared
_FOUND = 0.999  # minimum probability that two documents of the requested similarity are compared
_PART = 1 << 22  # approximate number of documents sorted at a time


class DuplicateDocuments(NamedTuple):
    """Documents to leave out.

    numbers: int64 (n,), ascending, indices among all documents.
    kept: int64 (n,), index of the document that each one repeats.
    similarities: float64 (n,), estimated similarity of the two.
    exact: number of documents to leave out that have the same tokens as an earlier document.
    documents: number of all documents.
    """

    numbers: np.ndarray
    kept: np.ndarray
    similarities: np.ndarray
    exact: int
    documents: int


def values_of_band(similarity: float) -> int:
    """Return the number of values in a band for which documents of the given similarity are almost always compared."""
    return next(rows for rows in _ROWS if 1 - (1 - similarity**rows) ** (SIZE // rows) >= _FOUND)


class DuplicateSearch:
    """Collects the hashes of documents in files in `directory`. Use as a context manager. Attributes: `signature_size`,
    number of values in the signatures that the search needs.
    """

    def __init__(self, directory: Path, similarity: float) -> None:
        self._similarity = similarity
        self._rows = values_of_band(similarity) if similarity < 1.0 else SIZE
        bands = SIZE // self._rows if similarity < 1.0 else 0
        self.signature_size = SIZE if bands else 0
        self._stack = ExitStack()
        spools = [self._stack.enter_context(NumberSpool(directory, "uint64")) for _ in range(2 + bands)]
        self._hashes, self._bands = spools[:2], spools[2:]
        self._signatures = self._stack.enter_context(NumberSpool(directory, "uint16"))
        self._names = self._stack.enter_context((directory / "names").open("w+", encoding="utf-8"))
        self._named = False
        self._sizes: list[int] = []

    def __enter__(self) -> DuplicateSearch:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, signed: ChunkSignatures) -> None:
        """Add the documents of the next chunk."""
        self._sizes.append(len(signed.hashes))
        for place, spool in enumerate(self._hashes):
            spool.add(signed.hashes[:, place])
        for band, spool in enumerate(self._bands):
            values = np.ascontiguousarray(signed.signatures[:, band * self._rows : (band + 1) * self._rows])
            spool.add(band_keys(values))
        self._signatures.add(signed.signatures)
        self._named |= signed.names is not None
        self._names.writelines(f"{name}\n" for name in signed.names or [""] * len(signed.hashes))

    def find(self) -> DuplicateDocuments:
        """Return the documents to leave out."""
        first, second = (spool.mapped(-1) for spool in self._hashes)
        parents = np.arange(first.size, dtype=np.uint32)
        for some in _parts(first):
            join_equal(some, first[some], second[some], parents)
        exact = parents != np.arange(first.size, dtype=np.uint32)
        signatures = self._signatures.mapped(first.size, self.signature_size)
        for spool in self._bands:
            keys = spool.mapped(-1)
            for some in _parts(keys):
                wanted = some[~exact[some] & (first[some] != 0)]
                order = np.argsort(keys[wanted], kind="stable")
                join_similar(wanted[order], keys[wanted][order], signatures, self._similarity, LEADERS, parents)
        return _found(parents, exact, signatures)

    def write_left_out(self, found: DuplicateDocuments, path: Path) -> None:
        """Write the file that tells workers which documents of each chunk to leave out."""
        left_out = np.zeros(found.documents, bool)
        left_out[found.numbers] = True
        np.savez(path, starts=np.cumsum([0, *self._sizes]), left_out=left_out)

    def listed(self, found: DuplicateDocuments) -> list[list[Any]]:
        """Return one row per document to leave out: its number (from 1) and name, number and name of the document that
        it repeats, and their similarity.
        """
        names = self._names_of(np.union1d(found.numbers, found.kept))
        rows = zip(found.numbers.tolist(), found.kept.tolist(), found.similarities.tolist(), strict=True)
        return [
            [number + 1, names[number], kept + 1, names[kept], f"{similarity:.4g}"] for number, kept, similarity in rows
        ]

    def _names_of(self, numbers: np.ndarray) -> dict[int, str]:
        wanted = set(numbers.tolist())
        self._names.seek(0)
        return {number: line[:-1] for number, line in enumerate(self._names) if number in wanted}


def _parts(keys: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the documents in parts, uint32, ascending, such that documents with equal keys are in the same part."""
    count = -(-keys.size // _PART)
    part_of = np.empty(keys.size, np.uint8 if count <= 256 else np.uint32)
    for first in range(0, keys.size, _PART):
        run = slice(first, first + _PART)
        part_of[run] = keys[run] % np.uint64(count)
    for part in range(count):
        yield np.flatnonzero(part_of == part).astype(np.uint32)


def _found(parents: np.ndarray, exact: np.ndarray, signatures: np.ndarray) -> DuplicateDocuments:
    kept = roots(parents)
    numbers = np.flatnonzero(kept != np.arange(kept.size))
    of = kept[numbers].astype(np.int64)
    similarities = similarities_of(numbers, of, signatures) if signatures.shape[1] else np.ones(numbers.size)
    return DuplicateDocuments(numbers, of, similarities, int(np.count_nonzero(exact)), kept.size)


@kernel
def band_keys(values):
    """Return a hash of each row, uint64 (D,).

    values: uint16 (D, n).
    """
    keys = np.empty(values.shape[0], np.uint64)
    for row in range(values.shape[0]):
        key = np.uint64(0x9E3779B97F4A7C15)
        for place in range(values.shape[1]):
            key = (key ^ np.uint64(values[row, place])) * np.uint64(0xC2B2AE3D27D4EB4F)
            key ^= key >> np.uint64(29)
        keys[row] = key
    return keys


@kernel
def root_of(parents, document):
    """Return the first document of a document's cluster, and compress the path to it."""
    while parents[document] != document:
        parents[document] = parents[parents[document]]
        document = parents[document]
    return document


@kernel
def roots(parents):
    """Return, for each document, the first document of its cluster, uint32 (N,)."""
    found = np.empty_like(parents)
    for document in range(parents.size):
        found[document] = root_of(parents, document)
    return found


@kernel
def join_equal(documents, first, second, parents):
    """Merge the clusters of documents with equal hashes.

    documents: uint32 (n,), ascending.
    first, second: uint64 (n,), their two hashes, 0 for a document without tokens.
    parents: uint32 (N,), changed: for each document, an earlier document of its cluster, or the document itself.
    """
    order = np.argsort(first, kind="mergesort")
    for i in range(order.size):
        here = order[i]
        if first[here] == 0:
            continue
        j = i - 1
        while j >= 0 and first[order[j]] == first[here]:
            if second[order[j]] == second[here]:
                parents[documents[here]] = root_of(parents, documents[order[j]])
                break
            j -= 1


@kernel
def join_similar(documents, keys, signatures, similarity, most, parents):
    """Merge the clusters of similar documents among those with equal keys.

    documents: uint32 (n,), ascending among equal keys.
    keys: uint64 (n,), ascending.
    signatures: uint16 (N, H).
    similarity: minimum fraction of equal values.
    most: maximum number of earlier documents that a document is compared with.
    parents: see `join_equal`.
    """
    leaders = np.empty(most, np.uint32)
    size = 0
    for i in range(documents.size):
        if i == 0 or keys[i] != keys[i - 1]:
            size = 0
        document = documents[i]
        joined = False
        for place in range(size):
            one, other = root_of(parents, leaders[place]), root_of(parents, document)
            if one == other:
                joined = True
            elif agreement(signatures[leaders[place]], signatures[document]) >= similarity:
                parents[max(one, other)] = min(one, other)
                joined = True
            if joined:
                break
        if not joined and size < most:
            leaders[size] = document
            size += 1


@kernel
def similarities_of(documents, others, signatures):
    """Return the estimated similarities of pairs of documents, float64 (n,)."""
    found = np.empty(documents.size)
    for i in range(documents.size):
        found[i] = agreement(signatures[documents[i]], signatures[others[i]])
    return found


@kernel
def agreement(first, second):
    """Return the fraction of equal values of two signatures."""
    equal = 0
    for place in range(first.size):
        equal += first[place] == second[place]
    return equal / first.size
