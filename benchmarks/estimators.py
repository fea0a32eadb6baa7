"""Compare the cost of fitting an estimator on data in memory with fitting on a dataset of the same data.

python -m benchmarks.estimators --documents 20000 --topics 100
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from blocks import synthesize
from blocks.corpus.dataset import Dataset
from blocks.corpus.synthetic import Synthetic
from samplers import LatentDirichletAllocation


def counts_of(dataset: Dataset) -> csr_array:
    """Return the word counts, (D, V), in the original order of documents and words."""
    documents, words = [], []
    for number in range(dataset.block_count):
        block = dataset.block(number)
        ranks = np.repeat(block.words, np.diff(block.word_offsets))[block.positions]
        documents.append(np.repeat(block.documents.astype(np.int64), np.diff(block.offsets)))
        words.append(dataset.index.word_ids[ranks].astype(np.int64))
    places = np.concatenate(documents), np.concatenate(words)
    shape = dataset.documents, dataset.vocabulary_size
    return csr_array((np.ones(places[0].size, np.int32), places), shape)


def fit(X: Any, options: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of the whole fit, and of its iterations."""
    began = time.perf_counter()
    estimator = LatentDirichletAllocation(**options).fit(X)
    whole = time.perf_counter() - began
    return {"fit_s": whole, "iterations_s": estimator.history_[-1]["elapsed_s"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    options = {"n_components": asked.topics, "max_iter": asked.iterations, "random_state": 0}
    with tempfile.TemporaryDirectory() as directory:
        made = Synthetic(documents=asked.documents, vocabulary=20_000, topics=asked.topics)
        dataset = synthesize(made, Path(directory) / "data")
        forms: dict[str, Any] = {"dataset": dataset.path, "memory": counts_of(dataset)}
        fit(dataset.path, options | {"max_iter": 1})  # kernels are compiled
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in forms}
        for _ in range(asked.rounds):
            for name, X in forms.items():
                taken[name].append(fit(X, options))
        report(taken, dataset.tokens * asked.iterations, asked.json)


def report(taken: dict[str, list[dict[str, float]]], tokens: int, path: Path | None) -> None:
    """Print the medians for each form of the data and their ratios, and write them as JSON."""
    medians = {name: {key: median(each[key] for each in fits) for key in fits[0]} for name, fits in taken.items()}
    for name, found in medians.items():
        speed = tokens / found["iterations_s"] / 1e6
        print(f"{name:8} fit {found['fit_s']:.2f} s, iterations {found['iterations_s']:.2f} s, {speed:.1f}M tokens/s")
    ratios = {key: medians["memory"][key] / found for key, found in medians["dataset"].items()}
    print(f"memory / dataset: fit {ratios['fit_s']:.2f}, iterations {ratios['iterations_s']:.2f}")
    if path:
        path.write_text(json.dumps({"fits": taken, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
