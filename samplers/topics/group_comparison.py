"""Compare topic prevalence by document columns; see `samplers.topics.prevalence`."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from blocks.arrow_tables import pyarrow_module
from blocks.documents.document_table import DocumentTable
from blocks.documents.expressions import DocumentExpression, selected
from blocks.errors import RequestError
from blocks.plurals import count_of
from samplers.topics.model import SavedTopicModel, TopicModel
from samplers.topics.prevalence import NUMBERS, GroupMoments, PrevalenceComparison, batches_of, compared
from samplers.topics.results import describe_topics, one_line
from samplers.topics.training_documents import training_table

_MOST_GROUPS = 1000
_BATCH = 1 << 16  # documents
METHOD = "method of composition in closed form, over documents and the posterior of their mixtures"


class _CategoryCodes(dict[Any, int]):
    """Integer codes of values, in order of first appearance."""

    def __init__(self, told: str) -> None:
        super().__init__()
        self._told = told

    def __missing__(self, value: Any) -> int:
        if value is None or type(value).__name__ == "NAType" or value != value:  # noqa: PLR0124, NaN
            return -1
        if len(self) == _MOST_GROUPS:
            raise RequestError(
                f"{self._told} has more than {_MOST_GROUPS:,} different values",
                "Compare by an expression with fewer values, such as year(date).",
            )
        number = self[value] = len(self)
        return number


def compare_by(
    model: TopicModel, table: DocumentTable, by: str, *, where: str | None = None, level: float = 0.95
) -> PrevalenceComparison:
    """Compare groups of training documents by a column or a value such as year(date).

    where: condition that documents must fulfil.
    level: confidence level of the intervals.
    Raises RequestError if an expression is invalid, or no document is left.
    """
    value = DocumentExpression(by, "--by", table.kinds, is_condition=False)
    condition = DocumentExpression(where, "--where", table.kinds, is_condition=True) if where else None
    codes, moments, missing = _CategoryCodes(f"--by {by}"), GroupMoments(model), 0
    for first, chosen, arrays in selected(table, condition, value.columns, table.rows):
        coded = value.compute(arrays).filter(pyarrow_module().array(chosen)).dictionary_encode()
        numbers = np.array([codes[each] for each in coded.dictionary.to_pylist()] + [-1], np.int32)
        groups = np.full(chosen.size, -1, np.int32)
        groups[chosen] = numbers[coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False)]
        missing += int(np.count_nonzero(chosen & (groups < 0)))
        moments.add(first, groups)
    return _in_order(moments, codes, by, missing, level)


def compare_groups(model: TopicModel, groups: Iterable[Any], *, level: float = 0.95) -> PrevalenceComparison:
    """Compare groups of training documents.

    groups: a value for each document, None to leave out the document.
    """
    codes, moments, missing, first = _CategoryCodes("groups"), GroupMoments(model), 0, 0
    documents = model.documents.offsets.size - 1
    for values in batches_of(groups, _BATCH):
        numbers = np.array([codes[value] for value in values], np.int32)
        if first + numbers.size > documents:
            break
        moments.add(first, numbers)
        missing += int(np.count_nonzero(numbers < 0))
        first += numbers.size
    if first != documents:
        raise RequestError(
            f"groups must have a value for each of the {documents:,} training documents",
            "Use None for missing values.",
        )
    return _in_order(moments, codes, "groups", missing, level)


def _in_order(
    moments: GroupMoments, codes: _CategoryCodes, by: str, missing: int, level: float
) -> PrevalenceComparison:
    """Return the comparison, with groups in ascending order."""
    if not 0.0 < level < 1.0:
        raise RequestError(f"--level must be above 0 and below 1, got {level}")
    values = list(codes)
    there = [place for place in range(moments.sizes.size) if moments.sizes[place]]
    if not there:
        raise RequestError(
            f"{by}: no document with tokens is left to compare", "Choose another column, or loosen --where."
        )
    try:
        there.sort(key=values.__getitem__)
    except TypeError:  # values of different types
        there.sort(key=lambda place: str(values[place]))
    return compared(moments, by, values, level=level, without_value=missing, order=there)


def comparison_as_json(
    model: TopicModel, found: PrevalenceComparison, topics: Sequence[int] | None = None, largest: int | None = None
) -> dict[str, Any]:
    """Return a comparison as JSON types: topics by descending size, each with its groups.

    topics, largest: see `listed_topics`.
    """
    return {
        "by": found.by,
        "method": METHOD,
        "level": found.level,
        "groups": [
            {"group": _json(group), "documents": size}
            for group, size in zip(found.groups, found.documents.tolist(), strict=True)
        ],
        "without_value": found.without_value,
        "without_tokens": found.without_tokens,
        "topics": [
            topic
            | {
                "groups": [
                    {name: _json(value) for name, value in row.items() if name != "topic"}
                    for row in found.rows([topic["topic"]])
                ]
            }
            for topic in listed_topics(model, topics, largest)
        ],
    }


def listed_topics(
    model: TopicModel, topics: Sequence[int] | None = None, largest: int | None = None
) -> list[dict[str, Any]]:
    """Return topics in descending order of size: topic, label, words, share.

    topics: topics to list, None for all.
    largest: number of topics to list, None for all.
    Raises RequestError for unknown topics.
    """
    if unknown := [topic for topic in topics or () if not 0 <= topic < model.topics]:
        raise RequestError(f"there is no topic {unknown[0]}", f"Topics have numbers from 0 to {model.topics - 1}.")
    listed = [
        {name: topic[name] for name in ("topic", "label", "share")}
        | {"words": [word["word"] for word in topic["words"]]}
        for topic in describe_topics(model, top=5, documents=0)
        if not topics or topic["topic"] in topics
    ]
    return listed[:largest]


def _json(value: Any) -> Any:
    if isinstance(value, float) and value != value:  # noqa: PLR0124, NaN
        return None
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def comparison_table(told: dict[str, Any]) -> str:
    """Return a comparison as text."""
    width = max(len(one_line(each["group"])) for each in told["groups"])
    lines = []
    for topic in told["topics"]:
        name = topic["label"] or " ".join(topic["words"])
        lines.append(f"topic {topic['topic']}: {name}")
        lines += [f"  {one_line(group['group']):<{width}}  {_numbers(group)}" for group in topic["groups"]]
    left_out = {"without a value": told["without_value"], "without tokens": told["without_tokens"]}
    lines.append(
        f"Mean share of the topic in the documents of a group, with its {told['level']:.0%} interval, and the "
        "difference from all other documents."
    )
    lines.append(f"Intervals: {told['method']}.")
    lines.append("* q < 0.05, ** q < 0.01: p-values adjusted by Benjamini and Hochberg over all topics and groups.")
    lines += [f"Left out: {count_of(count, 'document')} {why}." for why, count in left_out.items() if count]
    return "\n".join(lines)


def _numbers(group: dict[str, Any]) -> str:
    interval = "" if group["low"] is None else f"[{100 * group['low']:5.2f}, {100 * group['high']:5.2f}]"
    difference = ""
    if group["difference"] is not None:
        stars = "" if group["q"] is None else "**" if group["q"] < 0.01 else "*" if group["q"] < 0.05 else ""
        difference = f"{100 * group['difference']:+6.2f} {stars}"
    share, size = f"{100 * group['prevalence']:6.2f}%", count_of(group["documents"], "document")
    number, noun = size.split()
    return f"{share}  {interval:<16}  {difference:<10} {number:>9} {noun}"


def write_comparison(model: TopicModel, found: PrevalenceComparison, file: IO[str]) -> None:
    """Write a comparison of all topics as CSV, topics in descending order of size: a row for each topic and group."""
    writer = csv.writer(file)
    writer.writerow(["topic", "label", "words", "group", "documents", *NUMBERS])
    groups, sizes = [_json(group) for group in found.groups], found.documents.tolist()
    for topic in listed_topics(model):
        first = [topic["topic"], topic["label"] or "", " ".join(topic["words"])]
        columns = [[_number(value) for value in getattr(found, name)[:, topic["topic"]].tolist()] for name in NUMBERS]
        writer.writerows([*first, *row] for row in zip(groups, sizes, *columns, strict=True))


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def training_comparison(
    run_model: SavedTopicModel, by: str, where: str | None, level: float, data: Path | None
) -> PrevalenceComparison:
    """Return the comparison of a model's training documents."""
    return compare_by(run_model, training_table(run_model, data), by, where=where, level=level)
