"""A sparse matrix of numbers: ratings of items (columns) by users (rows), made by `ooc ingest ratings`.

    manifest.json     counts, tables of blocks and slices, checksums, how it was made: the commit point
    rows.txt          name of row i on line i (UTF-8), in the order of results
    columns.txt       name of column j on line j
    index.h5          columns of each slice, their entries, rows of each block, entries of each cell
    blocks/00000.h5   entries of a range of rows, by row
    slices/00000.h5   entries of a range of columns, by column (derived from the blocks)
    whole.h5          of a shard: its lines in the whole's rows.txt, and the entries of columns there

Internally rows are numbered by place, block by block, and columns by rank, slice by slice, most entries first.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict

import numpy as np

from blocks.arrays import Float32, Int64, Uint32
from blocks.bounds_checks import require_below, require_cells, require_offsets, require_valid
from blocks.schemas import ArrayFileEntry, Count, DatasetManifest, FileEntry, ShardEntry
from blocks.stored_dataset import StoredDataset, WholeDatasetEntry, count_lines, read_lines

if TYPE_CHECKING:
    from blocks.ratings.incremental_writer import RatingsWriter

LARGEST = float(np.finfo(np.float32).max)  # maximum absolute value
PART_ENTRIES = 1 << 15  # approximate entries in one job: some rows of a block, or some columns of a slice


class MatrixRowBlock(NamedTuple):
    """The N entries of D consecutive rows; `documents` and `offsets` are named as in a corpus."""

    rows: Uint32  # (D,), line in rows.txt (from 0) of each row
    offsets: Int64  # (D+1,), start of each row's entries
    columns: Uint32  # (N,), column rank of each entry, ascending within a row
    values: Float32  # (N,)


class MatrixColumnSlice(NamedTuple):
    """The N entries of W columns of consecutive ranks."""

    offsets: Int64  # (W+1,), start of each column's entries
    rows: Uint32  # (N,), row place of each entry, ascending within a column
    values: Float32  # (N,)


class MatrixIndex(NamedTuple):
    """The C columns by rank, and the grid of B blocks and S slices."""

    column_ids: Uint32  # (C,), line in columns.txt (from 0) of the column at each rank
    column_entries: Int64  # (C,), number of entries in the column at each rank
    slice_bounds: Int64  # (S+1,), first rank of each slice
    block_bounds: Int64  # (B+1,), first place of each block
    cells: Int64  # (B, S), number of entries in each cell


class ValueStatistics(TypedDict):
    """Statistics of the values."""

    low: float
    high: float
    mean: float
    deviation: float


class MatrixCounts(TypedDict):
    """Counts of the whole matrix to which a shard belongs."""

    identity: str
    hash: str
    rows: Count
    entries: Count
    values: ValueStatistics


class MatrixShardEntry(ShardEntry):
    """The "shard" entry of a shard's manifest."""

    whole: MatrixCounts


class MatrixBlockEntry(ArrayFileEntry):
    """Manifest entry for a block.

    longest: number of entries in the longest row.
    """

    rows: Count
    longest: Count


class MatrixTextFileEntries(TypedDict):
    """Manifest entries for the files of row and column names."""

    rows: FileEntry
    columns: FileEntry


class MatrixManifest(DatasetManifest):
    """Manifest of a matrix."""

    texts: MatrixTextFileEntries
    rows: Count
    columns: Count
    entries: Count
    values: ValueStatistics
    blocks: list[MatrixBlockEntry]
    slices: list[ArrayFileEntry]
    shard: NotRequired[MatrixShardEntry]


class WholeMatrixStatistics(NamedTuple):
    """Counts and value statistics of the whole matrix to which a shard belongs."""

    rows: int
    entries: int
    column_entries: np.ndarray  # int64 (C,), number of entries in the column at each rank
    low: float
    high: float
    mean: float
    deviation: float


