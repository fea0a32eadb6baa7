"""Compute singular values and vectors of a sparse matrix by subspace iteration: python examples/svd.py MATRIX RUN RANK

V is multiplied by A block by block, then by A' slice by slice, and orthonormalized. It converges to the right singular
vectors of A; the square roots of the norms of its columns, before they are orthonormalized, converge to the singular
values.
"""

import numba
import numpy as np

from ooc import Field, Phase, StaticProgram, fit


@numba.njit(nogil=True, cache=True)
def multiply(offsets, others, values, factors, products):
    """Set products, float64 (n, R), to the product of n sparse rows (or columns) and factors, float64 (m, R)."""
    products[:] = 0
    for row in range(len(products)):
        for entry in range(offsets[row], offsets[row + 1]):
            products[row] += values[entry] * factors[others[entry]]


def normal(random, shape):
    return random.normal(size=shape)


class SingularValues(StaticProgram):
    rank: int
    seed: int = 0

    left = Field("row", "rank")
    right = Field("column", "rank", initial=normal)
    values = Field(shape="rank")

    phases = (Phase("rows", "block"), Phase("columns", "slice"))

    def update(self, job):
        if job.phase == "rows":
            multiply(*job.entries(), job.shared["right"], job.own("left"))
        else:
            multiply(*job.entries(), job.shared["left"], job.own("right"))

    def aggregate(self, phase, shared, deltas, answers):
        if phase.name == "columns":
            shared["right"][:], triangle = np.linalg.qr(shared["right"])
            shared["values"][:] = np.sqrt(np.abs(np.diag(triangle)))
        return {}

    def measure(self, sweep, shared):
        return {"explained": float(np.square(shared["values"]).sum())}


if __name__ == "__main__":
    from example_data import arguments

    data, run, rank = arguments("ratings", 3)
    run = fit(SingularValues, data, run, options={"rank": int(rank), "seed": 0}, iterations=30)
    print("singular values", run["values"].round(3))
