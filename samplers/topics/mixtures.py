"""Writing the topic mixtures of documents, row by row, as .npz, .csv or .jsonl."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from blocks.errors import RequestError
from blocks.files import publish
from blocks.npz import write_npz

FORMATS = (".npz", ".csv", ".jsonl")


def check_format(path: Path) -> None:
    """Raise RequestError unless the ending of a file's name says how to write it."""
    if path.suffix not in FORMATS:
        raise RequestError(f"{path}: its ending does not say how to write it", f"Use one of {', '.join(FORMATS)}.")


def write_mixtures(path: Path, result: list[np.ndarray], names: list[str] | None) -> None:
    """Write what `samplers.topics.inference.infer` returned, as the ending of the path says.

    .npz: mixtures float32 (D, K), or topics uint32 (D, T) and weights float32 (D, T); and names (D,) if there are any.
    .csv: a header, then a line for each document: name and K weights, or name and T pairs of topic and weight.
    .jsonl: {"name": ..., "mixture": [...]} or {"name": ..., "topics": [...], "weights": [...]}.
    """
    check_format(path)
    keys = ["mixtures"] if len(result) == 1 else ["topics", "weights"]
    if path.suffix == ".npz":
        arrays = dict(zip(keys, result, strict=True))
        write_npz(path, arrays | ({"names": np.array(names)} if names else {}))
        return
    with publish(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            for name, *values in _rows(result, names):
                fields = zip(["mixture"] if len(keys) == 1 else keys, values, strict=True)
                file.write(json.dumps({"name": name, **dict(fields)}, ensure_ascii=False) + "\n")
            return
        writer = csv.writer(file)
        columns = range(result[0].shape[1])
        if len(result) == 1:
            writer.writerow(["name", *(f"topic_{k}" for k in columns)])
            writer.writerows([name, *mixture] for name, mixture in _rows(result, names))
        else:
            writer.writerow(["name", *(f"{key}_{t + 1}" for t in columns for key in ("topic", "weight"))])
            for name, topics, weights in _rows(result, names):
                pairs = zip(topics, weights, strict=True)
                writer.writerow([name, *(value for pair in pairs for value in pair)])


def _rows(result: list[np.ndarray], names: list[str] | None) -> Iterator[list]:
    for row in range(result[0].shape[0]):
        values = [
            [round(value, 6) if isinstance(value, float) else value for value in array[row].tolist()]
            for array in result
        ]
        yield [names[row] if names else str(row + 1), *values]
