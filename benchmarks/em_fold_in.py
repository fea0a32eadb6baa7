"""Independent fold-in of held-out documents by EM, which shares no code with `ooc evaluate`.

A mixture is the posterior mean of theta, where the topic of each observed token is distributed as theta and phi say:

    r_wk ~ theta_k * phi_kw,   theta_k = (sum over observed words of c_w * r_wk + alpha_k) / (N_d + abar)

in STEPS steps from theta_k = alpha_k / abar. The same words are observed, and the same tokens predicted.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.corpus import Corpus
from ooc.rng import random_bits, stream_key

STEPS = 50


def likelihood_by_em(matrix: csr_matrix, alpha: np.ndarray, beta: float, held_out: Corpus) -> float:
    """Return the predictive log-likelihood per token by document completion. matrix: counts, (V, K)."""
    scale = 1.0 / (np.asarray(matrix.sum(axis=0)).ravel() + matrix.shape[0] * beta)
    likelihood, predicted = 0.0, 0
    for document, number in enumerate(held_out.numbers):
        words, times = np.unique(held_out.document(document), return_counts=True)
        order, key = np.arange(words.size), np.uint64(random_bits(stream_key(0), number))
        for i in range(words.size - 1, 0, -1):  # as `samplers.topics.fold_in.completion_likelihood` does
            j = int(random_bits(key, np.uint64(i))) % (i + 1)
            order[i], order[j] = order[j], order[i]
        phi = (matrix[words[order]].toarray() + beta) * scale
        observed = (words.size + 1) // 2
        theta = _mixture(phi[:observed], times[order[:observed]], alpha)
        likelihood += math.fsum(times[order[observed:]] * np.log(phi[observed:] @ theta))
        predicted += int(times[order[observed:]].sum())
    return likelihood / predicted


def _mixture(phi: np.ndarray, times: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    theta = alpha / alpha.sum()
    for _ in range(STEPS):
        theta = (theta * ((times / (phi @ theta)) @ phi) + alpha) / (times.sum() + alpha.sum())
    return theta
