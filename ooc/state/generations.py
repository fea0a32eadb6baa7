"""Generations: complete, numbered, committed versions of a run's state on disk.

    state/manifest.json   the newest generation and the one before: cursor, counters, checksums. The commit point
    state/000007.json     entry of one generation, for the case that the manifest is lost
    state/000007.cells    local state after a header, tile by tile (see CellLayout), then the tiles' checksums
    state/000007.h5       primary shared arrays of the program

The files of a generation are written next to the committed ones and synced; they become valid when the manifest names
them. The next generation overwrites the cells of an outdated generation, because deleting and allocating gigabytes in
every phase takes the file system seconds.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
from msgspec import Meta, convert

from blocks import stderr
from blocks.arrays import ArrayPieces, open_arrays, write_arrays
from blocks.directory_sync import fsync_directory
from blocks.errors import OocError, WorkFailed
from blocks.files import RemovedPath, disk_errors, remove_leftovers, remove_path
from blocks.json_files import read_json, write_json
from blocks.schemas import ArrayFileEntry, Count
from blocks.stored_dataset import StoredDataset, check_file
from ooc.program import LocalState
from ooc.state.cell_file import CellFile
from ooc.state.cell_layout import CellLayout
from ooc.state.direct_io import PAGE

SCHEMA = 1
MANIFEST = "manifest.json"
MOST_NUMBERS = 1 << 16  # maximum number of values in a row of local state
GENERATIONS = 3  # maximum on disk, while the third replaces the first


Seconds = Annotated[float, Meta(ge=0)]


@dataclass
class TrainingCursor:
    """Progress of a generation: `phase` phases of iteration `iteration` (counted from 0) are done. Also holds the
    counters so far.
    """

    iteration: Count = 0
    phase: Count = 0
    elapsed_s: Seconds = 0.0
    samples_processed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_sent: int = 0
    sums: dict[str, float] = field(default_factory=dict)  # sums reported by the phases of the current iteration
    seconds: dict[str, float] = field(default_factory=dict)  # seconds by purpose since the last line of the metrics

    def spend(self, seconds: dict[str, float]) -> None:
        """Add seconds to the time spent on each purpose."""
        for purpose, more in seconds.items():
            self.within(purpose, more)
            self.elapsed_s += more

    def within(self, purpose: str, seconds: float) -> None:
        """Count seconds for a purpose that is part of another one, such as page_cache."""
        self.seconds[purpose] = self.seconds.get(purpose, 0.0) + seconds


class GenerationEntry(TypedDict):
    """Manifest entry of a generation."""

    generation: Annotated[int, Meta(ge=1, lt=1 << 53)]
    cursor: TrainingCursor
    cells: str
    arrays: ArrayFileEntry


class StateManifest(TypedDict):
    """Contents of the manifest."""

    newest: GenerationEntry
    before: GenerationEntry | None


class StateGenerations:
    """The state directory of a run. The constructor only reads; to write, as training does, open it with `to_write`.
    Attributes: `directory`; `warnings` about dropped generations."""

    def __init__(
        self,
        directory: Path,
        dataset: StoredDataset,
        layout: CellLayout,
        before_commit: Callable[[], object] = lambda: None,
    ) -> None:
        self.directory = directory
        self._before_commit = before_commit  # raises an error if a commit is not allowed
        self._dataset = dataset
        self._layout = layout
        self.warnings: list[str] = []  # about dropped generations
        self._spare: Path | None = None  # outdated cells, to be overwritten
        self._entries = committed(directory)

    @classmethod
    def to_write(
        cls,
        directory: Path,
        dataset: StoredDataset,
        layout: CellLayout,
        before_commit: Callable[[], object] = lambda: None,
    ) -> StateGenerations:
        """Open a state directory for writing, create it if needed, and delete uncommitted files."""
        with disk_errors(directory):
            directory.mkdir(exist_ok=True)
        remove_uncommitted(directory)
        made = cls(directory, dataset, layout, before_commit)
        if problem := made._not_there():
            made._warn(f"{problem}; continuing from generation {made._entries[0]['generation']}")
            made._publish(made._entries)
        return made

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def cursor(self) -> TrainingCursor:
        """Return the cursor of the newest generation."""
        return convert(self._entries[0]["cursor"], TrainingCursor)

    @property
    def cursors(self) -> list[TrainingCursor]:
        """Return the cursors of all kept generations, the newest first."""
        return [convert(entry["cursor"], TrainingCursor) for entry in self._entries]

    def open(self, number: int = 0) -> CellFile:
        """Open the cells of a generation, 0 for the newest.

        Raises WorkFailed if the table of checksums is damaged.
        """
        entry = self._entries[number]
        path = self._cells(entry["generation"])
        if not path.exists():
            raise WorkFailed(f"{path} is missing")
        cells = CellFile(path, self._layout)
        if not cells.has_header(self._header(entry["generation"])) or cells.table_checksum() != entry["cells"]:
            cells.close()
            raise WorkFailed(f"{path} is damaged: its header or its table of checksums does not match")
        return cells

    def _header(self, generation: int) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "dataset": self._dataset.identity,
            "generation": generation,
            "rows": self._layout.rows,
            "dtype": self._layout.local.dtype,
            "width": self._layout.local.width,
        }

    def arrays(self, number: int = 0) -> dict[str, np.ndarray]:
        """Return the primary arrays, one-dimensional, of a generation, 0 for the newest."""
        entry = self._entries[number]["arrays"]
        if problem := check_file(self.directory / entry["file"], entry):
            raise WorkFailed(f"{self.directory} is damaged: {problem}")
        return open_arrays(self.directory / entry["file"], entry, None)

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Raise WorkFailed in place of the errors that arise when restored arrays do not fit together."""
        try:
            yield
        except OocError:
            raise
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise WorkFailed(f"{self.directory} is damaged: its arrays do not fit together ({error})") from error

    def problems(self) -> Iterator[str]:
        """Read all files, and yield a description of each problem."""
        if problem := self._not_there():
            yield problem
        copies = [f"{entry['generation']:06}.json" for entry in self._entries]  # earlier versions did not write these
        for name in [MANIFEST, *(copy for copy in copies if (self.directory / copy).exists())]:
            try:
                holds = StateManifest if name == MANIFEST else GenerationEntry
                read_json(self.directory / name, what="the state of a run", schema=SCHEMA, holds=holds, sealed=True)
            except OocError as error:
                yield error.what
        for number in range(len(self._entries)):
            try:
                self.check(number)
            except OocError as error:
                yield error.what

    def check(self, number: int = 0) -> None:
        """Read all files of a generation, 0 for the newest.

        Raises WorkFailed if a file is damaged.
        """
        self.arrays(number)
        cells = self.open(number)
        tile_bytes = self._layout.tile_rows * self._layout.row_bytes
        tile = np.frombuffer(mmap.mmap(-1, max(int(tile_bytes.max()), mmap.PAGESIZE)), np.uint8)
        try:
            for stripe, slice_ in np.ndindex(tile_bytes.shape):
                cells.read(stripe, slice_, tile[: tile_bytes[stripe, slice_]])
        finally:
            cells.close()

    def fall_back(self, error: OocError) -> None:
        """Drop the damaged newest generation and go back to the previous one.

        Raises WorkFailed if there is none.
        """
        if len(self._entries) < 2:
            raise WorkFailed(
                error.what, "No earlier state is left: train again from the start with --overwrite."
            ) from error
        self._warn(f"{error.what}; continuing from the previous generation")
        self._publish(self._entries[1:])
        remove_uncommitted(self.directory)

    def _warn(self, warning: str) -> None:
        self.warnings.append(warning)
        stderr.print_warning(warning)

    def _not_there(self) -> str | None:
        """Return a message if the files of the manifest's newest generation are missing but those of other generations
        exist."""
        with suppress(OocError):
            path = self.directory / MANIFEST
            manifest = read_json(path, what="the state of a run", schema=SCHEMA, holds=StateManifest, sealed=True)
            if self._entries and manifest["newest"]["generation"] != self._entries[0]["generation"]:
                return f"{path} names generation {manifest['newest']['generation']}, whose files are missing"
        return None

    def create(self) -> CellFile:
        """Create the cells of the next generation."""
        generation = self._next()
        path = self._cells(generation)
        if self._spare:
            with disk_errors(path):
                self._spare.rename(path)
            self._spare = None
        return CellFile(path, self._layout, header=self._header(generation))

    def _cells(self, generation: int) -> Path:
        return self.directory / f"{generation:06}.cells"

    def commit(self, cells: CellFile, arrays: Mapping[str, np.ndarray | ArrayPieces], cursor: TrainingCursor) -> None:
        """Commit the generation whose cells were written as the newest, keep the previous one, and delete older
        ones."""
        self._before_commit()
        generation = self._next()
        table = cells.seal()
        entry = write_arrays(self.directory, f"{generation:06}.h5", arrays)
        fsync_directory(self.directory)
        newest = {"generation": generation, "cursor": asdict(cursor), "cells": table, "arrays": entry}
        described = {"schema": SCHEMA, "dataset": self._dataset.identity, **newest}
        write_json(self.directory / f"{generation:06}.json", described)
        for outdated in self._entries[1:]:
            self._spare = self._cells(outdated["generation"])
        self._publish([newest, *self._entries[:1]])
        remove_uncommitted(self.directory, but=self._spare)

    def _publish(self, entries: list[dict[str, Any]]) -> None:
        before = entries[1] if len(entries) > 1 else None
        manifest = {"schema": SCHEMA, "dataset": self._dataset.identity, "newest": entries[0], "before": before}
        write_json(self.directory / MANIFEST, manifest)
        self._entries = entries

    def _next(self) -> int:
        return self._entries[0]["generation"] + 1 if self._entries else 1


