"""Dense collapsed Gibbs sampling of LDA (Griffiths and Steyvers, PNAS 2004): the reference sampler's kernels.

Each token's topic is drawn from p(k) ~ (n_kd^- + alpha_k) * (n_kw^- + beta) / (n_k^- + V*beta), all K terms computed.
A document's counts are exact at every token; those of words and topics are the snapshot that the caller gives, from
which the token itself is taken out at the topic the snapshot has it under.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import kernel
from samplers.groups import count_runs, gather_document
from samplers.streams import uniform


@kernel
def count_words(state, bases, run_offsets, blocks, starts, lengths, word_counts):
    """Count the topics of the words of a part into `word_counts`, int32 (W, K). Returns 0: no topic changes."""
    word_counts[:] = 0
    for w in range(run_offsets.size - 1):
        runs = slice(run_offsets[w], run_offsets[w + 1])
        count_runs(state, bases, blocks[runs], starts[runs], lengths[runs], word_counts[w])
    return 0


@kernel
def draw_topic(document_counts, word_counts, summary, counted, alpha, beta, cumulated, u):
    """Draw a topic from the conditional of one token; the counts of the document are already without it.

    document_counts: int32 (K,). word_counts: int32 (K,) and summary: float64 (K,), with the token under `counted`.
    cumulated: float64 (K,), scratch. u: uniform number.
    """
    total = 0.0
    for k in range(alpha.size):
        own = 1.0 if k == counted else 0.0
        total += (document_counts[k] + alpha[k]) * (word_counts[k] - own + beta) / (summary[k] - own)
        cumulated[k] = total
    return min(np.searchsorted(cumulated, u * total, side="right"), alpha.size - 1)


@kernel
def document_phase(
    state, base, offsets, positions, words, word_offsets, scratch, alpha, beta, word_counts, summary, delta, key
):
    """Sample the documents of a part; returns how many tokens changed topic.

    words, word_offsets: the words of the block and where each begins in word-major order. alpha: float64 (K,).
    word_counts: int32 (V, K), summary: float64 (K,), n_k + V*beta: snapshot. delta: int64 (K,), added to.
    """
    changed = 0
    document_counts = np.zeros(alpha.size, np.int32)
    cumulated = np.empty(alpha.size)
    for d in range(offsets.size - 1):
        where = scratch.where[: offsets[d + 1] - offsets[d]]
        gather_document(base, positions[offsets[d] : offsets[d + 1]], where)
        document_counts[:] = 0
        for row in where:
            document_counts[state[row, 0]] += 1
        for i in range(where.size):
            token = offsets[d] + i
            word = words[np.searchsorted(word_offsets, positions[token], side="right") - 1]
            old = state[where[i], 0]
            document_counts[old] -= 1
            u = uniform(key, np.uint64(token - offsets[0]))
            new = draw_topic(document_counts, word_counts[word], summary, old, alpha, beta, cumulated, u)
            document_counts[new] += 1
            state[where[i], 0] = new
            delta[old] -= 1
            delta[new] += 1
            changed += new != old
    return changed
