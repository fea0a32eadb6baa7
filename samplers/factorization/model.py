"""A trained factorization on disk, in the order of the dataset's row and column names.

    model.json    schema, rank R, mean, how to solve for factors, dataset identity, table of files: the commit point
    factors.h5    for D rows: row_factors float32 (D*R,), row_biases float32 (D,), row_entries int64 (D,), number of
                  training entries; column_factors, column_biases and column_entries likewise
    rows.txt      name of row i on line i
    columns.txt   name of column j on line j

Rows and columns without training entries have factors and a bias of 0.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from blocks.arrays import ArrayPieces, Float32, Int64, write_arrays
from blocks.bounds_checks import require_below, require_valid
from blocks.errors import ModelDiverged
from blocks.files import publish_file
from blocks.ratings.matrix import Matrix
from blocks.schemas import ArrayFileEntry, FileEntry
from blocks.stored_dataset import read_lines
from samplers.external_sort import ReorderedRows
from samplers.factorization.row_kernels import BIASES
from samplers.model_files import ModelManifest, SavedModel, file_entry, write_manifest

KIND = "matrix factorization"
_RUN = 1 << 20  # number of values written at a time


class Side:
    """The rows or the columns of a model.

    names: names in order, or a file of names. Attributes: `factors` float32 (n, R), `biases` float32 (n,), `entries`
        int64 (n,).
    """

    def __init__(
        self, names: Path | Sequence[Any], factors: np.ndarray, biases: np.ndarray, entries: np.ndarray
    ) -> None:
        self._names = names
        self.factors, self.biases, self.entries = factors, biases, entries

    def __len__(self) -> int:
        return self.biases.size

    @cached_property
    def names(self) -> Sequence[Any]:
        return read_lines(self._names, len(self)) if isinstance(self._names, Path) else self._names

    @cached_property
    def places(self) -> dict[Any, int]:
        """Return the index of each name."""
        return dict(zip(self.names, range(len(self)), strict=True))


class Factorization:
    """A factorization, in memory or mapped. Attributes: `mean` of the values; `biased`, whether there are biases;
    `solver`, how to solve for the factors of new rows; `rows` and `columns`, each a `Side`; `rank`.
    """

    def __init__(self, mean: float, biased: bool, solver: dict[str, Any], rows: Side, columns: Side) -> None:
        self.mean, self.biased, self.solver = mean, biased, solver
        self.rows, self.columns = rows, columns

    @property
    def rank(self) -> int:
        return self.columns.factors.shape[1]

    @cached_property
    def column_products(self) -> np.ndarray:
        """Return the sum of the outer products of the columns' factors, H'H: float32 (R, R)."""
        return self.columns.factors.T @ self.columns.factors

    def in_memory(self, *names: Sequence[Any]) -> Factorization:
        """Return a copy in memory.

        names: names of the rows and of the columns, in order.
        """
        sides = [
            Side(of_side, np.array(side.factors), np.array(side.biases), np.array(side.entries))
            for of_side, side in zip(names, (self.rows, self.columns), strict=True)
        ]
        return Factorization(self.mean, self.biased, self.solver, *sides)


class Factors(NamedTuple):
    """Arrays of a factorization with D rows and C columns."""

    row_factors: Float32  # (D*R,)
    row_biases: Float32  # (D,)
    row_entries: Int64  # (D,)
    column_factors: Float32  # (C*R,)
    column_biases: Float32  # (C,)
    column_entries: Int64  # (C,)


class FoldInSolver(TypedDict):
    """How to solve for the factors of new rows."""

    regularization: float
    per_entry: bool
    alpha: float
    nonnegative: bool
    unit: NotRequired[float]


class FactorFiles(TypedDict):
    """Manifest entries for the files of a factorization."""

    factors: ArrayFileEntry
    rows: FileEntry
    columns: FileEntry


class FactorManifest(ModelManifest):
    """Manifest of a factorization."""

    rank: Annotated[int, Meta(ge=1, lt=1 << 32)]
    mean: float
    biases: bool
    solver: FoldInSolver
    files: FactorFiles


class FactorModel(SavedModel, Factorization):
    """A factorization opened for reading; its arrays are mapped."""

    kind = KIND
    holds = FactorManifest

    def __init__(self, path: Path) -> None:
        SavedModel.__init__(self, path)
        told, arrays = self.manifest, self.map("factors", Factors)
        sides = []
        for side in ("row", "column"):
            factors, biases, entries = (arrays[f"{side}_{name}"] for name in ("factors", "biases", "entries"))
            fits = factors.size == biases.size * told["rank"] and entries.size == biases.size
            require_valid(
                fits, path / told["files"]["factors"]["file"], f"its arrays have different numbers of {side}s"
            )
            names = path / told["files"][f"{side}s"]["file"]
            sides.append(Side(names, factors.reshape(-1, told["rank"]), biases, entries))
        Factorization.__init__(self, told["mean"], told["biases"], told["solver"], *sides)


class TrainedFactors(NamedTuple):
    """Trained rows or columns, in the layout of `samplers.factorization.row_kernels`.

    factors: float32 (n, width), rows by position or columns by rank.
    entries: int64 (n,).
    order: int64 (names,), position or rank of each name, or -1.
    unit: unit of the factors; the unit of biases is the product of both sides' units.
    """

    factors: np.ndarray
    entries: np.ndarray
    order: np.ndarray
    unit: float = 1.0


def trained_rows(dataset: Matrix, factors: np.ndarray) -> TrainedFactors:
    entries = np.concatenate([np.diff(dataset.block(number).offsets) for number in range(dataset.block_count)])
    return TrainedFactors(factors, entries, row_order(dataset))


def trained_columns(dataset: Matrix, factors: np.ndarray) -> TrainedFactors:
    entries = np.asarray(dataset.whole.column_entries)
    return TrainedFactors(factors, entries, place_of_line(dataset.index.column_ids, dataset.columns))


def write_factors(
    directory: Path,
    dataset: Matrix,
    *,
    rows: TrainedFactors,
    columns: TrainedFactors,
    biases: bool,
    rank: int,
    mean: float,
    solver: dict[str, Any],
    row_names: Iterable[bytes] | None = None,
) -> None:
    """Write a model into an empty directory.

    row_names: contents of rows.txt in pieces, if the names are not those of `dataset` but of the whole dataset of which
        it is a shard.
    """
    arrays: dict[str, np.ndarray | ArrayPieces] = {}
    with ExitStack() as stack:
        for bias, (side, trained) in enumerate((("row", rows), ("column", columns))):
            factors, entries, order, unit = trained
            first = BIASES if biases else 0
            order[entries[order] == 0] = -1  # where order is -1, the last row's entries do not matter
            starts = np.arange(len(factors) + 1) * factors.shape[1]
            ordered = stack.enter_context(ReorderedRows(directory, factors.reshape(-1), starts, order))
            arrays[f"{side}_factors"] = ArrayPieces(
                "float32", order.size * rank, _factors(ordered, order, first, rank, unit)
            )
            own_biases = factors[:, bias].copy() if biases else np.zeros(len(factors), np.float32)  # contiguous
            arrays[f"{side}_biases"] = rescaled(_in_order(own_biases, order), rows.unit * columns.unit)
            arrays[f"{side}_entries"] = _in_order(entries, order)
        files = {"factors": write_arrays(directory, "factors.h5", arrays)}
    for name, entry in dataset.manifest["texts"].items():
        path = directory / f"{name}.txt"
        with publish_file(path) as beside:
            if name == "rows" and row_names is not None:
                with beside.open("wb") as file:
                    file.writelines(row_names)
            else:
                shutil.copyfile(dataset.path / entry["file"], beside)
        files[name] = file_entry(path)
    identity = dataset.identity if row_names is None else dataset.whole_identity
    write_manifest(directory, KIND, identity, files, rank=rank, mean=mean, biases=biases, solver=solver)


def export_bytes(matrix: Matrix) -> int:
    """Return the memory in bytes that `write_factors` needs to order rows and columns."""
    return 72 * (matrix.rows + matrix.columns)


def row_order(matrix: Matrix) -> np.ndarray:
    """Return the position of the row of each name, int64, or -1 if the row has no entries."""
    lines = np.concatenate([matrix.block(number).rows for number in range(matrix.block_count)])
    names = matrix.count_row_names()
    require_below(matrix.path, "rows", lines, names)
    return place_of_line(lines, names)


def place_of_line(lines: np.ndarray, size: int) -> np.ndarray:
    """Return the index in `lines` of each of `size` lines, int64 (size,), or -1."""
    order = np.full(size, -1, np.int64)
    order[lines] = np.arange(lines.size)
    return order


def _in_order(numbers: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the numbers at the positions in `order`; 0 where `order` is -1."""
    found = numbers[order]
    found[order < 0] = 0
    return found


def rescaled(numbers: np.ndarray, unit: float) -> np.ndarray:
    """Return numbers, float32 (n,), multiplied by a unit. Raises ModelDiverged if the result is not finite."""
    with np.errstate(over="ignore"):
        found = numbers if unit == 1 else numbers * np.float32(unit)
    if not np.isfinite(found).all():
        raise ModelDiverged("the model diverged: factors or biases are not finite; no model is written")
    return found


def _factors(ordered: ReorderedRows, order: np.ndarray, first: int, rank: int, unit: float) -> Iterator[np.ndarray]:
    """Yield `rank` numbers, starting at `first`, of each row in the given order, some rows at a time; 0 where `order`
    is -1.
    """
    step = max(_RUN // rank, 1)
    for begin, end, numbers in ordered.runs():
        left = numbers.reshape(np.count_nonzero(order[begin:end] >= 0), -1)
        for at in range(begin, end, step):
            there = order[at : min(at + step, end)] >= 0
            run, some = np.zeros((there.size, rank), np.float32), np.count_nonzero(there)
            run[there] = left[:some, first : first + rank]
            left = left[some:]
            yield rescaled(run.reshape(-1), unit)
