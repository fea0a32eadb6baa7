"""Numbers of columns, ascending, in blocks: most are runs, whose columns are read without a look at the numbers.

Where they are not, the processor gathers one value after the other, which takes twice as long.
"""

from __future__ import annotations

from blocks.compiled import reordered_inlined_kernel

BLOCK = 1 << 8  # columns


@reordered_inlined_kernel
def is_run(columns):
    """Whether some columns, ascending, at least one, follow each other."""
    return columns[-1] - columns[0] == columns.size - 1
