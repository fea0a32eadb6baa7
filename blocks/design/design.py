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
from typing import NamedTuple

import numpy as np

from blocks.store import Store, read_lines

WITH_OFFSETS = 2  # the schema of designs that have some: an earlier version would take differences for values
SPARSE, ONES, FLOATS, GENOTYPES = "sparse", "ones", "float32", "int8"
FORMS = {
    SPARSE: "sparse, float32",
    ONES: "sparse, all ones",
    FLOATS: "dense, float32",
    GENOTYPES: "dense, int8",
}


class SparseBlock(NamedTuple):
    """The N entries other than zero of W consecutive columns."""

    offsets: np.ndarray  # int64 (W+1,), where the entries of each column begin
    rows: np.ndarray  # uint32 (N,), row of each entry, ascending within a column
    values: np.ndarray  # float32 (N,); (0,) if all entries of the design are 1


class DenseBlock(NamedTuple):
    """All n values of W consecutive columns; a value that is missing counts as the mean of its column."""

    values: np.ndarray  # float32 or int8 (W, n), a column of the design after the other; 0 where one is missing
    missing_offsets: np.ndarray  # int64 (W+1,), where the missing values of each column begin
    missing_rows: np.ndarray  # uint32 (M,), row of each, ascending within a column


class DesignIndex(NamedTuple):
    """The labels of n rows, and the p columns as they are stored, all rows of the same weight."""

    y: np.ndarray  # float64 (n,); (0,) if there are none
    means: np.ndarray  # float64 (p,)
    norms: np.ndarray  # float64 (p,), Euclidean
    deviations: np.ndarray  # float64 (p,), square root of the mean of squared distances from the mean; 0 if constant
    block_bounds: np.ndarray  # int64 (B+1,), first column of each block
    offsets: np.ndarray = np.empty(0)  # float64 (p,), what was subtracted from each column; (0,) if that is 0 of all


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

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.rows: int = self.manifest["rows"]
        self.columns: int = self.manifest["columns"]
        self.entries: int = self.manifest["entries"]
        self.missing: int = self.manifest["missing"]
        self.form: str = self.manifest["form"]
        self.samples = self.entries
        self.index = DesignIndex(**self.map(self.manifest["index"]))
        self.means, self.norms, self.deviations = self.index.means, self.index.norms, self.index.deviations
        self.block_bounds = self.index.block_bounds
        self.offsets = self.index.offsets if self.index.offsets.size else None
        self.y = self.index.y if self.manifest["labels"] else None

    @property
    def dense(self) -> bool:
        """Whether blocks are DenseBlock rather than SparseBlock."""
        return self.form in (FLOATS, GENOTYPES)

    def block(self, number: int) -> SparseBlock | DenseBlock:
        """Map the columns of a block, from `block_bounds[number]` on, to be read from end to end."""
        arrays = self.map(self.manifest["blocks"][number], streamed=True)
        if not self.dense:
            return SparseBlock(**arrays)
        return DenseBlock(arrays.pop("values").reshape(-1, self.manifest["rows"]), **arrays)

    def names_of(self, columns: np.ndarray) -> list[str]:
        """What users call some columns, integers (m,): their names, or numbers if they have none."""
        names = self.column_names() if columns.size else None
        first = self.manifest["first_column"]
        return [names[column] if names else str(first + column) for column in columns.tolist()]

    def column_names(self) -> list[str] | None:
        """Names of all columns; None if they go by their numbers, counted from `manifest["first_column"]` on."""
        entry = self.manifest["texts"].get("columns")
        return read_lines(self.path / entry["file"]) if entry else None
