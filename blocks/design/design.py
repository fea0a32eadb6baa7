"""A design matrix, stored by column: samples (rows) by features (columns), from `ooc ingest svmlight` and others.

    manifest.json counts, form of the values, table of blocks, checksums, how it was made: the commit point
    columns.txt       name of column j on line j (UTF-8); absent if columns are numbered
    index.h5          y; mean, norm and standard deviation of each column; columns of each block; offsets, if any
    blocks/00000.h5   a range of columns, all rows

A column whose values are far from 0 and close together may have an offset, see `blocks.design.column_offsets`: blocks
and moments then refer to the differences from it. Columns and rows keep the order of the inputs. There are no slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import numpy as np

from blocks.arrays import Float32, Float64, Int64, Uint32
from blocks.bounds_checks import require_below, require_offsets, require_valid
from blocks.schemas import ArrayFileEntry, Count, DatasetManifest, FileEntry, ShardEntry
from blocks.stored_dataset import StoredDataset, read_lines

if TYPE_CHECKING:
    from blocks.design.incremental_writer import DesignWriter

WITH_OFFSETS = 2  # schema of designs with offsets: earlier versions of ooc would read differences as values
SPARSE, ONES, FLOATS, GENOTYPES, MIXED = "sparse", "ones", "float32", "int8", "mixed"
FORMS = {
    SPARSE: "sparse, float32",
    ONES: "sparse, all ones",
    FLOATS: "dense, float32",
    GENOTYPES: "dense, int8",
    MIXED: "dense, int8 and float32",
}
_DENSE = {FLOATS: (FLOATS,), GENOTYPES: (GENOTYPES,), MIXED: (GENOTYPES, FLOATS)}  # dense forms: forms of their blocks


class SparseDesignBlock(NamedTuple):
    """The N nonzero entries of W consecutive columns."""

    offsets: Int64  # (W+1,), start of each column's entries
    rows: Uint32  # (N,), row of each entry, ascending within a column
    values: Float32  # (N,); (0,) if all entries of the design are 1


class DenseDesignBlock(NamedTuple):
    """All n values of W consecutive columns; a missing value counts as the mean of its column."""

    values: Annotated[np.ndarray, FLOATS, GENOTYPES]  # (W, n), column by column of the design; 0 where missing
    missing_offsets: Int64  # (W+1,), start of each column's missing values
    missing_rows: Uint32  # (M,), row of each missing value, ascending within a column


class DesignIndex(NamedTuple):
    """Target of n rows, and moments of the p columns as stored, with equal row weights."""

    y: Float64  # (n,); (0,) if there is no target
    means: Float64  # (p,)
    norms: Float64  # (p,), Euclidean
    deviations: Float64  # (p,), square root of the mean of squared distances from the mean; 0 if constant
    block_bounds: Int64  # (B+1,), first column of each block
    offsets: Float64 = np.empty(0)  # (p,), offset of each column; (0,) if all are 0


class WholeDesignFile(NamedTuple):
    """Data about the whole design matrix in a shard. See `blocks.design.row_shards`."""

    y: Float64  # (n,)
    means: Float64  # (p,)
    norms: Float64  # (p,)
    deviations: Float64  # (p,)


class DesignTextFileEntries(TypedDict):
    """Manifest entry for the file of column names."""

    columns: NotRequired[FileEntry]


class DesignCounts(TypedDict):
    """Counts of the whole design matrix to which a shard belongs."""

    identity: str
    rows: Count
    entries: Count


class DesignShardEntry(ShardEntry):
    """The "shard" entry of a shard's manifest."""

    whole: DesignCounts


class DesignBlockEntry(ArrayFileEntry):
    """Manifest entry for a block."""

    columns: Count
    entries: Count
    missing: Count


class DesignManifest(DatasetManifest):
    """Manifest of a design matrix."""

    texts: DesignTextFileEntries
    rows: Count
    columns: Count
    entries: Count
    missing: Count
    form: Literal["sparse", "ones", "float32", "int8", "mixed"]
    labels: bool
    first_column: Count
    blocks: list[DesignBlockEntry]
    slices: list[ArrayFileEntry]
    shard: NotRequired[DesignShardEntry]


