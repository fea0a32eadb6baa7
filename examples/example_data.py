"""Small datasets, for examples that are started without arguments."""

import sys
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

from ooc import Dataset, Design, Matrix, Samples


def documents(path):
    """What `help()` of Python says of some subjects."""
    with Dataset.create(path) as writer:
        writer.add(topics.values(), topics.keys())


def ratings(path):
    """Half of the products of 300 users' and 60 items' vectors of three numbers."""
    random = np.random.default_rng(0)
    table = random.random((300, 3)) @ random.random((3, 60))
    users, items = np.nonzero(random.random(table.shape) < 0.5)
    with Matrix.create(path) as writer:
        writer.add(users, items, table[users, items])


def samples(path):
    """1,000 points around three centres; the label says on which side of a plane a point is."""
    random = np.random.default_rng(0)
    points = 3 * random.normal(size=(3, 10))[random.integers(0, 3, 1000)] + random.normal(size=(1000, 10))
    points /= np.linalg.norm(points, axis=1).max()
    with Samples.create(path) as writer:
        writer.add(points, np.sign(points @ random.normal(size=10)))


def design(path):
    """1,000 rows of 20 columns, of which the first five, with coefficients above 0, and noise make y."""
    random = np.random.default_rng(0)
    x = random.normal(size=(1000, 20))
    with Design.create(path) as writer:
        writer.add(x, x[:, :5] @ np.arange(1, 6) + random.normal(size=1000))


def arguments(kind, *defaults):
    """The command line's arguments; if there are none, a dataset and a run in a directory that is gone afterwards."""
    if sys.argv[1:]:
        return sys.argv[1:]
    directory = Path(arguments.directory.name)
    {"documents": documents, "ratings": ratings, "samples": samples, "design": design}[kind](directory / kind)
    return [str(directory / kind), str(directory / "run"), *map(str, defaults)]


arguments.directory = tempfile.TemporaryDirectory()
