"""A dataset directory, made once by `ooc ingest` and read by every run.

The manifest lists array files (blocks are ranges of rows, slices are ranges of columns) and text files, all with
checksums. It is written last, as the commit point.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from blocks.arrays import Int64, Uint64, open_arrays
from blocks.errors import RequestError, WorkFailed
from blocks.files import REMEDY, checksum, disk_errors, publish_file
from blocks.json_files import read_json, require_fit
from blocks.schemas import DatasetManifest, ManifestKind

_Arrays = TypeVar("_Arrays", bound=tuple[Any, ...])  # a NamedTuple of arrays

SCHEMA = 1  # schema of most manifests
NEWEST = 2  # newest schema of any manifest
MANIFEST = "manifest.json"


_NAMES = {"matrix": "dataset of ratings", "sample set": "dataset of samples"}  # names of the kinds in messages


class WholeDatasetEntry(NamedTuple):
    """Data about the whole dataset in a shard. See `blocks.shards.whole_dataset`."""

    numbers: Uint64  # (D,)
    frequencies: Int64  # (V,)


def dataset_manifest(path: Path) -> Path:
    """Return the manifest of a dataset, or of an earlier generation. See `blocks.dataset_generations`."""
    return path if path.name.startswith("manifest-") and path.suffix == ".json" else path / MANIFEST


class StoredDataset:
    """A dataset of one kind opened for reading; subclasses define the contents of blocks and slices.

    Attributes: `path`; `opened_at`, the path for opening the same generation again; `manifest`; `block_count`;
    `slice_count`; `identity`, which changes when any data changes; `samples`, number of training samples; `part_size`,
    number of samples in a part (the unit of work and of random streams); `shard` and `shards`, index of this shard and
    number of shards, 0 and 1 for a dataset that is not split.
    """

    kind: ClassVar[str]
    counted: ClassVar[str]  # name of the items in blocks, such as documents
    unit: ClassVar[str]  # name of the samples, such as tokens
    rate: ClassVar[str]  # name of the samples per second in metrics
    schema: ClassVar[int] = SCHEMA  # newest schema of its manifests
    holds: ClassVar[Any] = DatasetManifest  # TypedDict of the manifest
    whole_holds: ClassVar[Any]  # NamedTuple of the arrays that a shard has of the whole dataset
    samples: int
    part_size: int
    index: Any  # has `cells`, int64 (B, S), number of samples in each cell

    def __init__(self, path: str | Path) -> None:
        self.opened_at = Path(path)
        file = dataset_manifest(self.opened_at)
        self.path = file.parent
        what = "a dataset made by `ooc ingest`"
        self.manifest = read_json(file, what=what, schema=self.schema, holds=ManifestKind)
        if self.manifest["kind"] != self.kind:
            found, expected = (_NAMES.get(kind, kind) for kind in (self.manifest["kind"], self.kind))
            raise RequestError(f"{self.path} is a {found}; expected a {expected}")
        require_fit(file, self.manifest, self.holds)
        self.looked_through: set[str] = set()  # files already validated, see `blocks.bounds_checks`
        self.identity: str = self.manifest["identity"]
        self.block_count = len(self.manifest["blocks"])
        self.slice_count = len(self.manifest["slices"])

    @property
    def cells(self) -> np.ndarray:
        """Return the number of samples in each cell of the grid, int64 (B, S)."""
        return self.index.cells

    @property
    def block_bounds(self) -> np.ndarray:
        """Return the first row, document or (in a design) column of each block, followed by the total number, int64
        (B+1,).
        """
        return self.index.block_bounds

    @property
    def slice_bounds(self) -> np.ndarray:
        """Return the first column or word of each slice, followed by the total number, int64 (S+1,)."""
        return self.index.slice_bounds

    def block(self, number: int) -> Any:
        """Memory-map the data of a block."""
        raise NotImplementedError

    def ask_for_block(self, number: int) -> None:
        """Ask the kernel to read a block in the background before it is mapped."""
        path = self.path / self.manifest["blocks"][number]["file"]
        if hasattr(os, "posix_fadvise"):
            with disk_errors(path), path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    def drop_block(self, number: int) -> None:
        """Ask the kernel to drop a block from the page cache, except mapped pages."""
        path = self.path / self.manifest["blocks"][number]["file"]
        if hasattr(os, "posix_fadvise"):
            with disk_errors(path), path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def slice(self, number: int) -> Any:
        """Memory-map the data of a slice."""
        raise NotImplementedError

    def column_samples(self) -> np.ndarray:
        """Return the number of samples of each word or column in the whole dataset, by rank, int64 (V,)."""
        raise NotImplementedError

    @property
    def shard(self) -> int:
        return self.manifest.get("shard", {}).get("number", 0)

    @property
    def shards(self) -> int:
        return self.manifest.get("shard", {}).get("shards", 1)

    @property
    def whole_identity(self) -> str:
        """Return the identity of the whole dataset; the dataset's own identity if it is not a shard."""
        return self.manifest["shard"]["whole"]["identity"] if "shard" in self.manifest else self.identity

    def of_whole(self) -> dict[str, np.ndarray] | None:
        """Return the shard's data about the whole dataset; None if it is not a shard. See
        `blocks.shards.whole_dataset`."""
        return self.map(self.manifest["shard"]["index"], self.whole_holds) if "shard" in self.manifest else None

    def map(self, entry: dict[str, Any], holds: Any, *, streamed: bool = False) -> dict[str, np.ndarray]:
        """Memory-map the arrays of a file, given its manifest entry. See `open_arrays` for holds, streamed and
        errors.
        """
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
        """Memory-map a block or slice.

        check: function that validates it the first time and raises if indices are out of range.
        """
        entry = self.manifest[kind][number]
        arrays = holds(**self.map(entry, holds, streamed=streamed))
        if entry["file"] not in self.looked_through:
            check(number, self.path / entry["file"], arrays)
            self.looked_through.add(entry["file"])
        return arrays

    @property
    def data_bytes(self) -> int:
        """Return the size in bytes of the files of blocks and slices."""
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
    """Return how a file differs from its manifest entry, or None if it does not."""
    try:
        size = path.stat().st_size
        if size != entry["bytes"]:
            return f"{path}: {size} bytes, expected {entry['bytes']}"
        return None if checksum(path) == entry["checksum"] else f"{path}: its checksum does not match"
    except FileNotFoundError:
        return f"{path}: missing"
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"


