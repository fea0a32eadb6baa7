"""Data for the benchmark of the stochastic engine: labelled samples in any order."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.samples.ingestion import write_samples
from blocks.samples.samples import Samples

SHIFT, MERGED = 4, 4  # pixels


class SampleSubset(NamedTuple):
    """Samples as a scipy.sparse.csr_matrix, and as an engine dataset, which has its own order."""

    x: Any
    y: np.ndarray
    samples: Samples


class LabelledMatrix(NamedTuple):
    """Labelled samples.

    x: scipy.sparse.csr_matrix, float32 (n, columns).
    y: float64 (n,).
    """

    x: Any
    y: np.ndarray

    def take(self, chosen: np.ndarray) -> LabelledMatrix:
        return LabelledMatrix(self.x[chosen], self.y[chosen])

    def written(self, path: Path, seed: int = 0) -> SampleSubset:
        """Write samples as a dataset in the order of a seed."""
        x, y = self.take(np.random.default_rng(seed).permutation(self.y.size))
        x.indptr, x.indices = x.indptr.astype(np.int32), x.indices.astype(np.int32)  # or scikit-learn takes none of it
        arrays = x.indptr, x.indices, x.data
        size = {"width": x.shape[1], "block_entries": 1 << 30}
        return SampleSubset(x, y, write_samples(path, *arrays, y, seed=seed, overwrite=True, **size))


def load(data: Path, name: str) -> tuple[LabelledMatrix, LabelledMatrix]:
    """Return the training and the test samples."""
    from scipy.sparse import csr_matrix

    if name == "20news":
        from sklearn.datasets import load_svmlight_files

        files = [str(data / f"20news.{part}.svm.gz") for part in ("train", "test")]
        x_train, y_train, x_test, y_test = load_svmlight_files(files, dtype=np.float32, zero_based=False)
        return LabelledMatrix(x_train.tocsr(), y_train), LabelledMatrix(x_test.tocsr(), y_test)
    images, labels = digits(data)
    both = LabelledMatrix(csr_matrix(images.reshape(labels.size, -1) / np.float32(255)), labels.astype(float))
    train, test = np.split(np.random.default_rng(0).permutation(labels.size), [4 * labels.size // 5])
    return both.take(train), both.take(test)


def digits(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return images of digits, uint8 (n, 28, 28), and their labels, uint8 (n,)."""
    images = np.frombuffer(gzip.decompress((data / "t10k-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((data / "t10k-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    return images.reshape(labels.size, 28, 28), labels


def shifted_digits(data: Path) -> LabelledMatrix:
    """Return four in five digits, shifted by up to SHIFT pixels each way and reduced by MERGED x MERGED."""
    from scipy.sparse import csr_matrix

    images, labels = digits(data)
    chosen = np.random.default_rng(0).permutation(labels.size)[: 4 * labels.size // 5]
    steps, size = range(-SHIFT, SHIFT + 1), 28 // MERGED
    moved = [np.roll(images[chosen], (down, right), (1, 2)) for down in steps for right in steps]
    merged = [some.reshape(-1, size, MERGED, size, MERGED).mean((2, 4), dtype=np.float32) for some in moved]
    x = csr_matrix(np.concatenate(merged).reshape(-1, size * size) / np.float32(255))
    return LabelledMatrix(x, np.tile(labels[chosen], len(moved)).astype(float))
