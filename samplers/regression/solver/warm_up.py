"""Compile all kernels of a regression by running them once on tiny arrays of the same types as a design's."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np

from blocks.compiler import compile_kernels
from blocks.design.design import FLOATS, GENOTYPES, ONES, DenseDesignBlock, Design, SparseDesignBlock
from blocks.design.weighted_moments import row_weightings, weighted_moments
from ooc.workers.atomics import counters_spec
from samplers.regression.data.features import BlockFeatures
from samplers.regression.data.read_ahead import touch
from samplers.regression.linear_algebra.columns import (
    Columns,
    ColumnsWithMissingValues,
    DenseColumns,
    SparseColumns,
    scale_rows,
)
from samplers.regression.path.solver import LambdaPathFit
from samplers.regression.quadratic.active_set import active_set_scratch
from samplers.regression.quadratic.conjugate_gradients import conjugate_gradients_scratch
from samplers.regression.quadratic.descent import improve, improve_exactly
from samplers.regression.quadratic.problem import quadratic_problem
from samplers.regression.solver.column_selection import indices_above
from samplers.regression.solver.sparse_regression import SparseRegression
from samplers.regression.solver.working_sets import WorkingSetRegression
from samplers.regression.threads.thread_pool import ALONE
from samplers.regression.threads.worker_thread import tell_and_wait

_VALUES = np.array([[1, 0, 2, 0, 1, 1], [0, 2, 0, 1, 1, 0], [2, 1, 1, 0, 0, 1]])  # values of three columns
_Y = np.array([0.0, 1, 0, 1, 1, 0])
_SPREAD = 32  # factor by which the number of rows is increased, for kernels for columns with values in few rows


def prepare_regression(design: Design, loss: str, *, weighted: bool, shifted: bool) -> None:
    """Compile the kernels for a design in this process.

    weighted: whether there are sample weights or folds.
    shifted: whether columns are shifted, see `column_shifts`.
    """
    for form in design.block_forms:
        compile_kernels(partial(_warm_up, form, loss, weighted=weighted, shifted=shifted))


def _warm_up(form: str, loss: str, *, weighted: bool, shifted: bool) -> None:
    block = _block(form)
    if isinstance(block, SparseDesignBlock):
        columns: Columns = SparseColumns(*block)
    elif form == FLOATS:
        columns = DenseColumns(block.values)
    else:
        columns = ColumnsWithMissingValues(*block, np.ones(len(_VALUES)))
    sizes = (_Y.size, _SPREAD * _Y.size) if isinstance(block, SparseDesignBlock) else (_Y.size,)
    for size, is_weighted in product(sizes, (False, True) if weighted else (False,)):
        _solve(columns, np.resize(_Y, size), loss, np.ones(size) if is_weighted else None, shifted=shifted)
    touch(block[1].reshape(-1).view(np.uint8))
    # called explicitly, since with one thread nothing else calls it here
    tell_and_wait(np.zeros(counters_spec(2).shape, np.int64), 1, 1)
    if weighted:
        weighted_moments(block, row_weightings(np.ones((_Y.size, 1))))


def _solve(columns: Columns, y: np.ndarray, loss: str, weights: np.ndarray | None, *, shifted: bool) -> None:
    features = BlockFeatures([columns], y.size, offsets=np.ones(len(_VALUES)) if shifted else None)
    options: dict[str, Any] = {"intercept": not shifted, "factors": np.array([1.0, 1, 0])}
    regression = SparseRegression(features, y, loss, weights=weights, **options)
    fit, lambdas = LambdaPathFit(regression, 1.0, 1e-6), regression.lambdas(5, 0.5)
    fit.begin(float(lambdas[0]))
    while fit.working_set:
        lambdas = lambdas[len(fit.step(lambdas)) :]
    _improve(regression.regression, loss)
    indices_above(0.0, np.ones(1, np.float32), ALONE)  # with many columns, the candidates are found with a limit


def _improve(regression: WorkingSetRegression, loss: str) -> None:
    """Run both solvers for a working set; with so few columns only one of them would be used."""
    columns, rows = regression.features.gather(np.arange(2)), regression.features.rows
    if loss != "squared" or regression.loss.roots is not None:
        columns = scale_rows(columns, np.ones(rows))
    problem = quadratic_problem(columns, np.zeros((1, rows)), np.ones(2), np.zeros(2))
    work = conjugate_gradients_scratch(problem, rows)
    work.active[:] = np.arange(2)
    ALONE.run(improve, problem, 2, 1, 0.0, np.ones(2), np.ones(rows), work)
    ALONE.run(improve_exactly, problem, 2, np.ones(2), np.ones(rows), work, active_set_scratch(2, rows))


def _block(form: str) -> SparseDesignBlock | DenseDesignBlock:
    """Return a read-only block, like a mapped block."""
    column, rows = np.nonzero(_VALUES)
    offsets = np.searchsorted(column, np.arange(len(_VALUES) + 1)).astype(np.int64)
    if form in (FLOATS, GENOTYPES):
        none = np.zeros(len(_VALUES) + 1, np.int64)
        block: SparseDesignBlock | DenseDesignBlock = DenseDesignBlock(
            _VALUES.astype(form), none, np.empty(0, np.uint32)
        )
    else:
        values = np.empty(0, np.float32) if form == ONES else _VALUES[column, rows].astype(np.float32)
        block = SparseDesignBlock(offsets, rows.astype(np.uint32), values)
    for array in block:
        array.flags.writeable = False
    return block
