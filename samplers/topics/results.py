"""Describe a trained topic model: top words, sizes, top documents, and export as .npz."""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from blocks.compiled import kernel
from blocks.errors import RequestError
from blocks.npz import write_npz
from samplers.factorization.model import Factorization
from samplers.regression.model import RegressionModel
from samplers.regression.softmax.model import SoftmaxModel
from samplers.topics.changes import topic_changes
from samplers.topics.frex import RANKINGS, ranked_words
from samplers.topics.labels import label_list, labels_of
from samplers.topics.model import TopicCountRows, TopicModel
from samplers.topics.topic_map import document_shares

_CHANGED = 5  # number of words that rose most, and of words that fell most, listed for each topic
_TITLES = {"frex": "FREX", "lift": "lift", "c-tf-idf": "c-TF-IDF"}


@kernel
def _top_entries(offsets, topics, counts, alpha, per_row, top_rows, top_weights):
    """Find the rows with the largest weights for each topic, in descending order; ties keep row order.

    offsets, topics, counts: sparse rows.
    alpha: float64 (K,).
    per_row: whether weights are fractions of the row, (n + alpha_k) / (n_row + abar), instead of counts.
    top_rows: int64 (K, T), set, -1 where there are fewer rows.
    top_weights: float64 (K, T), set, 0 where there are fewer rows.
    """
    top = top_rows.shape[1]
    mass = alpha.sum()
    for row in range(offsets.size - 1):
        first, last = offsets[row], offsets[row + 1]
        total = counts[first:last].sum() + mass
        for entry in range(first, last):
            k = topics[entry]
            weight = (counts[entry] + alpha[k]) / total if per_row else float(counts[entry])
            if weight <= top_weights[k, top - 1]:
                continue
            place = top - 1
            while place and weight > top_weights[k, place - 1]:
                top_rows[k, place] = top_rows[k, place - 1]
                top_weights[k, place] = top_weights[k, place - 1]
                place -= 1
            top_rows[k, place] = row
            top_weights[k, place] = weight


