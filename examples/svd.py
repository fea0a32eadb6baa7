"""Singular values and vectors of a sparse matrix by subspace iteration: python examples/svd.py MATRIX RUN RANK

V is multiplied by A block by block, then by A' slice by slice, and made orthonormal again: it turns towards the right
singular vectors of A, and the roots of the lengths of its columns before that towards the singular values.
"""

import sys

import numba
import numpy as np

from blocks import write_npz
from ooc import ArraySpec, Phase, StaticProgram, fit


@numba.njit(nogil=True, cache=True)
def multiply(offsets, others, values, factors, products):
    """Set products, float64 (n, R), to the product of n sparse rows, or columns, and factors, float64 (m, R)."""
    products[:] = 0
    for row in range(len(products)):
        for entry in range(offsets[row], offsets[row + 1]):
            products[row] += values[entry] * factors[others[entry]]


class SingularValues(StaticProgram):
    phases = (Phase("rows", "block", writes=False), Phase("columns", "slice", writes=False))

    def __init__(self, dataset, *, rank, seed):
        super().__init__(dataset)
        self.rank, self.seed = rank, seed

    def shared_arrays(self):
        return {
            "left": ArraySpec((self.dataset.rows, self.rank), "float64", per="row"),
            "right": ArraySpec((self.dataset.columns, self.rank), "float64", per="column"),
            "values": ArraySpec((self.rank,), "float64"),
        }

    def begin(self, phase, shared):
        if not shared["right"].any():
            shared["right"][:] = np.random.default_rng(self.seed).normal(size=shared["right"].shape)

    def update(self, job):
        left, right, _ = job.shared.values()
        if job.phase == "rows":
            multiply(*job.entries(), right, left[job.within(self.dataset.block_bounds)])
        else:
            multiply(*job.entries(), left, right[job.within(self.dataset.slice_bounds)])

    def aggregate(self, phase, shared, deltas, answers):
        if phase.name == "columns":
            shared["right"][:], triangle = np.linalg.qr(shared["right"])
            shared["values"][:] = np.sqrt(np.abs(np.diag(triangle)))
        return {}

    def measure(self, sweep, shared):
        return {"explained": float(np.square(shared["values"]).sum())}

    def export(self, sweep, shared, directory):
        write_npz(directory / "svd.npz", shared)


if __name__ == "__main__":
    data, run, rank = sys.argv[1:]
    fit(SingularValues, data, run, options={"rank": int(rank), "seed": 0}, iterations=30)
