"""Document-major programs: counts that always add up, the ways to update them, what each costs in exactness."""

from __future__ import annotations

import numpy as np
import pytest
from corpora import InProcessProgram, corpora, program_spec, small_dataset, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samplers.lda.doc_major import UPDATES, far_apart_order, s_error, taper
from samplers.lda.word_topic_rows import nonzeros

SAMPLERS = ["Gibbs", "SparseGibbs", "SparseLda", "AliasLda", "LightLda"]

slow_disk = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def rows_of(chain: InProcessProgram) -> np.ndarray:
    """The stored rows, dense, words as they were given: int64 (V, K)."""
    rows, dataset, topics = chain.program.rows(chain.shared), chain.dataset, chain.program.topics
    room = np.zeros(topics + 1, np.int32), np.zeros(topics + 1, np.int32)
    found = np.zeros((dataset.vocabulary_size, topics), np.int64)
    for rank, word in enumerate(dataset.index.word_ids):
        size = nonzeros(rows, rank, *room)
        found[word, room[0][:size]] = room[1][:size]
    return found


def check(chain: InProcessProgram) -> None:
    """Rows, summary row and what rows count each token under equal a count of z itself, made from the blocks alone."""
    _, words = chain.counts()
    assert np.array_equal(chain.shared["topic_counts"], words.sum(axis=0))
    assert (chain.state == chain.state[:, :1]).all()
    if chain.program.update_mode == "data-parallel":  # rows are those of the iteration's start
        list(chain.sweep(chain.program.word_counts))
    assert np.array_equal(rows_of(chain), words)
    in_tables = chain.shared["row_tables"] & 0xFFFFFFFF
    assert in_tables.sum() + chain.shared["dense_rows"].sum() == chain.dataset.tokens


@settings(slow_disk, max_examples=20)
@given(
    corpora(),
    st.sampled_from(SAMPLERS),
    st.sampled_from(UPDATES),
    st.sampled_from([2, 5, 60, 300, 70_000]),
    st.integers(0, 3),
    st.integers(0, 1 << 60),
)
def test_rows_always_equal_a_recount(corpus, sampler, update, topics, iterations, seed):
    """Any grid, words that do not occur, dense rows and tables, 16 and 32 bits, before and after iterations."""
    with (
        written(corpus) as dataset,
        InProcessProgram(dataset, program_spec(sampler, topics=topics, seed=seed, update=update)) as chain,
    ):
        chain.iterate(iterations)
        check(chain)


@pytest.mark.long
@settings(slow_disk, max_examples=30)
@given(corpora(), st.sampled_from([2, 60]))
def test_blocks_that_are_opened_by_who_updates_the_rows_are_sampled_whole(corpus, topics):
    """Rests are of the rows and the summary row as they are by then; every token is sampled once an iteration."""
    options = {"topics": topics, "start": "random"}
    with (
        written(corpus) as dataset,
        InProcessProgram(
            dataset, program_spec(**options)._replace(target="worker_targets:CheckedDocumentsLda")
        ) as chain,
    ):
        assert chain.program.whole_blocks
        chain.iterate(3)
        assert chain.program.sampled == 3 * dataset.tokens


@given(st.lists(st.lists(st.integers(-9, 9), min_size=4, max_size=4), min_size=1, max_size=6), st.integers(1, 100))
def test_the_s_error_is_the_distance_of_each_jobs_summary_row_from_the_true_one(moved, tokens):
    """STRADS supplement, equation 1, by dense rows: 1/(P*M) sum_p ||s_p - s||_1, s_p without what the others moved."""
    changes = np.array(moved)
    before = np.full(4, 1000)
    s = before + changes.sum(axis=0)
    expected = sum(np.abs(before + change - s).sum() for change in changes) / (len(changes) * tokens)
    answers = [(np.flatnonzero(change), change[np.flatnonzero(change)]) for change in changes]
    assert np.isclose(s_error(answers, tokens), expected, rtol=1e-12)


def test_the_s_error_of_an_iteration_is_the_mean_over_its_turns(tmp_path):
    """By hand from what each job answered, which is what the summary row moved; 0 where one job does all."""
    dataset = small_dataset(tmp_path / "dataset")
    with InProcessProgram(dataset, program_spec("LightLda", topics=12, update="rotation")) as chain:
        (phase,) = chain.program.phases
        told, errors = 0.0, []
        for stage, answers in enumerate(chain._stages(phase)):
            if stage % (2 + dataset.slice_count) < 2:  # a block is laid out
                assert chain.program.aggregate(phase, chain.shared, [chain._delta], answers)["s_error"] == 0
                continue
            assert len(answers) == dataset.slice_count
            changes = np.zeros((len(answers), 12), np.int64)
            for change, (_, topics, moved) in zip(changes, answers, strict=True):
                change[topics] = moved
            before = chain.shared["topic_counts"].copy()
            told += chain.program.aggregate(phase, chain.shared, [chain._delta], answers)["s_error"]
            chain._clear_delta()
            assert np.array_equal(chain.shared["topic_counts"] - before, changes.sum(axis=0))
            others = changes.sum(axis=0) - changes
            errors.append(np.abs(others).sum(axis=1).mean() / dataset.tokens)
        assert len(errors) == dataset.block_count * dataset.slice_count
        assert np.isclose(told / dataset.tokens, np.mean(errors), rtol=1e-12)
        assert 0 < np.mean(errors) < 2
    assert s_error([(np.array([1, 2]), np.array([5, -5]))], 100) == 0


@pytest.mark.parametrize("parts", [1, 2, 9, 30, 100])
def test_all_parts_of_a_block_are_dealt_once_far_apart_and_small_ones_last(parts):
    bounds, order = taper(parts), far_apart_order(taper(parts).size - 1)
    assert sorted(order) == list(range(bounds.size - 1))
    assert bounds[0] == 0
    assert bounds[-1] == 1
    sizes = np.diff(bounds)[list(order)]
    assert sizes[-1] * parts <= 1
    if parts > 3:
        assert abs(order[1] - order[0]) >= (parts - 2) // 2
