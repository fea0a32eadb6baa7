"""Exact posteriors of tiny corpora, by enumeration of all topic assignments."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.special import gammaln
from token_chains import TokenCorpus

CORPORA = {  # documents, vocabulary, alpha (asymmetric, so that no relabelling of topics hides a mistake), beta
    "2 topics": ([[0, 1, 1], [0, 2], [2, 2]], 3, [0.4, 0.9], 0.3),
    "3 topics": ([[0, 1, 0], [1], [1]], 2, [0.3, 0.9, 0.5], 0.4),
}


def posterior(
    tokens: TokenCorpus, alpha: np.ndarray | None = None, beta: float | None = None, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return p(z
    w) of every z, in the order of `product`: the joint probability, normalised over all K^N assignments.

    weights: (V, K), prior of each word in each topic, in place of beta.
    """
    alpha, beta = tokens.alpha if alpha is None else alpha, beta or tokens.beta
    weights = np.full((tokens.vocabulary, alpha.size), beta) if weights is None else weights
    assignments = np.array(list(product(range(alpha.size), repeat=tokens.words.size)))
    log_joint = np.zeros(len(assignments))
    for k in range(alpha.size):
        here = (assignments == k).astype(int)
        of_document = here @ np.eye(tokens.documents.max() + 1, dtype=int)[tokens.documents]
        of_word = here @ np.eye(tokens.vocabulary, dtype=int)[tokens.words]
        mass, possible = weights[:, k].sum(), weights[:, k] > 0.0
        log_joint += gammaln(of_document + alpha[k]).sum(axis=1) - gammaln(of_word.sum(axis=1) + mass) + gammaln(mass)
        of_words = gammaln(of_word[:, possible] + weights[possible, k]) - gammaln(weights[possible, k])
        log_joint += np.where(of_word[:, ~possible].any(axis=1), -np.inf, of_words.sum(axis=1))
    joint = np.exp(log_joint - log_joint.max())
    return joint / joint.sum()


def total_variation(visits: np.ndarray, expected: np.ndarray) -> float:
    frequencies = visits.sum(axis=0) / visits.sum()
    return 0.5 * float(np.abs(frequencies - expected).sum())
