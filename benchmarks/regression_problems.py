"""Problems of `benchmarks.regression`: simulated designs and real data.

A problem is a directory with y.npy and X, dense (x.npy, columns contiguous, float32) or sparse (arrays of a csc matrix,
float32): contestants map what they do not copy.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

_NOISE = 0.5  # standard deviation of the noise, relative to that of the signal
_SPARSE = ("data", "indices", "indptr")


@dataclass
class RegressionProblem:
    """A regression problem.

    x: (n, p), with contiguous columns, or in CSC format.
    y: float64 (n,).
    loss: "squared" or "logistic".
    """

    x: Any
    y: np.ndarray
    loss: str

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        np.save(directory / "y.npy", self.y)
        (directory / "problem.json").write_text(json.dumps({"loss": self.loss, "shape": self.x.shape}))
        if isinstance(self.x, np.ndarray):
            np.save(directory / "x.npy", self.x.T)
        else:
            for name in _SPARSE:
                np.save(directory / f"{name}.npy", getattr(self.x, name))


def read(directory: Path) -> RegressionProblem:
    """Map the arrays of a problem, copy-on-write, as celer requires writable arrays."""
    facts = json.loads((directory / "problem.json").read_text())
    y = np.load(directory / "y.npy")
    if (directory / "x.npy").exists():
        return RegressionProblem(np.load(directory / "x.npy", mmap_mode="c").T, y, facts["loss"])
    arrays = tuple(np.load(directory / f"{name}.npy", mmap_mode="c") for name in _SPARSE)
    x = scipy.sparse.csc_matrix(arrays, facts["shape"])
    x.has_canonical_format = True
    return RegressionProblem(x, y, facts["loss"])


def sparse(
    scale: float, replaced: int, rows: int = 50_000, columns: int = 1_000_000, entries: int = 10
) -> RegressionProblem:
    """Return columns with a given number of normal entries in random rows, of which `replaced` differ from the previous
    column's.

    The correlation of neighbours is 1 - replaced / entries.
    """
    random = np.random.default_rng(0)
    rows, columns = int(rows * scale), int(columns * scale)
    places = random.integers(0, rows, (columns, entries), np.int32)
    values = random.standard_normal((columns, entries), np.float32)
    column, slot = np.indices((columns, entries))
    fresh = (slot - column * replaced) % entries < replaced
    since = np.maximum.accumulate(np.where(fresh | (column == 0), column, 0), axis=0)
    offsets = np.arange(columns + 1) * entries
    x = scipy.sparse.csc_matrix((values[since, slot].ravel(), places[since, slot].ravel(), offsets), (rows, columns))
    x.sum_duplicates()
    return RegressionProblem(x, _response(x, random), "squared")


def dense(scale: float, rows: int = 463, columns: int = 500_000) -> RegressionProblem:
    """Return independent normal numbers, float32."""
    random = np.random.default_rng(0)
    x = random.standard_normal((int(columns * scale), rows), np.float32).T
    return RegressionProblem(x, _response(x, random), "squared")


def _response(x: Any, random: np.random.Generator, active: int = 100) -> np.ndarray:
    chosen = random.choice(x.shape[1], active, replace=False)
    signal = x[:, chosen] @ random.standard_normal(active)
    return signal + _NOISE * signal.std() * random.standard_normal(signal.size)


def abstracts(data: Path) -> RegressionProblem:
    """Return tf-idf of 25,000 abstracts, and whether each is about mathematics."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    with gzip.open(data / "arxiv25k.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    x = TfidfVectorizer(dtype=np.float32).fit_transform(document["text"] for document in documents)
    y = [document["category"].partition(".")[0] == "math" for document in documents]
    return RegressionProblem(scipy.sparse.csc_matrix(x), np.array(y, np.float64), "logistic")


def newsgroups(data: Path) -> RegressionProblem:
    """Return tf-idf of newsgroup posts, and whether each belongs to one class."""
    from sklearn.datasets import load_svmlight_file

    with gzip.open(data / "20news.train.svm.gz") as lines:
        x, y = load_svmlight_file(lines, dtype=np.float32)
    return RegressionProblem(scipy.sparse.csc_matrix(x), (y == 0).astype(np.float64), "logistic")


def mice(data: Path) -> RegressionProblem:
    """Return standardised genotypes and a phenotype."""
    with np.load(data / "dense" / "mice.npz") as arrays:
        y = arrays["pheno"][:, list(arrays["pheno_names"]).index("Obesity.BMI")]
        return RegressionProblem(_standardised(arrays["X"]), y - y.mean(), "squared")


def tumours(data: Path) -> RegressionProblem:
    """Return standardised gene expression and two classes."""
    with np.load(data / "dense" / "singh.npz") as arrays:
        return RegressionProblem(
            _standardised(arrays["X"]), (arrays["y"] == arrays["y"].max()).astype(np.float64), "logistic"
        )


def _standardised(x: np.ndarray) -> np.ndarray:
    deviation = x.std(axis=0)
    kept = deviation > 0
    return np.asfortranarray((x[:, kept] - x[:, kept].mean(axis=0)) / deviation[kept], np.float32)


DRAWN: dict[str, Callable[[float], RegressionProblem]] = {
    "sparse": partial(sparse, replaced=10),
    "correlated": partial(sparse, replaced=1),
    "dense": dense,
}
REAL: dict[str, Callable[[Path], RegressionProblem]] = {
    "abstracts": abstracts,
    "20news": newsgroups,
    "mice": mice,
    "singh": tumours,
}


def make(name: str, scale: float, data: Path | None) -> RegressionProblem:
    """Write the problems.

    scale: factor for the numbers of rows and columns of simulated problems.
    data: directory of the real data.
    """
    if name in DRAWN:
        return DRAWN[name](scale)
    if data is None:
        raise SystemExit(f"{name} is real data: say where it is by --data")
    return REAL[name](data)
