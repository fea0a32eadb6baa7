"""Speed of a program of the dynamic engine beside the same kernel in plain numba: python -m benchmarks.dynamic_programs

Non-negative least squares (examples/nnls.py) is solved by one worker, in cyclic rounds of `--parallelism` columns
without the check of correlations, and by a numba function that updates the same columns in batches of the same size.
Both read and write the same amount of data and compute the same coefficients. Passes of the two alternate, and the
median of the ratios of their processor times is printed.

The rounds of the worker are timed with all overhead of the engine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np

from benchmarks import designs
from benchmarks.report import describe_machine, machine
from blocks.design.design import Design
from ooc.dynamic.column_rounds import UserProgramRounds, rounds_of
from ooc.dynamic.held_columns import (
    HeldDenseColumns,
    gather,
    gatherings,
    held_columns_of_arrays,
    held_specs,
    make_room,
    whole_room,
)
from ooc.dynamic.round_loop import RoundLoop, RoundLoopShape, round_specs
from ooc.dynamic.round_schedule import RoundPipeline
from ooc.dynamic.selection_rules import SelectionRule
from ooc.workers.worker import ProgramSpec

_TO_OPTIMUM = 40  # passes; the order of columns differs between passes
_SPEC = ProgramSpec("nnls:NNLS", {})
_EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
_fast: Any = numba.njit(nogil=True, fastmath=True, error_model="numpy")


@_fast
def dense_pass(values, batch, b, residual):
    """Update all columns, float32 (p, n), once, in batches."""
    changes = np.empty(batch)
    for first in range(0, len(values), batch):
        for i in range(min(batch, len(values) - first)):
            column, product, squares = values[first + i], 0.0, 0.0
            for row in range(column.size):
                product += column[row] * residual[row]
                squares += column[row] * column[row]
            changes[i] = max(b[first + i] - product / squares, 0.0) - b[first + i]
            b[first + i] += changes[i]
        for i in range(min(batch, len(values) - first)):
            column, change = values[first + i], changes[i]
            for row in range(column.size if change != 0 else 0):
                residual[row] += change * column[row]


@_fast
def sparse_pass(offsets, rows, values, batch, b, residual):
    """Update all sparse columns once, in batches. offsets: int64 (p+1,)."""
    changes = np.empty(batch)
    for first in range(0, offsets.size - 1, batch):
        for i in range(min(batch, offsets.size - 1 - first)):
            mine = slice(offsets[first + i], offsets[first + i + 1])
            places, column, product, squares = rows[mine], values[mine], 0.0, 0.0
            for entry in range(places.size):
                product += column[entry] * residual[places[entry]]
                squares += column[entry] * column[entry]
            changes[i] = max(b[first + i] - product / squares, 0.0) - b[first + i]
            b[first + i] += changes[i]
        for i in range(min(batch, offsets.size - 1 - first)):
            mine = slice(offsets[first + i], offsets[first + i + 1])
            places, column, change = rows[mine], values[mine], changes[i]
            for entry in range(places.size if change != 0 else 0):
                residual[places[entry]] += change * column[entry]


class DynamicProgramContest:
    """Rounds of one worker and plain passes over the same design."""

    def __init__(self, design: Design, parallelism: int) -> None:
        self._rule = SelectionRule("cyclic", parallelism, parallelism, None, False, pipeline=RoundPipeline(1, 1, 1))
        program, shape, room = rounds_of(_SPEC, design), RoundLoopShape(1, design.columns), whole_room(design)
        assert isinstance(program, UserProgramRounds)
        specs = program.shared_arrays() | held_specs(design, room) | round_specs(design, program, self._rule, shape)
        self.shared = {name: spec.zeros() for name, spec in specs.items()}
        columns = np.arange(design.columns)
        make_room(design, room, columns, self.shared)
        self._held = held_columns_of_arrays(design, self.shared)
        for gathering in gatherings(design, columns):
            gather(design, gathering, self._held)
        program.hold(columns, self.shared)
        program.user.initialize(program.user.own_arrays(self.shared))
        self._program, self._loop = program, RoundLoop(program, self._rule, shape, 0, self.shared)
        self._done, self._of_pass, self._columns = 0, design.columns // parallelism, design.columns
        self.b, self.residual = np.zeros(design.columns), self.shared["residual"].copy()

    def rounds(self) -> None:
        """Run one pass by rounds."""
        for _ in self._loop.run(self._done, self._done + self._of_pass, self._columns):
            pass
        self._done += self._of_pass

    def plain(self) -> None:
        """Run one pass in plain numba."""
        if isinstance(self._held, HeldDenseColumns):
            dense_pass(self._held.values, self._rule.parallel, self.b, self.residual)
            return
        offsets = np.append(self._held.bounds[:, 0], self._held.bounds[-1, -1])
        sparse_pass(offsets, self._held.rows, self._held.values, self._rule.parallel, self.b, self.residual)


def compared(contest: DynamicProgramContest, turns: int) -> float:
    """Return the median ratio of the processor time of a plain pass to that of a pass by rounds."""
    for _ in range(_TO_OPTIMUM):
        contest.rounds()
        contest.plain()
    assert np.allclose(contest.b, contest.shared["b"], atol=1e-6)
    ratios = []
    for turn in range(turns):
        seconds = {}
        for do in (contest.rounds, contest.plain) if turn % 2 else (contest.plain, contest.rounds):
            began = time.process_time()
            do()
            seconds[do.__name__] = time.process_time() - began
        ratios.append(seconds["plain"] / seconds["rounds"])
    return round(statistics.median(ratios), 3)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--entries", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="of a column")
    parser.add_argument("--parallelism", type=int, default=64)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write the results, and what machine it was, to this file")
    args = parser.parse_args(arguments)
    sys.path.append(str(_EXAMPLES))
    print(*describe_machine(machine()), sep="\n")
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for form in ("dense", "sparse"):
            for entries in args.entries:
                rows = entries if form == "dense" else 20 * entries
                x: Any = designs.sparse(rows, args.columns, entries, seed=0)
                x = x.toarray() if form == "dense" else x
                y = np.asarray(x[:, :20].sum(axis=1)).reshape(-1)
                design = designs.design_of(Path(scratch) / f"{form}-{entries}", x, y)
                speed = compared(DynamicProgramContest(design, args.parallelism), args.turns)
                found.append({"form": form, "entries": entries, "speed": speed})
                print(f"{form:6} {entries:9,} entries: {speed:.2f}")
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "speed": found}, indent=1))


if __name__ == "__main__":
    main()
