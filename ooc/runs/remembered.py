"""The datasets of a run: which they are, by what they hold, and where, as a path and as the way from the run.

A run and its dataset may be moved or copied together, as to the disk of a node: the way from the run leads to the copy.
Or one is moved alone: then the path does. Of the two, the place counts that has what the run was begun on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict, TypeVar

from msgspec import Meta

from blocks.errors import RequestError
from blocks.generations import generation_of, has_generation
from blocks.schemas import NO_NUL
from blocks.store import Store

AnyStore = TypeVar("AnyStore", bound=Store)


class DatasetEntry(TypedDict):
    """What the configuration of a run remembers of a dataset. relative: its path from the run; earlier versions did not
    note that."""

    path: Annotated[str, Meta(min_length=1, pattern=NO_NUL)]
    identity: str
    relative: NotRequired[Annotated[str, Meta(min_length=1, pattern=NO_NUL)]]


def entry_of(dataset: Store) -> dict[str, str]:
    """The entry of a dataset, whatever the run."""
    return {"path": str(dataset.path.resolve()), "identity": dataset.identity}


def from_run(entry: dict[str, str], run: Path) -> dict[str, str]:
    """The same with the way from a run, which will be at that path."""
    return {**entry, "relative": os.path.relpath(entry["path"], run.resolve())}


def place_of(entry: dict[str, str], run: Path) -> Path:
    """Where the dataset of an entry is: the first place that has what the run was begun on, else that there is."""
    places = [Path(entry["path"])]
    if "relative" in entry:
        places.insert(0, Path(os.path.normpath(run.resolve() / entry["relative"])))
    there = [place for place in places if place.exists()]
    return next((place for place in there if has_generation(place, entry["identity"])), [*there, places[-1]][0])


def open_remembered(
    entry: dict[str, str], run: Path, option: str, name: str, opened: Callable[[Path], AnyStore]
) -> AnyStore:
    """The dataset of an entry of a run, which messages call `name`. option: of `ooc resume`, says where it is now.

    Raises RequestError if none, or another one, is there.
    """
    place = place_of(entry, run)
    if not place.exists():
        raise RequestError(
            f"{place}, {name}, does not exist", f"Give its new path with: ooc resume {run} --{option} PATH"
        )
    dataset = opened(generation_of(place, entry["identity"]))
    if dataset.identity != entry["identity"]:
        raise RequestError(
            f"{dataset.path} is no longer {name}: it was made again, or appended to",
            f"If the original is elsewhere, use `ooc resume {run} --{option} PATH`; else train a new run.",
        )
    return dataset


def moved(entry: dict[str, str], run: Path, place: Path) -> dict[str, str]:
    """The entry once the dataset is at another place; raises RequestError if it is not what the run was begun on."""
    if not place.exists():
        raise RequestError(f"{place}: there is no such file or directory", "Check the name.")
    if not has_generation(place, entry["identity"]):
        raise RequestError(
            f"{place} is not the dataset that {run} was started on, or has changed since",
            f"That dataset was at {entry['path']} with the identity {entry['identity']}, which `ooc info` shows.",
        )
    return from_run({"path": str(place.resolve()), "identity": entry["identity"]}, run)


def entries_of(config: dict[str, Any]) -> list[dict[str, str]]:
    """Those of the datasets of a configuration."""
    return [entry for entry in (config["dataset"], config["settings"].get("held_out")) if entry]
