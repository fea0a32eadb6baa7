"""Collapsed Gibbs sampling with conditionals that are sparse in the document: O(K_d) per token, no rejections.

The conditional splits into a part over the document's topics only and a rest, as in AliasLDA (Li, Ahmed, Ravi and
Smola, KDD 2014, section 3):

    p(k) ~ n_kd^- * phi_k  +  alpha_k * phi_k,   phi_k = (n_kw^- + beta) / (n_k^- + V*beta)

All alpha_k together weigh as much as a few tokens, so the rest is seldom drawn, and only then is the word's row walked.
The sum of the rest is computed in advance for each word of a cell with frozen rows, and corrected for the token itself.
So every draw is from the exact conditional given the rows, and there are no proposals to accept.

`scales` holds 1 / (n_k + V*beta). While a token is taken out but frozen rows still count it under its topic s,
scales[s] is

    (n_sw - 1 + beta) / (n_sw + beta) / (n_s - 1 + V*beta)

so that multiplying it by n_sw + beta gives phi_s without the token.
"""

from __future__ import annotations

import numpy as np

from blocks.compiled import inlined, reordered_kernel, unmanaged_kernel
from ooc.rng import uniform
from ooc.workers.intrinsics import prefetch
from samplers.lda.document_kernels import add_token, clear_document, first_above, open_document, remove_token
from samplers.lda.word_prior import addition, close_prior, open_prior
from samplers.lda.word_topic_rows import DENSE, decrease, increase, nonzeros, prefetch_row, row_count

_AHEAD = 4  # number of tokens ahead whose rows are prefetched
_STRETCH = 64  # topics of a dense row that are summed at once


@unmanaged_kernel
def sample_cell(cell, rows, rests, counts, alpha, beta, in_place, key, word_prior=None):
    """Sample the tokens of a cell and return how many changed topic.

    rests: float64 (V,), result of `sum_rests` for each word; unused in place.
    alpha: float64 (K,).
    key: key of the random stream; 2 draws per token.
    word_prior: WordPrior, or None.
    The other arguments are described in `samplers.lda.document_kernels`.
    """
    offsets, token_topics, words, positions, state = cell.offsets, cell.topics, cell.words, cell.positions, cell.state
    topics, present, places, summary, cumulated = counts[:5]
    of_document, scales = counts.of_topics, counts.scales
    changed, draw = 0, np.uint64(0)
    for k in range(alpha.size):
        scales[k] = 1.0 / summary[k]
    for d in range(offsets.size - 1):
        first = first_above(positions, offsets[d], offsets[d + 1], cell.first - 1)
        last = first_above(positions, first, offsets[d + 1], cell.last - 1)
        if first == last:
            continue
        size = open_document(token_topics, offsets[d], offsets[d + 1], topics, present, places)
        for i in range(size):
            of_document[present[i]] = topics[present[i]] * scales[present[i]]
        for token in range(first, last):
            old, word = np.int64(token_topics[token]), words[token]
            size = remove_token(topics, present, places, size, summary, old)
            scale = scales[old]
            own = word_prior, open_prior(word_prior, word)
            if in_place:
                decrease(rows, word, old)
                scales[old] = 1.0 / summary[old]
                rest = rest_of_word(rows, word, counts, alpha, beta, smoothing(counts, alpha, beta))
                rest += rest_of_prior(word_prior, word, scales, alpha)
            else:
                prefetch_rows(rows, words[min(token + _AHEAD, words.size - 1)], present, size)
                of_word = row_count(rows, word, old) + (beta + addition(word_prior, old))
                scales[old] = (of_word - 1.0) / (of_word * (1.0 / scale - 1.0))
                rest = rests[word] + alpha[old] * of_word * (scales[old] - scale)
            of_document[old] = topics[old] * scales[old]
            total = document_part(of_document, present, size, rows, word, beta, cumulated, own)
            x = uniform(key, draw) * (total + rest)
            if x < total:
                new = np.int64(present[place_of(cumulated, size, x)])
            else:
                new = draw_rest(rows, word, counts, alpha, beta, uniform(key, draw + np.uint64(1)) * rest, own)
            close_prior(word_prior, word)
            size = add_token(topics, present, places, size, summary, new)
            if in_place:
                increase(rows, word, new)
                scales[new] = 1.0 / summary[new]
            else:
                scales[old] = scale
            of_document[old] = topics[old] * scales[old]
            of_document[new] = topics[new] * scales[new]
            token_topics[token] = new
            state[cell.base + positions[token], 0] = new
            changed += new != old
            draw += np.uint64(2)
        clear_document(token_topics, offsets[d], offsets[d + 1], topics)
    return changed


@inlined
def prefetch_rows(rows, word, present, size):
    """Prefetch the parts of a word's row that `document_part` will read, assuming that the document's topics do not
    change until then.
    """
    if rows.masks[word] == DENSE:
        start = rows.starts[word]
        for i in range(size):
            prefetch(rows.dense, start + present[i])
    else:
        for i in range(size):
            prefetch_row(rows, word, np.int64(present[i]))


@inlined
def document_part(of_document, present, size, rows, word, beta, cumulated, own):
    """Store the cumulative sums of n_kd^- * phi_k over the document's topics in `cumulated`; returns the total.

    own: the word prior, opened for the word, and whether the word has a prior of its own.
    """
    total = 0.0
    if own[1]:
        total = _document_part_of(own[0], of_document, present, size, rows, word, beta, cumulated)
    elif rows.masks[word] == DENSE:
        start = np.uint64(rows.starts[word])
        for i in range(size):
            k = np.uint64(present[i])
            total += of_document[k] * (rows.dense[start + k] + beta)
            cumulated[i] = total
    else:
        for i in range(size):
            topic = np.int64(present[i])
            total += of_document[topic] * (row_count(rows, word, topic) + beta)
            cumulated[i] = total
    return total


