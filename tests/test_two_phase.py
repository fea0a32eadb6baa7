"""The kernels of the two-phase sampler against the equations they implement."""

from __future__ import annotations

from itertools import combinations, pairwise, product

import numpy as np
import pytest
from chi_square import alarmed
from corpora import InProcessProgram, make_prior, make_totals, program_spec, tiny_dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from ooc.rng import stream_key, uniform
from samplers.lda import two_phase
from samplers.lda.token_kernels import GroupScratch

counts_of = st.lists(st.integers(0, 6), min_size=2, max_size=5)


def acceptance(counted, current, proposed, counts, prior, summary, exclude=True):
    """The probability of moving from `current` to `proposed`; counts and summary hold the token under `counted`."""

    def factor(k):
        own = 1 if exclude and k == counted else 0
        return (counts[k] - own + prior[k]) / (summary[k] - own)

    return min(1.0, factor(proposed) / factor(current))


def transition(others, prior, summary_others, proposal, steps=1, exclude=True):
    """Exact K x K matrix of `steps` proposals, each drawn from `proposal` and judged by `acceptance`.

    others, summary_others: counts, and n_k + V*beta, without the token itself.
    """
    topics = others.size
    matrix = np.zeros((topics, topics))
    for counted in range(topics):
        own = np.eye(topics)[counted]
        at = own.copy()
        for _ in range(steps):
            following = np.zeros(topics)
            for current, proposed in product(range(topics), repeat=2):
                p = acceptance(counted, current, proposed, others + own, prior, summary_others + own, exclude)
                following[proposed] += at[current] * proposal[proposed] * p
                following[current] += at[current] * proposal[proposed] * (1 - p)
            at = following
        matrix[counted] = at
    return matrix


@st.composite
def frozen_token(draw):
    """Counts of one token's document, word and of all tokens, without it, and the priors of both."""
    document = np.array(draw(counts_of), float)
    topics = document.size
    word = np.array(draw(st.lists(st.integers(0, 6), min_size=topics, max_size=topics)), float)
    elsewhere = np.array(draw(st.lists(st.integers(0, 50), min_size=topics, max_size=topics)), float)
    alpha = np.array(draw(st.lists(st.floats(0.01, 5), min_size=topics, max_size=topics)))
    beta = draw(st.floats(0.01, 2))
    vocabulary = draw(st.integers(1, 30))
    return document, word, np.maximum(document, word) + elsewhere + vocabulary * beta, alpha, np.full(topics, beta)


def imbalance(document, word, summary, alpha, beta, steps, exclude=True):
    """How far both phases' transitions are from leaving the target invariant: max |pi P - pi|."""
    target = (document + alpha) * (word + beta) / summary
    target /= target.sum()
    word_phase = transition(word, beta, summary, (document + alpha) / (document + alpha).sum(), steps, exclude)
    document_phase = transition(document, alpha, summary, (word + beta) / (word + beta).sum(), steps, exclude)
    return max(np.abs(target @ matrix - target).max() for matrix in (word_phase, document_phase))


@given(frozen_token(), st.integers(1, 3))
def test_a_step_with_frozen_counts_leaves_the_target_invariant(token, steps):
    """pi P = pi to 1e-12 for the acceptance rule of both phases, one to three proposals, asymmetric alpha."""
    assert imbalance(*token, steps) < 1e-12


def test_a_step_that_does_not_exclude_the_token_is_found_out():
    """The same check fails for a rule that leaves the token's own count in the ratio: it can see that mistake."""
    token = np.array([3.0, 1, 0]), np.array([1.0, 2, 1]), np.array([9.0, 5, 4]), np.full(3, 0.1), np.full(3, 0.05)
    assert imbalance(*token, 1) < 1e-12
    assert imbalance(*token, 1, exclude=False) > 1e-3


def accept(state, prior, summary, key, draw=0):
    """Run the kernel on each token of a group that is all of `state`; returns their new topics."""
    totals, proposals = make_totals(summary).topics, state.shape[1] - 1
    np.add.at(totals["count"], state[:, 0], 1)
    return [
        two_phase.accept_token(state, i, prior, totals, totals, key, np.uint64(draw + i * proposals))
        for i in range(len(state))
    ]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 5), st.integers(1, 12), st.integers(1, 4), st.booleans(), st.integers(0, 1 << 40))
