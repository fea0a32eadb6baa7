"""Minibatch step of SCVB0, computed from its definition, and corpora with planted topics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from corpora import InProcessProgram, names_of_words, planted_documents
from scipy.optimize import linear_sum_assignment

from blocks import Dataset, write_corpus
from samplers.lda import document_fold_in, scvb0, topic_tree
from samplers.lda.program import topic_type
from samplers.lda.token_kernels import symmetric_prior

BETA, SCALE = 0.05, 0.25
NO_TREE = np.zeros((3, 1), np.int64)
ALARM = 1e-6  # chance that one chi-square test fails though the draws are right


class Minibatch:
    """The documents `first` to `last` of a block, folded in."""

    def __init__(self, dataset: Dataset, topics: int = 7) -> None:
        self.block, self.topics, self.first, self.last = dataset.block(0), topics, 3, 20
        tokens, documents = self.block.positions.size, self.block.offsets.size - 1
        self.words_at = np.repeat(self.block.words, np.diff(self.block.word_offsets))
        self.estimate = self.make_estimate(dataset)
        self.mixtures = scvb0.DocumentMixtures(
            np.zeros(documents, np.uint32),
            np.zeros(tokens, topic_type(topics)),
            np.zeros(tokens, np.float32),
            np.full(tokens, 99_999, np.uint32),
        )
        scvb0.find_documents(self.block.offsets, self.block.positions, 0, documents, self.mixtures.documents)
        self.documents = (self.block.offsets, self.block.positions, self.words_at, self.first, self.last)
        self.tokens = scvb0.fold_documents(*self.documents, self.estimate, self.mixtures)

    def make_estimate(self, dataset: Dataset) -> document_fold_in.ExpectedTopicCounts:
        """Return random expected counts; sets `alpha` and `phi`, the probability of each word in each topic."""
        topics = self.topics
        self.alpha = 0.1 * np.arange(1, topics + 1)
        self.rows = np.random.default_rng(5).gamma(0.3, 9.0, (dataset.vocabulary_size, topics)).astype(np.float32)
        totals = SCALE * self.rows.sum(axis=0, dtype=np.float64)
        self.shares = 1.0 / (totals + dataset.vocabulary_size * BETA)
        self.phi = (self.rows.astype(np.float64) * SCALE + BETA) * self.shares
        kinds = self.shares.astype(np.float32), self.alpha.astype(np.float32)
        arena, entries = self.rows.reshape(-1), np.zeros(dataset.vocabulary_size + 1, np.int64)
        tree = topic_tree.TopicTree(arena.view(np.uint32), entries, *NO_TREE, np.array([0, topics]), 2, 0, 1)
        return document_fold_in.ExpectedTopicCounts(arena, SCALE, *kinds, BETA, topics, tree)

    def mixture(self, document: int) -> np.ndarray:
        """Return n_kd of a document as stored, float64 (K,)."""
        found = np.zeros(self.topics)
        start, size = self.block.offsets[document], self.mixtures.sizes[document]
        found[self.mixtures.topics[start : start + size]] = self.mixtures.counts[start : start + size]
        return found

    def words_of(self, document: int) -> np.ndarray:
        """Return the words of a document's tokens, ascending, uint32 (N_d,)."""
        return self.words_at[self.block.positions[self.block.offsets[document] : self.block.offsets[document + 1]]]

    def mixture_expected(self, document: int) -> np.ndarray:
        """Return the expected value of `mixture`, from the definition."""
        words, times = np.unique(self.words_of(document), return_counts=True)
        tokens = times.sum()
        likely = self.likely_expected(words, times)
        evidence = self.evidence(words, times)
        counts = np.where(likely, evidence * tokens / max(evidence[likely].sum(), 1e-30), 0)
        for _ in range(2):
            for word, c in zip(words, times, strict=True):
                gammas = likely * (counts + self.alpha) * self.phi[word]
                counts = (1 - c / tokens) * counts + c * gammas / gammas.sum()
        share = 0.1
        while tokens and (counts >= share * counts.max()).sum() > tokens:
            share *= 1.25
        return np.where(counts >= share * counts.max(), counts, 0)

    def evidence(self, words: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return n_kd from up to 16 evenly spaced words, four at a time, float64 (K,)."""
        counts, some = np.zeros(self.topics), min(words.size, 16)
        chosen = np.arange(some) * words.size // max(some, 1)
        for j in range(0, some, 4):
            mine = chosen[j : j + 4]
            gammas = (counts + self.alpha) * self.phi[words[mine]]
            counts = counts + (times[mine, None] * gammas / gammas.sum(axis=1, keepdims=True)).sum(axis=0)
        return counts

    def likely_expected(self, words: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return the topics with at least a hundredth of the largest evidence, bool (K,)."""
        evidence = self.evidence(words, times)
        return (evidence >= 0.01 * evidence.max()) & (words.size > 0)

    def gammas(self) -> np.ndarray:
        """Return the gammas of the token at each position, given the stored mixtures, float64 (N, K); 0 outside the
        minibatch.
        """
        found = np.zeros((self.words_at.size, self.topics))
        for position, document in enumerate(self.mixtures.documents):
            if self.first <= document < self.last:
                counts, phi = self.mixture(document), self.phi[self.words_at[position]]
                own = (counts > 0) * (counts + self.alpha) * phi
                without = (counts > 0) * (np.maximum(counts - own / own.sum(), 0) + self.alpha) * phi
                found[position] = without / without.sum()
        return found

    def draw(self, state: np.ndarray, key: np.uint64) -> np.ndarray:
        """Draw the topics of the minibatch's tokens; returns `drawn`."""
        drawn = np.zeros(self.topics, np.int64)
        scvb0.draw_documents(state, 0, *self.documents, self.estimate, symmetric_prior(self.topics, 0.1), drawn, key)
        return drawn


def planted(path: Path, number: int = 2000) -> Dataset:
    documents = planted_documents(np.random.default_rng(4), topics=5, words_each=12, documents=number, length=40)
    offsets = np.arange(0, documents.size + 1, documents.shape[1])
    layout = {"block_tokens": 20_000, "part_tokens": 4000, "slices": 3}
    return write_corpus(path, offsets, documents.reshape(-1), names_of_words(60), **layout)


def share_found(chain: InProcessProgram) -> float:
    """Return the fraction of tokens whose topic is the planted one, after one-to-one matching of topics."""
    found = chain.counts()[1].reshape(5, 12, 5).sum(axis=1)
    return found[linear_sum_assignment(-found)].sum() / chain.dataset.tokens
