"""File with the local state of one generation, in tiles that each have a checksum."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from blocks.bounds_checks import require_below
from blocks.errors import WorkFailed
from blocks.files import disk_errors
from ooc.state.cell_layout import CellLayout
from ooc.state.direct_io import DirectIoFile


class CellFile:
    """A file of local state, read and written tile by tile; each tile has a checksum."""

    def __init__(self, path: Path, layout: CellLayout, *, header: dict[str, Any] | None = None) -> None:
        """Open a file for reading or, given a header, create it with all bytes allocated, for all tiles to be
        written."""
        self.path = path
        self._layout = layout
        self._table_at = int(layout.tile_positions[-1])
        table_bytes = 8 * layout.tile_rows.size
        with disk_errors(path):
            if header is not None:
                self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(self._file, 0, self._table_at + table_bytes)
                os.pwrite(self._file, self._padded(header), 0)
                table = bytes(table_bytes)
            else:
                self._file = os.open(path, os.O_RDONLY)
                whole = os.fstat(self._file).st_size == self._table_at + table_bytes
                table = os.pread(self._file, table_bytes, self._table_at) if whole else b""
            self._tiles = DirectIoFile(path, os.O_RDONLY if header is None else os.O_WRONLY)
        if len(table) < table_bytes:
            self.close()
            raise WorkFailed(f"{path} is damaged: its size does not match its cells")
        self.checksums = np.frombuffer(table, np.uint64).reshape(layout.tile_rows.shape).copy()
        if header is not None:
            self.checksums[layout.tile_rows == 0] = xxhash.xxh3_64_intdigest(b"")  # empty tiles need not be written

    def has_header(self, header: dict[str, Any]) -> bool:
        """Return whether the file was created with this header."""
        return os.pread(self._file, self._layout.header_bytes, 0) == self._padded(header)

    def _padded(self, header: dict[str, Any]) -> bytes:
        return json.dumps(header).encode().ljust(self._layout.header_bytes)

    def read(self, stripe: int, slice_: int, rows: np.ndarray) -> None:
        """Read a tile into the page-aligned array `rows`, (tile rows, width).

        Raises WorkFailed if the checksum does not match.
        """
        view = memoryview(rows.reshape(-1).view(np.uint8).data)
        with disk_errors(self.path):
            done = self._tiles.read(self._position(stripe, slice_), view)
        if done < len(view) or xxhash.xxh3_64_intdigest(view) != self.checksums[stripe, slice_]:
            blocks = self._layout.section_units("block", stripe)
            raise WorkFailed(f"{self.path} is damaged at blocks {blocks[0]} to {blocks[-1]}, slice {slice_}")
        if self._layout.local.below:
            require_below(self.path, "numbers", rows, self._layout.local.below)

    def write(self, stripe: int, slice_: int, rows: np.ndarray) -> None:
        """Write a tile from the page-aligned array `rows`, (tile rows, width)."""
        view = memoryview(rows.reshape(-1).view(np.uint8).data)
        with disk_errors(self.path):
            self._tiles.write(self._position(stripe, slice_), view)
        self.checksums[stripe, slice_] = xxhash.xxh3_64_intdigest(view)

    def seal(self) -> str:
        """Write the table of checksums and sync the file; returns the checksum of the table."""
        table = self.checksums.tobytes()
        with disk_errors(self.path):
            os.pwrite(self._file, table, self._table_at)
            os.fsync(self._file)
        return xxhash.xxh3_128_hexdigest(table)

    def table_checksum(self) -> str:
        return xxhash.xxh3_128_hexdigest(self.checksums.tobytes())

    def close(self) -> None:
        os.close(self._file)
        self._tiles.close()

    def _position(self, stripe: int, slice_: int) -> int:
        return int(self._layout.tile_positions[stripe * self._layout.slices + slice_])
