"""Factors as word2vec writes vectors in text: a line of their number and size, then a name and its numbers on each."""

from __future__ import annotations

from pathlib import Path

from samplers.factorization.model import Factorization
from samplers.interchange.mallet import checked_words


def write_word2vec(model: Factorization, directory: Path) -> None:
    """Write rows.txt and columns.txt; biases are left out. Blanks in names become underscores, as word2vec's own tools
    have it; raises RequestError for a name that has another white space."""
    for name, side in (("rows", model.rows), ("columns", model.columns)):
        names = checked_words([each.replace(" ", "_") for each in side.names])
        with (directory / f"{name}.txt").open("w", encoding="utf-8") as file:
            file.write(f"{len(side)} {model.rank}\n")
            for each, factors in zip(names, side.factors, strict=True):
                file.write(f"{each} {' '.join(map(repr, factors.tolist()))}\n")
