"""Map of the distances between topics, and correlations of topic shares over documents.

The map is classical scaling (Torgerson 1952) of Hellinger distances, which are Euclidean. The distance between topics k
and l is

    d(k, l)^2 = 1 - B(k, l),    B(k, l) = sum_w sqrt(phi_kw phi_lw)

(Sievert and Shirley scale Jensen-Shannon divergences, for which each pair of topics must be compared over all words; B
needs only the topics that each word has, see `similarities`.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.compiled import kernel
from samplers.topics.model import TopicCountRows, TopicModel


class TopicMap(NamedTuple):
    """Positions of topics.

    places: float64 (S, 2).
    kept: fraction of the squared distances that the plane preserves.
    """

    places: np.ndarray
    kept: float


class TopicShareStatistics(NamedTuple):
    """Statistics of topic shares over the documents with tokens.

    correlations: float64 (S, S), 0 for constant topics.
    largest: int64 (S,), number of documents in which a topic has the largest share.
    present: int64 (S,), number of documents in which its share is at least a tenth.
    """

    correlations: np.ndarray
    largest: np.ndarray
    present: np.ndarray


def similarities(model: TopicModel, slots: np.ndarray) -> np.ndarray:
    """Return the similarities B, as defined in the module docstring, float64 (S, S).

    slots: int64 (K,), index of each topic in the result, or -1 to leave it out.

    sqrt(phi_kw) = sqrt(m_k) (x_kw + sqrt(beta)) with x_kw = sqrt(n_kw + beta) - sqrt(beta), which is 0 for most pairs,
    and 1 / m_k = n_k + V beta.
    """
    size, root = int(slots.max()) + 1, np.sqrt(model.beta)
    products, sums = np.zeros((size, size)), np.zeros(size)
    _add_roots(*model.words, slots, model.beta, products, sums)
    kept = slots >= 0
    masses = np.empty(size)
    masses[slots[kept]] = model.topic_counts[kept] + model.vocabulary_size * model.beta
    products = np.triu(products) + np.triu(products, 1).T
    products += root * (sums[:, None] + sums) + model.vocabulary_size * model.beta
    return products / np.sqrt(np.outer(masses, masses))


def plane(similar: np.ndarray) -> TopicMap:
    """Place topics in a plane by classical scaling of the distances sqrt(1 - similar), float64 (S, S).

    The largest coordinate of each axis is positive, so that the map does not depend on the solver's signs.
    """
    size = len(similar)
    centred = 0.5 * (similar - similar.mean(axis=0) - similar.mean(axis=1)[:, None] + similar.mean())
    values, vectors = np.linalg.eigh(centred)
    places = np.zeros((size, 2))
    for axis in range(min(2, size)):
        vector = vectors[:, -1 - axis]
        sign = 1.0 if vector[np.abs(vector).argmax()] >= 0 else -1.0
        places[:, axis] = sign * vector * np.sqrt(max(values[-1 - axis], 0.0))
    total = np.trace(centred)
    return TopicMap(places, float((places**2).sum() / total) if total > 0 else 1.0)


def document_shares(documents: TopicCountRows, slots: np.ndarray) -> TopicShareStatistics:
    """Return the correlations of topics over documents, and the numbers of documents in which each topic is the largest
    or is present.

    slots: int64 (K,), index of each topic, or -1 to leave it out.
    """
    size = int(slots.max()) + 1
    products, sums, largest, present = np.zeros((size, size)), np.zeros(size), np.zeros(size, int), np.zeros(size, int)
    count = _add_shares(*documents, slots, products, sums, largest, present)
    means = sums / max(count, 1)
    covariances = (np.triu(products) + np.triu(products, 1).T) / max(count, 1) - np.outer(means, means)
    deviations = np.sqrt(np.maximum(np.diag(covariances), 0.0))
    deviations[deviations < 1e-12] = np.inf
    return TopicShareStatistics(covariances / np.outer(deviations, deviations), largest, present)


@kernel
def _add_roots(offsets, topics, counts, slots, beta, products, sums):
    """Add x_k x_l of each word to the upper triangle of products, float64 (S, S), and x_k to sums."""
    size = sums.size
    values, places = np.empty(size), np.empty(size, np.int64)
    for row in range(offsets.size - 1):
        filled = 0
        for entry in range(offsets[row], offsets[row + 1]):
            slot = slots[topics[entry]]
            if slot >= 0:
                values[filled] = np.sqrt(counts[entry] + beta) - np.sqrt(beta)
                places[filled] = slot
                sums[slot] += values[filled]
                filled += 1
        _add_products(places[:filled], values[:filled], products)


@kernel
def _add_shares(offsets, topics, counts, slots, products, sums, largest, present):
    """Add the products of the documents' topic shares; returns the number of documents with tokens."""
    size, documents = sums.size, 0
    values, places = np.empty(size), np.empty(size, np.int64)
    for row in range(offsets.size - 1):
        filled, total, most, best = 0, 0.0, 0.0, 0
        for entry in range(offsets[row], offsets[row + 1]):
            total += counts[entry]
            if counts[entry] > most:
                most, best = counts[entry], topics[entry]
        if total == 0.0:
            continue
        documents += 1
        if slots[best] >= 0:
            largest[slots[best]] += 1
        for entry in range(offsets[row], offsets[row + 1]):
            slot = slots[topics[entry]]
            if slot >= 0:
                values[filled], places[filled] = counts[entry] / total, slot
                sums[slot] += values[filled]
                present[slot] += values[filled] >= 0.1
                filled += 1
        _add_products(places[:filled], values[:filled], products)
    return documents


@kernel
def _add_products(places, values, products):
    """Add the products of each pair of a row's values to the upper triangle of `products`."""
    for i in range(places.size):
        for j in range(places.size):
            if places[i] <= places[j]:
                products[places[i], places[j]] += values[i] * values[j]