def test_the_kernel_accepts_what_the_equation_accepts(data, topics, tokens, steps, same, seed):
    """Kernel and twin, given the same uniform numbers, walk every token of a group through the same topics."""
    rng = np.random.default_rng(seed)
    state = rng.integers(0, topics, (tokens, 1 + steps)).astype(np.uint16)
    prior = np.full(topics, 0.3) if same else rng.uniform(0.01, 3, topics)
    counts = np.bincount(state[:, 0], minlength=topics)
    summary = counts + rng.integers(0, 20, topics) + 0.5
    key, draw = stream_key(seed), data.draw(st.integers(0, 1000))
    new = accept(state, make_prior(topics, prior[:1] if same else prior), summary, key, draw)
    for i, (counted, *proposals) in enumerate(state.tolist()):
        current = counted
        for m, proposed in enumerate(proposals):
            p = acceptance(counted, current, proposed, counts, prior, summary)
            if uniform(key, np.uint64(draw + i * steps + m)) < p:
                current = proposed
        assert new[i] == current


@pytest.mark.parametrize("alpha", [[0.4], [0.05, 2.0, 0.7, 0.2]], ids=["same", "alias"])
def test_proposals_come_from_the_other_tokens_and_the_prior(alpha):
    """`draw_group` draws from n_k^- + prior, the token itself left out: chi-square of 20,000 draws for each token.

    10 tests in all; false alarm of any below 1e-5.
    """
    topics = np.array([0, 0, 0, 2, 1], np.uint16)
    prior = make_prior(4, np.array(alpha))
    state = np.zeros((5, 20_001), np.uint16)
    two_phase.draw_group(
        state, 0, np.arange(5), topics, prior, make_totals(np.ones(4)).topics, stream_key(11), np.uint64(0)
    )
    assert np.array_equal(state[:, 0], topics)
    weights = np.bincount(topics, minlength=4) + np.broadcast_to(alpha, 4)
    for i, row in enumerate(state):
        observed = np.bincount(row[1:], minlength=4)
        assert not alarmed(observed, weights - np.eye(4)[topics[i]])
    with_itself = [alarmed(np.bincount(row[1:], minlength=4), weights) for row in state]
    assert any(with_itself)  # the test would see a token that draws itself


@pytest.mark.parametrize("own", [0, 1, 3])
def test_a_frequent_word_draws_from_its_other_tokens_and_the_prior(own):
    """`draw_run`, from the counts of all tokens, draws from n_k^- + prior: chi-square of 20,000 draws, false alarm
    1e-6; without taking the token itself out it would be another distribution."""
    counts, weights = np.array([3, 1, 0, 2, 0], np.int32), np.array([0.1, 0.4, 0.1, 0.1, 0.3])
    columns = two_phase.alias_columns(np.array([3, 0, 1], np.uint32), counts)
    rows = np.full((10_000, 3), own, np.uint16)
    prior, totals = make_prior(5, weights), make_totals(np.ones(5))
    two_phase.draw_run(rows, columns, counts, 5, prior, totals.large, stream_key(4, own), np.uint64(0))
    assert (rows[:, 0] == own).all()
    observed = np.bincount(rows[:, 1:].ravel(), minlength=5)
    assert not alarmed(observed, counts + weights - np.eye(5)[own])
    assert alarmed(observed, counts + weights)


def test_a_single_token_draws_from_the_prior_alone():
    """A group of one has no other tokens; chi-square, false alarm 1e-6."""
    alpha = np.array([0.1, 1.0, 3.0])
    state = np.zeros((1, 30_001), np.uint16)
    prior, totals = make_prior(3, alpha), make_totals(np.ones(3)).topics
    two_phase.draw_group(state, 0, np.arange(1), np.array([1], np.uint16), prior, totals, stream_key(2), np.uint64(0))
    assert not alarmed(np.bincount(state[0, 1:], minlength=3), alpha)


