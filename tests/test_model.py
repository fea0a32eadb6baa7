"""Models on disk: rows in the order of the vocabulary and of the documents, and damage that is found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from corpora import InProcessProgram, names_of_words, program_spec, random_documents

from blocks import Dataset, RequestError, WorkFailed, write_corpus
from samplers import external_sort
from samplers.topics.model import SavedTopicModel, write_model

TOPICS = 9


@pytest.fixture(scope="module", params=[external_sort.RUN, 40], ids=["one-run", "many-runs"])
def exported(request, tmp_path_factory) -> tuple[Path, np.ndarray, np.ndarray]:
    """A model of named documents, with the counts of documents and words that it should hold."""
    directory = tmp_path_factory.mktemp("exported")
    offsets, words = random_documents(np.random.default_rng(8), 90, 70, 40)
    names = [f"document {number}" for number in range(90)]
    grid = {"block_tokens": 300, "part_tokens": 90, "slices": 3}
    dataset = write_corpus(directory / "dataset", offsets, words, names_of_words(70), names=names, **grid)
    alpha = np.linspace(0.1, 2, TOPICS).tolist()
    with InProcessProgram(dataset, program_spec(topics=TOPICS, alpha=alpha, beta=0.02)) as chain:
        chain.iterate(2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(external_sort, "RUN", request.param)
            chain.export(directory / "model")
        return directory / "model", *chain.counts()


@pytest.fixture
def model_copy(exported, tmp_path) -> Path:
    for file in exported[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_a_model_holds_counts_priors_and_names(exported):
    path, documents, words = exported
    model = SavedTopicModel(path)
    for rows, counts in ((model.documents, documents), (model.words, words)):
        assert rows.topics.tolist() == np.nonzero(counts)[1].tolist()
        assert rows.counts.tolist() == counts[counts > 0].tolist()
        assert np.diff(rows.offsets).tolist() == (counts > 0).sum(axis=1).tolist()
    assert np.array_equal(model.alpha, np.linspace(0.1, 2, TOPICS))
    assert (model.topics, model.beta, model.vocabulary_size) == (TOPICS, 0.02, 70)
    assert model.vocabulary() == names_of_words(70)
    assert model.document_names() == [f"document {number}" for number in range(90)]
    assert list(model.problems()) == []


def test_nothing_but_the_model_is_left_in_its_directory(exported):
    names = {"model.json", "topics.h5", "words.h5", "documents.h5", "vocabulary.txt", "documents.txt"}
    assert {file.name for file in exported[0].iterdir()} == names


@pytest.mark.parametrize("name", ["topics.h5", "words.h5", "documents.h5", "vocabulary.txt", "documents.txt"])
def test_every_damaged_file_is_named(model_copy, name):
    file = model_copy / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert [name in problem for problem in SavedTopicModel(model_copy).problems()] == [True]


@pytest.mark.parametrize("name", ["topics.h5", "words.h5", "documents.h5"])
def test_a_model_cut_short_or_in_part_is_not_opened(model_copy, name):
    content = (model_copy / name).read_bytes()
    (model_copy / name).write_bytes(content[:-1])
    with pytest.raises(WorkFailed, match=f"{name} is damaged"):
        SavedTopicModel(model_copy)
    (model_copy / name).unlink()
    with pytest.raises(WorkFailed, match=f"{name} is missing"):
        SavedTopicModel(model_copy)


def test_a_directory_that_is_no_model_or_of_another_schema_is_refused(model_copy, tmp_path_factory):
    with pytest.raises(RequestError, match="is not a trained model"):
        SavedTopicModel(tmp_path_factory.mktemp("nothing"))
    manifest = json.loads((model_copy / "model.json").read_text())
    (model_copy / "model.json").write_text(json.dumps({**manifest, "schema": 2}))
    with pytest.raises(RequestError, match="schema version 2"):
        SavedTopicModel(model_copy)


def test_an_export_that_fails_leaves_no_spools(exported, tmp_path):
    """Rows that stop coming, as when a worker dies: no file that could be taken for a model."""

    def rows():
        yield np.ones(1, np.uint32), np.ones(1, np.uint64)
        raise WorkFailed("a worker died")

    dataset = Dataset(exported[0].parent / "dataset")
    with pytest.raises(WorkFailed, match="a worker died"):
        write_model(
            tmp_path,
            dataset,
            alpha=np.ones(TOPICS),
            beta=0.1,
            topic_counts=np.zeros(TOPICS, np.int64),
            topic_type="uint16",
            word_rows=rows(),
            document_rows=rows(),
        )
    assert {file.name for file in tmp_path.iterdir()} <= {"topics.h5"}
