"""Read the ratings of new users, and lists of items, from files into memory."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import numpy as np

from blocks.errors import RequestError
from blocks.ratings.formats import RatingsFormatOptions
from blocks.ratings.input_chunks import BLANKS, RatingsInput
from blocks.ratings.matrix import LARGEST
from blocks.ratings.rating_parser import RatingsParser, UserOrItemNames
from blocks.text_inputs import InputOpenOptions, TextInput, last_line_end
from samplers.factorization.model import Factorization
from samplers.factorization.rated_items import RatedItems, group_by_user


class NewRatings(NamedTuple):
    """Ratings of new users.

    names: names of the users, in the order of the file.
    rated: ratings of items of a model.
    unknown: number of ratings of other items, which are left out.
    """

    names: list[str]
    rated: RatedItems
    unknown: int


def read_new_ratings(model: Factorization, path: str) -> NewRatings:
    """Read a file in a format of `ooc ingest ratings`. Of several ratings of an item by a user, the last counts.

    Raises RequestError for a bad line, and if nothing can be learned from the file.
    """
    reader, numbers = RatingsParser(-LARGEST, LARGEST, skip=False), dict[str, int]()
    parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    for chunk in RatingsInput(path, RatingsFormatOptions(), InputOpenOptions(None), count()).chunks:
        found = reader.read(chunk)
        users = np.array([numbers.setdefault(name, len(numbers)) for name in names_of(found.users)], np.int64)
        items = np.array([model.columns.places.get(name, -1) for name in names_of(found.items)], np.int64)
        parts.append((users, items, found.values))
    users, items, values = map(np.concatenate, zip(*parts, strict=True))
    known = items >= 0
    if not known.any():
        what = "none of its items is in the training data" if items.size else "no ratings found"
        raise RequestError(f"{path}: {what}", "Items must be spelled as in the training data.")
    require_counts(model, float(values.min()), path)
    rated = group_by_user(len(numbers), users[known], items[known], values[known].astype(np.float32))
    return NewRatings(list(numbers), rated, int(np.count_nonzero(~known)))


def require_counts(model: Factorization, lowest: float, where: object) -> None:
    """Raise RequestError if the model is of implicit feedback, and the lowest of some counts is not above 0."""
    if model.solver["alpha"] and lowest <= 0:
        raise RequestError(
            f"{where} has the value {lowest:g}, but with --implicit counts must be above 0",
            "Omit user-item pairs without a count.",
        )


def names_of(found: UserOrItemNames) -> list[str]:
    """Return the name of each rating's user or item."""
    names = found.joined[:-1].decode().split("\n")[:-1]
    return names if found.places is None else [names[place] for place in found.places.tolist()]


class ListedItems(NamedTuple):
    """Items named in a file.

    items: int64 (n,), indices of the items that a model has.
    unknown: number of others.
    """

    items: np.ndarray
    unknown: int


def read_items(model: Factorization, path: str) -> ListedItems:
    """Read a file with an item name on each line.

    Raises RequestError if the model has none of the items.
    """
    text = b"".join(data for _, data in TextInput(path).chunks(last_line_end)).decode("utf-8", "replace")
    names = {line.strip(BLANKS) for line in text.split("\n")} - {""}
    found = sorted(model.columns.places[name] for name in names if name in model.columns.places)
    if not found:
        raise RequestError(
            f"--items {path}: none of its items is in the training data",
            "Write one item per line, spelled as in the training data.",
        )
    return ListedItems(np.array(found, np.int64), len(names) - len(found))
