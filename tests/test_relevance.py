"""Relevant words and the map of topics against the formulas, on dense counts."""

from __future__ import annotations

import numpy as np
import pytest
from corpora import trained_model

from samplers.topics.model import SavedTopicModel, TopicCountRows
from samplers.topics.relevance import LEVELS, relevant_words, word_totals
from samplers.topics.topic_map import document_shares, plane, similarities


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> SavedTopicModel:
    return trained_model(tmp_path_factory.mktemp("trained"))


def dense(rows: TopicCountRows, topics: int) -> np.ndarray:
    """float64 (n, K), the counts of all rows."""
    counts = np.zeros((rows.offsets.size - 1, topics))
    counts[np.repeat(np.arange(len(counts)), np.diff(rows.offsets)), rows.topics] = rows.counts
    return counts


def probabilities(model: SavedTopicModel) -> np.ndarray:
    """float64 (V, K), phi."""
    return (dense(model.words, model.topics) + model.beta) / (model.topic_counts + model.vocabulary_size * model.beta)


def without_one(model: SavedTopicModel) -> tuple[np.ndarray, np.ndarray]:
    """Slots of all topics but one, in another order; and the topics in the order of the slots."""
    kept = np.random.default_rng(1).permutation(model.topics)[1:]
    slots = np.full(model.topics, -1, np.int64)
    slots[kept] = np.arange(kept.size)
    return slots, kept


@pytest.mark.parametrize("top", [1, 4])
def test_relevant_words_are_those_of_the_formula(model: SavedTopicModel, top: int) -> None:
    """All that are among the best by equation 1 at some lambda, and no others."""
    slots, kept = without_one(model)
    counts, phi = dense(model.words, model.topics), probabilities(model)
    shares = counts.sum(axis=1) / counts.sum()
    np.testing.assert_array_equal(word_totals(model), counts.sum(axis=1))
    found = relevant_words(model, slots, top)
    for slot, k in enumerate(kept):
        own = np.flatnonzero(counts[:, k])
        expected: set[int] = set()
        for level in LEVELS:
            logs = np.log(phi[own, k])
            relevance = level * logs + (1 - level) * (logs - np.log(shares[own]))
            expected |= set(own[np.argsort(-relevance, kind="stable")[:top]].tolist())
        assert found.words[slot].tolist() == sorted(expected)
        np.testing.assert_array_equal(found.counts[slot], counts[found.words[slot], k])


def test_similarities_are_bhattacharyya_coefficients(model: SavedTopicModel) -> None:
    slots, kept = without_one(model)
    roots = np.sqrt(probabilities(model)[:, kept])
    np.testing.assert_allclose(similarities(model, slots), roots.T @ roots, rtol=1e-12)


def test_the_plane_keeps_the_distances_of_points_that_lie_in_one() -> None:
    """Points in a plane are found again but for a motion, and nothing is lost; of those in space, the best plane."""
    points = np.random.default_rng(2).normal(size=(9, 2)) * 0.3
    squares = ((points[:, None] - points) ** 2).sum(axis=2)
    mapped = plane(1.0 - squares)
    np.testing.assert_allclose(((mapped.places[:, None] - mapped.places) ** 2).sum(axis=2), squares, atol=1e-12)
    assert mapped.kept == pytest.approx(1.0)
    solid = np.random.default_rng(3).normal(size=(30, 3)) * [3.0, 2.0, 1.0]
    solid -= solid.mean(axis=0)
    spread = np.linalg.svd(solid, compute_uv=False) ** 2
    kept = plane(1.0 - ((solid[:, None] - solid) ** 2).sum(axis=2)).kept
    assert kept == pytest.approx(spread[:2].sum() / spread.sum())


def test_a_plane_of_one_or_two_topics() -> None:
    assert plane(np.ones((1, 1))).places.tolist() == [[0.0, 0.0]]
    two = plane(np.array([[1.0, 0.5], [0.5, 1.0]])).places
    np.testing.assert_allclose(np.abs(two), [[np.sqrt(0.5) / 2, 0], [np.sqrt(0.5) / 2, 0]], atol=1e-8)


def test_shares_of_documents(model: SavedTopicModel) -> None:
    """Correlations as NumPy has them, over the documents with tokens; of equal topics the first counts as largest."""
    slots, kept = without_one(model)
    counts = dense(model.documents, model.topics)
    counts = counts[counts.sum(axis=1) > 0]
    shares = counts / counts.sum(axis=1, keepdims=True)
    found = document_shares(model.documents, slots)
    np.testing.assert_allclose(found.correlations, np.corrcoef(shares[:, kept].T), atol=1e-10)
    largest = np.bincount(counts.argmax(axis=1), minlength=model.topics)
    assert found.largest.tolist() == largest[kept].tolist()
    assert found.present.tolist() == (shares >= 0.1).sum(axis=0)[kept].tolist()


def test_a_topic_that_no_document_has_correlates_with_none() -> None:
    rows = TopicCountRows(np.array([0, 1, 1, 3]), np.array([0, 0, 1], np.uint8), np.array([4, 1, 3], np.uint32))
    found = document_shares(rows, np.arange(3))
    np.testing.assert_allclose(found.correlations, [[1, -1, 0], [-1, 1, 0], [0, 0, 0]], atol=1e-12)
    assert found.largest.tolist() == [1, 1, 0]
    assert found.present.tolist() == [2, 1, 0]
