"""A design matrix: samples (rows) by features (columns), column by column, as `ooc ingest svmlight` and others make it.

    manifest.json     counts, the form of the values, the table of blocks, checksums, how it was made: the commit point
    columns.txt       name of column j on line j (UTF-8); absent if columns are known by their numbers
    index.h5          y, mean, norm and standard deviation of each column, columns of each block; offsets, if any
    blocks/00000.h5   a run of columns, all rows

A column whose values are far from 0 and close together may have an offset, see `blocks.design.offsets`: what the blocks
hold, and what the moments are of, are the differences from that.

Columns and rows keep the order they have in the inputs. There are no slices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import numpy as np

from blocks.arrays import Float32, Float64, Int64, Uint32
from blocks.bounds import require, require_below, require_offsets
from blocks.schemas import ArrayFile, Count, File, Manifest, Shard
from blocks.store import Store, read_lines

WITH_OFFSETS = 2  # the schema of designs that have some: an earlier version would take differences for values
SPARSE, ONES, FLOATS, GENOTYPES, MIXED = "sparse", "ones", "float32", "int8", "mixed"
FORMS = {
    SPARSE: "sparse, float32",
    ONES: "sparse, all ones",
    FLOATS: "dense, float32",
    GENOTYPES: "dense, int8",
    MIXED: "dense, int8 and float32",
}
_DENSE = {FLOATS: (FLOATS,), GENOTYPES: (GENOTYPES,), MIXED: (GENOTYPES, FLOATS)}  # and the forms of their blocks


class SparseBlock(NamedTuple):
    """The N entries other than zero of W consecutive columns."""

    offsets: Int64  # (W+1,), where the entries of each column begin
    rows: Uint32  # (N,), row of each entry, ascending within a column
    values: Float32  # (N,); (0,) if all entries of the design are 1


class DenseBlock(NamedTuple):
    """All n values of W consecutive columns; a value that is missing counts as the mean of its column."""

    values: Annotated[
        np.ndarray, FLOATS, GENOTYPES
    ]  # (W, n), a column of the design after the other; 0 where one is missing
    missing_offsets: Int64  # (W+1,), where the missing values of each column begin
    missing_rows: Uint32  # (M,), row of each, ascending within a column


class DesignIndex(NamedTuple):
    """The labels of n rows, and the p columns as they are stored, all rows of the same weight."""

    y: Float64  # (n,); (0,) if there are none
    means: Float64  # (p,)
    norms: Float64  # (p,), Euclidean
    deviations: Float64  # (p,), square root of the mean of squared distances from the mean; 0 if constant
    block_bounds: Int64  # (B+1,), first column of each block
    offsets: Float64 = np.empty(0)  # (p,), what was subtracted from each column; (0,) if that is 0 of all


class OfWholeDesign(NamedTuple):
    """What a shard knows of the design matrix that it is of, see `blocks.design.row_shards`."""

    y: Float64  # (n,)
    means: Float64  # (p,)
    norms: Float64  # (p,)
    deviations: Float64  # (p,)


class DesignTexts(TypedDict):
    """The file of names."""

    columns: NotRequired[File]


class DesignCounts(TypedDict):
    """Of the whole that a shard is of."""

    identity: str
    rows: Count
    entries: Count


class DesignShard(Shard):
    """Of a shard."""

    whole: DesignCounts


class DesignBlock(ArrayFile):
    """Of a block, in the manifest."""

    columns: Count
    entries: Count
    missing: Count


class DesignManifest(Manifest):
    """Of a design matrix."""

    texts: DesignTexts
    rows: Count
    columns: Count
    entries: Count
    missing: Count
    form: Literal["sparse", "ones", "float32", "int8", "mixed"]
    labels: bool
    first_column: Count
    blocks: list[DesignBlock]
    slices: list[ArrayFile]
    shard: NotRequired[DesignShard]


class Design(Store):
    """A design matrix opened for reading.

    Attributes besides those of every store: `rows` and `columns`, their numbers; `entries`, values other than zero;
    `missing`, values that count as means; `form`, a key of `FORMS`; `index`, of which `means`, `norms`, `deviations`
    and `block_bounds` are attributes, too; `offsets` float64 (p,), or None if all are 0; `y` float64 (n,), or None if
    there are no labels. A sample is an entry.
    """

    kind = "design matrix"
    schema = WITH_OFFSETS
    counted = "columns"
    unit = "entries"
    rate = "samples_per_s"
    holds = DesignManifest
    whole_holds = OfWholeDesign

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

    @property
    def cells(self) -> np.ndarray:
        """Designs are not walked as a grid: one empty cell."""
        return np.zeros((1, 1), np.int64)

    def _open_index(self, entry: dict[str, Any]) -> DesignIndex:
        path, index = self.path / entry["file"], DesignIndex(**self.map(entry, DesignIndex))
        sizes = {array.size for array in (index.means, index.norms, index.deviations)}
        require(sizes == {self.columns}, path, f"its arrays are not of {self.columns} columns")
        require(index.offsets.size in (0, self.columns), path, f"its offsets are not of {self.columns} columns")
        require(index.y.size == (self.rows if self.manifest["labels"] else 0), path, f"no y of {self.rows} rows")
        require_offsets(path, "block_bounds", index.block_bounds, self.block_count, self.columns)
        return index

    @property
    def dense(self) -> bool:
        """Whether blocks are DenseBlock rather than SparseBlock."""
        return self.form in _DENSE

    @property
    def block_forms(self) -> tuple[str, ...]:
        """The forms of its blocks, keys of `FORMS`: two of a mixed design, else one."""
        return _DENSE.get(self.form, (self.form,))

    def block(self, number: int) -> SparseBlock | DenseBlock:
        """Map the columns of a block, from `block_bounds[number]` on, to be read from end to end."""
        if not self.dense:
            return self.mapped("blocks", number, SparseBlock, self._check_sparse, streamed=True)
        dense = self.mapped("blocks", number, DenseBlock, self._check_dense, streamed=True)
        return dense._replace(values=dense.values.reshape(self._shape(number)))

    def _shape(self, number: int) -> tuple[int, int]:
        """Columns and rows of a block; of a shard: its own."""
        return int(np.diff(self.block_bounds)[number]), self.manifest["rows"]

    def _check_sparse(self, number: int, path: Path, block: SparseBlock) -> None:
        width, rows = self._shape(number)
        require_offsets(path, "offsets", block.offsets, width, block.rows.size)
        wanted = 0 if self.form == ONES else block.rows.size
        require(block.values.size == wanted, path, f"it has {block.values.size} values, not {wanted}")
        require_below(path, "rows", block.rows, rows)

    def _check_dense(self, number: int, path: Path, block: DenseBlock) -> None:
        width, rows = self._shape(number)
        sizes = f"it has {block.values.size} values; {width} columns of {rows} rows have {width * rows}"
        require(block.values.size == width * rows, path, sizes)
        require(block.values.dtype.name in self.block_forms, path, f"its values are not {self.form}")
        require_offsets(path, "missing_offsets", block.missing_offsets, width, block.missing_rows.size)
        require_below(path, "missing_rows", block.missing_rows, rows)

    def names_of(self, columns: np.ndarray) -> list[str]:
        """What users call some columns, integers (m,): their names, or numbers if they have none."""
        names = self.column_names() if columns.size else None
        first = self.manifest["first_column"]
        return [names[column] if names else str(first + column) for column in columns.tolist()]

    def column_names(self) -> list[str] | None:
        """Names of all columns; None if they go by their numbers, counted from `manifest["first_column"]` on."""
        entry = self.manifest["texts"].get("columns")
        return read_lines(self.path / entry["file"], self.columns) if entry else None
