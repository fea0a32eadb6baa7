"""Factorize a matrix into non-negative factors: python examples/nmf.py MATRIX RUN

Minimizes |A - W H'|^2 over W >= 0 and H >= 0, one coordinate of a row after the other (Cichocki and Phan, 2009);
missing entries are 0.
"""

import numba
import numpy as np

from ooc import Field, Phase, StaticProgram, fit


@numba.njit(nogil=True, cache=True)
def descend(offsets, others, values, theirs, gram, mine):
    """Minimize over each row of mine, float64 (n, R), given theirs, float64 (m, R), and gram = theirs' theirs, (R, R).

    offsets: int64 (n+1,). others: uint32 (N,) and values: float32 (N,), the entries. Returns the difference of |A - W
    H'|^2 between these rows and rows of 0.
    """
    total, products = 0.0, np.empty(gram.shape[0])
    for row in range(len(mine)):
        products[:] = 0
        for entry in range(offsets[row], offsets[row + 1]):
            products += values[entry] * theirs[others[entry]]
        for k in range(products.size):
            gradient = np.dot(gram[k], mine[row]) - products[k]
            if gram[k, k] > 0:
                mine[row, k] = max(mine[row, k] - gradient / gram[k, k], 0.0)
        total += np.dot(np.dot(gram, mine[row]) - 2 * products, mine[row])
    return total


def uniform(random, shape):
    return random.random(shape)


class NMF(StaticProgram):
    rank: int = 10
    seed: int = 0

    left = Field("row", "rank", initial=uniform)
    right = Field("column", "rank", initial=uniform)
    gram = Field(shape=("rank", "rank"), derived=True)

    phases = (Phase("rows", "block"), Phase("columns", "slice"))

    def begin(self, phase, shared):
        theirs = shared["right" if phase.name == "rows" else "left"]
        shared["gram"][:] = theirs.T @ theirs

    def update(self, job):
        mine, theirs = ("left", "right") if job.phase == "rows" else ("right", "left")
        return descend(*job.entries(), job.shared[theirs], job.shared["gram"], job.own(mine))

    def aggregate(self, phase, shared, deltas, answers):
        return {"loss": sum(answers)} if phase.name == "columns" else {}


if __name__ == "__main__":
    from example_data import arguments

    data, run = arguments("ratings")
    run = fit(NMF, data, run, iterations=50)
    print(f"change of the loss, per entry: {run.last_metrics()['loss']:.4f}")
