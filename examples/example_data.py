"""Small datasets for examples that are run without arguments."""

import sys
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

from ooc import Dataset, Design, Matrix, Samples


def documents(path):
    """Write a corpus of the texts that Python's `help()` has on some topics."""
    with Dataset.create(path) as writer:
        writer.add(topics.values(), topics.keys())


def ratings(path):
    """Write a matrix of 300 users and 60 items of rank three, of which half of the entries are known."""
    random = np.random.default_rng(0)
    table = random.random((300, 3)) @ random.random((3, 60))
    users, items = np.nonzero(random.random(table.shape) < 0.5)
    with Matrix.create(path) as writer:
        writer.add(users, items, table[users, items])


def samples(path):
    """Write 1,000 points around three centres; the label of a point says on which side of a plane it is."""
    random = np.random.default_rng(0)
    points = 3 * random.normal(size=(3, 10))[random.integers(0, 3, 1000)] + random.normal(size=(1000, 10))
    points /= np.linalg.norm(points, axis=1).max()
    with Samples.create(path) as writer:
        writer.add(points, np.sign(points @ random.normal(size=10)))


def design(path):
    """Write a design matrix of 1,000 rows and 20 columns; y depends on the first five, with positive coefficients, and
    on noise.
    """
    random = np.random.default_rng(0)
    x = random.normal(size=(1000, 20))
    with Design.create(path) as writer:
        writer.add(x, x[:, :5] @ np.arange(1, 6) + random.normal(size=1000))


def arguments(kind, *defaults):
    """Yield the arguments of the command line; without any, paths of a small dataset and of a run in a temporary
    directory.
    """
    if sys.argv[1:]:
        return sys.argv[1:]
    directory = Path(arguments.directory.name)
    {"documents": documents, "ratings": ratings, "samples": samples, "design": design}[kind](directory / kind)
    return [str(directory / kind), str(directory / "run"), *map(str, defaults)]


arguments.directory = tempfile.TemporaryDirectory()
