"""Layout of the cells of local state, in memory and in a file."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ooc.program import LocalState
from ooc.state.direct_io import PAGE


class CellLayout:
    """Position of each cell of the local state, in memory and in a file.

    In memory, rows are stored block by block, and in word-major order (that is, cell by cell) within a block. In a
    file, rows are stored in tiles. A tile holds the cells of a slice in a stripe (several consecutive blocks) and has
    about as many rows as a block, so both a slice and a stripe are read with a few requests of a few megabytes. Tiles
    are padded to whole pages and ordered by stripe, then slice.

    A section is the rows that are loaded into a buffer at once: in "slice" order the tiles of a slice, arranged as in
    the file; in "block" order a stripe, with its blocks arranged as in memory.

    Attributes: `block_rows` int64 (B+1,), first row of each block; `cell_rows` int64 (B, S+1), first word-major
    position of each cell in its block; `stripe_bounds` int64 (T+1,), first block of each stripe; `tile_rows` int64 (T,
    S), rows of each tile; `tile_positions` int64 (T * S + 1,), offset of each tile in bytes, and the end of the last
    tile.
    """

    def __init__(self, cells: np.ndarray, local: LocalState) -> None:
        self.blocks, self.slices = cells.shape
        self.block_rows = np.concatenate(([0], np.cumsum(cells.sum(axis=1)))).astype(np.int64)
        self.cell_rows = np.concatenate((np.zeros((self.blocks, 1), np.int64), np.cumsum(cells, axis=1)), axis=1)
        self.local = local
        self.row_bytes = local.width * np.dtype(local.dtype).itemsize
        stripe = max(min(self.slices, self.blocks // self.slices), 1)
        self.stripe_bounds = np.append(np.arange(0, self.blocks, stripe), self.blocks)
        self.header_bytes = math.lcm(PAGE, max(self.row_bytes, 1))
        whole = self.header_bytes // max(self.row_bytes, 1)  # row count that fills whole pages
        self.tile_rows = -(-np.add.reduceat(cells.astype(np.int64), self.stripe_bounds[:-1]) // whole) * whole
        self.tile_positions = self.header_bytes + np.append(0, np.cumsum(self.tile_rows * self.row_bytes))

    @property
    def rows(self) -> int:
        return int(self.block_rows[-1])

    @property
    def stripes(self) -> int:
        return self.stripe_bounds.size - 1

    @property
    def file_bytes(self) -> int:
        """Return the size of all tiles in bytes."""
        return int(self.tile_rows.sum()) * self.row_bytes

    def units(self, order: str) -> int:
        return {"block": self.blocks, "slice": self.slices, "grid": 1}[order]

    def sections(self, order: str) -> int:
        return self.stripes if order == "block" else self.slices

    def section_units(self, order: str, section: int) -> range:
        """Return the units (slices or blocks, by the order) in a section."""
        if order == "block":
            return range(int(self.stripe_bounds[section]), int(self.stripe_bounds[section + 1]))
        return range(section, section + 1)

    def section_of(self, order: str, unit: int) -> int:
        return int(np.searchsorted(self.stripe_bounds, unit, side="right")) - 1 if order == "block" else unit

    def section_rows(self, order: str) -> np.ndarray:
        """Return the number of rows that each section takes in a buffer, int64 (sections,)."""
        return np.diff(self.block_rows[self.stripe_bounds]) if order == "block" else self.tile_rows.sum(axis=0)

    def section_bytes(self, order: str, section: int) -> int:
        """Return the size of a section's tiles in bytes."""
        tiles = self.tile_rows[section] if order == "block" else self.tile_rows[:, section]
        return int(tiles.sum()) * self.row_bytes

    def buffer_bases(self, order: str, unit: int) -> np.ndarray:
        """Return, for each block, the row at which its position 0 would lie in a buffer that holds a unit's section,
        int64 (B,)."""
        if order == "block":
            return self.block_rows[:-1] - self.block_rows[self.stripe_bounds[self.section_of(order, unit)]]
        rows = self.cell_rows[:, unit + 1] - self.cell_rows[:, unit]
        before = np.append(0, np.cumsum(rows))  # number of rows of the slice before each block
        tiles = np.append(0, np.cumsum(self.tile_rows[:, unit]))[:-1] - before[self.stripe_bounds[:-1]]
        return before[:-1] + np.repeat(tiles, np.diff(self.stripe_bounds)) - self.cell_rows[:, unit]

    def tile_cells(self, stripe: int, slice_: int) -> Iterator[tuple[slice, slice]]:
        """Yield, for each cell of a tile, its rows in the tile and its rows in the stripe as arranged in memory."""
        first, at = self.block_rows[self.stripe_bounds[stripe]], 0
        for block in self.section_units("block", stripe):
            begin, end = self.block_rows[block] - first + self.cell_rows[block, slice_ : slice_ + 2]
            yield slice(at, at + end - begin), slice(begin, end)
            at += end - begin
