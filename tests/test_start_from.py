"""`ooc train lda --from`: a model of more documents and new words keeps the topics of an earlier one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import Ooc, assert_refused
from corpora import model_bytes
from rings import on_ring

from blocks.shards.splitting import make_shards
from ooc.ring.ring import Ring
from samplers import LatentDirichletAllocation
from samplers.lda import start_from_model
from samplers.lda.training import train_lda
from samplers.topics.model import SavedTopicModel

THEMES = {theme: [f"{theme}{letter}" for letter in "abcdefghij"] for theme in ("art", "law", "sea", "sun", "war")}


def texts(documents: int, seed: int, *, new: bool) -> list[str]:
    """Documents of two themes each, the later ones with words of their themes that the earlier ones lack."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(documents):
        first, second = rng.choice([*THEMES], 2, replace=False)
        words = [rng.choice(THEMES[first] if rng.random() < 0.7 else THEMES[second]) for _ in range(30)]
        found.append(" ".join([*words, *([f"new{first}{rng.integers(3)}" for _ in range(6)] if new else [])]))
    return found


@pytest.fixture(scope="module")
def folder(ooc_in, tmp_path_factory) -> Path:
    """Two corpora, and a run on the first, with a label."""
    path = tmp_path_factory.mktemp("start-from")
    ooc = ooc_in(path)
    for name, written in (("old", texts(300, 1, new=False)), ("new", texts(400, 2, new=True))):
        (path / f"{name}.txt").write_text("\n".join(written) + "\n")
        assert ooc("ingest", "text", "--lines", f"{name}.txt", name).returncode == 0
    assert ooc("train", "lda", "old", "first", "--topics", 5, "--iterations", 40, "--workers", 1).returncode == 0
    assert ooc("label", "first", 2, "the third").returncode == 0
    return path


@pytest.fixture
def ooc(ooc_in, folder: Path) -> Ooc:
    return ooc_in(folder)


def shares(ooc: Ooc, run: str, folder: Path) -> tuple[np.ndarray, list[str]]:
    """The share of each word in each topic, from the exported counts."""
    assert ooc("export", run, f"{run}.npz", "--overwrite").returncode == 0
    with np.load(folder / f"{run}.npz") as found:
        sizes, topics = np.diff(found["word_offsets"]), found["word_topics"]
        counts = np.zeros((found["alpha"].size, sizes.size))
        counts[topics, np.repeat(np.arange(sizes.size), sizes)] = found["word_counts"]
        return counts / counts.sum(axis=1, keepdims=True), found["vocabulary"].tolist()


def overlaps(before: tuple[np.ndarray, list[str]], after: tuple[np.ndarray, list[str]]) -> np.ndarray:
    """The Bhattacharyya coefficient of each topic of one model with each topic of the other."""
    common = [word for word in before[1] if word in after[1]]
    first, second = (np.sqrt(found[:, [words.index(word) for word in common]]) for found, words in (before, after))
    return first @ second.T


@pytest.mark.parametrize("sampler", ["two-phase", "sparse-gibbs"])
def test_topics_keep_their_numbers_and_labels(ooc, folder, sampler):
    run = f"second-{sampler}"
    how = ("--topics", 5, "--iterations", 2, "--from", "first", "--sampler", sampler)
    assert ooc("train", "lda", "new", run, *how, "--workers", 1).returncode == 0
    before, after = shares(ooc, "first", folder), shares(ooc, run, folder)
    found = overlaps(before, after)
    assert np.array_equal(found.argmax(axis=0), np.arange(5))
    described = {each["topic"]: each for each in json.loads(ooc("topics", run, "--since", "first", "--json").stdout)}
    assert described[2]["label"] == "the third"
    for topic, each in described.items():
        change = dict(zip(after[1], after[0][topic], strict=True))
        for word, share in zip(before[1], before[0][topic], strict=True):
            change[word] = change.get(word, 0.0) - share
        assert np.isclose(each["changes"]["distance"], np.sqrt(1.0 - found[topic, topic]))
        for side, sign in (("gained", 1), ("lost", -1)):
            told = {entry["word"]: entry["change"] for entry in each["changes"][side]}
            assert np.allclose([change[word] for word in told], [*told.values()])
            largest = np.sort(sign * np.array([*change.values()]))[:-6:-1]
            assert np.allclose([*told.values()], sign * largest[largest > 0.0])
    table = ooc("topics", run, "--since", "first", "--csv", f"{run}.csv", "--overwrite")
    assert table.returncode == 0
    assert (folder / f"{run}.csv").read_text().splitlines()[0].endswith(",words,distance,gained,lost")


