"""Matrix factorization by stochastic gradient descent: programs for the kernels of `samplers.factorization.sgd`."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from blocks.errors import RequestError
from blocks.memory import available_memory
from blocks.ratings.matrix import Matrix, MatrixRowBlock
from ooc.program import Arrays, Job, Phase
from ooc.workers.madvise import drop_pages, populate_pages, read_ahead, unmap_pages
from ooc.workers.shared_arrays import ArraySpec
from samplers.factorization import sgd
from samplers.factorization.program import SIDES, FactorizationProgram, silence_overflow

_STRATA = 4, 8  # minimum and maximum number of strata into which columns are divided, if there are enough slices
# minimum number of columns per stratum, if possible: the fewer columns, the more often two rows share one
_LEAST_COLUMNS = 24
# minimum number of blocks, and maximum bytes of their factors, that rotate together
_LEAST_TOGETHER, _MOST_BYTES = 4, 1 << 27
_FIRST_SQUARES = 0.25  # for values with deviation 1: smaller values shorten the steps sooner
# weights of the mean squares of rows and of columns: larger weights shorten the steps sooner
_COUNTED = np.array([[0.45], [1.4]])
_RATE = 0.15  # first step size, for values with deviation 1
_FEW_ROUNDS = 3  # up to this number of rounds, the previous round is still in progress or needed again soon
COMBINATIONS = ("mean", "sum")


class GradientDescent(FactorizationProgram):
    """Stochastic gradient descent, one rating at a time; see `samplers.factorization.sgd`.

    rate: first step size, for values with deviation 1; None for 0.15, or less if the penalty alone would make such a
        step too long.
    """

    option = "--method sgd"
    spreads = 1.5, 0.7

    def __init__(self, dataset: Matrix, *, rate: float | None = None, **options: Any) -> None:
        super().__init__(dataset, **options)
        rate = self._default_rate() if rate is None else rate
        if not 0 < rate < math.inf:
            raise RequestError(f"--rate must be a finite number above 0, got {rate:g}")
        if not self.penalty.per_entry:
            raise RequestError(
                "--penalty row cannot be used with --method sgd, which applies the penalty for each rating",
                "Omit --penalty, or choose --method als or ccd.",
            )
        self.rate = rate
        self.first_squares = _FIRST_SQUARES * self.scale**3  # if values are twice as large, so are the steps
        self.open_rows = np.zeros((3, 2), np.int64)
        leading = min(self.used, sgd.LEADING)
        self._shares = (_COUNTED / [leading, max(self.used - leading, 1)]).astype(np.float32)

    def _default_rate(self) -> float:
        penalty = float(self.penalty.regularization)
        return _RATE if self.unit == 1 or not penalty else min(_RATE, self.scale / penalty)

    def start_factors(self, job: Job) -> None:
        """Draw nonnegative initial factors, so that the first steps quickly learn the common level of rows and
        columns.
        """
        super().start_factors(job)
        np.abs(self.mine(job), out=self.mine(job))

    def steps(self, fixed: int, *, first_pass: bool) -> sgd.SgdStepParameters:
        """Return the parameters of the steps.

        fixed: see `sgd.SgdStepParameters`, if there are biases: 1 if the rows of ratings are those of the matrix, 0 if
            they are its columns.
        """
        return sgd.SgdStepParameters(
            mean=np.float32(self.mean),
            rate=np.float32(self.rate * math.sqrt(_FIRST_SQUARES * self.scale)),
            regularization=self.penalty.regularization,
            shares=self._shares if fixed else self._shares[::-1].copy(),
            fixed=fixed if self.biases else -1,
            leading_only=first_pass,
            scaling=np.float32(1 / self.unit),
            of_biases=self.penalty.of_biases,
        )

    def cause(self) -> str:
        return f"the steps grew longer and longer: an initial step of {self.rate:g} is too long"

    def remedy(self) -> str:
        return (
            "Train again with --method als or ccd, which have no learning rate, "
            "or with a smaller --rate or --regularization."
        )


class StochasticGradient(GradientDescent):
    """Stochastic gradient descent over a rotation of cells (stratified SGD).

    Columns are divided into strata of several slices. A few blocks rotate at a time: in each turn every block has a
    stratum of its own, until all blocks have had all strata; then the next blocks follow. Cells of a turn share no row
    or column, so they are processed in parallel in any order. A cell waits only for the two cells of the previous turn
    with its block and its stratum. A block is read from disk once per iteration, because the blocks that rotate
    together are small, including their factors.
    """

    phases: Sequence[Phase] = (Phase("descent", "grid", writes=False, staged=True, overlaps=True),)

    def __init__(self, dataset: Matrix, **options: Any) -> None:
        super().__init__(dataset, **options)
        index = dataset.index
        self.strata = min(int(np.clip(dataset.columns // _LEAST_COLUMNS, *_STRATA)), dataset.slice_count)
        starts = np.arange(self.strata + 1) * dataset.slice_count // self.strata
        self._strata_bounds = index.slice_bounds[starts]
        sizes = 8 * index.cells.sum(axis=1) + 4 * self.width * np.diff(index.block_bounds)
        self.rounds = rounds(sizes.size, min(max(_LEAST_TOGETHER, _MOST_BYTES // int(sizes.max())), self.strata))
        blocks = sum(entry["bytes"] for entry in dataset.manifest["blocks"])
        self._passing = blocks + 4 * self.width * dataset.rows > available_memory()
        self._round, self._blocks = -1, dict[int, MatrixRowBlock]()

    def shared_arrays(self) -> dict[str, ArraySpec]:
        return super().shared_arrays() | {
            "row_squares": ArraySpec((self.dataset.rows, 2), "float32"),
            "column_squares": ArraySpec((self.dataset.columns, 2), "float32"),
            "following": ArraySpec((self.dataset.rows,), "int64"),
        }

    def primary_arrays(self) -> Sequence[str]:
        return (*SIDES, "row_squares", "column_squares")

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        """Return the sizes of the groups of rows whose blocks rotate together: they can be written to the file once the
        blocks are done. Columns change all the time.
        """
        return {"rows": np.add.reduceat(super().sliced_arrays()["rows"], self.rounds[:-1])}

    def writes_slice(self, phase: Phase, stage: int) -> bool:
        return super().writes_slice(phase, stage) and (not phase.staged or (stage + 1) % self.strata == 0)

    def warm_up(self) -> None:
        super().warm_up()
        ends, zero, one = np.array([0, 1]), np.zeros(1, np.uint32), np.ones(1, np.float32)
        block = MatrixRowBlock(zero, ends, zero, one)
        for array in block:
            array.setflags(write=False)
        shared = {name: np.ones((1, *spec.shape[1:]), spec.dtype) for name, spec in self.shared_arrays().items()}
        self._sweep(block, slice(0, 1), [0, 1], shared, rewound=True, first_pass=False)

    def begin(self, phase: Phase, shared: Arrays) -> None:
        if phase is self.initial[0]:
            shared["row_squares"][:] = shared["column_squares"][:] = self.first_squares

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        """Return the cells of each turn, with every second block first: neighbouring blocks have neighbouring strata,
        which share cache lines.
        """
        if phase is not self.phases[0]:
            return super().schedule(phase, unit, parts)
        turns = [
            [*range(first, last, 2), *range(first + 1, last, 2)] for first, last in itertools.pairwise(self.rounds)
        ]
        return [turn for turn in turns for _ in range(self.strata)]

    def follows(self, phase: Phase, stage: int, part: int) -> Collection[int]:
        """Return the cells that must be complete before a cell starts: in the previous turn, the cell of its block and
        the cell that had its stratum; in the first turn of a round, all cells of the previous round.

        In a round with fewer blocks than strata, the last block's stratum has been idle since the first block had it.
        """
        number, turn = divmod(stage, self.strata)
        if turn == 0:
            return range(*self.rounds[number - 1 : number + 1])
        first, last = self.rounds[number : number + 2]
        return part, part + 1 if part + 1 < last else first

    def _stratum(self, block: int, turn: int) -> int:
        """Return the stratum of a block in a turn. A round never has more blocks than strata."""
        return (block + turn) % self.strata

    def update_factors(self, job: Job) -> Any:
        block, turn = job.part, job.stage % self.strata
        stratum = self._stratum(block, turn)
        block_rows = slice(*self.dataset.index.block_bounds[block : block + 2].tolist())
        bounds = self._strata_bounds[stratum : stratum + 2].tolist()
        rewound, first = turn == 0 or stratum == 0, job.stream[0] == 0
        self._pass_on(block, turn, job.shared["rows"])
        return self._sweep(self._block(block), block_rows, bounds, job.shared, rewound=rewound, first_pass=first)

    def _pass_on(self, block: int, turn: int, rows: np.ndarray) -> None:
        """Read ahead the block that follows one round later, and its factors.

        If not everything stays in memory, also drop the blocks of the previous round, and the written factors of the
        round before it; the pages that the kernel would drop are often needed sooner.
        """
        number, count = bisect.bisect(self.rounds, block) - 1, len(self.rounds) - 1
        first, last = self.rounds[number : number + 2]
        passing = self._passing and count > _FEW_ROUNDS
        if number != self._round:
            self._round, self._blocks = number, {}
            if passing:
                unmap_pages(self._rows_of(rows, *self.rounds[(number - 1) % count :][:2]))
        if passing and block not in self._blocks:
            populate_pages(self._block(block).columns)
            populate_pages(self._block(block).values)
            populate_pages(self._rows_of(rows, block, block + 1))
        if turn == min(2, self.strata - 1):
            following = (block + last - first) % self.dataset.block_count
            self.dataset.ask_for_block(following)
            read_ahead(self._rows_of(rows, following, following + 1))
        if passing and turn == 1:
            begin, end = self.rounds[(number - 1) % count :][:2]
            if begin + block - first < end:
                self.dataset.drop_block(begin + block - first)
            if block == first:
                drop_pages(self._rows_of(rows, *self.rounds[(number - 2) % count :][:2]))

    def _rows_of(self, rows: np.ndarray, first: int, last: int) -> np.ndarray:
        """Return the range of rows of some blocks."""
        bounds = self.dataset.index.block_bounds
        return rows[bounds[first] : bounds[last]]

    def _block(self, number: int) -> MatrixRowBlock:
        if number not in self._blocks:
            self._blocks[number] = self.dataset.block(number)
        return self._blocks[number]

    def _sweep(
        self,
        block: MatrixRowBlock,
        block_rows: slice,
        bounds: list[int],
        shared: Arrays,
        *,
        rewound: bool,
        first_pass: bool,
    ) -> float:
        """Take an SGD step for each rating in a cell: `block_rows`, and columns whose frequency rank is in `bounds`."""
        ratings = sgd.RatingRows(block.offsets[1:], block.columns, block.values, shared["following"][block_rows])
        if rewound:
            sgd.rewind(ratings, block.offsets, bounds[0])
        steps = self.steps(1, first_pass=first_pass)
        squares = shared["row_squares"][block_rows], shared["column_squares"]
        last = np.uint32(bounds[1])
        return sgd.sweep_cell(
            ratings, last, shared["rows"][block_rows], shared["columns"], *squares, steps, self.open_rows
        )


def rounds(blocks: int, most: int) -> list[int]:
    """Return the first block of each round, and the number of blocks in each.

    The number of blocks of a round is the largest power of two up to `most`, so that workers have equal numbers of
    cells in a turn; the last two rounds share the remaining blocks.
    """
    size = 1 << (most.bit_length() - 1)
    starts = [*range(0, blocks, size), blocks]
    if len(starts) > 2:
        starts[-2] = (starts[-3] + blocks + 1) // 2
    return starts


class DataParallelGradient(StochasticGradient):
    """Data-parallel stochastic gradient descent, the baseline BSP-MF of the STRADS paper (figure 6f).

    Several blocks at a time each have a replica of all columns. At a barrier, the mean (or sum) of the replicas'
    changes is added to the columns. Until then a replica does not see the changes of the others, so more replicas need
    a smaller step size.
    """

    option = "--schedule bsp"
    phases: Sequence[Phase] = (Phase("descent", "grid", writes=False, staged=True),)

    def __init__(self, dataset: Matrix, *, replicas: int = 2, combine: str = "mean", **options: Any) -> None:
        super().__init__(dataset, **options)
        if combine not in COMBINATIONS:
            raise RequestError(f"--combine: unknown value {combine!r}", f"Choose one of: {', '.join(COMBINATIONS)}.")
        if not 1 <= replicas <= dataset.block_count:
            raise RequestError(
                f"--replicas must be from 1 to {dataset.block_count}, the number of blocks; got {replicas}"
            )
        self.replicas, self.combine = replicas, combine

    def sliced_arrays(self) -> dict[str, np.ndarray]:
        return {}

    def own_bytes(self) -> int:
        return super().own_bytes() + (self.replicas + 1) * self._replica_bytes()

    def scratch_bytes(self) -> int:
        return super().scratch_bytes() + 3 * self._replica_bytes()

    def _replica_bytes(self) -> int:
        return 4 * (self.width + 2) * self.dataset.columns

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        if phase is not self.phases[0]:
            return super().schedule(phase, unit, parts)
        return [range(first, min(first + self.replicas, parts)) for first in range(0, parts, self.replicas)]

    def update_factors(self, job: Job) -> Any:
        before = [job.shared[name] for name in ("columns", "column_squares")]
        replica = [array.copy() for array in before]
        shared = {**job.shared, "columns": replica[0], "column_squares": replica[1]}
        block_rows = slice(*self.dataset.index.block_bounds[job.part : job.part + 2].tolist())
        bounds, first = [0, self.dataset.columns], job.stream[0] == 0
        loss = self._sweep(self._block(job.part), block_rows, bounds, shared, rewound=True, first_pass=first)
        with silence_overflow():
            return loss, *(after - array for after, array in zip(replica, before, strict=True))

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        if phase is not self.phases[0]:
            return super().aggregate(phase, shared, deltas, answers)
        losses, *changes = zip(*answers, strict=True)
        sums = super().aggregate(phase, shared, deltas, losses)
        for name, change in zip(("columns", "column_squares"), changes, strict=True):
            with silence_overflow():
                shared[name] += sum(change) / np.float32(len(answers) if self.combine == "mean" else 1)
        return sums
