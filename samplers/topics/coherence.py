"""Coherence and diversity of the topics of a model, from their top words.

The top words of a topic are those with the largest counts n_kw. With P(w) and P(w, v) the fractions of a dataset's
documents that contain a word, or both of two words (boolean document co-occurrence), and epsilon = 1e-12,

    NPMI(w, v) = log((P(w, v) + epsilon) / (P(w) P(v))) / -log(P(w, v) + epsilon)

Bouma, "Normalized (pointwise) mutual information in collocation extraction" (GSCL 2009), with the epsilon of Röder,
Both and Hinneburg, "Exploring the space of topic coherence measures" (WSDM 2015), eq. 1 and 2.

Deviation: Röder et al. count in sliding windows over the text (10 words for NPMI, 110 for C_v). A bag of words has no
order, so here the window is the whole document: values can be compared with each other, but not with published ones.

Where the formula is undefined, a pair that occurs in every document has NPMI 1 (the limit), and a pair with a word that
occurs in no document has 0. A topic with fewer than two top words has no coherence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from blocks.compiled import kernel
from blocks.compiler import compile_kernels
from blocks.corpus.dataset import Dataset
from samplers.topics.document_parts import DocumentRange, process_parts, read_documents, token_parts
from samplers.topics.fold_in import different_words

EPSILON = 1e-12


class PairCountTask(NamedTuple):
    """Task of the workers: count the documents with two top words of a topic.

    words: int64 (K, T), -1 where missing.
    """

    dataset: str
    words: np.ndarray


def places_of_words(words: np.ndarray, vocabulary_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each word of the vocabulary, its places among the top words.

    words: int64 (K, T).
    Returns offsets, int64 (V+1,), and places, int64: word i is the top words k * T + t in places[offsets[i] :
    offsets[i+1]].
    """
    flat = words.ravel()
    places = np.argsort(flat, kind="stable")
    places = places[np.count_nonzero(flat < 0) :]
    return np.searchsorted(flat[places], np.arange(vocabulary_size + 1)), places


