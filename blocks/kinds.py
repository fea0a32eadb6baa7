"""Open a dataset of any kind."""

from __future__ import annotations

from pathlib import Path

from blocks.corpus.dataset import Dataset
from blocks.design.design import Design
from blocks.json_files import read_json
from blocks.ratings.matrix import Matrix
from blocks.samples.samples import Samples
from blocks.schemas import ManifestKind
from blocks.stored_dataset import NEWEST, dataset_manifest


def open_any(path: Path) -> Dataset | Matrix | Samples | Design:
    """Open a dataset of any kind."""
    return Design(path) if _kind(path) == Design.kind else open_rows(path)


def open_rows(path: Path) -> Dataset | Matrix | Samples:
    """Open a dataset whose blocks are ranges of rows.

    Raises RequestError for other kinds.
    """
    return Samples(path) if _kind(path) == Samples.kind else open_grid(path)


def open_grid(path: Path) -> Dataset | Matrix:
    """Open a dataset with blocks and slices.

    Raises RequestError for other kinds.
    """
    return Matrix(path) if _kind(path) == Matrix.kind else Dataset(path)


def _kind(path: Path) -> str:
    """Return the kind of a dataset.

    The schema is checked later by the class of the dataset, as designs have the newest schema.
    """
    return read_json(dataset_manifest(path), what="a dataset made by `ooc ingest`", schema=NEWEST, holds=ManifestKind)[
        "kind"
    ]
