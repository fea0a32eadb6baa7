"""Labels that users give to the topics of a model: labels.json in a run or an imported model."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from blocks.errors import RequestError
from blocks.json_files import read_json, write_json
from ooc.runs.replaced_run import MODEL
from ooc.runs.run import CONFIG
from samplers.topics.frex import ranked_words
from samplers.topics.model import SavedTopicModel

FILE = "labels.json"
LONGEST = 200  # letters
_WORDS, _CANDIDATES = 3, 12  # words of an automatic label, and best words from which they are chosen
_SCHEMA = 1


class LabelsFile(TypedDict):
    """Contents of labels.json: labels by topic index."""

    labels: dict[
        Annotated[str, Meta(pattern=r"^[0-9]{1,10}\Z")], Annotated[str, Meta(min_length=1, max_length=LONGEST)]
    ]


def labels_of(model: Any) -> dict[int, str]:
    """Return topic labels by topic index; empty for a model in memory."""
    if not isinstance(model, SavedTopicModel) or not (path := _file(model)).exists():
        return {}
    content = read_json(path, what="labels of topics", schema=_SCHEMA, holds=LabelsFile)
    return {int(topic): label for topic, label in content["labels"].items() if int(topic) < model.topics}


def label_list(model: Any) -> list[str]:
    """Return the label of each topic, "" if it has none; an empty list if no topic has a label."""
    labels = labels_of(model)
    return [labels.get(topic, "") for topic in range(model.topics)] if labels else []


def set_labels(model: SavedTopicModel, given: dict[int, str]) -> dict[int, str]:
    """Set the labels of some topics; an empty label removes the current one.

    Returns all labels.
    Raises RequestError for unknown topics.
    """
    for topic, label in given.items():
        if not 0 <= topic < model.topics:
            raise RequestError(f"there is no topic {topic}", f"Topics have numbers from 0 to {model.topics - 1}.")
        if len(label) > LONGEST:
            raise RequestError(f"the label of topic {topic} has {len(label)} letters; at most {LONGEST} are allowed")
    labels = {**labels_of(model), **{topic: " ".join(label.split()) for topic, label in given.items()}}
    labels = {topic: labels[topic] for topic in sorted(labels) if labels[topic]}
    write_json(_file(model), label_files(labels)[FILE])
    return labels


def automatic_labels(model: SavedTopicModel) -> dict[int, str]:
    """Return a label for each topic without one: its three best words by c-TF-IDF. Of an n-gram and its parts, only the
    better one is used. A topic without words gets no label."""
    vocabulary, labels = model.vocabulary(), labels_of(model)
    words, _, _ = ranked_words(model, "c-tf-idf", _CANDIDATES)
    found = {}
    for topic in range(model.topics):
        chosen: list[str] = []
        for word in [vocabulary[place] for place in words[topic].tolist() if place >= 0]:
            parts = {*word.split("_")}
            if len(chosen) < _WORDS and not any(parts & {*other.split("_")} for other in chosen):
                chosen.append(word)
        if chosen and topic not in labels:
            found[topic] = ", ".join(word.replace("_", " ") for word in chosen)[:LONGEST]
    return found


def label_files(labels: dict[int, str]) -> dict[str, dict[str, Any]]:
    """Return the labels of topics, none of them empty, as contents of labels.json by file name."""
    return {FILE: {"schema": _SCHEMA, "labels": {str(topic): label for topic, label in labels.items()}}}


def read_label_file(path: Path) -> dict[int, str]:
    """Read labels from a CSV file with columns topic and label, with or without a header.

    Raises RequestError if the file is invalid.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [(number, row) for number, row in enumerate(csv.reader(file), 1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RequestError(f"{path} cannot be read: {error}", "Use a CSV file with columns topic and label.") from None
    found = {}
    for number, row in rows[bool(rows and not rows[0][1][0].strip().isdecimal()) :]:
        if len(row) < 2 or not row[0].strip().isdecimal() or len(row[0]) > LONGEST:
            raise RequestError(
                f"{path}, row {number}: {','.join(row)[:LONGEST]!r} is not a topic and a label",
                "Write rows such as 7,the label.",
            )
        found[int(row[0])] = row[1]
    return found


def _file(model: SavedTopicModel) -> Path:
    run = model.path.parent
    return (run if model.path.name == MODEL and (run / CONFIG).exists() else model.path) / FILE
