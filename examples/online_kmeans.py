"""k-means, online (MacQueen, 1967), of samples: python examples/online_kmeans.py SAMPLES RUN CLUSTERS

Each sample moves the centre that is nearest to it, so that this is the mean of all samples that it was nearest to.
"""

import numba

from ooc import Field, StochasticProgram, fit


@numba.njit
def distance(sample, centre):
    """The squared distance of a sample, float64 (n,), from a centre."""
    total = 0.0
    for place in range(sample.size):
        total += (sample[place] - centre.get(place)) ** 2
    return total


@numba.njit
def nearest(element, shared, sample):
    """The centre that is nearest to an element; sample, float64 (n,), is set to its values."""
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
