"""Fit a group Lasso: python examples/group_lasso.py DESIGN RUN

Minimizes |y - X b|^2 / 2 + penalty * sum_g |b_g| over groups of consecutive columns (Yuan and Lin, 2006), by a proximal
step for one group after the other, of step size 1 / |X_g|^2 (Frobenius norm).
"""

import numpy as np

from ooc import DynamicProgram, Field, fit


class GroupLasso(DynamicProgram):
    penalty: float
    group: int = 5

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
        curvature = sums[:, 1].sum()
        goal = column.b - sums[:, 0] / curvature
        norm = np.sqrt(np.square(goal).sum())
        column.b[:] = goal * max(1 - shared.penalty / (curvature * max(norm, 1e-300)), 0.0)

    def objective(self, shared):
        norms = np.linalg.norm(shared["b"].reshape(-1, self.group), axis=1)
        return np.square(shared["residual"]).sum() / 2 + self.penalty * norms.sum()

    def gap(self, shared, sums):
        """Return the duality gap; the dual point is the residual, scaled down until |X_g' r| <= penalty for all
        groups.
        """
        residual, y = shared["residual"], self.dataset.y
        steepest = np.linalg.norm(sums[:, :, 0], axis=1).max()
        dual = -residual * min(1, self.penalty / steepest)
        return self.objective(shared) - (y @ dual - dual @ dual / 2)


if __name__ == "__main__":
    from example_data import arguments

    data, run, penalty = arguments("design", 1000)
    run = fit(GroupLasso, data, run, options={"penalty": float(penalty)}, iterations=1000)
    groups = run["b"].reshape(-1, GroupLasso.group).any(axis=1).sum()
    print(f"groups that are not 0: {groups}; duality gap {run.last_metrics()['duality_gap']:.2g}")