def committed_local_state(directory: Path) -> LocalState | None:
    """Return the local state spec from the header of the newest cells; None if nothing was committed.

    This makes a state readable without its program.
    Raises WorkFailed if the header is damaged.
    """
    entries = committed(directory)
    if not entries:
        return None
    path = directory / f"{entries[0]['generation']:06}.cells"
    with disk_errors(path), path.open("rb") as file:
        text = file.read(PAGE)
    try:
        header = json.loads(text)
        local = LocalState(str(np.dtype(header["dtype"])), int(header["width"]))
    except (ValueError, KeyError, TypeError) as error:
        raise WorkFailed(f"{path} is damaged: its header cannot be read") from error
    if np.dtype(local.dtype).kind not in "uif" or not 0 <= local.width <= MOST_NUMBERS:
        raise WorkFailed(f"{path} is damaged: its header says {local.width} x {local.dtype} per row")
    return local


def remove_uncommitted(directory: Path, *, but: Path | None = None) -> list[RemovedPath]:
    """Delete files of uncommitted or outdated generations. The caller must hold the lock of the run."""
    kept = {f"{entry['generation']:06}" for entry in committed(directory)}
    strays = [file for file in directory.glob("[0-9]*.*") if file.stem not in kept and file != but]
    return remove_leftovers(directory, exclusive=True) + [remove_path(stray) for stray in strays]


