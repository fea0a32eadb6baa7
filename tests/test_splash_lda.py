"""LDA by weighted Gibbs sampling: counts are those of the topics, workers do as one does, the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import Ooc
from corpora import InProcessProgram, small_dataset

from blocks import Dataset
from ooc.workers.worker import ProgramSpec
from samplers.programs import target
from samplers.topics.model import SavedTopicModel


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("splash") / "dataset")


def chain_of(corpus: Dataset, **options: object) -> InProcessProgram:
    defaults = {"topics": 5, "alpha": 0.1, "beta": 0.05, "seed": 3}
    return InProcessProgram(corpus, ProgramSpec(target("lda-splash"), defaults | options))


def recounted(chain: InProcessProgram) -> np.ndarray:
    """The tenths that words have of topics, int64 (V, K), counted anew."""
    corpus, z = chain.dataset, chain.shared["local.z"]
    counts = np.zeros((corpus.vocabulary_size, 5), np.int64)
    first = 0
    for number in range(corpus.block_count):
        block = corpus.block(number)
        words = np.repeat(block.words, np.diff(block.word_offsets))[block.positions]
        np.add.at(counts, (words[:, None], z[first : first + words.size]), 1)
        first += words.size
    return counts


@pytest.mark.parametrize("options", [{"parallelism": 1}, {"parallelism": 7, "sync_per_pass": 2}], ids=str)
def test_counts_are_those_of_the_topics(corpus, options):
    """After any pass, of any number of workers, exactly: what was drawn counts once, and what it replaced does not."""
    with chain_of(corpus, **options) as chain:
        for _ in range(3):
            chain.iterate()
            counts = recounted(chain)
            assert np.array_equal(chain.shared["word_topics"], counts)
            assert np.array_equal(chain.shared["topics"][0], counts.sum(axis=0))
            assert counts.sum() == 10 * corpus.tokens


def test_workers_find_topics_as_one_does(corpus):
    found = []
    for degree in (1, 4):
        with chain_of(corpus, parallelism=degree, sync_per_pass=2) as chain:
            chain.iterate()
            first = chain.objective()["log_likelihood_per_token"]
            chain.iterate(15)
            found.append(chain.objective()["log_likelihood_per_token"])
            assert found[-1] > first
    assert found[1] == pytest.approx(found[0], abs=0.1)


def test_the_model_has_what_was_counted(corpus, tmp_path):
    with chain_of(corpus, parallelism=3) as chain:
        chain.iterate(2)
        chain.export(tmp_path / "model")
        tenths = recounted(chain)
    model = SavedTopicModel(tmp_path / "model")
    dense = np.zeros_like(tenths, float)
    rows = model.words
    dense[np.repeat(np.arange(len(dense)), np.diff(rows.offsets)), rows.topics] = rows.counts
    assert np.allclose(dense[corpus.index.word_ids], tenths / 10)
    assert np.allclose(model.topic_counts, tenths.sum(axis=0) / 10)
    assert model.documents.counts.sum() == corpus.tokens


def test_at_the_command_line(tmp_path: Path, corpus: Dataset, ooc: Ooc) -> None:
    command = ("train", "lda", corpus.path, "run", "--topics", 5, "--sampler", "splash", "--iterations", 3)
    done = ooc(*command, "--parallelism", 2, "--evaluate-every", 1, "--held-out", corpus.path, "--json")
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout)
    assert {"log_likelihood_per_token", "held_out_log_likelihood_per_token", "communicating_s"} <= last.keys()
    assert len(ooc("topics", "run", "--json").stdout) > 100
    for option, value in (("--average", 2), ("--optimize-every", 2), ("--mh-steps", 3)):
        refused = ooc(*command[:3], "other", *command[4:], option, value)
        assert refused.returncode == 2
        assert f"{option} cannot be used with --sampler splash" in refused.stderr
