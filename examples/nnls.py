"""Solve non-negative least squares: python examples/nnls.py DESIGN RUN

Minimizes |y - X b|^2 / 2 over b >= 0 by coordinate descent: b_j <- max(b_j - x_j' r / |x_j|^2, 0), with r = X b - y.
"""

import numpy as np

from ooc import DynamicProgram, Field, fit


class NNLS(DynamicProgram):
    b = Field("column")
    residual = Field("row")

    sums = 2

    def initialize(self, shared):
        shared["residual"][:] = -self.dataset.y

    @staticmethod
    def update(x, row, sums, shared):
        sums[0] += x * row.residual
        sums[1] += x * x

    @staticmethod
    def aggregate(sums, column, shared):
        return max(column.b - sums[0] / sums[1], 0.0)

    def objective(self, shared):
        return np.square(shared["residual"]).sum() / 2


if __name__ == "__main__":
    from example_data import arguments

    data, run = arguments("design")
    run = fit(NNLS, data, run, iterations=100)
    print(f"|y - X b|^2 / 2 is {run.last_metrics()['objective']:.4f}")
