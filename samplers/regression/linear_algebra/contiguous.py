"""Detect contiguous column numbers, which are read without an index array; gathering single values takes twice as
long."""

from __future__ import annotations

from blocks.compiled import reordered_inlined_kernel

BLOCK = 1 << 8  # columns


@reordered_inlined_kernel
def is_run(columns):
    """Return whether ascending column numbers (at least one) are contiguous."""
    return columns[-1] - columns[0] == columns.size - 1