class Matrix(StoredDataset):
    """A sparse matrix opened for reading; a sample is an entry.

    Attributes, in addition to those of `StoredDataset`: `rows`, `columns` and `entries`, the size of the matrix;
    `index`; `low`, `high`, `mean` and `deviation` (standard deviation) of the values; `whole`, the same statistics of
    the whole matrix if this is a shard, else of this matrix.
    """

    kind = "matrix"
    counted = "rows"
    unit = "entries"
    rate = "samples_per_s"
    holds = MatrixManifest
    whole_holds = WholeDatasetEntry

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.rows: int = self.manifest["rows"]
        self.columns: int = self.manifest["columns"]
        self.entries: int = self.manifest["entries"]
        self.samples, self.part_size = self.entries, PART_ENTRIES
        values = self.manifest["values"]
        self.low, self.high = float(values["low"]), float(values["high"])
        self.mean, self.deviation = float(values["mean"]), float(values["deviation"])
        self.index = self._open_index(self.manifest["index"])

    @staticmethod
    def create(
        path: str | Path,
        *,
        user_column: str | None = None,
        item_column: str | None = None,
        rating_column: str | None = None,
        names_from: str | Path | None = None,
        items_from: str | Path | None = None,
        seed: int = 0,
        grid: int | None = None,
        memory: int | str | None = None,
        overwrite: bool = False,
    ) -> AbstractContextManager[RatingsWriter]:
        """Write a new matrix of ratings in memory that does not grow with the number of ratings.

        Use it in a ``with`` block: the matrix appears at `path` when the block ends, unless the block raises. The files
        are byte for byte what `ooc ingest ratings` writes for the same ratings, except for the record of the input.
        If a user rates an item several times, the last rating counts.

        Parameters
        ----------
        path : str or Path
            Directory of the matrix, which must not exist.
        user_column, item_column, rating_column : str, optional
            Columns of data frames and pyarrow tables. Common names such as userId and movieId are detected. A rating
            column of "none" makes all ratings 1.
        names_from : str or Path, optional
            A matrix whose users and items are used; ratings of other users or items are left out.
        items_from : str or Path, optional
            A matrix whose items are used.
        seed : int
            Seed for shuffling the users into blocks.
        grid : int, optional
            Number of blocks and of slices; by default chosen from the number of ratings.
        memory : int or str, optional
            Memory budget of this process, in bytes or as "2GB"; by default a quarter of the free memory.
        overwrite : bool
            Replace an existing dataset at `path`.

        Returns
        -------
        context manager of RatingsWriter
            Its method ``add(users, items, ratings)`` adds ratings.

        Raises
        ------
        RequestError
            If `path` exists, an option is invalid, or no ratings were added.
        """
        from blocks.ratings.formats import RatingsFormatOptions
        from blocks.ratings.incremental_writer import create_ratings
        from blocks.ratings.request import RatingsRequest  # which reads matrices

        names, items = (None if base is None else str(base) for base in (names_from, items_from))
        columns = RatingsFormatOptions(user=user_column, item=item_column, rating=rating_column)
        choices = {"seed": seed, "grid": grid, "overwrite": overwrite, "format_options": columns}
        return create_ratings(RatingsRequest([], str(path), names, items, **choices), memory)  # type: ignore[arg-type]

    def _open_index(self, entry: dict[str, Any]) -> MatrixIndex:
        path, size = self.path / entry["file"], self.columns
        index = MatrixIndex(**self.map(entry, MatrixIndex))
        sizes = {index.column_ids.size, index.column_entries.size}
        require_valid(sizes == {size}, path, f"its arrays do not match {size} columns")
        require_below(path, "columns", index.column_ids, size)
        require_offsets(path, "slice_bounds", index.slice_bounds, self.slice_count, size)
        require_offsets(path, "block_bounds", index.block_bounds, self.block_count, self.rows)
        require_cells(path, index.cells, self.block_count, self.slice_count, self.entries)
        return index._replace(cells=index.cells.reshape(self.block_count, self.slice_count))

    def block(self, number: int) -> MatrixRowBlock:
        """Memory-map the rows of a block."""
        return self.mapped("blocks", number, MatrixRowBlock, self._check_block, streamed=True)

    def _check_block(self, number: int, path: Path, block: MatrixRowBlock) -> None:
        rows, entries = int(np.diff(self.index.block_bounds)[number]), int(self.index.cells[number].sum())
        require_valid(block.rows.size == rows, path, f"it has {block.rows.size} rows, expected {rows}")
        require_offsets(path, "offsets", block.offsets, rows, entries)
        require_valid(block.columns.size == block.values.size == entries, path, f"it does not have {entries} entries")
        require_below(path, "columns", block.columns, self.columns)

    def slice(self, number: int) -> MatrixColumnSlice:
        """Memory-map the columns of a slice."""
        return self.mapped("slices", number, MatrixColumnSlice, self._check_slice, streamed=True)

    def _check_slice(self, number: int, path: Path, columns: MatrixColumnSlice) -> None:
        width, entries = int(np.diff(self.index.slice_bounds)[number]), int(self.index.cells[:, number].sum())
        require_offsets(path, "offsets", columns.offsets, width, entries)
        require_valid(columns.rows.size == columns.values.size == entries, path, f"it does not have {entries} entries")
        require_below(path, "rows", columns.rows, self.rows)

    @cached_property
    def whole(self) -> WholeMatrixStatistics:
        arrays = self.of_whole()
        if arrays is None:
            values = self.manifest["values"]
            return WholeMatrixStatistics(self.rows, self.entries, self.index.column_entries, **values)
        told, path = self.manifest["shard"]["whole"], self.path / self.manifest["shard"]["index"]["file"]
        require_valid(arrays["frequencies"].size == self.columns, path, "its columns differ from those of the shard")
        return WholeMatrixStatistics(told["rows"], told["entries"], arrays["frequencies"], **told["values"])

    def column_samples(self) -> np.ndarray:
        return self.whole.column_entries

    def originals(self) -> np.ndarray:
        """Return the line of each row in the whole matrix's rows.txt, uint64 (n,), ascending; 0, 1, ... if this is not
        a shard."""
        arrays = self.of_whole()
        return np.arange(len(self.row_names()), dtype=np.uint64) if arrays is None else arrays["numbers"]

    def row_names(self) -> list[str]:
        """Return the names of all rows in the original order."""
        return read_lines(self.path / self.manifest["texts"]["rows"]["file"])

    def count_row_names(self) -> int:
        """Return the number of row names, including rows without entries."""
        return count_lines(self.path / self.manifest["texts"]["rows"]["file"])

    def column_names(self) -> list[str]:
        """Return the names of all columns in the original order."""
        return read_lines(self.path / self.manifest["texts"]["columns"]["file"], self.columns)
