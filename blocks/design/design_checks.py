"""Check that counts and moments in the files of a design matrix agree with its blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from blocks.design.design import ONES, Design, SparseDesignBlock
from blocks.stored_dataset import MANIFEST


def problems_of_design(design: Design) -> Iterator[str]:
    """Yield counts and moments that are inconsistent with the blocks; the files must be undamaged."""
    from blocks.design.moments import block_moments

    manifest, bounds = design.path / MANIFEST, design.block_bounds
    widths = [entry["columns"] for entry in design.manifest["blocks"]]
    if np.diff(bounds).tolist() != widths or sum(widths) != design.columns:
        yield f"{manifest}: {design.columns} columns, but the blocks have {sum(widths)}"
        return
    if design.y is not None and design.y.size != design.rows:
        yield f"{manifest}: {design.rows} rows, but {design.y.size} labels"
    yield from _problems_of_shard(design)
    for number, entry in enumerate(design.manifest["blocks"]):
        block, file = design.block(number), design.path / entry["file"]
        if isinstance(block, SparseDesignBlock):
            offsets, rows, sizes = block.offsets, block.rows, {block.rows.size, block.values.size}
            if len(sizes) != 1 + (design.form == ONES and block.rows.size > 0):
                yield f"{file}: {block.rows.size} rows, but {block.values.size} values"
                continue
        else:
            offsets, rows = block.missing_offsets, block.missing_rows
        if not _ascending(offsets, rows, design.rows):
            yield f"{file}: rows of a column do not ascend, or are not below {design.rows}"
            continue
        first, last = bounds[number : number + 2]
        for name, found in block_moments(block, design.rows)._asdict().items():
            if not np.array_equal(found, getattr(design.index, name)[first:last]):
                yield f"{file}: the {name} of its columns differ from those in the index"


def _problems_of_shard(design: Design) -> Iterator[str]:
    """Yield data about the whole dataset that is inconsistent with the shard."""
    from blocks.design.row_shards import DesignRowShard

    if "shard" not in design.manifest:
        return
    whole = DesignRowShard(design.path)
    sizes = {whole.means.size, whole.norms.size, whole.deviations.size}
    if whole.own.stop - whole.own.start != design.rows or sizes != {design.columns}:
        yield f"{design.path / MANIFEST}: its numbers of rows and columns of the whole dataset do not match its arrays"
    elif whole.y is not None and not np.array_equal(whole.y[whole.own], design.index.y, equal_nan=True):
        yield f"{design.path / MANIFEST}: its labels differ from the labels of the same rows in the whole dataset"


def _ascending(offsets: np.ndarray, rows: np.ndarray, most: int) -> bool:
    """Return whether rows ascend within each column and are below `most`."""
    if offsets[0] != 0 or offsets[-1] != rows.size or (np.diff(offsets) < 0).any():
        return False
    inside = np.ones(rows.size, bool)
    inside[offsets[:-1][offsets[:-1] < rows.size]] = False
    descents = np.flatnonzero(rows[1:] <= rows[:-1]) + 1
    return bool(not inside[descents].any() and (rows < most).all())
