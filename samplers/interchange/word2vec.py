"""Export factors in word2vec's text format: a header with the number and length of the vectors, then a line per name
with its factors.
"""

from __future__ import annotations

from pathlib import Path

from samplers.factorization.model import Factorization
from samplers.interchange.mallet import checked_words


def write_word2vec(model: Factorization, directory: Path) -> None:
    """Write rows.txt and columns.txt, without biases.

    Spaces in names become underscores, as in word2vec's tools.
    Raises RequestError if a name has other white space.
    """
    for name, side in (("rows", model.rows), ("columns", model.columns)):
        names = checked_words([each.replace(" ", "_") for each in side.names])
        with (directory / f"{name}.txt").open("w", encoding="utf-8") as file:
            file.write(f"{len(side)} {model.rank}\n")
            for each, factors in zip(names, side.factors, strict=True):
                file.write(f"{each} {' '.join(map(repr, factors.tolist()))}\n")