@pytest.mark.few(2)
@pytest.mark.parametrize("counted", range(3))
def test_draw_then_accept_moves_as_the_matrix_says(counted):
    """A token proposed by `draw_group` in its document and judged by `accept_token` in its word, 20,000 times, moves
    as the exact matrix says: ties both kernels to the matrix whose invariance is proven. False alarm 1e-6 each."""
    alpha, beta = np.array([0.2, 0.9, 0.5]), np.full(3, 0.1)
    document = np.array([counted, 0, 0, 1], np.uint16)
    word = [counted, 1, 2, 2]
    draws = 20_000
    proposed = np.zeros((4, 1 + draws), np.uint16)
    totals = make_totals(np.ones(3)).topics
    two_phase.draw_group(proposed, 0, np.arange(4), document, make_prior(3, alpha), totals, stream_key(1), np.uint64(0))
    own = np.eye(3)[counted]
    document_others, word_others = np.array([2.0, 1, 0]), np.array([0.0, 1, 2])
    summary = np.array([3.0, 4, 2.5]) + own
    observed = np.zeros(3)
    for n in range(draws):
        state = np.array([word, [proposed[0, 1 + n], 0, 0, 0]], np.uint16).T.copy()
        new = accept(state, make_prior(beta.size, beta[:1]), summary, stream_key(9, counted, n))
        observed[new[0]] += 1
    proposal = (document_others + alpha) / (document_others + alpha).sum()
    assert not alarmed(observed, transition(word_others, beta, summary - own, proposal)[counted])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(0, 200),
    st.integers(1, 3),
    st.sampled_from([3, 70_000]),
    st.booleans(),
    st.integers(0, 1 << 40),
)
def test_a_group_is_counted_moved_and_cleared(tokens, more, steps, topics, large, seed):
    """`sample_group`: it moves whom the equation moves, adds up how the counts change, even where 16 bits are full, and
    leaves other rows alone, those that come next too; no group is counted afterwards. With and without reading ahead,
    counted in 16 bits or in 32."""
    rng = np.random.default_rng(seed)
    state = rng.integers(0, topics, (tokens + more + 5, 1 + steps)).astype(np.uint32)
    before = state.copy()
    rows = rng.permutation(tokens + more + 5)[: tokens + more]
    group = rows[:tokens]
    summary = np.bincount(state[:, 0], minlength=topics) + 1.0
    totals, prior = make_totals(summary), make_prior(topics, np.array([0.1]))
    changes = rng.choice([-32_767, 0, 32_767], topics)
    totals.topics["change"] = changes
    counted = totals.large if large else totals.topics
    new = accept(before[group], prior, summary, stream_key(seed))
    topics_of_group = np.zeros(tokens, np.uint32)
    known = (prior, totals.topics, totals.changes, counted, stream_key(seed), np.uint64(0))
    changed = two_phase.sample_group(state, 3, rows - 3, topics_of_group, *known)
    outside = np.setdiff1d(np.arange(len(state)), group)
    assert np.array_equal(state[outside], before[outside])
    assert state[group, 0].tolist() == new
    assert changed == np.sum(state[:, 0] != before[:, 0])
    moved = np.bincount(state[:, 0], minlength=topics) - np.bincount(before[:, 0], minlength=topics)
    assert np.array_equal(totals.topics["change"] + totals.changes, changes + moved)
    assert not counted["count"].any()
    assert state[group].max() < topics


def mapped(*arrays):
    """Arrays that cannot be written to, as mapped files are: what the cache of compiled kernels holds fits."""
    for array in arrays:
        array.setflags(write=False)
    return arrays


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize("phase", ["word", "document"])
def test_more_tokens_of_a_topic_than_16_bits_count(phase, gathered):
    """In a group of 2^16 + 1 tokens of one topic nobody leaves for another; as if it had one, half of them would."""
    tokens = two_phase.MOST_COUNTED + 2
    state = np.stack([np.zeros(tokens, np.uint8), np.ones(tokens, np.uint8)], axis=1)
    totals, prior = make_totals(np.array([2.0 * tokens, 2.0 * tokens])), make_prior(2, np.array([0.1]))
    size = tokens if gathered or phase == "document" else 10
    scratch = GroupScratch(np.zeros(size, np.int64), np.zeros(size, np.uint8), np.zeros(2, np.int32))
    if phase == "document":
        where = (state, 0, *mapped(np.array([0, tokens]), np.arange(tokens, dtype=np.uint32)))
        changed = two_phase.document_phase(*where, scratch, prior, totals, stream_key(1))
    else:
        run = (np.array([number], np.uint32) for number in (0, 0, tokens))
        where = (state, np.zeros(1, np.int64), *mapped(np.array([0, 1]), *run))
        changed = two_phase.word_phase(*where, scratch, prior, totals, stream_key(1))
    assert changed < 5
    assert totals.topics["change"].tolist() == [-changed, changed]
    assert not totals.topics["count"].any()
    assert not totals.large["count"].any()


