"""Compute the memory of word rows: all dense, all hash tables, or the mixture that `samplers.lda.word_topic_rows` uses.

Words follow Zipf's law, or have the frequencies of a dataset. Nothing is allocated: the layout says it all.
"""

from __future__ import annotations

import argparse

import numpy as np

from blocks import Dataset
from samplers.lda.word_topic_rows import DENSE, row_layout


def zipf(vocabulary: int, tokens: int) -> np.ndarray:
    """Return frequencies ~ 1 / rank that sum to about `tokens`, int64 (V,)."""
    weights = 1.0 / np.arange(1, vocabulary + 1)
    return np.maximum(np.rint(weights / weights.sum() * tokens), 1).astype(np.int64)


def table_bytes(frequencies: np.ndarray, topics: int) -> int:
    """Return the bytes if every row were a hash table with twice as many slots as topics."""
    most = np.minimum(frequencies, topics)
    return int(8 * (2 ** np.ceil(np.log2(2 * np.maximum(most, 1)))).sum())


def line(name: str, frequencies: np.ndarray, topics: int) -> str:
    """Return one row of the table."""
    layout = row_layout(frequencies, topics)
    dense = layout.masks == DENSE
    sizes = (4 * frequencies.size * topics, table_bytes(frequencies, topics), 4 * layout.dense + 8 * layout.tables)
    hot = frequencies[dense].sum() / frequencies.sum()
    gigabytes = " | ".join(f"{size / 1e9:,.2f}" for size in sizes)
    return f"| {name} | {topics:,} | {gigabytes} | {dense.sum():,} | {hot:.1%} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", help="take the frequencies of a dataset, too")
    parser.add_argument("--tokens", type=float, default=1e9, help="of the Zipf corpora")
    parser.add_argument("--topics", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    args = parser.parse_args()
    corpora = {f"Zipf, V = {size:,}": zipf(size, int(args.tokens)) for size in (100_000, 1_000_000)}
    if args.dataset:
        corpora = {args.dataset: Dataset(args.dataset).index.frequencies} | corpora
    print("| words | K | dense, GB | tables, GB | mixture, GB | dense rows | tokens in them |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, frequencies in corpora.items():
        for topics in args.topics:
            print(line(name, frequencies, topics))


if __name__ == "__main__":
    main()
