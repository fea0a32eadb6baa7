"""Find the files in directories that are documents or tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from blocks.archives import is_archive
from blocks.errors import RequestError
from blocks.text_inputs import STANDARD_INPUT, input_size

_OURS = (("manifest.json", "blocks"), ("config.json", "metrics.jsonl"))  # files found in datasets and in runs

_TABLES = (".parquet", ".arrow", ".feather")  # suffixes
_STATE = "state.json"  # lists the data files in a directory written by `save_to_disk` of Hugging Face datasets
_MOST_STATE = 1 << 26  # maximum size in bytes


class _ArrowDataFile(msgspec.Struct):
    filename: str


class _ArrowDatasetState(msgspec.Struct):
    files: list[_ArrowDataFile] = msgspec.field(name="_data_files")


class FoundTextFiles(NamedTuple):
    """The files found.

    found: path and name of each file.
    left_out: numbers of hidden files, datasets and runs that were skipped.
    archives: tar and zip archives that were given by name rather than found in a directory.
    """

    found: list[tuple[str, str]]
    left_out: dict[str, int]
    archives: frozenset[str] = frozenset()


def find_files(inputs: Sequence[str], pattern: str) -> FoundTextFiles:
    """Find the text files among the inputs; directories are searched in sorted order, following links, each once.

    pattern: glob for file names in directories. A file in a directory is named by its relative path. Hidden files and
        directories, datasets and runs are skipped.
    Raises RequestError if a directory has no matching file.
    """
    found, left_out = [], Counter[str]()
    for given in inputs:
        if given == STANDARD_INPUT or not Path(given).is_dir():
            input_size(given)
            found.append((given, given))
            continue
        inside = sorted(path for path in _below(Path(given), set(), left_out) if path.match(pattern))
        if not inside:
            raise RequestError(
                f"{given}: no file in this directory matches {pattern!r}", "Use another pattern with --glob."
            )
        found += [(str(path), path.relative_to(given).as_posix()) for path in inside]
    archives = {given for given in inputs if not Path(given).is_dir() and is_archive(given)}
    return FoundTextFiles(found, dict(left_out), frozenset(archives))


def table_files(inputs: Sequence[str]) -> list[str]:
    """Replace each directory among the inputs by the Parquet, Arrow and Feather files in it, in sorted order.

    For a dataset saved by the Hugging Face library, use only the files that it lists, not its caches.
    Raises RequestError for a directory without such files, or if a listed file is missing.
    """
    return [file for given in inputs for file in (_tables_below(given) if Path(given).is_dir() else [given])]


def _tables_below(directory: str) -> list[str]:
    files = sorted(_below(Path(directory), set(), Counter()))
    listed = {state.parent: _listed(state) for state in files if state.name == _STATE}
    found = [file for file in files if file.suffix in _TABLES and file in listed.get(file.parent, [file])]
    if missing := sorted({file for several in listed.values() for file in several} - set(found)):
        raise RequestError(f"{missing[0]} is missing: {missing[0].parent / _STATE} lists it", "Copy the dataset again.")
    if not found:
        raise RequestError(
            f"{directory} is a directory without {', '.join(_TABLES[:-1])} or {_TABLES[-1]} files",
            "Specify files. Directories of text files can be read with `ooc ingest text`.",
        )
    return list(map(str, found))


def _listed(state: Path) -> list[Path]:
    """Return the data files that a saved dataset lists, which are in the same directory as the list."""
    try:
        if state.stat().st_size > _MOST_STATE:
            raise RequestError(f"{state} is too large to be a list of files", "Save the dataset again.")
        files = msgspec.json.decode(state.read_bytes(), type=_ArrowDatasetState).files
    except (OSError, msgspec.MsgspecError) as error:
        raise RequestError(
            f"{state} does not list the files of a dataset: {error}", "Save the dataset again."
        ) from None
    return [state.parent / Path(file.filename).name for file in files]


def require_outside(out: str, inputs: Sequence[str]) -> None:
    """Raise RequestError if a new dataset would be inside an input directory."""
    for given in inputs:
        if Path(given).is_dir() and Path(out).resolve().is_relative_to(Path(given).resolve()):
            raise RequestError(
                f"the output {out} is inside the input directory {given}", "Choose an output outside this directory."
            )


def _below(directory: Path, seen: set[tuple[int, int]], left_out: Counter[str]) -> Iterator[Path]:
    """Yield all files in a directory tree that are not to be skipped.

    seen: device and inode of visited directories.
    """
    status = directory.stat()
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    try:
        entries = list(os.scandir(directory))
    except OSError as error:
        raise RequestError(f"{directory} cannot be searched: {error.strerror}") from error
    names = {entry.name for entry in entries}
    if any(names >= set(ours) for ours in _OURS):
        left_out["datasets or runs"] += 1
        return
    for entry in entries:
        if entry.name.startswith("."):
            left_out["hidden files"] += 1
        elif entry.is_dir():
            yield from _below(directory / entry.name, seen, left_out)
        elif entry.is_file():
            yield directory / entry.name
