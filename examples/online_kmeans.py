"""Cluster samples by online k-means (MacQueen, 1967): python examples/online_kmeans.py SAMPLES RUN CLUSTERS

Each sample moves the centre nearest to it, so that a centre is the mean of all samples that were assigned to it.
"""

import numba

from ooc import Field, StochasticProgram, fit


@numba.njit
def distance(sample, centre):
    """Return the squared distance between a sample, float64 (n,), and a centre."""
    total = 0.0
    for place in range(sample.size):
        total += (sample[place] - centre.get(place)) ** 2
    return total


@numba.njit
def nearest(element, shared, sample):
    """Return the centre nearest to an element, and set sample, float64 (n,), to the values of the element."""
    sample[:] = 0
    for entry in range(element.columns.size):
        sample[element.columns[entry]] = element.values[entry]
    found = 0
    for k in range(1, shared.clusters):
        if distance(sample, shared.centres.row_view(k)) < distance(sample, shared.centres.row_view(found)):
            found = k
    return found


def normal(random, shape):
    return random.normal(size=shape)


class OnlineKMeans(StochasticProgram):
    clusters: int

    centres = Field(shape=("clusters", "columns"), initial=normal)
    sizes = Field(shape="clusters")
    sample = Field("work", "columns")

    @property
    def columns(self):
        return self.dataset.columns

    @staticmethod
    def process(element, weight, shared, local):
        k = nearest(element, shared, local.sample)
        shared.sizes.add(k, weight)
        centre, step = shared.centres.row_view(k), weight / shared.sizes.get(k)
        for place in range(local.sample.size):
            centre.add(place, step * (local.sample[place] - centre.get(place)))

    @staticmethod
    def loss(element, shared, local):
        return distance(local.sample, shared.centres.row_view(nearest(element, shared, local.sample)))


if __name__ == "__main__":
    from example_data import arguments

    data, run, clusters = arguments("samples", 3)
    run = fit(OnlineKMeans, data, run, options={"clusters": int(clusters), "parallelism": 1}, iterations=5)
    print(f"mean squared distance {run.last_metrics()['objective']:.4f}")
