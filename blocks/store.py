"""A dataset: the directory that `ooc ingest` makes once and every run reads, whatever it holds.

A manifest lists files of arrays, blocks (runs of rows) and slices (runs of columns) among them, and files of lines, all
with their checksums. It is written last: the commit point.
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


class OfWhole(NamedTuple):
    """What a shard knows of the dataset that it is of, see `blocks.shards.whole`."""

    numbers: Uint64  # (D,)
    frequencies: Int64  # (V,)


def manifest_of(path: Path) -> Path:
    """The manifest of a dataset; a path may also be that of an earlier generation, see `blocks.generations`."""
    return path if path.name.startswith("manifest-") and path.suffix == ".json" else path / MANIFEST


class Store:
    """A dataset of one kind opened for reading; subclasses say what its blocks and slices hold.

    Attributes: `path`, `opened_at` (what to give for the same generation to be opened again), `manifest`,
    `block_count`, `slice_count`, `identity` (changes when any data changes), `samples` (how many there are to train
    on), `part_size` (of them, in the parts in which work is dealt and random streams are keyed); `shard` and `shards`,
    the number of this shard and how many shards the whole has: 0 and 1 for a dataset that is not split.
    """

    kind: ClassVar[str]
    counted: ClassVar[str]  # what its blocks consist of
    unit: ClassVar[str]  # and these of
    rate: ClassVar[str]  # how metrics call the samples of a second
    schema: ClassVar[int] = SCHEMA  # the newest of its manifests
    holds: ClassVar[Any] = Manifest  # what a manifest has to hold
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
            raise RequestError(f"{self.path} is a {self.manifest['kind']}; expected a {self.kind}")
        require_fit(file, self.manifest, self.holds)
        self.looked_through: set[str] = set()  # files whose numbers are known to be in range, see `blocks.bounds`
        self.identity: str = self.manifest["identity"]
        self.block_count = len(self.manifest["blocks"])
        self.slice_count = len(self.manifest["slices"])

    @property
    def cells(self) -> np.ndarray:
        """int64 (B, S), samples of each cell of the grid."""
        return self.index.cells

    @property
    def block_bounds(self) -> np.ndarray:
        """int64 (B+1,), the first row, document, or column of a design, of each block among all, and their number."""
        return self.index.block_bounds

    @property
    def slice_bounds(self) -> np.ndarray:
        """int64 (S+1,), the first column, or word, of each slice among all, and their number."""
        return self.index.slice_bounds

    def block(self, number: int) -> Any:
        """Map the data of a block."""
        raise NotImplementedError

    def ask_for_block(self, number: int) -> None:
        """Have the kernel read a block, in the background, that will be mapped soon."""
        path = self.path / self.manifest["blocks"][number]["file"]
        if hasattr(os, "posix_fadvise"):
            with disk_errors(path), path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    def drop_block(self, number: int) -> None:
        """Have the kernel forget a block, but for what somebody has mapped."""
        path = self.path / self.manifest["blocks"][number]["file"]
        if hasattr(os, "posix_fadvise"):
            with disk_errors(path), path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def slice(self, number: int) -> Any:
        """Map the data of a slice."""
        raise NotImplementedError

    def column_samples(self) -> np.ndarray:
        """int64 (V,), how many samples the whole has of the word, or in the column, of each rank."""
        raise NotImplementedError

    @property
    def shard(self) -> int:
        return self.manifest.get("shard", {}).get("number", 0)

    @property
    def shards(self) -> int:
        return self.manifest.get("shard", {}).get("shards", 1)

    @property
    def whole_identity(self) -> str:
        """The identity of the dataset that a shard is of; its own if it is none."""
        return self.manifest["shard"]["whole"]["identity"] if "shard" in self.manifest else self.identity

    def of_whole(self) -> dict[str, np.ndarray] | None:
        """What a shard knows of its whole, see `blocks.shards.whole`; None for a dataset that is no shard."""
        return self.map(self.manifest["shard"]["index"], self.whole_holds) if "shard" in self.manifest else None

    def map(self, entry: dict[str, Any], holds: Any, *, streamed: bool = False) -> dict[str, np.ndarray]:
        """Map the arrays of a file, given its entry; holds, streamed, raises: see `open_arrays`."""
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
        """Map a block or slice. check: looks through it the first time, and raises for what is out of range."""
        entry = self.manifest[kind][number]
        arrays = holds(**self.map(entry, holds, streamed=streamed))
        if entry["file"] not in self.looked_through:
            check(number, self.path / entry["file"], arrays)
            self.looked_through.add(entry["file"])
        return arrays

    @property
    def data_bytes(self) -> int:
        """Bytes of the files of blocks and slices."""
        return sum(entry["bytes"] for entry in (*self.manifest["blocks"], *self.manifest["slices"]))

    def files(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Every file of the dataset with its manifest entry (bytes and checksum)."""
        planted, shard = self.manifest.get("planted"), self.manifest.get("shard")
        entries = [
            self.manifest["index"],
            *([planted] if planted else []),
            *([shard["index"]] if shard else []),
            *self.manifest["texts"].values(),
            *self.manifest["blocks"],
            *self.manifest["slices"],
        ]
        for entry in entries:
            yield self.path / entry["file"], entry


def check_file(path: Path, entry: dict[str, Any]) -> str | None:
    """What is wrong with a file, compared with its manifest entry, or None."""
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
    """Cut a run of rows or columns into parts of about `part_size` entries each.

    offsets: int64 (n+1,), entries cumulated. Returns int64 (P+1,), the item at which each part begins; the last is n.
    Each part but the last holds at least one item; an item is never split.
    """
    marks = np.arange(part_size, offsets[-1], part_size)
    inner = np.searchsorted(offsets, marks)
    return np.unique(np.concatenate(([0], inner, [offsets.size - 1])))


def write_lines(root: Path, file_name: str, lines: Iterable[str]) -> dict[str, Any]:
    """Publish a text file of one item a line; returns its manifest entry."""
    with publish(root / file_name) as beside:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(line + "\n" for line in lines)
        return {"file": file_name, "bytes": beside.stat().st_size, "checksum": checksum(beside)}


def count_lines(path: Path) -> int:
    """How many `read_lines` would find."""
    with path.open("rb") as file:
        return sum(data.count(b"\n") for data in iter(lambda: file.read(1 << 20), b""))


def read_lines(path: Path, count: int | None = None) -> list[str]:
    """The lines of a text file that `write_lines` wrote.

    Raises WorkFailed if it is missing or damaged, or if it does not have `count` lines.
    """
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
    """The lines that `read_lines` would return, one after the other. Raises WorkFailed as that does."""
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
