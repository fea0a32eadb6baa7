"""Kernels of the two-phase Metropolis-Hastings sampler of LDA.

WarpLDA (Chen, Li, Zhu and Chen, VLDB 2016), after LightLDA (Yuan et al., WWW 2015, section 4). With `^-` for counts
without the token itself, a token of word w in document d has topic k with probability

    p(k) ~ (n_kd^- + alpha_k) * (n_kw^- + beta) / (n_k^- + V*beta)                              LightLDA eq. (1)

Proposals alternate between q_d(k) ~ n_kd^- + alpha_k and q_w(k) ~ n_kw^- + beta, so that in the acceptance ratio p(t)
q(s) / (p(s) q(t)) the document factors cancel for q_d and the word factors for q_w. Therefore

    the word phase, one word's tokens at a time, accepts proposals from q_d, by (n_kw^- + beta) / (n_k^- + V*beta),
    and then draws from q_w;
    the document phase, one document's tokens at a time, accepts proposals from q_w, by (n_kd^- + alpha_k) /
    (n_k^- + V*beta), and then draws from q_d.

Both are the same step on a group of tokens with a prior: `sample_group`. Drawing from `n_k^- + prior` needs no table: a
draw is the topic of another token of the group or, with probability proportional to the prior's mass, a topic drawn
from the prior.

Deviations from exact Gibbs sampling: the counts of a group are those at the group's start, and the topic totals n_k are
those at the phase's start (delayed counts). A proposal is drawn from the counts that its acceptance ratio uses, but
before it is accepted or rejected, the group's other tokens have moved, all from one snapshot. Totals are float32: exact
up to 2^24 tokens per topic, with a relative error of 6e-8 above.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.alias_table import alias_table
from blocks.compiled import inlined, kernel, unmanaged_kernel
from ooc.rng import random_bits, uniform
from ooc.workers.intrinsics import prefetch
from samplers.lda.token_kernels import draw_prior, gather_word, prior_weight, word_tokens
from samplers.lda.word_prior import prior_of_word

# A worker's data for topic k, in 8 bytes, so that 100,000 topics stay in the caches near the core: n_k + V*beta at
# the start of the phase; this worker's change of n_k; the tokens of the current group at its start, 0 between
# groups.
TOTAL = np.dtype([("summary", "f4"), ("change", "i2"), ("count", "u2")])
COUNT = np.dtype([("count", "i4")])  # counts of a group with more tokens than the `count` of a TOTAL can hold
MOST_COUNTED = 2**16 - 1
_MOST_CHANGE = 2**15 - 1

# Column of an alias table: a number below `cut` draws `topic`, another number draws `other`.
COLUMN = np.dtype([("cut", "f8"), ("topic", "u4"), ("other", "u4")])


class TopicTotals(NamedTuple):
    """A worker's data of all topics.

    topics: TOTAL (K,).
    changes: int64 (K,), changes of n_k that are not in `topics`.
    large: COUNT (K,), all 0 between groups; (1,) if no group is too large for `topics`.
    """

    topics: np.ndarray
    changes: np.ndarray
    large: np.ndarray


_FAR = 1 << 16  # with more topics than this, totals are prefetched, for the token this many tokens ahead:
_TOTALS_AHEAD = 16
_ROWS_AHEAD = 128  # number of tokens ahead whose rows are prefetched, so that their totals can be prefetched later


@inlined
def accept_token(state, row, prior, totals, counted, key, draw, spare=0):
    """Accept or reject the proposals of the token in a row of `state`, in order; returns the token's new topic.

    prior: GroupPrior.
    totals: TOTAL (K,).
    counted: `totals`, or COUNT (K,), with the group's counts at its start.
    key, draw: key of the random stream, and index of its first draw to use.
    spare: number of columns of `state` after the proposals.
    """
    start = np.int64(state[row, 0])
    current = start
    # The token itself was counted under `start`: the count of this topic is reduced by one, whatever its topic is now.
    weight = np.int64(counted[start]["count"]) - 1 + prior_weight(prior, start)
    share = totals[start]["summary"] - 1.0
    for m in range(state.shape[1] - 1 - spare):
        proposed = np.int64(state[row, 1 + m])
        own = 1 if proposed == start else 0
        proposed_weight = np.int64(counted[proposed]["count"]) - own + prior_weight(prior, proposed)
        proposed_share = totals[proposed]["summary"] - own
        u = uniform(key, draw + np.uint64(m))
        if u * (weight * proposed_share) < proposed_weight * share:
            current, weight, share = proposed, proposed_weight, proposed_share
    return current


@unmanaged_kernel
def draw_group(state, base, rows, topics, prior, counted, key, draw, spare=0):
    """Write the group's new topics, clear the counts of its old topics, and draw new proposals from `n_k^- + prior`.

    state: changed at base + rows[:n].
    topics: topic type (n,).
    prior: GroupPrior.
    counted: TOTAL or COUNT (K,).
    key, draw: key of the random stream, and index of the first of its M*n draws to use.
    spare: see `accept_token`.
    """
    proposals = state.shape[1] - 1 - spare
    others = topics.size - 1
    mass = others + prior.total
    rate = prior.topics / prior.total
    for i in range(topics.size):
        row = np.uint64(base + rows[i])
        counted[np.int64(state[row, 0])]["count"] = 0
        state[row, 0] = topics[i]
        for m in range(proposals):
            x = uniform(key, draw + np.uint64(i * proposals + m)) * mass
            # Both are computed and one is selected: a branch would be mispredicted too often.
            j = np.uint64(min(int(x), others))
            y = (x - others) * rate
            k = min(int(y), prior.topics - 1)
            if not prior.symmetric and y - k >= prior.cut[max(k, 0)]:
                k = np.int64(prior.alias[k])
            state[row, 1 + m] = np.int64(topics[np.uint64(others) if j == np.uint64(i) else j]) if x < others else k


@inlined
def move_token(totals, changes, old, new):
    """Record in the changes (see TopicTotals) that a token moves to another topic.

    Returns whether the topics differ.
    """
    change_count(totals, changes, np.int64(old), -1)
    change_count(totals, changes, np.int64(new), 1)
    return old != new


@inlined
def change_count(totals, changes, topic, by):
    """Add `by`, either 1 or -1, to the change of a topic."""
    change = np.int64(totals[topic]["change"]) + by
    if np.uint64(change + _MOST_CHANGE) > np.uint64(2 * _MOST_CHANGE):  # out of range, below or above
        changes[topic] += change
        change = 0
    totals[topic]["change"] = change


@inlined
def _prefetch_totals(state, row, totals):
    for m in range(state.shape[1]):
        prefetch(totals, np.int64(state[np.uint64(row), m]))


@unmanaged_kernel
def sample_group(state, base, rows, topics, prior, totals, changes, counted, key, draw, spare=0):
    """Take one step on a group of tokens: count the topics, accept or reject proposals, draw new proposals.

    state: changed at base + rows[:n].
    rows: uint32 or int64 (>= n,), rows of the tokens; from n on, rows of the tokens that follow the group, for
        prefetching.
    topics: topic type (n,), working memory.
    prior: GroupPrior.
    totals, changes: `topics` and `changes` of TopicTotals.
    counted: `totals`, or COUNT (K,) for more than MOST_COUNTED tokens.
    key, draw: key of the random stream, and index of the first of its 2*M*n draws to use.
    Returns how many tokens changed topic.
    """
    far = prior.topics > _FAR
    proposals = state.shape[1] - 1 - spare
    numbers = state.reshape(-1)
    for i in range(topics.size):
        if far and i + _TOTALS_AHEAD < topics.size:
            prefetch(totals, np.int64(state[np.uint64(base + rows[i + _TOTALS_AHEAD]), 0]))
        counted[np.int64(state[np.uint64(base + rows[i]), 0])]["count"] += 1
    changed = 0
    for i in range(topics.size):
        if i + _ROWS_AHEAD < rows.size:
            first = (base + rows[i + _ROWS_AHEAD]) * state.shape[1]
            prefetch(numbers, first)
            if far:  # one in eight rows crosses a cache line
                prefetch(numbers, first + proposals)
        if far and i + _TOTALS_AHEAD < rows.size:
            _prefetch_totals(state, base + rows[i + _TOTALS_AHEAD], totals)
        row = np.uint64(base + rows[i])
        first = draw + np.uint64(i * proposals)
        topics[i] = accept_token(state, row, prior, totals, counted, key, first, spare)
        changed += move_token(totals, changes, state[row, 0], topics[i])
    draw_group(state, base, rows, topics, prior, counted, key, draw + np.uint64(topics.size * proposals), spare)
    return changed


@unmanaged_kernel
def _sample_group(state, base, rows, topics, prior, totals, key, draw, spare=0):
    """Take one step on a group of any size, as `sample_group` does.

    totals: TopicTotals.
    """
    known, changes = totals.topics, totals.changes
    if topics.size > MOST_COUNTED:
        return sample_group(state, base, rows, topics, prior, known, changes, totals.large, key, draw, spare)
    return sample_group(state, base, rows, topics, prior, known, changes, known, key, draw, spare)


@kernel
def sample_frequent_word(state, bases, blocks, starts, lengths, counts, prior, totals, key, draw):
    """Take one step on a word that is too frequent to gather, as `sample_group` does, walking its tokens run by run.

    The topic of another token is drawn from the word's counts, by an alias table of its topics, instead of by position.

    counts: int32 (K,), working memory, all 0 before and after.
    totals: TopicTotals, with `large` for all topics.
    """
    proposals = np.uint64(state.shape[1] - 1)
    tokens = word_tokens(lengths)
    for run in range(blocks.size):
        row = bases[blocks[run]] + starts[run]
        count_run(state[row : row + lengths[run]], prior.topics, totals.large)
    found = np.empty(min(prior.topics, tokens), np.uint32)
    changed = size = 0
    for run in range(blocks.size):
        row = bases[blocks[run]] + starts[run]
        moved, size = accept_run(state[row : row + lengths[run]], prior, totals, counts, found, size, key, draw)
        changed += moved
        draw += proposals * lengths[run]
    columns = alias_columns(found[:size], counts)
    for run in range(blocks.size):
        row = bases[blocks[run]] + starts[run]
        draw_run(state[row : row + lengths[run]], columns, counts, tokens - 1, prior, totals.large, key, draw)
        draw += proposals * lengths[run]
    for topic in found[:size]:
        counts[topic] = 0
    return changed


@unmanaged_kernel
def count_run(rows, topics, counted):
    """Add the topics of tokens to `counted`, COUNT (K,).

    rows: state of the tokens.
    """
    for i in range(rows.shape[0]):
        if topics > _FAR and i + _TOTALS_AHEAD < rows.shape[0]:
            prefetch(counted, np.int64(rows[i + _TOTALS_AHEAD, 0]))
        counted[np.int64(rows[i, 0])]["count"] += 1


@unmanaged_kernel
def accept_run(rows, prior, totals, counts, found, size, key, draw):
    """Accept or reject the proposals of tokens, and store new topics in place of proposals.

    Old topics stay in place, as they are still needed.

    rows: state of the tokens.
    counts: int32 (K,), added to.
    found: uint32 (K,), topics counted so far, `size` of them.
    draw: index of the first of M draws per token.
    Returns how many tokens changed topic, and the new size.
    """
    changed, proposals = 0, np.uint64(rows.shape[1] - 1)
    for i in range(rows.shape[0]):
        if prior.topics > _FAR and i + _TOTALS_AHEAD < rows.shape[0]:
            _prefetch_totals(rows, i + _TOTALS_AHEAD, totals.topics)
            _prefetch_totals(rows, i + _TOTALS_AHEAD, totals.large)
        topic = accept_token(rows, i, prior, totals.topics, totals.large, key, draw)
        draw += proposals
        changed += move_token(totals.topics, totals.changes, rows[i, 0], topic)
        if counts[topic] == 0:
            found[size] = topic
            size += 1
        counts[topic] += 1
        rows[i, 1] = topic
    return changed, size


@kernel
def alias_columns(found, counts):
    """Return the alias table, COLUMN (n,), of the topics `found`, uint32 (n,), by their counts, int32 (K,)."""
    weights = np.empty(found.size)
    for i in range(found.size):
        weights[i] = counts[found[i]]
    cut, alias = alias_table(weights)
    columns = np.empty(found.size, COLUMN)
    for i in range(found.size):
        columns[i]["cut"] = cut[i]
        columns[i]["topic"] = found[i]
        columns[i]["other"] = found[alias[i]]
    return columns


@unmanaged_kernel
def draw_run(rows, columns, counts, others, prior, counted, key, draw):
    """Write the new topics of tokens, clear the counts of their old topics, and draw new proposals from     `n_k^- +
    prior`.

    rows: state of the tokens after `accept_run`.
    columns, counts: see `draw_other`.
    others: number of the word's other tokens.
    draw: index of the first of M draws per token.
    """
    for i in range(rows.shape[0]):
        if prior.topics > _FAR and i + _TOTALS_AHEAD < rows.shape[0]:
            prefetch(counted, np.int64(rows[i + _TOTALS_AHEAD, 0]))
        counted[np.int64(rows[i, 0])]["count"] = 0
        own = np.int64(rows[i, 1])
        rows[i, 0] = own
        for m in range(1, rows.shape[1]):
            x = uniform(key, draw) * (others + prior.total)
            if x >= others:
                rows[i, m] = draw_prior(prior, (x - others) / prior.total)
            else:
                topic = draw_other(columns, counts, own, x / others)
                again = np.uint64(0)
                while topic < 0:
                    topic = draw_other(columns, counts, own, uniform(random_bits(key, draw), again))
                    again += np.uint64(1)
                rows[i, m] = topic
            draw += np.uint64(1)


@inlined
def draw_other(columns, counts, own, u):
    """Return the topic of a random token of the word, or -1 if it is the token itself, which has topic `own`.

    columns: COLUMN (n,), alias table of the counts, int32 (K,), of all tokens of the word.
    u: uniform number.
    """
    y = u * columns.size
    i = np.uint64(min(int(y), columns.size - 1))
    depth, share = y - np.float64(i), columns[i]["cut"]
    topic = np.int64(columns[i]["topic"])
    if depth >= share:
        topic, depth, share = np.int64(columns[i]["other"]), depth - share, 1.0 - share
    # The number's position within its share of the column is uniform, too; the first 1 / n_k of it is the token itself.
    return -1 if topic == own and depth * counts[own] < share else topic


@unmanaged_kernel
def document_phase(state, base, offsets, positions, scratch, prior, totals, key, spare=0):
    """Sample the documents of a part in order and return how many tokens changed topic.

    state, base, offsets, positions: see `samplers.lda.token_kernels`. Other arrays: see `sample_group`.
    """
    changed = 0
    draw = np.uint64(0)
    for d in range(offsets.size - 1):
        rows = positions[offsets[d] : offsets[-1]]  # tokens of this and all following documents
        topics = scratch.topics[: offsets[d + 1] - offsets[d]]
        changed += _sample_group(state, base, rows, topics, prior, totals, key, draw, spare)
        draw += np.uint64(2 * topics.size * (state.shape[1] - 1 - spare))
    return changed


@kernel
def word_phase(state, bases, run_offsets, blocks, starts, lengths, scratch, common, totals, key, word_prior=None):
    """Sample the words of a part in order, each over its tokens in all blocks, and return how many changed topic.

    state, bases, run_offsets, blocks, starts, lengths: see `samplers.lda.token_kernels`.
    common: prior of words without one of their own in word_prior, a WordPrior of these words or None. Other arrays: see
        `sample_group`.
    """
    changed = 0
    draw = np.uint64(0)
    for w in range(run_offsets.size - 1):
        runs = slice(run_offsets[w], run_offsets[w + 1])
        tokens = word_tokens(lengths[runs])
        prior = common
        if word_prior is not None:
            prior = prior_of_word(word_prior, w, common)
        if tokens > scratch.where.size:
            changed += sample_frequent_word(
                state, bases, blocks[runs], starts[runs], lengths[runs], scratch.counts, prior, totals, key, draw
            )
        else:
            gather_word(bases, blocks[runs], starts[runs], lengths[runs], scratch.where)
            rows, topics = scratch.where[:tokens], scratch.topics[:tokens]
            changed += _sample_group(state, 0, rows, topics, prior, totals, key, draw)
        draw += np.uint64(2 * tokens * (state.shape[1] - 1))
    return changed
