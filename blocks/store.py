"""A dataset directory, made once by `ooc ingest` and read by every run.

A manifest lists files of arrays (blocks are ranges of rows, slices are ranges of columns) and text files, all with
checksums. It is written last: the commit point.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from blocks.arrays import Int64, Uint64, open_arrays
from blocks.errors import RequestError, WorkFailed
from blocks.files import REMEDY, checksum, disk_errors, publish
from blocks.json_files import read_json, require_fit
from blocks.schemas import Kind, Manifest

_Arrays = TypeVar("_Arrays", bound=tuple[Any, ...])  # a NamedTuple of them

SCHEMA = 1  # of most manifests
NEWEST = 2  # of all of them
MANIFEST = "manifest.json"


_NAMES = {"matrix": "dataset of ratings", "sample set": "dataset of samples"}  # of kinds, in messages


class WholeFile(NamedTuple):
    """Data of the whole dataset that a shard has; see `blocks.shards.whole`."""

    numbers: Uint64  # (D,)
    frequencies: Int64  # (V,)


def manifest_of(path: Path) -> Path:
    """Return the manifest of a dataset; the path may also be that of an earlier generation, see
    `blocks.generations`."""
    return path if path.name.startswith("manifest-") and path.suffix == ".json" else path / MANIFEST


class Store:
    """A dataset of one kind opened for reading; subclasses define the content of blocks and slices.

    Attributes: `path`; `opened_at`, the path to open the same generation again; `manifest`; `block_count`;
    `slice_count`; `identity`, which changes when any data changes; `samples`, number of training samples; `part_size`,
    samples of a part (the unit of work and of random streams); `shard` and `shards`, number of this shard and of all
    shards, 0 and 1 for a dataset that is not split.
    """

    kind: ClassVar[str]
    counted: ClassVar[str]  # what its blocks consist of
    unit: ClassVar[str]  # and these of
    rate: ClassVar[str]  # how metrics call the samples of a second
    schema: ClassVar[int] = SCHEMA  # the newest of its manifests
    holds: ClassVar[Any] = Manifest  # TypedDict of the manifest
    whole_holds: ClassVar[Any]  # and the file that a shard has of its whole
    samples: int
    part_size: int
    index: Any  # with `cells` int64 (B, S), samples of each cell

    def __init__(self, path: str | Path) -> None:
        self.opened_at = Path(path)
        file = manifest_of(self.opened_at)
        self.path = file.parent
        what = "a dataset made by `ooc ingest`"
        self.manifest = read_json(file, what=what, schema=self.schema, holds=Kind)
        if self.manifest["kind"] != self.kind:
            found, expected = (_NAMES.get(kind, kind) for kind in (self.manifest["kind"], self.kind))
            raise RequestError(f"{self.path} is a {found}; expected a {expected}")
        require_fit(file, self.manifest, self.holds)
        self.looked_through: set[str] = set()  # files whose numbers are known to be in range, see `blocks.bounds`
        self.identity: str = self.manifest["identity"]
        self.block_count = len(self.manifest["blocks"])
        self.slice_count = len(self.manifest["slices"])

    @property
    def cells(self) -> np.ndarray:
        """Return the number of samples of each cell of the grid, int64 (B, S)."""
        return self.index.cells

    @property
    def block_bounds(self) -> np.ndarray:
        """Return the first row, document or (of a design) column of each block, and their total number, int64
        (B+1,)."""
        return self.index.block_bounds

    @property
    def slice_bounds(self) -> np.ndarray:
        """Return the first column or word of each slice, and their total number, int64 (S+1,)."""
        return self.index.slice_bounds

    def block(self, number: int) -> Any:
        """Map the data of a block."""
        raise NotImplementedError

    def ask_for_block(self, number: int) -> None:
        """Have the kernel read a block in the background that will be mapped soon."""
        path = self.path / self.manifest["blocks"][number]["file"]
        if hasattr(os, "posix_fadvise"):
            with disk_errors(path), path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    def drop_block(self, number: int) -> None:
        """Have the kernel drop a block from the page cache, except mapped pages."""
        path = self.path / self.manifest["blocks"][number]["file"]
        if hasattr(os, "posix_fadvise"):
            with disk_errors(path), path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def slice(self, number: int) -> Any:
        """Map the data of a slice."""
        raise NotImplementedError

    def column_samples(self) -> np.ndarray:
        """Return the samples in the whole dataset of each word or column by rank, int64 (V,)."""
        raise NotImplementedError

    @property
    def shard(self) -> int:
        return self.manifest.get("shard", {}).get("number", 0)

    @property
    def shards(self) -> int:
        return self.manifest.get("shard", {}).get("shards", 1)

    @property
    def whole_identity(self) -> str:
        """Return the identity of the whole dataset of a shard; its own if it is not a shard."""
        return self.manifest["shard"]["whole"]["identity"] if "shard" in self.manifest else self.identity

    def of_whole(self) -> dict[str, np.ndarray] | None:
        """Return the shard's data about the whole, see `blocks.shards.whole`; None if it is not a shard."""
        return self.map(self.manifest["shard"]["index"], self.whole_holds) if "shard" in self.manifest else None

    def map(self, entry: dict[str, Any], holds: Any, *, streamed: bool = False) -> dict[str, np.ndarray]:
        """Map the arrays of a file given its entry; see `open_arrays` for holds, streamed and errors."""
        remedy = f"List all damaged files with: ooc verify {self.path}"
        return open_arrays(self.path / entry["file"], entry, holds, remedy=remedy, streamed=streamed)

    def mapped(
        self,
        kind: Literal["blocks", "slices"],
        number: int,
        holds: type[_Arrays],
        check: Callable[[int, Path, _Arrays], None],
        *,
        streamed: bool = False,
    ) -> _Arrays:
        """Map a block or slice. check: function that validates it the first time and raises if indices are out of
        range."""
        entry = self.manifest[kind][number]
        arrays = holds(**self.map(entry, holds, streamed=streamed))
        if entry["file"] not in self.looked_through:
            check(number, self.path / entry["file"], arrays)
            self.looked_through.add(entry["file"])
        return arrays

    @property
    def data_bytes(self) -> int:
        """Return the bytes of the files of blocks and slices."""
        return sum(entry["bytes"] for entry in (*self.manifest["blocks"], *self.manifest["slices"]))

    def files(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield every file of the dataset with its manifest entry (bytes and checksum)."""
        planted, shard = self.manifest.get("planted"), self.manifest.get("shard")
        entries = [
            self.manifest["index"],
            *([planted] if planted else []),
            *([shard["index"]] if shard else []),
            *self.manifest.get("table", {}).get("files", ()),
            *self.manifest["texts"].values(),
            *self.manifest["blocks"],
            *self.manifest["slices"],
        ]
        for entry in entries:
            yield self.path / entry["file"], entry


def check_file(path: Path, entry: dict[str, Any]) -> str | None:
    """Return what is wrong with a file compared with its manifest entry, or None."""
    try:
        size = path.stat().st_size
        if size != entry["bytes"]:
            return f"{path}: {size} bytes, expected {entry['bytes']}"
        return None if checksum(path) == entry["checksum"] else f"{path}: its checksum does not match"
    except FileNotFoundError:
        return f"{path}: missing"
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"


def parts(offsets: np.ndarray, part_size: int) -> np.ndarray:
    """Cut a range of rows or columns into parts of about `part_size` entries each.

    offsets: int64 (n+1,), cumulative entries. Returns int64 (P+1,), the first item of each part; the last element is n.
    Each part but the last has at least one item; items are never split.
    """
    marks = np.arange(part_size, offsets[-1], part_size)
    inner = np.searchsorted(offsets, marks)
    return np.unique(np.concatenate(([0], inner, [offsets.size - 1])))


def write_lines(root: Path, file_name: str, lines: Iterable[str]) -> dict[str, Any]:
    """Publish a text file with one item per line; returns its manifest entry."""
    with publish(root / file_name) as beside:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(line + "\n" for line in lines)
        return {"file": file_name, "bytes": beside.stat().st_size, "checksum": checksum(beside)}


def count_lines(path: Path) -> int:
    """Return the number of lines that `read_lines` would return."""
    with path.open("rb") as file:
        return sum(data.count(b"\n") for data in iter(lambda: file.read(1 << 20), b""))


def read_lines(path: Path, count: int | None = None) -> list[str]:
    """Return the lines of a text file from `write_lines`. Raises WorkFailed if it is missing, damaged, or does not have
    `count` lines."""
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")  # as bytes: a carriage return may stand in a word
    except FileNotFoundError:
        raise WorkFailed(f"{path} is missing", REMEDY) from None
    except UnicodeDecodeError as error:
        raise WorkFailed(f"{path} is damaged: {error}", REMEDY) from error
    if lines.pop():
        raise WorkFailed(f"{path} is damaged: its last line has no line break", REMEDY)
    if count is not None and len(lines) != count:
        raise _other_count(path, len(lines), count)
    return lines


def each_line(path: Path, count: int) -> Iterator[str]:
    """Yield the lines that `read_lines` would return; raises like it."""
    found = 0
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                found += line.endswith("\n")
                yield line.removesuffix("\n")
    except FileNotFoundError:
        raise WorkFailed(f"{path} is missing", REMEDY) from None
    except UnicodeDecodeError as error:
        raise WorkFailed(f"{path} is damaged: {error}", REMEDY) from error
    if found != count:
        raise _other_count(path, found, count)


def _other_count(path: Path, found: int, count: int) -> WorkFailed:
    return WorkFailed(f"{path} is damaged: it has {found} lines, expected {count}", REMEDY)