@unmanaged_kernel
def _document_part_of(word_prior, of_document, present, size, rows, word, beta, cumulated):
    """Return the result of `document_part` for a word whose prior is open (`samplers.lda.word_prior`)."""
    total = 0.0
    for i in range(size):
        topic = np.int64(present[i])
        total += of_document[topic] * (row_count(rows, word, topic) + (beta + addition(word_prior, topic)))
        cumulated[i] = total
    return total


@inlined
def place_of(cumulated, size, x):
    """Return the first index at which the ascending cumulated[:size] exceeds x, or the last index."""
    place = np.int64(0)
    for i in range(size - 1):
        place += cumulated[i] <= x  # branch-free: a branch would be mispredicted
    return place


@unmanaged_kernel
def draw_rest(rows, word, counts, alpha, beta, x, own):
    """Return the first topic at which the cumulative sum of a word's alpha_k * phi_k exceeds x.

    own: see `document_part`.
    """
    if own[1]:
        return _draw_rest_of(own[0], rows, word, counts.scales, alpha, beta, x)
    if rows.masks[word] == DENSE:
        return _draw_dense(rows.dense, rows.starts[word], counts.scales, alpha, beta, x)
    scales, row_topics, row_counts = counts.scales, counts.row_topics, counts.row_counts
    for i in range(nonzeros(rows, word, row_topics, row_counts)):
        topic = np.int64(row_topics[i])
        x -= alpha[topic] * row_counts[i] * scales[topic]
        if x < 0.0:
            return topic
    for k in range(alpha.size):
        x -= alpha[k] * beta * scales[k]
        if x < 0.0:
            return np.int64(k)
    return np.int64(alpha.size - 1)


@unmanaged_kernel
def _draw_rest_of(word_prior, rows, word, scales, alpha, beta, x):
    """Return the result of `draw_rest` for a word whose prior is open."""
    possible = np.int64(0)
    for k in range(alpha.size):
        weight = alpha[k] * (row_count(rows, word, k) + (beta + addition(word_prior, k))) * scales[k]
        x -= weight
        possible = np.int64(k) if weight > 0.0 else possible
        if x < 0.0:
            break
    return possible


@unmanaged_kernel
def rest_of_prior(word_prior, word, scales, alpha):
    """Return sum_k alpha_k * (beta_kw - beta) * scales_k of a word; 0 without a word prior."""
    rest = 0.0
    if word_prior is not None:
        for pair in range(word_prior.starts[word], word_prior.starts[word + 1]):
            topic = word_prior.topics[pair]
            rest += alpha[topic] * word_prior.additions[pair] * scales[topic]
    return rest


@inlined
def _draw_dense(dense, start, scales, alpha, beta, x):
    """Return the result of `draw_rest` for a dense row: skip whole ranges of topics, then go topic by topic."""
    first = np.int64(0)
    while first + _STRETCH < alpha.size:
        stretch = dense_rest(dense, start, scales, alpha, beta, first, first + _STRETCH)
        if x < stretch:
            break
        x -= stretch
        first += _STRETCH
    last = min(first + _STRETCH, alpha.size)
    for k in range(first, last):
        x -= alpha[k] * (dense[start + k] + beta) * scales[k]
        if x < 0.0:
            return np.int64(k)
    return np.int64(last - 1)


@reordered_kernel
def dense_rest(dense, start, scales, alpha, beta, first, last):
    """Return sum_k alpha_k * phi_k over the topics from first to last, for the word whose row starts at `start`."""
    row, alpha, scales = dense[start + first : start + last], alpha[first:last], scales[first:last]
    rest = 0.0
    for k in range(row.size):
        rest += alpha[k] * (row[k] + beta) * scales[k]
    return rest


@inlined
def smoothing(counts, alpha, beta):
    """Return sum_k alpha_k * beta * scales_k."""
    total = 0.0
    for k in range(alpha.size):
        total += alpha[k] * beta * counts.scales[k]
    return total


@unmanaged_kernel
def rest_of_word(rows, word, counts, alpha, beta, rest):
    """Return sum_k alpha_k * phi_k of a word.

    counts: DocumentCountsScratch with `scales` set.
    rest: this sum for a word without tokens (`smoothing`).
    """
    scales, row_topics, row_counts = counts.scales, counts.row_topics, counts.row_counts
    if rows.masks[word] == DENSE:
        return dense_rest(rows.dense, rows.starts[word], scales, alpha, beta, 0, alpha.size)
    for i in range(nonzeros(rows, word, row_topics, row_counts)):
        rest += alpha[row_topics[i]] * row_counts[i] * scales[row_topics[i]]
    return rest


@unmanaged_kernel
def sum_rests(rows, words, counts, alpha, beta, summary, rests, word_prior=None):
    """Set rests[w] to sum_k alpha_k * phi_kw, counting all tokens, for the given words w, uint32 (n,)."""
    for k in range(alpha.size):
        counts.scales[k] = 1.0 / summary[k]
    of_beta = smoothing(counts, alpha, beta)
    for word in words:
        rests[word] = rest_of_word(rows, word, counts, alpha, beta, of_beta)
        rests[word] += rest_of_prior(word_prior, word, counts.scales, alpha)
