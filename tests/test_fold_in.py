"""Topics of new documents and document completion, against plain float64 twins over all topics."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from folded_documents import bag, dense_phi, documents_of, expected_counts

from blocks import Dataset, RequestError
from ooc.rng import random_bits, stream_key
from samplers.topics import fold_in
from samplers.topics.inference import evaluate, infer, model_topics
from samplers.topics.model import SavedTopicModel
from tests.corpora import new_documents, small_dataset, trained_model

TOPICS = 7


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SavedTopicModel:
    """A model of a small corpus after a few iterations, with asymmetric alpha."""
    alpha = [0.1 * (k + 1) for k in range(TOPICS)]
    return trained_model(tmp_path_factory.mktemp("model"), topics=TOPICS, alpha=alpha)


@pytest.fixture(scope="module")
def held_out(model: SavedTopicModel, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return new_documents(tmp_path_factory.mktemp("held-out") / "data", model)


def test_mixtures_agree_with_a_dense_twin(model: SavedTopicModel, held_out: Dataset, tmp_path: Path) -> None:
    """Rows are probabilities, in the order of the documents."""
    mixtures = infer(model, held_out, tmp_path, workers=2)["mixtures"]
    phi = dense_phi(model)
    unseen = model.beta / (model.topic_counts + model.vocabulary_size * model.beta)
    np.testing.assert_allclose(mixtures.sum(axis=1), 1, atol=1e-5)
    for document, words in enumerate(documents_of(held_out)):
        if words.size:
            theta = expected_counts(phi, unseen, model.alpha, *bag(held_out, words)) + model.alpha
            np.testing.assert_allclose(mixtures[document], theta / theta.sum(), atol=1e-5)


def test_an_empty_document_has_the_prior_mixture(model: SavedTopicModel, held_out: Dataset, tmp_path: Path) -> None:
    mixtures = infer(model, held_out, tmp_path, workers=1)["mixtures"]
    empty = [document for document, words in enumerate(documents_of(held_out)) if words.size == 0]
    assert empty
    np.testing.assert_allclose(mixtures[empty], np.tile(model.alpha / model.alpha.sum(), (len(empty), 1)), rtol=1e-6)


def test_top_topics_are_the_largest_of_the_mixture(model: SavedTopicModel, held_out: Dataset, tmp_path: Path) -> None:
    """For every number of topics, all of them included."""
    mixtures = infer(model, held_out, tmp_path, workers=1)["mixtures"]
    for top in (1, 3, TOPICS):
        topics, weights = infer(model, held_out, tmp_path, workers=1, top=top).values()
        np.testing.assert_allclose(weights, -np.sort(-mixtures, axis=1)[:, :top], rtol=1e-5)
        np.testing.assert_allclose(
            np.take_along_axis(np.asarray(mixtures), topics.astype(np.int64), 1), weights, rtol=1e-5
        )


def test_completion_agrees_with_a_dense_twin(model: SavedTopicModel, held_out: Dataset) -> None:
    """The likelihood of the predicted words under the kernel's own expected counts, computed densely."""
    topics, phi = model_topics(model), dense_phi(model)
    scratch = fold_in.new_scratch(model.topics)
    likelihood, predicted = 0.0, 0
    key = stream_key(3)
    for document, words in enumerate(documents_of(held_out)):
        different, times = bag(held_out, words)
        for i in range(different.size - 1, 0, -1):
            j = int(random_bits(np.uint64(random_bits(key, np.uint64(document))), np.uint64(i))) % (i + 1)
            different[[i, j]], times[[i, j]] = different[[j, i]], times[[j, i]]
        observed = (different.size + 1) // 2
        active, counts = fold_in.fold_in(different[:observed], times[:observed], topics, scratch)
        theta = model.alpha.copy()
        theta[active] += counts
        theta /= theta.sum()
        likelihood += float(times[observed:] @ np.log(theta @ phi[:, different[observed:]]))
        predicted += int(times[observed:].sum())
    found = evaluate(model, held_out, workers=2, seed=3)
    assert found["predicted_tokens"] == predicted
    assert found["predictive_log_likelihood_per_token"] == pytest.approx(likelihood / predicted, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(-likelihood / predicted), rel=1e-4)


def test_evaluation_does_not_depend_on_the_workers(model: SavedTopicModel, held_out: Dataset) -> None:
    assert evaluate(model, held_out, workers=1) == evaluate(model, held_out, workers=3)


@pytest.mark.parametrize("width", [32, 64, 96])
@pytest.mark.parametrize("used", [32, 64])
def test_the_result_does_not_depend_on_where_memory_lies(width: int, used: int) -> None:
    """Sums over arrays that chance had put close to each other were once taken in another order."""
    rng, different = np.random.default_rng(width), 5
    phi, times = rng.random((different, width)), rng.integers(1, 4, different)
    size = (2 * different + 3) * width
    memory, found = np.zeros(3 * size, np.float32), set()
    for place in range(64):
        for distance in (*range(-different - 20, -different + 1), *range(size, size + 20)):
            work = memory[place + 30 :][:size].reshape(-1, width)
            work[:] = 0
            work[:different], work[-2] = phi, 0.1
            there = memory[place + 30 + distance :][:different]
            there[:] = times
            for _ in range(4):
                fold_in.sweep(work, min(used, width), there)
            found.add(work[-3].tobytes())
    assert len(found) == 1


def test_a_model_without_counts_predicts_uniformly() -> None:
    """Every word then has probability 1 / V, whatever is observed: perplexity V exactly."""
    vocabulary, alpha = 50, np.array([0.2, 0.3, 0.5])
    none = (np.zeros(vocabulary + 1, np.int64), np.empty(0, np.uint8), np.empty(0, np.uint32))
    word_ids, numbers = np.arange(vocabulary, dtype=np.uint32), np.zeros(1, np.uint64)
    for array in (*none, word_ids, numbers):
        array.setflags(write=False)  # as mapped files are: what the cache of compiled kernels holds fits
    scale = np.full(3, 1 / (vocabulary * 0.1))
    prior = fold_in.prior_of_words(*none, scale, alpha, 0.1)
    topics = fold_in.FoldInModel(*none, scale, alpha, 0.1, prior)
    ranks = np.arange(20, dtype=np.uint32)
    likelihood, predicted = fold_in.completion_likelihood(
        np.array([0, 20]), ranks, word_ids, topics, numbers, np.uint64(1)
    )
    assert predicted.tolist() == [10]
    assert likelihood[0] / 10 == pytest.approx(-math.log(vocabulary), rel=1e-12)


def test_another_vocabulary_is_refused(model: SavedTopicModel, tmp_path: Path) -> None:
    other = small_dataset(tmp_path / "other", vocabulary=150)
    with pytest.raises(RequestError, match="different vocabularies"):
        evaluate(model, other, workers=1)
