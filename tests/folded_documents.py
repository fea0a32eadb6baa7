"""Documents and expected topic counts for tests of fold-in, computed from definitions."""

from __future__ import annotations

import numpy as np

from blocks import Dataset
from samplers.topics import fold_in
from samplers.topics.model import SavedTopicModel


def dense_phi(model: SavedTopicModel) -> np.ndarray:
    """Return phi of every topic and word, float64 (K, V)."""
    counts = np.zeros((model.vocabulary_size, model.topics))
    rows = np.repeat(np.arange(model.vocabulary_size), np.diff(model.words.offsets))
    counts[rows, model.words.topics] = model.words.counts
    return ((counts + model.beta) / (model.topic_counts + model.vocabulary_size * model.beta)).T


def documents_of(dataset: Dataset) -> list[np.ndarray]:
    """Return the words of each document, in the original order of documents."""
    found: list[np.ndarray] = [np.empty(0, np.int64)] * dataset.documents
    for number in range(dataset.block_count):
        block = dataset.block(number)
        words = dataset.index.word_ids[np.repeat(block.words, np.diff(block.word_offsets))[block.positions]]
        for row, document in enumerate(block.documents):
            found[document] = words[block.offsets[row] : block.offsets[row + 1]]
    return found


def expected_counts(
    phi: np.ndarray, unseen: np.ndarray, alpha: np.ndarray, words: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """Return n_k by CVB0 with fixed phi over the topics that are not dropped, float64 (K,).

    phi: float64 (K, V).
    unseen: float64 (K,), phi of a word that was not seen in the topic.
    """
    phi = phi[:, words]
    evidence = alpha * ((phi - unseen[:, None]) @ (times / (alpha @ phi)))
    taking_part = evidence >= fold_in.LEAST_EVIDENCE * evidence.max()
    gamma = np.zeros((words.size, alpha.size))
    for sweep in range(fold_in.FIRST_SWEEPS + fold_in.MOST_SWEEPS):
        counts = times @ gamma
        if sweep == fold_in.FIRST_SWEEPS:
            taking_part &= counts >= fold_in.LEAST_SHARE * counts.max()
            gamma *= taking_part
        before = gamma.copy()
        for j in range(words.size):
            gamma[j] = phi[:, j] * (times @ gamma - gamma[j] + alpha) * taking_part
            gamma[j] /= gamma[j].sum()
        if sweep >= fold_in.FIRST_SWEEPS and times @ abs(gamma - before).sum(axis=1) < fold_in.TOLERANCE * times.sum():
            break
    return times @ gamma


def bag(dataset: Dataset, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct words of a document in kernel order (by rank), and their counts."""
    different, times = np.unique(words, return_counts=True)
    order = np.argsort(np.argsort(dataset.index.word_ids)[different])
    return different[order].astype(np.uint32), times[order]
