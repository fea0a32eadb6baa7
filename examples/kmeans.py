"""k-means (Lloyd, 1982) of the rows of a sparse matrix: python examples/kmeans.py MATRIX RUN CLUSTERS

Each row finds its centre block by block, each coordinate of the centres is averaged slice by slice; blanks are 0.
"""

import sys

import numba
import numpy as np

from blocks import write_npz
from ooc import ArraySpec, Phase, StaticProgram, fit


@numba.njit(nogil=True, cache=True)
def assign(offsets, columns, values, centres, squares, clusters):
    """Set the cluster of each row; returns the sum of |centre - row|^2 - |row|^2 over the rows."""
    total, distances = 0.0, np.empty(squares.size)
    for row in range(clusters.size):
        distances[:] = squares
        for entry in range(offsets[row], offsets[row + 1]):
            distances -= 2 * values[entry] * centres[columns[entry]]
        clusters[row] = np.argmin(distances)
        total += distances[clusters[row]]
    return total


@numba.njit(nogil=True, cache=True)
def average(offsets, rows, values, clusters, sizes, centres):
    """Set the coordinates of all centres in some columns, (columns, K); a cluster without rows keeps its own."""
    for column in range(len(centres)):
        centres[column] *= sizes == 0
        for entry in range(offsets[column], offsets[column + 1]):
            cluster = clusters[rows[entry]]
            if cluster >= 0:
                centres[column, cluster] += values[entry] / sizes[cluster]


class KMeans(StaticProgram):
    initial = (Phase("start", "slice", writes=False),)
    phases = (Phase("assign", "block", writes=False), Phase("average", "slice", writes=False))

    def __init__(self, dataset, *, clusters, seed):
        super().__init__(dataset)
        self.chosen = np.random.default_rng(seed).choice(dataset.rows, clusters, replace=False)

    def shared_arrays(self):
        return {
            "centres": ArraySpec((self.dataset.columns, self.chosen.size), "float64", per="column"),
            "squares": ArraySpec(self.chosen.shape, "float64"),
            "sizes": ArraySpec(self.chosen.shape, "int64"),
            "assigned": ArraySpec((self.dataset.rows,), "int64", per="row"),
        }

    def begin(self, phase, shared):
        if phase in self.initial:  # the first centres are some of the rows
            shared["assigned"][:] = -1
            shared["assigned"][self.chosen] = np.arange(self.chosen.size)
        shared["sizes"][:] = np.bincount(shared["assigned"] + 1, minlength=self.chosen.size + 1)[1:]
        shared["squares"][:] = np.square(shared["centres"]).sum(axis=0)

    def update(self, job):
        centres, squares, sizes, assigned = job.shared.values()
        if job.phase == "assign":
            return assign(*job.entries(), centres, squares, assigned[job.within(self.dataset.block_bounds)])
        return average(*job.entries(), assigned, sizes, centres[job.within(self.dataset.slice_bounds)])

    def aggregate(self, phase, shared, deltas, answers):
        return {"distance": sum(answers)} if phase.name == "assign" else {}

    def export(self, sweep, shared, directory):
        write_npz(directory / "clusters.npz", {name: shared[name] for name in ("centres", "assigned")})


if __name__ == "__main__":
    data, run, clusters = sys.argv[1:]
    fit(KMeans, data, run, options={"clusters": int(clusters), "seed": 0}, iterations=20)