def committed(directory: Path) -> list[dict[str, Any]]:
    """Return the manifest entries of the newest generation and the previous one.

    If the files of the newest generation are missing, as in a copy made during training, the entries of the existing
    generations are returned.
    Raises WorkFailed if there are no valid entries, and RequestError for files of another version of ooc.
    """
    path = directory / MANIFEST
    try:
        manifest = (
            read_json(path, what="the state of a run", schema=SCHEMA, holds=StateManifest, sealed=True)
            if path.exists()
            else None
        )
    except WorkFailed:
        if found := _described(directory):
            return found
        raise
    if manifest is None:
        return _described(directory)
    entries = [entry for entry in (manifest["newest"], manifest["before"]) if entry]
    if _is_there(directory, entries[0]):
        return entries
    others = {entry["generation"]: entry for entry in (*entries[1:], *_descriptions(directory))}
    found = [others[generation] for generation in sorted(others, reverse=True)]
    return [entry for entry in found if _is_there(directory, entry)][:2] or entries


def _is_there(directory: Path, entry: dict[str, Any]) -> bool:
    """Return whether the files of a generation exist."""
    files = (f"{entry['generation']:06}.cells", entry["arrays"]["file"])
    return all((directory / file).exists() for file in files)


def _described(directory: Path) -> list[dict[str, Any]]:
    """Return the entries of the two newest generations from their own description files, or none if nothing was
    committed.

    Raises WorkFailed if there are generations without descriptions, as written by earlier versions.
    """
    entries = list(_descriptions(directory))
    if not entries and any(int(cells.stem) > 1 for cells in directory.glob("[0-9]*.cells")):
        raise WorkFailed(
            f"{directory / MANIFEST}, which names the newest saved state, is missing",
            "Restore the file from a copy, or train again from the start with --overwrite.",
        )
    return entries[:2]


def _descriptions(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the descriptions of the generations, newest first, without damaged ones."""
    for path in sorted(directory.glob("[0-9]*.json"), reverse=True):
        with suppress(WorkFailed):
            entry = read_json(path, what="a generation of a run", schema=SCHEMA, holds=GenerationEntry, sealed=True)
            yield {name: entry[name] for name in ("generation", "cursor", "cells", "arrays")}
