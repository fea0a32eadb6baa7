"""Conversion to and from tomotopy's `LDAModel`, a collapsed Gibbs sampler that stores a topic for each token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from blocks.errors import RequestError, WorkFailed
from samplers.interchange.topic_counts import model_of_tokens
from samplers.topics.model import TopicModel
from samplers.topics.token_topics import TokenTopics

_MOST_TOPICS = (1 << 15) - 1
_UNKNOWN = "tomotopy {} saves models in a format that this version of ooc does not know"
_MARK = b"Zs\0"  # precedes a document in a saved model: its number of tokens, uint32, and topics, int16, by word


def tomotopy_module() -> Any:
    """Return the tomotopy module.

    Raises RequestError if it is not installed.
    """
    try:
        import tomotopy
    except ImportError:
        raise RequestError(
            "the tomotopy format needs the package tomotopy, which is not installed",
            'Install it with: pip install "ooc[tomotopy]"',
        ) from None
    return tomotopy


def from_tomotopy(model: Any) -> TopicModel:
    """Return the counts of an `LDAModel`, except for the words that it removed."""
    lengths = [len(document.words) for document in model.docs]
    words = np.concatenate([np.asarray(document.words, np.uint32) for document in model.docs])
    topics = np.concatenate([np.asarray(document.topics, np.int64) for document in model.docs])
    documents = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)
    kept = topics >= 0
    names = [document.uid for document in model.docs]
    return model_of_tokens(
        documents[kept],
        words[kept],
        topics[kept].astype(np.uint32),
        np.asarray(model.alpha, np.float64),
        float(model.eta),
        list(model.used_vocabs),
        names if all(names) else None,
        len(lengths),
    )


def read_tomotopy(path: Path) -> TopicModel:
    """Return the counts of an `LDAModel` that was saved with full=True."""
    module = tomotopy_module()
    try:
        return from_tomotopy(module.LDAModel.load(str(path)))
    except (OSError, ValueError, RuntimeError) as error:
        raise RequestError(f"{path} is not a full model saved by tomotopy's LDAModel.save: {error}") from None


def to_tomotopy(model: TopicModel, tokens: TokenTopics) -> Any:
    """Return an `LDAModel` whose tokens have the topics of a state; documents without tokens are left out.

    tomotopy has no function that sets topics. So a model of the same documents is saved, the topics in its file are
    replaced, and the file is loaded and compared with the state.
    Raises RequestError if there are more topics than tomotopy supports, and WorkFailed if the loaded model differs from
    the state.
    """
    if model.topics > _MOST_TOPICS:
        raise RequestError(f"tomotopy supports at most {_MOST_TOPICS:,} topics, but the model has {model.topics:,}")
    module, vocabulary, names = tomotopy_module(), model.vocabulary(), model.document_names()
    named = names is not None and len(set(names)) == len(names)
    filled, corpus = np.flatnonzero(np.diff(tokens.offsets)).tolist(), module.utils.Corpus()
    for number in filled:
        words = [vocabulary[word] for word in tokens.words[slice(*tokens.offsets[number : number + 2])]]
        corpus.add_doc(words, **({"uid": names[number]} if names and named else {}))
    found = module.LDAModel(k=model.topics, alpha=tokens.alpha.tolist(), eta=tokens.beta, seed=0, corpus=corpus)
    found.train(0, workers=1)
    changed = module.LDAModel.loads(_with_topics(found, _by_word(found, tokens, filled)))
    counts = np.array([changed.get_topic_word_dist(k) for k in range(model.topics)])
    expected = _topic_words(changed, model.topics).T + tokens.beta
    if not np.allclose(counts, expected / expected.sum(axis=1, keepdims=True), atol=1e-5):
        raise WorkFailed(_UNKNOWN.format(module.__version__))
    return changed


def write_tomotopy(model: TopicModel, path: Path, tokens: TokenTopics | None) -> None:
    """Save an `LDAModel` for further training or inference.

    Raises RequestError if there are no tokens.
    """
    if tokens is None:
        raise RequestError(
            "a tomotopy model contains the topic of each token, which this run no longer has",
            "Export a run whose state has not been removed.",
        )
    path.write_bytes(to_tomotopy(model, tokens).saves(full=True))


def _by_word(found: Any, tokens: TokenTopics, filled: list[int]) -> list[np.ndarray]:
    """Return the topics of each document, int16, in the order of tomotopy's word ids."""
    ordered = []
    for document, number in zip(found.docs, filled, strict=True):
        topics = tokens.topics[slice(*tokens.offsets[number : number + 2])]
        ordered.append(topics[np.argsort(document.words, kind="stable")].astype(np.int16))
    return ordered


def _topic_words(found: Any, topics: int) -> np.ndarray:
    """Return the topic-word counts of a tomotopy model, int32 (V, K)."""
    counts = np.zeros((len(found.used_vocabs), topics), np.int32)
    for document in found.docs:
        np.add.at(counts, (np.asarray(document.words), np.asarray(document.topics)), 1)
    return counts


def _with_topics(found: Any, topics: list[np.ndarray]) -> bytes:
    """Return the bytes of a saved model with the topics of its tokens, and their counts, replaced."""
    before = _topic_words(found, found.k)
    after, saved, at = np.zeros_like(before), bytearray(found.saves(full=True)), 0
    for document, document_topics in zip(found.docs, topics, strict=True):
        at = saved.find(_MARK + len(document_topics).to_bytes(4, "little"), at) + len(_MARK) + 4
        saved[at : at + document_topics.nbytes] = document_topics.tobytes()
        at += document_topics.nbytes
        np.add.at(after, (np.sort(document.words), document_topics), 1)
    return bytes(saved).replace(_counts_in_file(before), _counts_in_file(after))


def _counts_in_file(counts: np.ndarray) -> bytes:
    """Return the counts by topic, and by word and topic, in the format of the file, including shapes."""
    words, topics = counts.shape
    shapes = (np.array(shape, np.int32).tobytes() for shape in ((topics, 1), (topics, words)))
    arrays = counts.sum(axis=0, dtype=np.int32).tobytes(), counts.tobytes()
    return b"".join(part for pair in zip(shapes, arrays, strict=True) for part in pair)
