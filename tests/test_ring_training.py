"""What a run on a ring does at its evaluations and at its end: the first rank for all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from corpora import model_bytes, names_of_words, new_run, open_engine, plan, planted_documents, random_documents
from long_mark import long_but
from minibatches import planted
from rings import on_ring
from topic_models import dense, weighted

from blocks import Dataset, RequestError, WorkFailed, write_corpus
from blocks.shards.splitting import make_shards
from ooc.ring.ring import Ring
from samplers.lda import warm_start
from samplers.lda.held_out import FIELD
from samplers.lda.hyperparameters import (
    BETA_BOUNDS,
    alpha_bounds,
    fit_prior,
    histogram,
    observed_documents,
    observed_words,
)
from samplers.lda.programs import sampler_spec
from samplers.lda.running_mean import LEAST_COUNT
from samplers.lda.training import train_lda
from samplers.resume import resume
from samplers.topics.inference import evaluate
from samplers.topics.model import SavedTopicModel

TOPICS, WORDS, RANKS = 6, 90, 2
SPEC = {"topics": 5, "alpha": 0.1, "beta": 0.05, "seed": 0}
NAMES = [f"document {number}" for number in range(240)]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> tuple[list[Path], Dataset]:
    """Shards, and held-out documents."""
    folder, grid = tmp_path_factory.mktemp("data"), {"block_tokens": 900, "part_tokens": 300}
    made = {"whole": (2, 240, NAMES), "held-out": (3, 40, None)}
    for name, (seed, documents, names) in made.items():
        offsets, words = random_documents(np.random.default_rng(seed), documents, WORDS, 60)
        write_corpus(folder / name, offsets, words, names_of_words(WORDS), names=names, **grid)
    shards = make_shards(folder / "whole", str(folder / "shards"), RANKS, workers=1)
    return [shard.path for shard in shards], Dataset(folder / "held-out")


def train_all(folder: Path, paths: list[Path], **options) -> list[Path]:
    """Runs of all ranks."""
    runs = [folder / f"run-{rank}" for rank in range(len(paths))]
    common = {"topics": TOPICS, "alpha": 0.2, "workers": 1, "quiet": True, "evaluate_every": 2, **options}
    on_ring(len(paths), lambda ring: train_lda(paths[ring.rank], runs[ring.rank], ring=ring, **common))
    return runs


def go_on(runs: list[Path], **options) -> None:
    common = {"workers": 1, "quiet": True, **options}
    on_ring(len(runs), lambda ring: resume(runs[ring.rank], ring=ring, **common))


def lines_of(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.long
def test_the_first_rank_evaluates_and_averages_for_all(tmp_path, data):
    paths, held_out = data
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    last = train_all(tmp_path / "a", paths, iterations=6, held_out=held_out.path)
    told = [[line.get(FIELD) for line in lines_of(run)] for run in last]
    assert told[0] == told[1]
    assert [value is not None for value in told[0]] == [False, True] * 3
    found = evaluate(SavedTopicModel(last[0] / "model"), held_out, workers=1, quiet=True)
    assert found["predictive_log_likelihood_per_token"] == told[0][-1]
    averaged = train_all(tmp_path / "b", paths, iterations=6, average=2)
    model, state = SavedTopicModel(averaged[0] / "model"), SavedTopicModel(last[0] / "model")
    assert model.averaged == [4, 6]
    assert model.document_names() == NAMES
    assert np.diff(model.documents.offsets).sum() >= np.diff(state.documents.offsets).sum()
    assert model.topic_counts.sum() == 2 * state.topic_counts.sum()
    assert not [path for run in averaged for path in run.glob("sample-*")]
    assert not (averaged[1] / "model").exists()


def test_the_model_of_auto_is_the_mean_of_the_states_of_all(tmp_path, data):
    """As on one machine, also after a resume; the states are those of the same chain without a mean."""
    paths, _ = data
    for name in ("states", "means"):
        (tmp_path / name).mkdir()
    runs, states = train_all(tmp_path / "states", paths, iterations=1, average=1, sampler="sparse-gibbs"), []
    for iterations in range(1, 6):
        if iterations > 1:
            go_on(runs, iterations=iterations)
        states.append(dense(SavedTopicModel(runs[0] / "model").words, TOPICS))
    means = train_all(tmp_path / "means", paths, iterations=2)
    go_on(means, iterations=5)
    model, mean = SavedTopicModel(means[0] / "model"), weighted(states)
    found = dense(model.words, TOPICS)
    assert model.words.counts.dtype == np.float32
    assert np.allclose(found, mean, rtol=1e-4, atol=LEAST_COUNT)
    assert np.allclose(model.topic_counts, found.sum(axis=0), rtol=1e-6)
    assert (np.abs(mean - states[-1]) > 0.5).any()
    last = SavedTopicModel(runs[0] / "model")
    assert np.array_equal(dense(model.documents, TOPICS), dense(last.documents, TOPICS))


@pytest.mark.long
def test_priors_are_those_of_the_counts_of_all(tmp_path, data):
    """What dense counts of the model before give; whoever goes on after a stop estimates again."""
    paths, _ = data
    for name in ("before", "after", "stopped"):
        (tmp_path / name).mkdir()
    before = SavedTopicModel(
        train_all(tmp_path / "before", paths, iterations=3, alpha=[0.2] * TOPICS, beta=0.1)[0] / "model"
    )
    optimized = {"alpha": 0.2, "beta": 0.1, "optimize_every": 2, "burn_in": 3}
    runs = train_all(tmp_path / "after", paths, iterations=5, **optimized)
    model = SavedTopicModel(runs[0] / "model")
    lengths = np.diff(np.append(0, np.cumsum(before.documents.counts))[before.documents.offsets])
    rows = before.documents.topics.astype(np.uint64) << np.uint64(32) | before.documents.counts
    documents = observed_documents(histogram(rows), histogram(lengths.astype(np.uint64)), TOPICS)
    words = observed_words(histogram(before.words.counts.astype(np.uint64)), before.topic_counts)
    assert np.array_equal(model.alpha, fit_prior(np.full(TOPICS, 0.2), TOPICS, documents, alpha_bounds(TOPICS)))
    assert model.beta == fit_prior(np.array([0.1]), WORDS, words, BETA_BOUNDS)[0]
    told = [[line.get("beta") for line in lines_of(run)] for run in runs]
    assert told[0] == told[1] == [None, 0.1, None, model.beta, model.beta]
    stopped = train_all(tmp_path / "stopped", paths, iterations=4, **optimized)
    go_on(stopped, iterations=5)
    assert model_bytes(stopped[0]) == model_bytes(runs[0])


@pytest.mark.long
def test_convergence_ends_all(tmp_path, data):
    paths, _ = data
    options = {"evaluate_every": 5, "iterations": 200, "stop_when_converged": True}
    runs = train_all(tmp_path, paths, **options)
    lines = [lines_of(run) for run in runs]
    assert len(lines[0]) == len(lines[1]) < 200
    assert all(each[-1]["converged"] for each in lines)
    before = model_bytes(runs[0])
    go_on(runs)
    assert model_bytes(runs[0]) == before


def test_held_out_documents_of_other_words_are_refused_by_all(tmp_path, data):
    paths, _ = data
    write_corpus(tmp_path / "other", np.array([0, 2]), np.array([0, 1], np.uint32), ["x", "y"])
    with pytest.raises((RequestError, WorkFailed)):
        train_all(tmp_path, paths, iterations=2, held_out=tmp_path / "other")
    assert not list(tmp_path.glob("run-*"))


@pytest.mark.parametrize("topics", long_but([5], [5, 10_400]))
def test_all_ranks_begin_with_what_the_first_has_learned(tmp_path, topics):
    """Planted topics are there after one iteration, on two machines as on one; at random they are not. Memory, and
    workers, change nothing. Of many topics, fewer are learned and then split."""
    whole = planted(tmp_path / "whole", 1000)
    paths = [shard.path for shard in make_shards(whole.path, str(tmp_path / "shards"), RANKS, workers=1)]
    common = {"topics": topics, "alpha": 0.5 / topics, "iterations": 1, "sampler": "two-phase", "seed": 2}
    found = {}
    for name, options in (("one", {}), ("two", {"workers": 2}), ("random", {"start": "random"})):
        (tmp_path / name).mkdir()
        runs = train_all(tmp_path / name, paths, **common, **options)
        found[name] = lines_of(runs[0])[-1]["log_likelihood_per_token"]
    assert model_bytes(tmp_path / "one" / "run-0") == model_bytes(tmp_path / "two" / "run-0")
    if topics > 5:  # of more topics than planted ones the joint likelihood tells little
        return
    train_lda(whole.path, tmp_path / "alone", workers=1, quiet=True, **common)
    assert found["one"] == pytest.approx(lines_of(tmp_path / "alone")[-1]["log_likelihood_per_token"], abs=0.3)
    assert found["one"] > found["random"] + 0.3


def test_the_first_rank_may_learn_in_more_or_fewer_passes_than_others_would(tmp_path, monkeypatch):
    """Shards of 30,240 and 9,760 tokens: there are few minibatches in the second, which would need more passes."""
    monkeypatch.setattr(warm_start, "LEAST_TOKENS", 1 << 10)
    monkeypatch.setattr(warm_start, "FEW_TOKENS", 1)
    monkeypatch.setattr(warm_start, "FEWEST_TOPICS", 0)
    monkeypatch.setattr(warm_start, "FEWEST", 40)
    words = planted_documents(np.random.default_rng(4), topics=5, words_each=12, documents=1000, length=40).reshape(-1)
    offsets = np.append(0, np.arange(30_000, words.size + 1, 40))
    write_corpus(tmp_path / "whole", offsets, words, names_of_words(60), block_tokens=10_000)
    shards = make_shards(tmp_path / "whole", str(tmp_path / "shards"), RANKS, workers=1)
    spec = sampler_spec("two-phase", SPEC, {"start": "scvb0"}, on_ring=True)
    assert len({len(spec.build(shard).initial) for shard in shards}) == RANKS
    runs = train_all(tmp_path, [shard.path for shard in shards], topics=5, iterations=1, workers=None)
    assert SavedTopicModel(runs[0] / "model").topic_counts.sum() == words.size


def test_all_ranks_stop_when_the_first_one_stops_learning(tmp_path, data):
    """They wait for what it learns, and end as it does, without an error."""
    spec = sampler_spec("two-phase", SPEC, {"start": "scvb0"}, on_ring=True)

    def start(ring: Ring) -> bool:
        run = new_run(tmp_path / str(ring.rank), Dataset(data[0][ring.rank]), spec, 1)
        with open_engine(run, replace(plan(), in_process=True), ring=ring, staleness=1) as engine:
            return engine.start(lambda: ring.rank == 0)

    assert on_ring(RANKS, start) == [False] * RANKS