@kernel
def count_pairs(offsets, ranks, word_ids, place_offsets, places, top, pairs):
    """Count the documents of a part that contain both words of each pair of a topic's top words.

    offsets: int64 (D+1,), start of each document in `ranks`, uint32, sorted within a document.
    word_ids: uint32 (V,), word of each rank.
    place_offsets, places: result of `places_of_words`, with T = top.
    pairs: uint32 (K, T*(T-1)/2), increased; the pair of places s < t is at t*(t-1)/2 + s.
    """
    words = np.empty(ranks.size, np.uint32)
    times = np.empty(ranks.size, np.int64)
    present = np.empty((pairs.shape[0], top), np.int32)
    sizes = np.zeros(pairs.shape[0], np.int32)
    for d in range(offsets.size - 1):
        size = different_words(ranks[offsets[d] : offsets[d + 1]], word_ids, words, times)
        for word in words[:size]:
            for entry in range(place_offsets[word], place_offsets[word + 1]):
                k, t = places[entry] // top, places[entry] % top
                for i in range(sizes[k]):
                    s = present[k, i]
                    low, high = min(s, t), max(s, t)
                    pairs[k, high * (high - 1) // 2 + low] += 1
                present[k, sizes[k]] = t
                sizes[k] += 1
        for word in words[:size]:
            for entry in range(place_offsets[word], place_offsets[word + 1]):
                sizes[places[entry] // top] = 0


def attach(task: PairCountTask) -> Callable[[DocumentRange], tuple[np.ndarray, np.ndarray]]:
    """Return the handler that counts pairs in a part, as indices of the nonzero `pairs` and their counts."""
    dataset = Dataset(task.dataset)
    topics, top = task.words.shape
    place_offsets, places = places_of_words(task.words, dataset.vocabulary_size)
    pairs = np.zeros((topics, top * (top - 1) // 2), np.uint32)
    word_ids = dataset.index.word_ids

    def count(offsets: np.ndarray, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count_pairs(offsets, ranks, word_ids, place_offsets, places, top, pairs)
        where = np.flatnonzero(pairs)
        found = pairs.ravel()[where]
        pairs.ravel()[where] = 0
        return where, found

    compile_kernels(lambda: count(np.zeros(2, np.int64), np.empty(0, np.uint32)))

    def handle(part: DocumentRange) -> tuple[np.ndarray, np.ndarray]:
        documents = read_documents(dataset, part)
        return count(documents.offsets, documents.ranks)

    return handle


def joint_frequencies(words: np.ndarray, dataset: Dataset, *, workers: int, quiet: bool = False) -> np.ndarray:
    """Return the number of documents with both words of each pair of top words, int64 (K, T*(T-1)/2), ordered as in
    `count_pairs`."""
    topics, top = words.shape
    pairs = np.zeros(topics * (top * (top - 1) // 2), np.int64)
    task = PairCountTask(str(dataset.opened_at), words)
    parts = token_parts(dataset)
    answers = process_parts(
        "samplers.topics.coherence:attach", task, parts, workers, title="pairs of top words", quiet=quiet
    )
    for _, (where, found) in answers:
        pairs[where] += found
    return pairs.reshape(topics, -1)


def document_frequencies(words: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Return the number of documents with each top word, int64 (K, T), 0 for missing words."""
    frequencies = np.zeros(dataset.vocabulary_size + 1, np.int64)  # the last element is for missing words, -1
    frequencies[dataset.index.word_ids] = dataset.index.document_frequencies
    return frequencies[words]


def npmi_matrix(frequencies: np.ndarray, pairs: np.ndarray, documents: int) -> np.ndarray:
    """Return the NPMI of all pairs of a topic's T top words, float64 (T, T), symmetric.

    frequencies: int64 (T,), number of documents with each word.
    pairs: int64 (T*(T-1)/2,), number of documents with each pair.
    """
    joint = np.diag(frequencies)
    joint[np.tril_indices(frequencies.size, -1)] = pairs
    joint = np.maximum(joint, joint.T)
    defined = np.outer(frequencies, frequencies) > 0
    product = np.where(defined, np.outer(frequencies, frequencies) / documents**2, 1.0)
    probability = joint / documents + EPSILON
    everywhere = joint == documents
    divisor = -np.log(np.where(everywhere, 0.5, probability))
    matrix = np.where(everywhere, 1.0, np.log(probability / product) / divisor)
    return np.where(defined, matrix, 0.0)


def npmi(matrix: np.ndarray) -> float:
    """Return the mean NPMI over the pairs of distinct words.

    matrix: float64 (T, T), result of `npmi_matrix`.
    """
    return float(matrix[np.tril_indices(len(matrix), -1)].mean())


def c_v(matrix: np.ndarray) -> float:
    """Return C_v (Röder et al., section 3): one-set segmentation, NPMI vectors, cosine, mean.

    The vector of a word holds its NPMI with each of the top words, itself included; the vector of the set is the sum
    over its words (eq. 7, gamma = 1). The result is the mean cosine between a word's vector and the vector of the set
    (0 if either vector is 0).
    """
    whole = matrix.sum(axis=0)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(whole)
    return float((matrix @ whole / np.where(lengths > 0, lengths, 1.0)).mean())


def diversity(words: np.ndarray) -> float:
    """Return the fraction of top words that are distinct (Dieng, Ruiz and Blei, TACL 2020, section 6).

    words: int64 (K, T), with at least one word >= 0. The paper uses T = 25.
    """
    listed = words[words >= 0]
    return np.unique(listed).size / listed.size


def coherence(words: np.ndarray, dataset: Dataset, *, workers: int, quiet: bool = False) -> dict[str, Any]:
    """Return the NPMI and C_v of each topic with at least two top words (None for the others), and the means over these
    topics.

    words: int64 (K, T), the top words. `unseen_top_words`: number of distinct top words that occur in no document.
    """
    pairs = joint_frequencies(words, dataset, workers=workers, quiet=quiet)
    frequencies = document_frequencies(words, dataset)
    found: dict[str, list[float | None]] = {"npmi": [], "c_v": []}
    for k in range(len(words)):
        size = np.count_nonzero(words[k] >= 0)
        matrix = npmi_matrix(frequencies[k, :size], pairs[k, : size * (size - 1) // 2], dataset.documents)
        found["npmi"].append(npmi(matrix) if size > 1 else None)
        found["c_v"].append(c_v(matrix) if size > 1 else None)
    result: dict[str, Any] = {}
    for name, values in found.items():
        defined = [value for value in values if value is not None]
        result[name] = math.fsum(defined) / len(defined) if defined else None
        result[f"{name}_of_topics"] = values
    result["unseen_top_words"] = int(np.unique(words[(words >= 0) & (frequencies == 0)]).size)
    return result