def top_entries(rows: TopicCountRows, alpha: np.ndarray, top: int, *, per_row: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows in which each topic has the largest weights, int64 (K, top), and the weights, float64 (K, top);
    see `_top_entries`."""
    top_rows = np.full((alpha.size, top), -1, np.int64)
    top_weights = np.zeros((alpha.size, top))
    _top_entries(*rows, alpha, per_row, top_rows, top_weights)
    return top_rows, top_weights


def describe_topics(
    model: TopicModel,
    *,
    top: int,
    documents: int,
    ranking: str = RANKINGS[0],
    correlated: int = 0,
    earlier: TopicModel | None = None,
) -> list[dict[str, Any]]:
    """Return the topics in descending order of size, with index, tokens, share of all tokens, whether the topic is live
    (see `live_topics`), top words with phi, and top documents with theta of the trained mixtures.

    ranking: how words are ranked, see `samplers.topics.frex`. Unless they are ranked by probability, each word has a
        `score`.
    correlated: number of topics to list with each topic, those with the largest positive correlations over documents.
    earlier: model with which to compare the topics (`samplers.topics.changes`).
    Raises RequestError for an unknown ranking, or an earlier model with another number of topics.
    """
    if ranking not in RANKINGS:
        raise RequestError(f"--rank-words-by: unknown ranking {ranking!r}", f"Choose one of: {', '.join(RANKINGS)}.")
    vocabulary = model.vocabulary()
    names, lengths = (model.document_names(), model.document_lengths()) if documents else (None, None)
    words, counts, scores = (
        (*top_entries(model.words, model.alpha, top, per_row=False), None)
        if ranking == RANKINGS[0]
        else ranked_words(model, ranking, top)
    )
    alike = correlated_topics(model, correlated) if correlated else None
    changes = topic_changes(model, earlier, _CHANGED) if earlier else None
    rows, shares = top_entries(model.documents, model.alpha, documents, per_row=True) if documents else (None, None)
    masses, live, tokens = model.topic_counts + model.vocabulary_size * model.beta, model.live, model.topic_tokens
    labels, described = labels_of(model), []
    for k in np.argsort(-tokens, kind="stable").tolist():
        size = float(tokens[k])
        topic: dict[str, Any] = {
            "topic": k,
            "label": labels.get(k),
            "tokens": round(size / model.states),
            "share": size / max(float(tokens.sum()), 1.0),
            "live": bool(live[k]),
            "words": [
                {"word": vocabulary[word], "weight": (count + model.beta) / float(masses[k])}
                | ({"score": float(scores[k, place])} if scores is not None else {})
                for place, (word, count) in enumerate(zip(words[k].tolist(), counts[k].tolist(), strict=True))
                if word >= 0
            ],
        }
        if alike is not None:
            topic["correlated"] = [{"topic": other, "correlation": r} for other, r in alike[k]]
        if changes is not None:
            topic["changes"] = changes[k]
        if rows is not None and shares is not None and lengths is not None:
            topic["documents"] = _top_documents(rows[k], shares[k], names, lengths)
        described.append(topic)
    return described


def _top_documents(
    rows: np.ndarray, shares: np.ndarray, names: Sequence[str] | None, lengths: np.ndarray
) -> list[dict[str, Any]]:
    """Return the top documents of a topic.

    rows, shares: see `top_entries`.
    names, lengths: names and numbers of tokens of all documents.
    """
    return [
        {"document": row, "name": names[row] if names else str(row + 1), "tokens": int(lengths[row]), "weight": share}
        for row, share in zip(rows.tolist(), shares.tolist(), strict=True)
        if row >= 0
    ]


def one_line(value: object, width: int = 80) -> str:
    """Return a document's value as one line of text, at most `width` letters long."""
    text = " ".join(str(value).split())
    return text if len(text) <= width else f"{text[: width - 1]}…"


def correlated_topics(model: TopicModel, number: int) -> list[list[tuple[int, float]]]:
    """Return, for each topic, the topics with the largest positive correlations of their shares over documents."""
    correlations = document_shares(model.documents, np.arange(model.topics)).correlations
    np.fill_diagonal(correlations, 0.0)
    return [
        [(other, float(row[other])) for other in np.argsort(-row, kind="stable")[:number].tolist() if row[other] > 0]
        for row in correlations
    ]


def write_topics(described: list[dict[str, Any]], file: IO[str]) -> None:
    """Write topics as CSV, one row per topic; `ooc label --from` reads labels from the first two columns."""
    writer = csv.writer(file)
    for number, topic in enumerate(described):
        row = {name: topic[name] for name in ("topic", "label", "tokens")} | {"share": f"{topic['share']:.6g}"}
        row |= {"words": ", ".join(word["word"] for word in topic["words"])}
        if "correlated" in topic:
            row["correlated"] = _correlated(topic)
        if changes := topic.get("changes"):
            row |= {"distance": f"{changes['distance']:.6g}"}
            row |= {side: ", ".join(each["word"] for each in changes[side]) for side in ("gained", "lost")}
        if not number:
            writer.writerow(row)
        writer.writerow(row.values())


def _correlated(topic: dict[str, Any]) -> str:
    return ", ".join(f"{each['topic']} ({each['correlation']:.2f})" for each in topic["correlated"])


def _changed_words(changes: dict[str, Any]) -> str:
    """Return the words whose shares rose and fell most, with the changes in percent of the topic."""
    sides = (
        ", ".join(f"{each['word']} {100 * each['change']:+.1f}" for each in changes[k]) for k in ("gained", "lost")
    )
    return "".join(f"; {words}" for words in sides if words)


def topics_table(described: list[dict[str, Any]], ranking: str = RANKINGS[0]) -> str:
    """Return a table of topics as text: index, share of all tokens, and words with their weights in percent."""
    lines = []
    for topic in described:
        words = "  ".join(f"{entry['word']} {100 * entry['weight']:.1f}" for entry in topic["words"])
        label = f"{topic['label']}: " if topic["label"] else ""
        lines.append(f"{topic['topic']:>7}  {100 * topic['share']:5.2f}%  {label}{words}")
        if topic.get("correlated"):
            lines.append(f"{'':17}correlated with {_correlated(topic)}")
        if changes := topic.get("changes"):
            lines.append(f"{'':17}distance {changes['distance']:.2f}{_changed_words(changes)}")
        for entry in topic.get("documents", ()):
            lines.append(f"{'':17}{100 * entry['weight']:5.1f}%  {entry['name']} ({entry['tokens']:,} tokens)")
            if "text" in entry:
                lines += textwrap.wrap(entry["text"], 110, initial_indent=" " * 25, subsequent_indent=" " * 25)
    ranked = "" if ranking == RANKINGS[0] else f" by {_TITLES[ranking]}"
    return "\n".join([f"{'topic':>7}  {'tokens':>6}  words{ranked} (percent of the topic)", *lines])


def export_npz(model: TopicModel | Factorization | RegressionModel | SoftmaxModel, path: Path) -> None:
    """Write the whole model as .npz: numeric and string arrays in the original order."""
    if isinstance(model, SoftmaxModel):
        write_npz(path, model.arrays)
    elif isinstance(model, RegressionModel):
        write_npz(path, _of_regression(model))
    else:
        write_npz(path, _of_topics(model) if isinstance(model, TopicModel) else _of_factors(model))


def _of_regression(model: RegressionModel) -> dict[str, np.ndarray]:
    """Return the arrays of coefficients.h5 (see `samplers.regression.model`), and chosen, int64 (), index of the chosen
    lambda; classes, float64 (2,), or (0,) if y is not classes; column_names, str (p,), if there are any.
    """
    arrays = {**model.arrays, "chosen": np.array(model.chosen), "classes": np.array(model.classes, np.float64)}
    if names := model.column_names():
        arrays["column_names"] = np.array(names)
    return arrays


def _of_factors(model: Factorization) -> dict[str, np.ndarray]:
    """Return rank, int64 (), and mean, float64 (); rows and columns, str (n,); row_factors and column_factors, float32
    (n, R); row_biases and column_biases, float32 (n,)."""
    arrays = {"rank": np.array(model.rank), "mean": np.array(model.mean)}
    for name, side in (("row", model.rows), ("column", model.columns)):
        arrays |= {f"{name}s": np.array(side.names), f"{name}_factors": side.factors, f"{name}_biases": side.biases}
    return arrays


def _of_topics(model: TopicModel) -> dict[str, np.ndarray]:
    """Return alpha, float64 (K,), beta, float64 (), states, int64 (), and topic_tokens, int64 (K,); word_offsets, int64
    (V+1,), word_topics and word_counts: the topics of word i and their counts are at word_offsets[i] :
    word_offsets[i+1]; with a word prior, whose additions to beta word_counts include, prior_offsets, prior_topics and
    prior_additions likewise; document_offsets, int64 (D+1,), document_topics and document_counts likewise; vocabulary,
    str (V,); document_names, str (D,), if documents have names; labels, str (K,), if topics have labels.
    """
    arrays: dict[str, np.ndarray] = {
        "alpha": model.alpha,
        "beta": np.array(model.beta),
        "states": np.array(model.states),
        "topic_tokens": model.topic_tokens,
        "word_offsets": model.words.offsets,
        "word_topics": model.words.topics,
        "word_counts": model.words.counts,
        "document_offsets": model.documents.offsets,
        "document_topics": model.documents.topics,
        "document_counts": model.documents.counts,
        "vocabulary": np.array(model.vocabulary()),
    }
    if model.prior is not None:
        names_of_prior = ("prior_offsets", "prior_topics", "prior_additions")
        arrays |= dict(zip(names_of_prior, model.prior, strict=True))
    if names := model.document_names():
        arrays["document_names"] = np.array(names)
    if labels := label_list(model):
        arrays["labels"] = np.array(labels)
    return arrays
