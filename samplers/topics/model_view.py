"""Views of a topic model: the same model with topics merged, hidden and sorted, as a separate model directory.

A merged topic has all tokens of its topics, and the sum of their priors alpha. All hidden topics are merged into one
topic, the last. The share of a document in a merged topic is exactly the sum of the shares in its topics, as sums of
Dirichlet shares are Dirichlet; but the word distribution of a merged topic is smoothed by beta only once.

What a word prior adds to beta is summed over the topics that are merged. It lowers beta in a merged topic only if it
lowers it in each of these topics, and then by the smallest amount.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from blocks.arrays import ArrayPieces, write_arrays
from blocks.compiled import kernel
from blocks.errors import RequestError
from blocks.files import publish_directory, require_new
from blocks.stored_dataset import range_parts
from samplers.topics.labels import labels_of, set_labels
from samplers.topics.model import SavedTopicModel, TopicCountRows, additions_at, row_numbers, write_derived_model
from samplers.topics.results import one_line

HIDDEN = "hidden topics"  # label of the topic that holds the hidden ones
SORTS = ("number", "size", "label")
_RUN = 1 << 19  # number of entries merged at a time
_LONGEST = 200  # maximum number of characters in a label


def write_view(
    model: SavedTopicModel,
    out: Path,
    *,
    merged: Sequence[Sequence[int]] = (),
    hidden: Sequence[int] = (),
    sort: str = SORTS[0],
    overwrite: bool = False,
) -> SavedTopicModel:
    """Write a view of a model to a new directory, and return the directory.

    merged: groups of topics, each of which becomes one topic.
    hidden: topics that become the last topic, labelled HIDDEN.
    sort: order of the other topics: "number", by the smallest index of their topics; "size", largest first; "label",
        topics without a label last.
    Raises RequestError if a topic is unknown or given twice.
    """
    groups = _groups(model, merged, hidden, sort)
    new = np.empty(model.topics, np.int64)
    for number, group in enumerate(groups):
        new[group] = number
    require_new(out, overwrite=overwrite, directory=True)
    with publish_directory(out, overwrite=overwrite) as directory:
        raised = None if model.prior is None else _raised(model.prior, new)
        counts = np.asarray(model.topic_counts)
        if raised is not None:
            counts = counts + np.bincount(raised.topics, raised.counts, model.topics)
        arrays = {
            name: np.array([array[group].sum() for group in groups], array.dtype)
            for name, array in (("alpha", np.asarray(model.alpha)), ("topic_counts", counts))
        }
        files = {"topics": write_arrays(directory, "topics.h5", arrays)}
        every = {"words": model.words, "prior": model.prior, "documents": model.documents}
        for name, rows in every.items():
            if rows is not None:
                more = None if name == "documents" else raised
                files[name] = write_arrays(directory, f"{name}.h5", _merged(rows, new, more))
        write_derived_model(directory, model, files, len(groups))
    view = SavedTopicModel(out)
    labels = labels_of(model)
    given = {number: _joined([labels[k] for k in group if k in labels]) for number, group in enumerate(groups)}
    if hidden:
        given[len(groups) - 1] = HIDDEN
    set_labels(view, given)
    return view


def parse_topics(text: str, option: str) -> list[int]:
    """Return the topics in a comma-separated list.

    Raises RequestError if an entry is not a number.
    """
    try:
        return [int(topic) for topic in text.split(",")]
    except ValueError:
        raise RequestError(f"{option}: {text!r} is not a list of topics", f"For example: {option} 3,7") from None


def _groups(
    model: SavedTopicModel, merged: Sequence[Sequence[int]], hidden: Sequence[int], sort: str
) -> list[list[int]]:
    """Return the original topics that make up each topic of the view, in the order of the view."""
    if sort not in SORTS:
        raise RequestError(f"--sort: unknown order {sort!r}", f"Choose one of: {', '.join(SORTS)}.")
    named = [topic for group in (*merged, hidden) for topic in group]
    if unknown := [topic for topic in named if not 0 <= topic < model.topics]:
        raise RequestError(f"there is no topic {unknown[0]}", f"Topics have numbers from 0 to {model.topics - 1}.")
    if twice := [topic for topic in named if named.count(topic) > 1]:
        raise RequestError(f"topic {twice[0]} would appear twice", "Name each topic once in --merge and --hide.")
    if short := [group for group in merged if len(group) < 2]:
        raise RequestError(f"--merge {','.join(map(str, short[0]))} names fewer than two topics", "For example: 3,7")
    if len(hidden) == model.topics:
        raise RequestError("--hide names all topics, so that none would be left", "Hide fewer topics.")
    groups = [sorted(group) for group in merged] + [[topic] for topic in range(model.topics) if topic not in named]
    labels, sizes = labels_of(model), model.topic_tokens
    keys = {
        "number": lambda group: group,
        "size": lambda group: (-sizes[group].sum(), group),
        "label": lambda group: (not (label := _joined([labels[k] for k in group if k in labels])), label, group),
    }
    return sorted(groups, key=keys[sort]) + ([sorted(hidden)] if hidden else [])


def _joined(labels: Sequence[str]) -> str:
    return one_line(" + ".join(dict.fromkeys(labels)), _LONGEST)


def _raised(prior: TopicCountRows, new: np.ndarray) -> TopicCountRows:
    """Return corrections of a word prior's additions, to be added before the additions are summed over merged topics.

    A negative addition becomes 0, unless the word has a negative addition in all topics of the merged topic: then the
    largest of them is kept.

    new: int64 (K,), new number of each topic.
    """
    words, below = row_numbers(prior), np.minimum(prior.counts.astype(np.float64), 0.0)
    groups = words * new.size + new[prior.topics]
    order = np.lexsort((-below, groups))
    firsts = order[np.diff(groups[order], prepend=-1) != 0]
    _, place, listed = np.unique(groups, return_inverse=True, return_counts=True)
    # whether the word of an entry is listed for all topics of the merged topic
    is_whole = listed[place] == np.bincount(new)[new[prior.topics]]
    kept = firsts[is_whole[firsts]]
    raised = -below
    raised[kept] = 0.0
    return prior._replace(counts=raised)


def _merged(
    rows: TopicCountRows, new: np.ndarray, raised: TopicCountRows | None = None
) -> dict[str, np.ndarray | ArrayPieces]:
    """Return rows with the new index of each topic, int64 (K,), read in pieces.

    raised: see `_raised`, added to the counts.
    """
    size = int(new.max()) + 1
    dtype = np.min_scalar_type(size - 1) if size <= 1 << 16 else np.dtype("uint32")
    offsets = np.zeros(rows.offsets.size, np.int64)
    for first, last in _pieces(rows):
        offsets[first + 1 : last + 1] = np.diff(_merge(rows, first, last, new, raised)[0])
    np.cumsum(offsets, out=offsets)

    def each(place: int, of: np.dtype) -> Iterator[np.ndarray]:
        for first, last in _pieces(rows):
            yield _merge(rows, first, last, new, raised)[place].astype(of)

    return {
        "offsets": offsets,
        "topics": ArrayPieces(dtype.name, int(offsets[-1]), each(1, dtype)),
        "counts": ArrayPieces(rows.counts.dtype.name, int(offsets[-1]), each(2, rows.counts.dtype)),
    }


def _pieces(rows: TopicCountRows) -> list[tuple[int, int]]:
    return list(pairwise(range_parts(np.asarray(rows.offsets), _RUN).tolist()))


def _merge(
    rows: TopicCountRows, first: int, last: int, new: np.ndarray, raised: TopicCountRows | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    offsets = np.array(rows.offsets[first : last + 1])
    some = slice(int(offsets[0]), int(offsets[-1]))
    topics, counts = np.array(rows.topics[some]), np.array(rows.counts[some])
    if raised is not None:
        counts = counts + additions_at(raised, np.repeat(np.arange(first, last), np.diff(offsets)), topics)
    return merge_rows(offsets - offsets[0], topics, counts, new, np.full(int(new.max()) + 1, np.nan))


@kernel
def merge_rows(offsets, topics, counts, new, sums):
    """Add up the counts of topics that become one topic, row by row.

    offsets: int64 (n+1,).
    topics, counts: sparse rows.
    new: int64 (K,), new index of each topic.
    sums: float64, one per new topic, all NaN; restored.
    Returns the new rows: offsets, int64 (n+1,); topics, int64 (m,), ascending in each row; and counts, float64 (m,).
    """
    new_offsets = np.zeros_like(offsets)
    new_topics, new_counts = np.empty(topics.size, np.int64), np.empty(topics.size)
    size = 0
    for row in range(offsets.size - 1):
        begin = size
        for entry in range(offsets[row], offsets[row + 1]):
            topic = new[topics[entry]]
            if np.isnan(sums[topic]):
                sums[topic] = 0.0
                new_topics[size] = topic
                size += 1
            sums[topic] += counts[entry]
        found = np.sort(new_topics[begin:size])
        size = begin
        for topic in found:
            if sums[topic] != 0.0:  # additions of a word prior may cancel each other
                new_topics[size], new_counts[size] = topic, sums[topic]
                size += 1
            sums[topic] = np.nan
        new_offsets[row + 1] = size
    return new_offsets, new_topics[:size], new_counts[:size]
