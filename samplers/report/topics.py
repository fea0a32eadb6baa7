"""Report section of a topic model: map of the topics, their words, sizes, correlations and documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from samplers.report.section import ReportSection
from samplers.report.topic_charts import MOST_CORRELATED, MOST_JOINED, charts
from samplers.topics.excerpts import Pieces
from samplers.topics.labels import labels_of
from samplers.topics.model import SavedTopicModel, TopicModel, additions_at
from samplers.topics.relevance import LEVELS, RelevantWords, relevant_words, word_totals
from samplers.topics.results import top_entries
from samplers.topics.topic_documents import add_texts
from samplers.topics.topic_map import TopicShareStatistics, document_shares, plane, similarities

MOST_TOPICS = 500  # maximum number of topics shown, the largest ones
WORDS, TOP, DOCUMENTS, NEIGHBOURS = 30, 10, 8, 6  # number of words, of top words, and so on shown per topic
HOLDERS = 8  # topics shown per word
_DIGITS = 6


def section(model: TopicModel, data: Path | None = None) -> ReportSection:
    """Return the section of a trained topic model.

    data: path of the training dataset, if it has been moved.

    A slot is the rank of a topic in descending order of tokens.
    """
    order = np.argsort(-model.topic_tokens, kind="stable")[:MOST_TOPICS]
    slots = np.full(model.topics, -1, np.int64)
    slots[order] = np.arange(order.size)
    relevant = relevant_words(model, slots, WORDS)
    shares = document_shares(model.documents, slots)
    similar = similarities(model, slots)
    mapped = plane(similar)
    listed = np.unique(np.concatenate(relevant.words))
    words = _words(model, slots, listed)
    topics = _topics(model, order, relevant, listed, shares, mapped.places)
    labels = labels_of(model)
    for topic, documents in zip(topics, _documents(model, order, data), strict=True):
        best = np.argsort(-np.array(topic["counts"]), kind="stable")[:TOP]
        topic |= {"documents": documents, "top": [words["vocabulary"][topic["words"][place]] for place in best]}
        topic["label"] = labels.get(topic["topic"], "")
    found = {
        "tiles": _tiles(model),
        "all": model.topics,
        "kept": mapped.kept,
        "step": float(LEVELS[1]),
        "shown": WORDS,
        "beta": model.beta,
        "states": model.states,
        "correlated": min(order.size, MOST_CORRELATED),
        "joined": min(order.size, MOST_JOINED),
        **words,
        "topics": topics,
    }
    return ReportSection(
        "topics", "Topics", found, charts(topics, shares.correlations, np.sqrt(np.maximum(1.0 - similar, 0.0)))
    )


def _tiles(model: TopicModel) -> list[tuple[str, str]]:
    return [
        ("topics", f"{model.topics:,}"),
        *([("live topics", f"{live:,}")] if (live := int(model.live.sum())) < model.topics else []),
        ("tokens", f"{int(model.documents.counts.sum()) / model.states:,.0f}"),
        ("vocabulary", f"{model.vocabulary_size:,}"),
        ("documents", f"{model.documents.offsets.size - 1:,}"),
    ]


def _words(model: TopicModel, slots: np.ndarray, listed: np.ndarray) -> dict[str, Any]:
    """Return the listed words, their tokens, the topics with most of their tokens, and the tokens of all words."""
    totals, vocabulary = word_totals(model), model.vocabulary()
    return {
        "vocabulary": [vocabulary[word] for word in listed.tolist()],
        "totals": _rounded(totals[listed]),
        "tokens": max(float(totals.sum()), 1.0),
        "holders": _holders(model, slots, listed),
    }


def _topics(
    model: TopicModel,
    order: np.ndarray,
    relevant: RelevantWords,
    listed: np.ndarray,
    shares: TopicShareStatistics,
    places: np.ndarray,
) -> list[dict[str, Any]]:
    """Return, for each topic, its index, size, words (as indices into `listed`), map position and neighbours."""
    tokens = model.topic_tokens
    total = max(float(tokens.sum()), 1.0)
    return [
        {
            "topic": k,
            "share": round(float(tokens[k]) / total, _DIGITS),
            "mass": float(model.topic_counts[k]) + model.vocabulary_size * model.beta,
            "words": np.searchsorted(listed, relevant.words[slot]).tolist(),
            "counts": _rounded(relevant.counts[slot]),
            "x": round(float(places[slot, 0]), _DIGITS),
            "y": round(float(places[slot, 1]), _DIGITS),
            "largest": int(shares.largest[slot]),
            "present": int(shares.present[slot]),
            "neighbours": _neighbours(shares.correlations[slot], slot),
        }
        | _tokens(model, k, relevant.words[slot], relevant.counts[slot])
        for slot, k in enumerate(order.tolist())
    ]


def _tokens(model: TopicModel, topic: int, words: np.ndarray, counts: np.ndarray) -> dict[str, list[float]]:
    """Return the tokens of words in a topic, if their counts also have additions of a word prior."""
    if model.prior is None:
        return {}
    return {"tokens": _rounded(np.maximum(counts - additions_at(model.prior, words, np.full(words.size, topic)), 0.0))}


def _neighbours(correlations: np.ndarray, slot: int) -> list[tuple[int, float]]:
    """Return the topics with the largest positive correlations with the topic in a slot."""
    order = [other for other in np.argsort(-correlations, kind="stable").tolist() if other != slot]
    return [(other, round(float(correlations[other]), 3)) for other in order[:NEIGHBOURS] if correlations[other] > 0]


def _documents(model: TopicModel, order: np.ndarray, data: Path | None) -> list[list[tuple[str, float, int, Pieces]]]:
    """Return, for each topic, the documents with its largest shares: name, share in the trained mixture, number of
    tokens, and the pieces of an excerpt of the text, if texts were kept."""
    names, lengths = model.document_names(), model.document_lengths()
    rows, weights = top_entries(model.documents, model.alpha, DOCUMENTS, per_row=True)
    topics = order.tolist()
    listed: list[dict[str, Any]] = [
        {"topic": k, "documents": [{"document": row} for row in rows[k].tolist() if row >= 0]} for k in topics
    ]
    if isinstance(model, SavedTopicModel):
        add_texts(model, listed, data)
    return [
        [
            (
                names[each["document"]] if names else f"document {each['document'] + 1:,}",
                round(weight, 4),
                int(lengths[each["document"]]),
                each.get("pieces", []),
            )
            for each, weight in zip(topic["documents"], weights[topic["topic"]].tolist(), strict=False)
        ]
        for topic in listed
    ]


def _holders(model: TopicModel, slots: np.ndarray, listed: np.ndarray) -> list[list[tuple[int, float]]]:
    """Return, for each listed word, the topics with most of its tokens, as slot and fraction of the word's tokens."""
    offsets, topics, counts = model.words
    found = []
    for word in listed.tolist():
        of_word = topics[offsets[word] : offsets[word + 1]]
        places, shares = slots[of_word], np.asarray(counts[offsets[word] : offsets[word + 1]], float)
        shares = np.maximum(shares - additions_at(model.prior, np.full(of_word.size, word), of_word), 0.0)
        shares /= shares.sum()
        best = [entry for entry in np.argsort(-shares, kind="stable")[:HOLDERS].tolist() if places[entry] >= 0]
        found.append([(int(places[entry]), round(float(shares[entry]), 3)) for entry in best])
    return found


def _rounded(numbers: np.ndarray) -> list[float]:
    """Return integers unchanged and other numbers rounded to three decimals, to keep the page small."""
    return [int(number) if number == int(number) else round(number, 3) for number in numbers.tolist()]
