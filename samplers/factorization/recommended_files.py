"""Write recommendations for many users to a CSV or Parquet file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks.errors import RequestError
from blocks.outputs import is_passed_on
from samplers.factorization.top_items import TopItems
from samplers.interchange.parquet import require_arrow, write_table

FORMATS = (".csv", ".parquet")


def format_of(path: Path) -> str:
    """Return the file extension that determines the format; .csv for standard output and pipes without one.

    Raises RequestError if it is unknown, or if pyarrow is needed and not installed.
    """
    suffix = path.suffix or (".csv" if is_passed_on(path) else "")
    if suffix not in FORMATS:
        raise RequestError(f"{path}: unknown file extension {suffix!r}", f"Use one of {', '.join(FORMATS)}.")
    if suffix == ".parquet":
        require_arrow()
    return suffix


def write_recommendations(
    path: Path, suffix: str, found: Iterable[tuple[int, TopItems]], users: Sequence[str], items: Sequence[str]
) -> int:
    """Write a row with user, item and prediction for each recommended item, best first.

    Returns the number of rows.

    found: see `samplers.factorization.recommendation.in_order`.
    users, items: names.
    """
    written = 0

    def counted() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        nonlocal written
        for first, best in found:
            rows, columns = np.nonzero(best.items >= 0)
            written += rows.size
            yield first + rows, best.items[rows, columns], best.scores[rows, columns]

    if suffix == ".parquet":
        write_table(path, _columns(counted(), users, items))
        return written
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item", "prediction"])
        for of_users, of_items, scores in counted():
            lines = zip(of_users.tolist(), of_items.tolist(), scores.tolist(), strict=True)
            writer.writerows((users[user], items[item], f"{score:.6g}") for user, item, score in lines)
    return written


def _columns(
    found: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], users: Sequence[str], items: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield batches of columns for `write_table`."""
    arrow = require_arrow()
    item_names = arrow.array(items, arrow.string())
    for of_users, of_items, scores in found:
        distinct, places = np.unique(of_users, return_inverse=True)
        user_names = arrow.array([users[user] for user in distinct.tolist()], arrow.string())
        yield {
            "user": user_names.take(arrow.array(places)),
            "item": item_names.take(arrow.array(of_items)),
            "prediction": scores,
        }
