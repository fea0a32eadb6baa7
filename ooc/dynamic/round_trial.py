"""Run rounds on a toy design, to compile all kernels of a program and of the engine for the types of real data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blocks.design.design import DenseDesignBlock, Design, SparseDesignBlock
from ooc.dynamic.column_rounds import rounds_of
from ooc.dynamic.held_columns import gather, gatherings, held_columns_of_arrays, held_specs, make_room, whole_room
from ooc.dynamic.round_loop import RoundLoop, RoundLoopShape, round_specs
from ooc.dynamic.selection_rules import SelectionRule
from ooc.workers.worker import ProgramSpec

_ROWS, _COLUMNS = 8, 12


class ToyDesign(Design):
    """Design with one block, a few identical columns, and no files."""

    def __init__(self, form: str, group: int) -> None:
        self.form, self.rows, self.columns = form, _ROWS, _COLUMNS * group
        self.entries, self.path, self.manifest = 2 * self.columns, Path("toy"), {}
        self.y = np.where(np.arange(_ROWS) % 2, 1.0, -1.0)
        self.means, self.norms, self.deviations = np.zeros(self.columns), np.ones(self.columns), np.ones(self.columns)
        self.offsets = None

    @property
    def block_bounds(self) -> np.ndarray:
        return np.array([0, self.columns])

    def block(self, number: int) -> SparseDesignBlock | DenseDesignBlock:
        """Return the only block, with read-only arrays as in a memory-mapped block."""
        if self.dense:
            offsets = np.append(np.zeros(self.columns, np.int64), 1)
            arrays = [np.ones((self.columns, _ROWS), self.form), offsets, np.zeros(1, np.uint32)]
        else:
            rows = np.tile(np.array([0, 1], np.uint32), self.columns)
            values = np.ones(rows.size if self.form == "sparse" else 0, np.float32)
            arrays = [np.arange(0, rows.size + 1, 2), rows, values]
        for array in arrays:
            array.setflags(write=False)
        return DenseDesignBlock(*arrays) if self.dense else SparseDesignBlock(*arrays)


def try_rounds(spec: ProgramSpec, form: str, rule: SelectionRule, group: int) -> None:
    """Run each step of a worker in and between rounds once, on a toy design; scans are not run.

    group: number of columns per parameter.
    """
    design = ToyDesign(form, group)
    program = rounds_of(spec, design, design.columns)
    room, shape = whole_room(design), RoundLoopShape(1, _COLUMNS)
    specs = program.shared_arrays() | held_specs(design, room) | round_specs(design, program, rule, shape)
    shared = {name: np.zeros(array.shape, array.dtype) for name, array in specs.items()}
    columns = np.arange(design.columns)
    make_room(design, room, columns, shared)
    for gathering in gatherings(design, columns):
        gather(design, gathering, held_columns_of_arrays(design, shared))
    loop = RoundLoop(program, rule, shape, 0, shared)
    loop.start(_COLUMNS)
    loop.survey(np.arange(2))
    for _ in loop.run(0, rule.pipeline.slots, _COLUMNS):
        pass
