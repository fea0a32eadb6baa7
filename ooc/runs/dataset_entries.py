"""The datasets of a run: their identity (a hash of the contents), and their location as an absolute and a relative
path.

If a run and its dataset are moved or copied together, for example to a node's disk, the relative path leads to the
copy; if only the run is moved, the absolute path leads to the dataset. The location whose contents have the recorded
identity is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from blocks.dataset_generations import generation_of, has_generation
from blocks.errors import RequestError
from blocks.stored_dataset import StoredDataset

AnyStore = TypeVar("AnyStore", bound=StoredDataset)


def dataset_entry(dataset: StoredDataset) -> dict[str, str]:
    """Return the configuration entry of a dataset, without a relative path."""
    return {"path": str(dataset.path.resolve()), "identity": dataset.identity}


def entry_relative_to_run(entry: dict[str, str], run: Path) -> dict[str, str]:
    """Return the entry with the relative path from a run located at `run`."""
    return {**entry, "relative": os.path.relpath(entry["path"], run.resolve())}


def dataset_location(entry: dict[str, str], run: Path) -> Path:
    """Return the location of a dataset: the first with the recorded identity, otherwise the first that exists."""
    places = [Path(entry["path"])]
    if "relative" in entry:
        places.insert(0, Path(os.path.normpath(run.resolve() / entry["relative"])))
    there = [place for place in places if place.exists()]
    return next((place for place in there if has_generation(place, entry["identity"])), [*there, places[-1]][0])


def open_dataset_entry(
    entry: dict[str, str], run: Path, option: str, name: str, opened: Callable[[Path], AnyStore]
) -> AnyStore:
    """Open the dataset of an entry in a run's configuration.

    name: name of the dataset in messages.
    option: option of `ooc resume` that sets a new path.

    Raises RequestError if the dataset is missing or was replaced by another one.
    """
    place = dataset_location(entry, run)
    if not place.exists():
        raise RequestError(
            f"{place}, {name}, does not exist", f"Set its new path with: ooc resume {run} --{option} PATH"
        )
    dataset = opened(generation_of(place, entry["identity"]))
    if dataset.identity != entry["identity"]:
        raise RequestError(
            f"{dataset.path} is no longer {name}: it was recreated or appended to",
            f"If the original is elsewhere, use `ooc resume {run} --{option} PATH`; otherwise train a new run.",
        )
    return dataset


def moved_entry(entry: dict[str, str], run: Path, place: Path) -> dict[str, str]:
    """Return the entry of a dataset that was moved to `place`.

    Raises RequestError if another dataset is there.
    """
    if not place.exists():
        raise RequestError(f"{place}: there is no such file or directory", "Check the name.")
    if not has_generation(place, entry["identity"]):
        raise RequestError(
            f"{place} is not the dataset on which {run} was started, or has changed since then",
            f"Use the dataset that was at {entry['path']}; `ooc info` must show its identity {entry['identity']}.",
        )
    return entry_relative_to_run({"path": str(place.resolve()), "identity": entry["identity"]}, run)


def config_dataset_entries(config: dict[str, Any]) -> list[dict[str, str]]:
    """Return the dataset entries of a configuration."""
    return [entry for entry in (config["dataset"], config["settings"].get("held_out")) if entry]
