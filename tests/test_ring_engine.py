"""Training on a ring: several engines in one process, each with workers of its own, over shards of one corpus."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from corpora import model_bytes, names_of_words, plan, random_documents
from long_mark import long_but
from rings import on_ring

from blocks import WorkFailed, write_corpus
from blocks.corpus.dataset import Dataset
from blocks.shards.splitting import make_shards
from ooc.runs.new_run import create_run
from ooc.runs.run import Run
from ooc.training import train
from ooc.workers.worker import ProgramSpec
from samplers.lda.programs import SAMPLERS, sampler_spec
from samplers.topics.model import SavedTopicModel

TOPICS, DOCUMENTS, WORDS = 6, 240, 90
NAMES = ["" if number % 7 == 3 else f"dokument nö {number}" * (number % 4) for number in range(DOCUMENTS)]


def spec(sampler: str = "two-phase", **options: object) -> ProgramSpec:
    return sampler_spec(sampler, {"topics": TOPICS, "alpha": 0.2, "beta": 0.05, "seed": 3} | options, {}, on_ring=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Dataset:
    offsets, words = random_documents(np.random.default_rng(2), DOCUMENTS, WORDS, 60)
    path = tmp_path_factory.mktemp("whole") / "dataset"
    grid = {"block_tokens": 900, "part_tokens": 300, "slices": 4}
    return write_corpus(path, offsets, words, names_of_words(WORDS), names=NAMES, **grid)


@pytest.fixture(scope="module")
def shards(whole, tmp_path_factory):
    """Datasets of a number of shards."""
    made: dict[int, list[Dataset]] = {}

    def shards_of(count: int) -> list[Dataset]:
        if count not in made:
            out = tmp_path_factory.mktemp("shards") / "out"
            made[count] = make_shards(whole.path, str(out), count, workers=1)  # type: ignore[assignment]
        return made[count]

    return shards_of


def train_all(runs: list[Run], workers: int = 1, buffers: int = 0) -> None:
    """Train a run at each rank of a ring."""
    on_ring(len(runs), lambda ring: train(runs[ring.rank], plan(workers, buffers), quiet=True, ring=ring))


def new_runs(
    root: Path, datasets: list[Dataset], iterations: int = 4, staleness: int = 1, **options: object
) -> list[Run]:
    root.mkdir(exist_ok=True)
    length = {"iterations": iterations, "evaluate_every": 2, "settings": {"staleness": staleness}}
    return [create_run(root / f"run-{i}", shard, spec(**options), **length) for i, shard in enumerate(datasets)]


def check_counts(model: SavedTopicModel, whole: Dataset) -> None:
    """All tokens are counted once in the rows of words, and once in those of documents."""
    assert list(model.problems()) == []
    frequencies = np.zeros(WORDS, int)
    frequencies[whole.index.word_ids] = whole.index.frequencies
    totals = np.zeros((2, TOPICS), int)
    for rows, total in zip((model.words, model.documents), totals, strict=True):
        np.add.at(total, rows.topics, rows.counts)
    assert np.array_equal(totals[0], model.topic_counts)
    assert np.array_equal(totals[1], model.topic_counts)
    assert np.array_equal(np.diff(np.append(0, np.cumsum(model.words.counts))[model.words.offsets]), frequencies)
    assert model.documents.offsets.size == whole.documents + 1


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 3])
def test_the_model_is_of_the_whole(tmp_path, whole, shards, ranks):
    """Every document's tokens are counted, in its original place; rows of words are the sums over documents; metrics
    are the same at all ranks."""
    runs = new_runs(tmp_path, shards(ranks))
    train_all(runs)
    model = SavedTopicModel(runs[0].path / "model")
    assert model.document_names() == NAMES
    check_counts(model, whole)
    for run in runs[1:]:
        assert not (run.path / "model").exists()
        assert [line["log_likelihood_per_token"] for line in run.metrics() if "nonzeros" in line] == [
            line["log_likelihood_per_token"] for line in runs[0].metrics() if "nonzeros" in line
        ]
    assert len(runs[0].metrics()) == 4


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "staleness"), long_but([(3, 2)], [(2, 0), (3, 2)]))
def test_the_bytes_do_not_depend_on_workers_or_memory(tmp_path, shards, ranks, staleness):
    """Workers may be done with slices in another order than they came in."""
    models = []
    for name, workers, buffers in (("a", 1, 0), ("b", 2, 3), ("c", 3, 0)):
        runs = new_runs(tmp_path / name, shards(ranks), staleness=staleness, iterations=8)
        train_all(runs, workers, buffers)
        models.append(model_bytes(runs[0].path))
    assert models[0] == models[1] == models[2]


ALIKE = [name for name in SAMPLERS if name not in {"two-phase", "lightlda", "splash"}]


@pytest.mark.long
@pytest.mark.parametrize("sampler", ["lightlda", *(pytest.param(name, marks=pytest.mark.long) for name in ALIKE)])
def test_document_major_samplers_go_round(tmp_path, whole, shards, sampler):
    """Rows that come to rest count every token of their words, wherever it is; the model does not depend on workers or
    memory, nor on a stop; it fits as well as that of one machine."""
    iterations = {"a": (12,), "b": (7, 12)}
    for name, workers, buffers in (("a", 1, 0), ("b", 2, 3)):
        runs = new_runs(tmp_path / name, shards(2), iterations[name][0], sampler=sampler)
        for planned in iterations[name]:
            for run in runs:
                run.set_iterations(planned)
            train_all(runs, workers, buffers)
    assert model_bytes(tmp_path / "a" / "run-0") == model_bytes(tmp_path / "b" / "run-0")
    check_counts(SavedTopicModel(runs[0].path / "model"), whole)
    alone = create_run(tmp_path / "alone", whole, program_of(sampler), iterations=12, evaluate_every=12, settings={})
    train(alone, plan(1), quiet=True)
    here, there = (run.metrics()[-1]["log_likelihood_per_token"] for run in (runs[0], alone))
    assert here == pytest.approx(there, rel=0.01)


def program_of(sampler: str) -> ProgramSpec:
    """The same chain on one machine, but for its random numbers and the order in which tokens have their turn."""
    start = {"start": "random"} if sampler == "sparse-gibbs" else {}
    options = {name: value for name, value in spec().options.items() if name != "on_ring"}
    return sampler_spec(sampler, options, start)


@pytest.mark.parametrize("buffers", long_but([3], [0, 3]))
def test_a_run_goes_on_to_the_same_bytes(tmp_path, shards, buffers):
    """After a stop, and where one rank has not made the last commit, or not told of it: those that have go back."""
    whole = new_runs(tmp_path / "whole", shards(2), iterations=5)
    train_all(whole)
    runs = new_runs(tmp_path / "parts", shards(2), iterations=2)
    train_all(runs, buffers=buffers)
    shutil.copytree(runs[1].path / "state", tmp_path / "before")
    runs[1].keep_metrics(1)
    for run in runs:
        run.set_iterations(3)
    train_all(runs, workers=2, buffers=buffers)
    if not buffers:  # streamed, there is a commit in each phase, and no rank is behind by two
        shutil.rmtree(runs[1].path / "state")
        shutil.copytree(tmp_path / "before", runs[1].path / "state")
    for run in runs:
        run.set_iterations(5)
    train_all(runs, buffers=buffers)
    assert model_bytes(runs[0].path) == model_bytes(whole[0].path)
    assert [line["iteration"] for line in runs[0].metrics()] == [1, 2, 3, 4, 5]
    assert len({run.metrics()[-1]["log_likelihood_per_token"] for run in (*runs, *whole)}) == 1


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("buffers", [0, 3])
@pytest.mark.parametrize("kind", ["cells", "h5"])
def test_all_ranks_go_back_where_the_newest_generation_of_one_is_damaged(tmp_path, shards, kind, buffers):
    """Its checksums do not match: found by that rank alone, when it reads the generation."""
    whole = new_runs(tmp_path / "whole", shards(2), iterations=4)
    train_all(whole)
    runs = new_runs(tmp_path / "parts", shards(2), iterations=1)
    for iterations in (1, 3):
        for run in runs:
            run.set_iterations(iterations)
        train_all(runs, buffers=buffers)
    newest = max((runs[1].path / "state").glob(f"*.{kind}"))
    with newest.open("r+b") as file:
        file.seek(newest.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 255]))
    for run in runs:
        run.set_iterations(4)
    train_all(runs, buffers=buffers)
    assert model_bytes(runs[0].path) == model_bytes(whole[0].path)


def test_ranks_with_other_state_or_none_are_refused(tmp_path, shards):
    """A rank that has lost its state is named; nothing is trained anew in silence."""
    runs = new_runs(tmp_path, shards(2), iterations=2)
    train_all(runs)
    shutil.rmtree(runs[1].path / "state")
    for run in runs:
        run.set_iterations(3)
    with pytest.raises(WorkFailed, match="rank 1 has no saved state"):
        train_all(runs)


@pytest.mark.long
def test_s_errors_are_told(tmp_path, shards):
    """Of each macro-step what the totals were off by, as a share of the tokens: with one rank nothing."""
    for ranks, staleness in ((1, 1), (2, 0), (2, 1)):
        runs = new_runs(tmp_path / f"{ranks}-{staleness}", shards(ranks), staleness=staleness)
        train_all(runs)
        errors = [line["s_error"] for line in runs[0].metrics()][1:]  # at first no proposal is another topic
        assert all(error == 0 if ranks == 1 else 0 < error < 1 for error in errors), (ranks, staleness, errors)
