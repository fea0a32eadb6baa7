"""Train a sparse support vector machine; targets above 0 are the positive class: python examples/sparse_svm.py DESIGN
RUN COST

Minimizes |w|_1 + cost * sum_i max(0, 1 - y_i x_i'w)^2 by coordinate descent: a Newton step, with 2 cost |x_j|^2 as an
upper bound of the curvature, then soft thresholding (Fan et al., LIBLINEAR, 2008, without their line search).
"""

import numpy as np

from ooc import DynamicProgram, Field, fit


class SparseSVM(DynamicProgram):
    cost: float = 1.0

    w = Field("column")
    score = Field("row")  # x_i'w
    y = Field("row")

    sums = 2

    def initialize(self, shared):
        shared["y"][:] = np.where(self.dataset.y > 0, 1, -1)

    @staticmethod
    def update(x, row, sums, shared):
        sums[0] -= 2 * shared.cost * row.y * x * max(1 - row.y * row.score, 0.0)
        sums[1] += 2 * shared.cost * x * x

    @staticmethod
    def aggregate(sums, column, shared):
        goal = column.w - sums[0] / sums[1]
        return np.sign(goal) * max(abs(goal) - 1 / sums[1], 0.0)

    def objective(self, shared):
        margins = np.maximum(1 - shared["y"] * shared["score"], 0)
        return np.abs(shared["w"]).sum() + self.cost * np.square(margins).sum()


if __name__ == "__main__":
    from example_data import arguments

    data, run, cost = arguments("design", 0.01)
    run = fit(SparseSVM, data, run, options={"cost": float(cost)}, iterations=200)
    told = run.last_metrics()
    print(f"objective {told['objective']:.4f}, coefficients that are not 0: {told['nonzeros']}")
