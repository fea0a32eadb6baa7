"""Design matrices for benchmarks, created from arrays or simulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse

from blocks import Design, DesignRequest, ingest_design


def design_of(path: Path, x: np.ndarray | scipy.sparse.sparray, y: np.ndarray) -> Design:
    """Create a design matrix at `path` from x, (n, p), and y, (n,)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays, labels = path.with_suffix(".npz"), path.with_suffix(".npy")
    np.save(labels, y)
    if isinstance(x, np.ndarray):
        np.savez(arrays, X=x)
    else:
        scipy.sparse.save_npz(arrays, x.tocsr(), compressed=False)
    design = ingest_design(DesignRequest("npz", [str(arrays)], str(path), target=str(labels)))
    arrays.unlink()
    labels.unlink()
    return design


def genotypes(rows: int, columns: int, correlation: float, seed: int) -> np.ndarray:
    """Return simulated genotypes, int8 (n, p) with values 0, 1 and 2: the sum of two copies of each variant.

    Each copy thresholds an autoregressive chain of normal numbers at the variant's frequency, so neighbouring variants
    are correlated, somewhat less than the chain.
    """
    random = np.random.default_rng(seed)
    cuts = random.uniform(-1.2, 1.2, columns).astype(np.float32)
    x = np.zeros((rows, columns), np.int8)
    fresh = np.float32(np.sqrt(1 - correlation**2))
    for _ in range(2):
        state = random.standard_normal(rows, np.float32)
        for column in range(columns):
            state = np.float32(correlation) * state + fresh * random.standard_normal(rows, np.float32)
            x[:, column] += state > cuts[column]
    return x


def sparse(rows: int, columns: int, entries: int, seed: int) -> scipy.sparse.csc_array:
    """Return a matrix, float32 (n, p), with a given number of normal entries in random rows of each column."""
    random = np.random.default_rng(seed)
    step = rows // entries
    places = random.integers(0, step, (columns, entries)) + step * np.arange(entries)
    values = random.standard_normal(places.size, np.float32)
    offsets = np.arange(columns + 1) * entries
    return scipy.sparse.csc_array((values, places.reshape(-1), offsets), (rows, columns))


def response(x: np.ndarray | scipy.sparse.sparray, active: int, noise: float, seed: int) -> np.ndarray:
    """Return y, float64 (n,): the standardised sum of some columns with normal effects, plus noise.

    noise: standard deviation of the noise relative to the sum.
    """
    random = np.random.default_rng(seed)
    chosen = np.sort(random.permutation(x.shape[1])[:active])
    some = x[:, chosen]
    part = some if isinstance(some, np.ndarray) else some.toarray()
    spread = part.std(axis=0)
    mean = (part - part.mean(axis=0)) / np.where(spread > 0, spread, 1.0) @ random.standard_normal(active)
    return mean + noise * mean.std() * random.standard_normal(len(mean))
