"""Opening a dataset of any kind."""

from __future__ import annotations

from pathlib import Path

from blocks.dataset import Dataset
from blocks.files import read_json
from blocks.matrix import Matrix
from blocks.store import MANIFEST, SCHEMA


def open_any(path: Path) -> Dataset | Matrix:
    """Open a dataset, whatever it holds."""
    kind = read_json(path / MANIFEST, what="a dataset made by `ooc ingest`", schema=SCHEMA)["kind"]
    return Matrix(path) if kind == Matrix.kind else Dataset(path)
