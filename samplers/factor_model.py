"""A trained factorization on disk, in the order of the names of rows and columns as the dataset gives them.

model.json   schema, rank R, mean, how factors are solved for, dataset identity, and the table of the files: the commit
             point
factors.h5   for D rows: row_factors float32 (D*R,), row_biases float32 (D,), row_entries int64 (D,), known ones they
             were trained on; column_factors, column_biases and column_entries likewise
rows.txt     name of row i on line i
columns.txt  name of column j on line j

What was trained on nothing has factors and a bias of 0.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from blocks.arrays import Pieces, map_arrays, write_arrays
from blocks.errors import RequestError, WorkFailed
from blocks.files import checksum, publish, read_json, write_json
from blocks.matrix import Matrix
from blocks.store import check_file, read_lines
from samplers.factor_rows import BIASES

SCHEMA = 1
KIND = "matrix factorization"
MANIFEST = "model.json"
_CHUNK = 1 << 22  # numbers that are put in order at a time


class Side:
    """The rows or the columns of a model. Attributes: `factors` float32 (n, R), `biases` float32 (n,), `entries` int64
    (n,); all mapped."""

    def __init__(self, names: Path, factors: np.ndarray, biases: np.ndarray, entries: np.ndarray) -> None:
        self._names = names
        self.factors, self.biases, self.entries = factors, biases, entries

    def __len__(self) -> int:
        return self.biases.size

    @cached_property
    def names(self) -> list[str]:
        return read_lines(self._names)

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each name."""
        return dict(zip(self.names, range(len(self)), strict=True))


class FactorModel:
    """A factorization opened for reading.

    Attributes: `rank`, `mean`, `biased`, `rows` and `columns` Side, `solver`, `manifest`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_json(path / MANIFEST, what="a trained model", schema=SCHEMA)
        if self.manifest["kind"] != KIND:
            raise RequestError(f"{path} holds a {self.manifest['kind']}, but a {KIND} is needed here")
        self.rank: int = self.manifest["rank"]
        self.mean: float = self.manifest["mean"]
        self.biased: bool = self.manifest["biases"]
        self.solver: dict[str, Any] = self.manifest["solver"]
        entry = self.manifest["files"]["factors"]
        file = path / entry["file"]
        if not file.exists() or file.stat().st_size != entry["bytes"]:
            raise WorkFailed(f"damaged: {file} is missing or cut short", "Write the model again with `ooc resume`.")
        arrays = map_arrays(file, entry["arrays"])
        self.rows, self.columns = (
            Side(
                path / f"{side}s.txt",
                arrays[f"{side}_factors"].reshape(-1, self.rank),
                arrays[f"{side}_biases"],
                arrays[f"{side}_entries"],
            )
            for side in ("row", "column")
        )

    @cached_property
    def column_products(self) -> np.ndarray:
        """The sum of the outer products of the columns' factors with themselves: float32 (R, R)."""
        return self.columns.factors.T @ self.columns.factors

    def problems(self) -> Iterator[str]:
        """What is wrong with the model's files, compared with their checksums."""
        for entry in self.manifest["files"].values():
            if problem := check_file(self.path / entry["file"], entry):
                yield problem


def write_factors(
    directory: Path,
    dataset: Matrix,
    *,
    rows: np.ndarray,
    columns: np.ndarray,
    biases: bool,
    rank: int,
    mean: float,
    solver: dict[str, Any],
) -> None:
    """Write a model into an empty directory.

    rows: float32 (D, width) by place, columns: float32 (C, width) by rank, both as `samplers.factor_rows` says.
    """
    arrays: dict[str, np.ndarray | Pieces] = {}
    of_rows = np.concatenate([np.diff(dataset.block(number).offsets) for number in range(dataset.block_count)])
    entries = {"row": of_rows, "column": np.asarray(dataset.index.column_entries)}
    orders = {"row": row_order(dataset), "column": _order(dataset.index.column_ids, dataset.columns)}
    for bias, (side, factors) in enumerate((("row", rows), ("column", columns))):
        order, first = orders[side], BIASES if biases else 0
        order[entries[side][order] == 0] = -1
        arrays[f"{side}_factors"] = Pieces("float32", order.size * rank, _in_order(factors, order, first, rank))
        arrays[f"{side}_biases"] = np.where(order < 0, 0, factors[order, bias] if biases else 0).astype(np.float32)
        arrays[f"{side}_entries"] = np.where(order < 0, 0, entries[side][order]).astype(np.int64)
    files = {"factors": write_arrays(directory, "factors.h5", arrays)}
    for name, entry in dataset.manifest["texts"].items():
        with publish(directory / f"{name}.txt") as beside:
            shutil.copyfile(dataset.path / entry["file"], beside)
        sum_ = checksum(directory / f"{name}.txt")
        files[name] = {"file": f"{name}.txt", "bytes": entry["bytes"], "checksum": sum_}
    write_json(
        directory / MANIFEST,
        {
            "schema": SCHEMA,
            "kind": KIND,
            "dataset": dataset.identity,
            "rank": rank,
            "mean": mean,
            "biases": biases,
            "solver": solver,
            "files": files,
        },
    )


def row_order(matrix: Matrix) -> np.ndarray:
    """int64, the place of the row of each name, or -1 for one that has no entries."""
    lines = np.concatenate([matrix.block(number).rows for number in range(matrix.block_count)])
    return _order(lines, len(matrix.row_names()))


def _order(lines: np.ndarray, size: int) -> np.ndarray:
    order = np.full(size, -1, np.int64)
    order[lines] = np.arange(lines.size)
    return order


def _in_order(factors: np.ndarray, order: np.ndarray, first: int, rank: int) -> Iterator[np.ndarray]:
    """The factors of the rows at the places that `order` says, some at a time; 0 where there is none."""
    step = max(_CHUNK // rank, 1)
    for begin in range(0, order.size, step):
        places = order[begin : begin + step]
        run = factors[places, first : first + rank]
        run[places < 0] = 0.0
        yield run.reshape(-1)
