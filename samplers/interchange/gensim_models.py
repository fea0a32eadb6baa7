"""Conversion to and from gensim's `LdaModel`, whose variational parameters are counts plus priors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from blocks.errors import RequestError
from samplers.interchange.topic_counts import model_of_weights
from samplers.topics.model import TopicModel, row_numbers

MODEL = "lda.model"  # prefix of all files of a saved model


def gensim_module() -> Any:
    """Return the gensim module.

    Raises RequestError if it is not installed.
    """
    try:
        import gensim.models
    except ImportError:
        raise RequestError(
            "the gensim format needs the package gensim, which is not installed",
            'Install it with: pip install "ooc[gensim]"',
        ) from None
    return gensim


def to_gensim(model: TopicModel) -> Any:
    """Return an `LdaModel` with the same topics, whose id2word is a `Dictionary` with the words in the same order."""
    gensim, eta = gensim_module(), _eta(model)
    dictionary = gensim.corpora.Dictionary()
    dictionary.token2id = {word: number for number, word in enumerate(model.vocabulary())}
    dictionary.num_docs = model.documents.offsets.size - 1
    found = gensim.models.LdaModel(
        num_topics=model.topics,
        id2word=dictionary,
        alpha=model.alpha / model.states,
        eta=eta,
        dtype=np.float64,
        random_state=0,
    )
    weights = model.word_shares() * ((model.topic_counts + model.vocabulary_size * model.beta) / model.states)[:, None]
    found.state.sstats = weights - eta
    found.state.numdocs = dictionary.num_docs
    found.sync_state()
    return found


def _eta(model: TopicModel) -> float | np.ndarray:
    """Return the prior of words: one number or, with a word prior, float64 (K, V).

    Raises RequestError for a weight of 0, whose logarithm gensim would take.
    """
    if model.prior is None:
        return model.beta / model.states
    eta = np.full((model.topics, model.vocabulary_size), model.beta)
    eta[model.prior.topics, row_numbers(model.prior)] += model.prior.counts
    if not (eta > 0).all():
        raise RequestError(
            "gensim needs positive priors, but some words of the model have the prior weight 0",
            "Choose another format, such as npz or parquet.",
        )
    return eta / model.states


def from_gensim(model: Any) -> TopicModel:
    """Return the topics of an `LdaModel`, as a model without documents."""
    words = [model.id2word[number] for number in range(model.num_terms)]
    return model_of_weights(model.state.get_lambda().astype(np.float64), np.array(model.alpha, np.float64), words)


def write_gensim(model: TopicModel, directory: Path) -> None:
    """Save an `LdaModel` to an empty directory; equal models give identical bytes."""
    found = to_gensim(model)
    for part in (found, found.state, found.id2word):
        part.lifecycle_events = None  # gensim would store the time and the path
    found.save(str(directory / MODEL), ignore=())  # the default is a set, whose order differs between processes


def read_gensim(path: Path, *, trust_pickle: bool = False) -> TopicModel:
    """Return the topics of a saved `LdaModel`.

    Raises RequestError unless its pickle is trusted, because reading a pickle can execute arbitrary code.
    """
    if not trust_pickle:
        raise RequestError(
            f"{path}: a gensim model is a pickle, and reading a pickle can execute arbitrary code",
            "If you trust the source of the file, add --trust-pickle.",
        )
    file = path / MODEL if path.is_dir() else path
    if not file.exists():
        raise RequestError(f"{file} does not exist", "Use the path that was passed to LdaModel.save.")
    return from_gensim(gensim_module().models.LdaModel.load(str(file)))