def test_new_words_go_to_the_topics_of_their_documents(ooc, folder):
    """And not to a topic that is nearly empty, in which any word that is not in the earlier model looks likely."""
    (folder / "rare.txt").write_text("\n".join([*texts(300, 1, new=False), "rare rare"]) + "\n")
    barred = [f"5,{word},0" for words in THEMES.values() for word in words]
    (folder / "prior.csv").write_text("\n".join(["topic,word,weight", *barred]) + "\n")
    assert ooc("ingest", "text", "--lines", "rare.txt", "rare").returncode == 0
    prior = ("--topics", 6, "--iterations", 10, "--topic-word-prior", "prior.csv")
    assert ooc("train", "lda", "rare", "six", *prior).returncode == 0
    assert ooc("train", "lda", "new", "words", "--topics", 6, "--iterations", 1, "--from", "six").returncode == 0
    found = {each["topic"]: each["tokens"] for each in json.loads(ooc("topics", "words", "--json").stdout)}
    assert found[5] < 0.01 * sum(found.values())


def test_same_bytes_for_any_workers_and_without_the_earlier_run(ooc, folder):
    """Only the start of a training reads the earlier model."""
    how = ("--topics", 5, "--from", "copy", "--sampler", "two-phase", "--seed", 4)
    assert ooc("train", "lda", "old", "copy", "--topics", 5, "--iterations", 5).returncode == 0
    assert ooc("train", "lda", "new", "one", *how, "--workers", 1, "--iterations", 4).returncode == 0
    assert ooc("train", "lda", "new", "two", *how, "--workers", 2, "--iterations", 2).returncode == 0
    (folder / "copy").rename(folder / "moved")
    assert ooc("resume", "two", "--iterations", 4).returncode == 0
    assert model_bytes(folder / "one") == model_bytes(folder / "two")


def test_the_estimator_goes_on_from_a_run(folder):
    """Each topic of the fitted estimator is closest to the topic with the same number in the earlier run."""
    documents = texts(200, 5, new=True)
    how = {"n_components": 5, "max_iter": 2, "stop_words": None, "random_state": 1, "n_jobs": 1}
    first = LatentDirichletAllocation.from_run(folder / "first")
    before = first.topic_word_, list(first.vocabulary_)
    found = LatentDirichletAllocation(**how, start_from=folder / "first").fit(documents)
    assert np.array_equal(overlaps(before, (found.topic_word_, list(found.vocabulary_))).argmax(axis=0), np.arange(5))


def test_two_machines_go_on_from_the_run_of_the_first(folder, tmp_path, monkeypatch):
    """Only the first machine reads the run, and the documents of both begin with topics as likely as on one machine."""
    opened = []
    monkeypatch.setattr(start_from_model, "SavedTopicModel", lambda path: opened.append(path) or SavedTopicModel(path))
    paths = [shard.path for shard in make_shards(folder / "new", str(tmp_path / "shards"), 2, workers=1)]
    how = {"topics": 5, "iterations": 1, "evaluate_every": 1, "workers": 1, "quiet": True}
    runs = [tmp_path / f"run-{rank}" for rank in range(2)]
    earlier = [folder / "first", tmp_path / "missing"]

    def train(ring: Ring) -> None:
        train_lda(paths[ring.rank], runs[ring.rank], ring=ring, start_from=earlier[ring.rank], **how)

    on_ring(2, train)
    assert len(opened) == 1
    train_lda(folder / "new", tmp_path / "alone", start_from=folder / "first", **how)
    first, second = (LatentDirichletAllocation.from_run(run) for run in (folder / "first", runs[0]))
    found = overlaps(*((each.topic_word_, list(each.vocabulary_)) for each in (first, second)))
    assert np.array_equal(found.argmax(axis=0), np.arange(5))
    told = [json.loads((run / "metrics.jsonl").read_text()) for run in (runs[0], tmp_path / "alone")]
    likelihoods = [line["log_likelihood_per_token"] for line in told]
    assert likelihoods[0] == pytest.approx(likelihoods[1], abs=0.1)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--topics", 4, "--from", "first"], "--from first: its model has 5 topics, but --topics is 4"),
        (["--topics", 5, "--from", "nowhere"], "nowhere: there is no such file or directory"),
        (["--topics", 5, "--from", "old"], "old is not a run made by `ooc train`"),
        (["--topics", 5, "--from", "first", "--start", "random"], "--start random cannot be used with --from"),
        (["--topics", 5, "--from", "first", "--sampler", "splash"], "--from cannot be used with --sampler splash"),
    ],
)
def test_mistakes(ooc, folder, more, said):
    assert_refused(ooc("train", "lda", "new", "refused", *more), said)
    assert not (folder / "refused").exists()


def test_comparison_with_another_number_of_topics(ooc):
    assert ooc("train", "lda", "old", "fewer", "--topics", 3, "--iterations", 1).returncode == 0
    assert_refused(ooc("topics", "first", "--since", "fewer"), "the earlier model has 3 topics, and this one 5")