def frequent_word(state, prior, key):
    """Run `sample_frequent_word` on a word whose tokens are all of `state`, in three runs; returns the change of
    the counts, and how many tokens changed."""
    starts = np.array([0, 1, len(state) // 2], np.uint32)
    lengths = np.diff([*starts, len(state)]).astype(np.uint32)
    totals = make_totals(np.bincount(state[:, 0], minlength=prior.topics) + 2.5)
    counts = np.zeros(prior.topics, np.int32)
    changed = two_phase.sample_frequent_word(
        state,
        np.zeros(1, np.int64),
        np.zeros(3, np.uint32),
        starts,
        lengths,
        counts,
        prior,
        totals,
        key,
        np.uint64(40),
    )
    assert not totals.large["count"].any()
    assert not counts.any()
    return totals.topics["change"], changed


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 40), st.integers(1, 3), st.sampled_from([3, 50, 70_000]), st.integers(0, 1 << 40))
def test_a_word_too_frequent_to_gather_moves_as_one_that_is_gathered(tokens, steps, topics, seed):
    """The accepting half of the step, walked run by run, gives the same topics from the same random numbers."""
    rng = np.random.default_rng(seed)
    state = rng.integers(0, min(topics, 6), (tokens, 1 + steps)).astype(np.uint32)
    prior = make_prior(topics, np.array([0.1]))
    new = accept(state, prior, np.bincount(state[:, 0], minlength=topics) + 2.5, stream_key(seed), 40)
    before = state[:, 0].copy()
    moved, changed = frequent_word(state, prior, stream_key(seed))
    assert state[:, 0].tolist() == new
    assert changed == np.sum(before != new)
    assert np.array_equal(moved, np.bincount(new, minlength=topics) - np.bincount(before, minlength=topics))
    assert state.max() < topics


@pytest.mark.parametrize("beta", [[0.4], [0.05, 2.0, 0.7, 0.2]], ids=["same", "alias"])
def test_a_word_too_frequent_to_gather_draws_from_its_other_tokens_and_the_prior(beta):
    """Chi-square of 20,000 proposals of each of 5 tokens, drawn from counts rather than by position; the token that is
    alone with its topic never draws it from a token. 10 tests in all; false alarm of any below 1e-5."""
    topics = np.array([0, 0, 0, 2, 1], np.uint16)
    state = np.repeat(topics[:, None], 20_001, axis=1)  # proposals equal to the topic: nobody moves
    frequent_word(state, make_prior(4, np.array(beta)), stream_key(17))
    assert np.array_equal(state[:, 0], topics)
    weights = np.bincount(topics, minlength=4) + np.broadcast_to(beta, 4)
    for i, row in enumerate(state):
        observed = np.bincount(row[1:], minlength=4)
        assert not alarmed(observed, weights - np.eye(4)[topics[i]])


def agreement(groups):
    """How often tokens at the same place have the same proposal, in the two groups of all where that is most often."""
    return max(np.mean(one == other) for one, other in combinations(groups, 2))


def test_no_draw_is_used_twice(tmp_path):
    """Priors so large that every proposal comes from them: between any two equal documents or
    words, in one part or in different parts, blocks or slices, they agree as chance has it, for 1 token in 50, and not
    for half of them (by chance: 1e-9); nor do the two proposals of a token."""
    dataset = tiny_dataset(tmp_path / "dataset", [list(range(40))] * 12, 40, block_tokens=150, part_tokens=90, slices=2)
    assert dataset.block_count > 1
    with InProcessProgram(dataset, program_spec(topics=50, mh_steps=2, alpha=1e9, beta=1e9)) as chain:
        words = chain.program.phases[0]
        list(chain.sweep(words))
        per_word, base = [[] for _ in range(40)], 0
        for number in range(dataset.block_count):
            block = dataset.block(number)
            for word, (first, last) in zip(block.words, pairwise(base + block.word_offsets), strict=True):
                per_word[word] += chain.state[first:last, 1].tolist()
            base += block.positions.size
        assert agreement(np.array(per_word)) < 0.65
        assert np.mean(chain.state[:, 1] == chain.state[:, 2]) < 0.2
        chain.iterate()
        documents, base = [], 0
        for number in range(dataset.block_count):
            block = dataset.block(number)
            for first, last in pairwise(block.offsets):
                documents.append(chain.state[base + block.positions[first:last].astype(np.int64), 1])
            base += block.positions.size
        assert agreement(documents) < 0.5
        assert np.mean(chain.state[:, 1] == chain.state[:, 2]) < 0.2
