"""Cluster the rows of a sparse matrix by k-means (Lloyd, 1982): python examples/kmeans.py MATRIX RUN CLUSTERS

One phase assigns rows to centres, block by block; the other averages the coordinates of the centres, slice by slice.
Missing entries are 0.
"""

import numba
import numpy as np

from ooc import Field, Phase, StaticProgram, fit


@numba.njit(nogil=True, cache=True)
def assign(offsets, columns, values, centres, squares, clusters):
    """Set the cluster of each row, and return the sum of |centre - row|^2 - |row|^2 over the rows."""
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
    """Set the coordinates of all centres in some columns, (columns, K); the centre of an empty cluster does not
    move.
    """
    for column in range(len(centres)):
        centres[column] *= sizes == 0
        for entry in range(offsets[column], offsets[column + 1]):
            cluster = clusters[rows[entry]]
            if cluster >= 0:
                centres[column, cluster] += values[entry] / sizes[cluster]


class KMeans(StaticProgram):
    clusters: int
    seed: int = 0

    centres = Field("column", "clusters")
    assigned = Field("row", dtype="int64", initial=-1)
    squares = Field(shape="clusters", derived=True)
    sizes = Field(shape="clusters", dtype="int64", derived=True)

    initial = (Phase("start", "slice"),)
    phases = (Phase("assign", "block"), Phase("average", "slice"))

    def initialize(self, shared):
        """The first centres are some of the rows."""
        super().initialize(shared)
        chosen = np.random.default_rng(self.seed).choice(self.dataset.rows, self.clusters, replace=False)
        shared["assigned"][chosen] = np.arange(self.clusters)

    def begin(self, phase, shared):
        shared["sizes"][:] = np.bincount(shared["assigned"] + 1, minlength=self.clusters + 1)[1:]
        shared["squares"][:] = np.square(shared["centres"]).sum(axis=0)

    def update(self, job):
        if job.phase == "assign":
            return assign(*job.entries(), job.shared["centres"], job.shared["squares"], job.own("assigned"))
        return average(*job.entries(), job.shared["assigned"], job.shared["sizes"], job.own("centres"))

    def aggregate(self, phase, shared, deltas, answers):
        return {"distance": sum(answers)} if phase.name == "assign" else {}


if __name__ == "__main__":
    from example_data import arguments

    data, run, clusters = arguments("ratings", 3)
    run = fit(KMeans, data, run, options={"clusters": int(clusters), "seed": 0}, iterations=20)
    print(f"change of the squared distance, per entry: {run.last_metrics()['distance']:.4f}")