class Design(StoredDataset):
    """A design matrix opened for reading; a sample is an entry.

    Attributes, in addition to those of `StoredDataset`: `rows` and `columns`, the shape; `entries`, number of nonzero
    values; `missing`, number of missing values; `form`, a key of `FORMS`; `index`, whose `means`, `norms`, `deviations`
    and `block_bounds` are also attributes; `offsets` float64 (p,), None if all are 0; `y` float64 (n,), None if there
    is no target.
    """

    kind = "design matrix"
    schema = WITH_OFFSETS
    counted = "columns"
    unit = "entries"
    rate = "samples_per_s"
    holds = DesignManifest
    whole_holds = WholeDesignFile

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.rows: int = self.manifest["rows"]
        self.columns: int = self.manifest["columns"]
        self.entries: int = self.manifest["entries"]
        self.missing: int = self.manifest["missing"]
        self.form: str = self.manifest["form"]
        self.samples = self.entries
        self.index = self._open_index(self.manifest["index"])
        self.means, self.norms, self.deviations = self.index.means, self.index.norms, self.index.deviations
        self.offsets = self.index.offsets if self.index.offsets.size else None
        self.y = self.index.y if self.manifest["labels"] else None

    @staticmethod
    def create(
        path: str | Path,
        *,
        target: str | None = None,
        drop: Sequence[str] = (),
        columns_from: str | Path | None = None,
        block_bytes: int = 32 << 20,
        memory: int | str | None = None,
        overwrite: bool = False,
    ) -> AbstractContextManager[DesignWriter]:
        """Write a new design matrix for regressions row by row, in memory that does not grow with the number of rows.

        Use it in a ``with`` block: the design appears at `path` when the block ends, unless the block raises. The files
        are byte for byte what `ooc ingest npz` writes for the same matrix, except for the record of the input.

        Parameters
        ----------
        path : str or Path
            Directory of the design, which must not exist.
        target : str, optional
            The column of data frames and pyarrow tables that holds y.
        drop : sequence of str
            Columns of data frames and pyarrow tables to leave out.
        columns_from : str or Path, optional
            A design whose columns are used, for example for rows on which a model will be evaluated.
        block_bytes : int
            Approximate size of a block in bytes.
        memory : int or str, optional
            Memory budget of this process, in bytes or as "2GB"; by default a quarter of the free memory.
        overwrite : bool
            Replace an existing dataset at `path`.

        Returns
        -------
        context manager of DesignWriter
            Its method ``add(X, y=None)`` adds rows.

        Raises
        ------
        RequestError
            If `path` exists, an option is invalid, or no rows were added.
        """
        from blocks.design.incremental_writer import create_design  # which reads designs
        from blocks.design.request import PYTHON, DesignRequest

        base = None if columns_from is None else str(columns_from)
        request = DesignRequest(
            PYTHON,
            [],
            str(path),
            target=target,
            drop=drop,
            columns_from=base,
            block_bytes=block_bytes,
            overwrite=overwrite,
        )
        return create_design(request, memory)

    @property
    def cells(self) -> np.ndarray:
        """Return one empty cell, as designs are not traversed as a grid."""
        return np.zeros((1, 1), np.int64)

    def _open_index(self, entry: dict[str, Any]) -> DesignIndex:
        path, index = self.path / entry["file"], DesignIndex(**self.map(entry, DesignIndex))
        sizes = {array.size for array in (index.means, index.norms, index.deviations)}
        require_valid(sizes == {self.columns}, path, f"its arrays do not match {self.columns} columns")
        require_valid(index.offsets.size in (0, self.columns), path, f"its offsets do not match {self.columns} columns")
        require_valid(
            index.y.size == (self.rows if self.manifest["labels"] else 0), path, f"y does not have {self.rows} rows"
        )
        require_offsets(path, "block_bounds", index.block_bounds, self.block_count, self.columns)
        return index

    @property
    def dense(self) -> bool:
        """Return whether blocks are of type DenseDesignBlock rather than SparseDesignBlock."""
        return self.form in _DENSE

    @property
    def block_forms(self) -> tuple[str, ...]:
        """Return the forms of the blocks, keys of `FORMS`: two for a mixed design, else one."""
        return _DENSE.get(self.form, (self.form,))

    def block(self, number: int) -> SparseDesignBlock | DenseDesignBlock:
        """Memory-map a block, whose first column is `block_bounds[number]`, for sequential reading."""
        if not self.dense:
            return self.mapped("blocks", number, SparseDesignBlock, self._check_sparse, streamed=True)
        dense = self.mapped("blocks", number, DenseDesignBlock, self._check_dense, streamed=True)
        return dense._replace(values=dense.values.reshape(self._shape(number)))

    def _shape(self, number: int) -> tuple[int, int]:
        """Return the numbers of columns and rows in a block (in a shard: the shard's rows)."""
        return int(np.diff(self.block_bounds)[number]), self.manifest["rows"]

    def _check_sparse(self, number: int, path: Path, block: SparseDesignBlock) -> None:
        width, rows = self._shape(number)
        require_offsets(path, "offsets", block.offsets, width, block.rows.size)
        wanted = 0 if self.form == ONES else block.rows.size
        require_valid(block.values.size == wanted, path, f"it has {block.values.size} values, not {wanted}")
        require_below(path, "rows", block.rows, rows)

    def _check_dense(self, number: int, path: Path, block: DenseDesignBlock) -> None:
        width, rows = self._shape(number)
        sizes = f"it has {block.values.size} values; {width} columns of {rows} rows have {width * rows}"
        require_valid(block.values.size == width * rows, path, sizes)
        require_valid(block.values.dtype.name in self.block_forms, path, f"its values are not {self.form}")
        require_offsets(path, "missing_offsets", block.missing_offsets, width, block.missing_rows.size)
        require_below(path, "missing_rows", block.missing_rows, rows)

    def names_of(self, columns: np.ndarray) -> list[str]:
        """Return the names of some columns, integers (m,), or their numbers if columns have no names."""
        names = self.column_names() if columns.size else None
        first = self.manifest["first_column"]
        return [names[column] if names else str(first + column) for column in columns.tolist()]

    def column_names(self) -> list[str] | None:
        """Return the names of all columns; None if columns are numbered, from `manifest["first_column"]` on."""
        entry = self.manifest["texts"].get("columns")
        return read_lines(self.path / entry["file"], self.columns) if entry else None