def range_parts(offsets: np.ndarray, part_size: int) -> np.ndarray:
    """Cut a range of rows or columns into parts of about `part_size` entries each.

    offsets: int64 (n+1,), cumulative number of entries.
    Returns int64 (P+1,), the first item of each part; the last element is n. Each part but the last has at least one
    item; items are never split.
    """
    marks = np.arange(part_size, offsets[-1], part_size)
    inner = np.searchsorted(offsets, marks)
    return np.unique(np.concatenate(([0], inner, [offsets.size - 1])))


def write_lines(root: Path, file_name: str, lines: Iterable[str]) -> dict[str, Any]:
    """Publish a text file with one item per line.

    Returns its manifest entry.
    """
    with publish_file(root / file_name) as beside:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(line + "\n" for line in lines)
        return {"file": file_name, "bytes": beside.stat().st_size, "checksum": checksum(beside)}


def count_lines(path: Path) -> int:
    """Return the number of lines that `read_lines` would return."""
    with path.open("rb") as file:
        return sum(data.count(b"\n") for data in iter(lambda: file.read(1 << 20), b""))


def read_lines(path: Path, count: int | None = None) -> list[str]:
    """Return the lines of a text file from `write_lines`.

    Raises WorkFailed if it is missing, damaged, or does not have `count` lines.
    """
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")  # not in text mode: words may contain a carriage return
    except FileNotFoundError:
        raise WorkFailed(f"{path} is missing", REMEDY) from None
    except UnicodeDecodeError as error:
        raise WorkFailed(f"{path} is damaged: {error}", REMEDY) from error
    if lines.pop():
        raise WorkFailed(f"{path} is damaged: its last line has no line break", REMEDY)
    if count is not None and len(lines) != count:
        raise _other_count(path, len(lines), count)
    return lines


def iterate_lines(path: Path, count: int) -> Iterator[str]:
    """Yield the lines that `read_lines` would return.

    Raises the same errors.
    """
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
