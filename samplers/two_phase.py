"""The two-phase Metropolis-Hastings sampler of LDA: kernels.

WarpLDA (Chen, Li, Zhu and Chen, VLDB 2016), after LightLDA (Yuan et al., WWW 2015, section 4). With `^-` for counts
without the token itself, a token of word w in document d has topic k with

    p(k) ~ (n_kd^- + alpha_k) * (n_kw^- + beta) / (n_k^- + V*beta)                              LightLDA eq. (1)

Proposals come in turn from q_d(k) ~ n_kd^- + alpha_k and q_w(k) ~ n_kw^- + beta, so that in the acceptance ratio
p(t) q(s) / (p(s) q(t)) the document factors cancel for the first and the word factors for the second. Therefore

    the word phase, one word's tokens at a time, accepts what q_d proposed, by (n_kw^- + beta) / (n_k^- + V*beta),
    and then draws from q_w;
    the document phase, one document's tokens at a time, accepts what q_w proposed, by (n_kd^- + alpha_k) /
    (n_k^- + V*beta), and then draws from q_d.

Both are the same step on a group of tokens with a prior: `sample_group`. Drawing from `n_k^- + prior` needs no table:
it is the topic of one of the group's other tokens, or, with the prior's share, a topic from the prior.

Deviations from exact Gibbs sampling: the counts of a group are those of the group's start, and the summary row n_k is
that of the phase's start (delayed counts). A proposal is drawn from the counts that stand in its acceptance ratio, but
by the time it is judged the group's other tokens were accepted from one snapshot.
Totals are float32: exact up to 2^24 tokens a topic, beyond to 6e-8 of themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocks.alias import alias_table
from blocks.compiled import inlined, kernel
from samplers.groups import count_runs, draw_prior, gather_document, gather_word, word_tokens
from samplers.prefetch import prefetch
from samplers.streams import bits, uniform
from samplers.topic_counts import clear_counts, count_topics, slot_of, table_mask

_FAR = 1 << 14  # topics: the totals of more are asked for before they are needed, so many tokens ahead:
_AHEAD = 24


class Totals(NamedTuple):
    """The summary row of a worker: two views of one int32 (2K,), so that a topic's numbers share a cache line.

    summary: float32; of topic k at 2k, n_k + V*beta at the start of the phase. changes: int32; of topic k at 2k+1, the
    change of n_k by this worker.
    """

    summary: np.ndarray
    changes: np.ndarray


def split_totals(totals: np.ndarray) -> Totals:
    """The views of an int32 (K, 2)."""
    return Totals(totals.view(np.float32).reshape(-1), totals.reshape(-1))


@inlined
def accept_token(state, row, count, keys, counts, mask, prior, totals, key, draw):
    """Walk the proposals of the token in a row of `state`; returns the topic where it ends.

    count: tokens of the group under the token's topic, itself included. keys, counts, mask: the group's counts at its
    start. prior: float64 (K,) or (1,). totals: Totals. key, draw: random stream, and the first draw of it.
    """
    one = prior.size == 1
    counted = np.int64(state[row, 0])
    current = counted
    # The token itself was counted under `counted`: that topic's counts lose one, whatever the topic is by now.
    weight = count - 1 + prior[0 if one else counted]
    share = totals.summary[2 * counted] - 1.0
    for m in range(state.shape[1] - 1):
        proposed = np.int64(state[row, 1 + m])
        own = 1 if proposed == counted else 0
        proposed_weight = counts[slot_of(keys, mask, proposed)] - own + prior[0 if one else proposed]
        proposed_share = totals.summary[2 * proposed] - own
        u = uniform(key, draw + np.uint64(m))
        if u * (weight * proposed_share) < proposed_weight * share:
            current, weight, share = proposed, proposed_weight, proposed_share
    return current


@kernel
def draw_group(state, where, topics, prior, key, draw):
    """Write the group's new topics and draw new proposals from `n_k^- + prior`.

    state: changed at the rows `where`, int64 (n,). topics: topic type (n,). prior: Prior. key, draw: the random stream,
    and the first of M*n draws of it.
    """
    proposals = state.shape[1] - 1
    others = where.size - 1
    mass = others + prior.total
    for i in range(where.size):
        row = where[i]
        state[row, 0] = topics[i]
        for m in range(proposals):
            x = uniform(key, draw + np.uint64(i * proposals + m)) * mass
            if x < others:
                j = int(x)
                state[row, 1 + m] = topics[j + (j >= i)]
            else:
                state[row, 1 + m] = draw_prior(prior.topics, prior.cut, prior.alias, (x - others) / prior.total)


@inlined
def move_token(totals, old, new):
    """Take a token from one topic to another in the changes; returns whether they differ."""
    totals.changes[2 * np.int64(old) + 1] -= 1
    totals.changes[2 * np.int64(new) + 1] += 1
    return old != new


@inlined
def _prefetch_totals(state, row, totals):
    for m in range(state.shape[1]):
        prefetch(totals.summary, 2 * np.int64(state[row, m]))


@kernel
def sample_group(state, where, scratch, prior, totals, key, draw):
    """One step on the group of the rows `where`, int64 (n,): count, accept, draw.

    state: changed at those rows. prior: Prior. totals: Totals, changes added to. Returns the number of tokens that
    changed topic; 2*M*n draws of the stream `key` are used, from `draw` on.
    """
    topics, slots = scratch.topics[: where.size], scratch.slots[: where.size]
    mask = table_mask(where.size, prior.topics)
    keys = scratch.keys if mask + 1 < prior.topics else scratch.keys[:0]
    far = prior.topics > _FAR
    for i in range(min(_AHEAD, where.size) if far else 0):
        _prefetch_totals(state, where[i], totals)
    count_topics(state, where, slots, keys, scratch.counts, mask)
    changed = 0
    proposals = state.shape[1] - 1
    for i in range(where.size):
        if far and i + _AHEAD < where.size:
            _prefetch_totals(state, where[i + _AHEAD], totals)
        count = scratch.counts[slots[i]]
        first = draw + np.uint64(i * proposals)
        topics[i] = accept_token(state, where[i], count, keys, scratch.counts, mask, prior.weights, totals, key, first)
        changed += move_token(totals, state[where[i], 0], topics[i])
    clear_counts(slots, keys, scratch.counts)
    draw_group(state, where, topics, prior, key, draw + np.uint64(where.size * proposals))
    return changed


@kernel
def sample_frequent_word(state, bases, blocks, starts, lengths, prior, totals, key, draw):
    """The same step as `sample_group` on a word too frequent to gather: its tokens are walked run by run.

    Its counts are dense, and the topic of another token is drawn from them, by an alias table, instead of by position:
    a draw of the token's own topic k is drawn again with probability 1 / n_k, which takes the token itself out.
    """
    counts = np.zeros(prior.topics, np.int32)
    count_runs(state, bases, blocks, starts, lengths, counts)
    changed = 0
    proposals = state.shape[1] - 1
    for run in range(blocks.size):
        row = bases[blocks[run]] + starts[run]
        for i in range(row, row + lengths[run]):
            old = state[i, 0]
            new = accept_token(state, i, counts[old], counts[:0], counts, counts.size, prior.weights, totals, key, draw)
            draw += np.uint64(proposals)
            state[i, 0] = new
            changed += move_token(totals, old, new)
    counts[:] = 0
    count_runs(state, bases, blocks, starts, lengths, counts)
    cut, alias = alias_table(counts.astype(np.float64))
    others = counts.sum() - 1
    for run in range(blocks.size):
        row = bases[blocks[run]] + starts[run]
        for i in range(row, row + lengths[run]):
            for m in range(proposals):
                state[i, 1 + m] = draw_other(counts, cut, alias, others, state[i, 0], prior, bits(key, draw))
                draw += np.uint64(1)
    return changed


@kernel
def draw_other(counts, cut, alias, others, own, prior, key):
    """A topic from `n_k^- + prior`, by the counts of all tokens, int32 (K,), and their alias table; key: its stream."""
    x = uniform(key, np.uint64(0)) * (others + prior.total)
    if x >= others:
        return draw_prior(prior.topics, prior.cut, prior.alias, (x - others) / prior.total)
    n = np.uint64(1)
    while True:
        y = uniform(key, n) * counts.size
        k = min(int(y), counts.size - 1)
        if y - k >= cut[k]:
            k = np.int64(alias[k])
        if k != own or uniform(key, n + np.uint64(1)) * counts[k] >= 1.0:
            return k
        n += np.uint64(2)


@kernel
def document_phase(state, base, offsets, positions, scratch, prior, totals, key):
    """Sample the documents of a part, one after the other; returns how many tokens changed topic.

    state, base, offsets, positions: see `samplers.groups`; others: see `sample_group`.
    """
    changed = 0
    draw = np.uint64(0)
    numbers = state.reshape(-1)
    for d in range(offsets.size - 1):
        for i in range(offsets[d + 1], offsets[min(d + 2, offsets.size - 1)]):
            prefetch(numbers, (base + positions[i]) * state.shape[1])  # of the next document
        where = scratch.where[: offsets[d + 1] - offsets[d]]
        gather_document(base, positions[offsets[d] : offsets[d + 1]], where)
        changed += sample_group(state, where, scratch, prior, totals, key, draw)
        draw += np.uint64(2 * where.size * (state.shape[1] - 1))
    return changed


@kernel
def word_phase(state, bases, run_offsets, blocks, starts, lengths, scratch, prior, totals, key):
    """Sample the words of a part, each over its tokens in all blocks; returns how many tokens changed topic.

    state, bases, run_offsets, blocks, starts, lengths: see `samplers.groups`; others: see `sample_group`.
    """
    changed = 0
    draw = np.uint64(0)
    for w in range(run_offsets.size - 1):
        runs = slice(run_offsets[w], run_offsets[w + 1])
        tokens = word_tokens(lengths[runs])
        if tokens > scratch.where.size:
            changed += sample_frequent_word(
                state, bases, blocks[runs], starts[runs], lengths[runs], prior, totals, key, draw
            )
        else:
            gather_word(bases, blocks[runs], starts[runs], lengths[runs], scratch.where)
            changed += sample_group(state, scratch.where[:tokens], scratch, prior, totals, key, draw)
        draw += np.uint64(2 * tokens * (state.shape[1] - 1))
    return changed
