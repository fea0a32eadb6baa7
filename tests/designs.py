"""Design matrices for tests: created in this process, written in every format, and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from blocks import Design, DesignRequest, ingest_design
from blocks.design.design import DenseDesignBlock, SparseDesignBlock
from blocks.design.worker import start
from blocks.in_process import InProcessWorker


class InlineWorkers(InProcessWorker):
    """Replacement for `blocks.workers.WorkerPool` without processes."""

    def __init__(self, _: str, argument: Any, __: int) -> None:
        super().__init__(start(argument))

    def __enter__(self) -> InlineWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def ingested(kind: str, source: Path | list[Path], out: Path, workers: int = 1, **options: Any) -> Design:
    inputs = [str(path) for path in (source if isinstance(source, list) else [source])]
    return ingest_design(DesignRequest(kind, inputs, str(out), **options), workers=workers, memory=1 << 30)


def read_back(design: Design) -> np.ndarray:
    """Return all values, float64 (n, p), with column means in place of missing values."""
    columns = []
    for number in range(design.block_count):
        block = design.block(number)
        columns.append(_dense(design, block) if isinstance(block, DenseDesignBlock) else _sparse(design, block))
    x = np.concatenate(columns).T
    assert x.shape == (design.rows, design.columns)
    for number, (first, last) in enumerate(zip(design.block_bounds[:-1], design.block_bounds[1:], strict=True)):
        block = design.block(number)
        if isinstance(block, DenseDesignBlock):
            for column in range(first, last):
                at = block.missing_offsets[column - first : column - first + 2]
                x[block.missing_rows[slice(*at)], column] = design.means[column]
    return x


def _dense(design: Design, block: DenseDesignBlock) -> np.ndarray:
    assert block.values.dtype.name in design.block_forms
    assert block.values.flags.c_contiguous
    assert block.values.__array_interface__["data"][0] % 64 == 0
    return block.values.astype(np.float64)


def _sparse(design: Design, block: SparseDesignBlock) -> np.ndarray:
    values = block.values if design.form == "sparse" else np.ones(block.rows.size)
    assert (block.rows.dtype, block.values.dtype) == (np.uint32, np.float32)
    matrix = scipy.sparse.csr_array(
        (values, block.rows.astype(np.int64), block.offsets), (len(block.offsets) - 1, design.rows)
    )
    assert matrix.has_canonical_format
    return matrix.toarray().astype(np.float64)


def write(kind: str, x: np.ndarray, y: np.ndarray, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Write a file with x; returns the options of `DesignRequest` to find y.

    kind: a key of `WAYS`.
    """
    np.save(folder / "y.npy", y)
    beside = {"target": str(folder / "y.npy")}
    form = kind.partition("-")[2]
    path = folder / f"x.{kind.partition('-')[0]}"
    if kind == "svmlight":
        path.write_text("".join(map(_svmlight_line, x.tolist(), y.tolist())))
        return path, {}
    if kind == "csv":
        names = ",".join(f"x{column}" for column in range(x.shape[1]))
        rows = (",".join(map(repr, [*row, label])) for row, label in zip(x.tolist(), y.tolist(), strict=True))
        path.write_text(f"{names},y\n" + "".join(f"{row}\n" for row in rows))
        return path, {"target": "y"}
    if kind.startswith("mtx"):
        matrix = x if form == "array" else scipy.sparse.coo_array(x)
        scipy.io.mmwrite(path, matrix, precision=17, symmetry="general")
        return path, beside
    if form in ("C", "F"):
        np.savez(path, X=np.asarray(x, order=form), y=y)
        return path, {}
    scipy.sparse.save_npz(path, scipy.sparse.coo_matrix(x).asformat(form))
    return path, beside


WAYS = ("svmlight", "csv", "mtx-coordinate", "mtx-array", "npz-csr", "npz-csc", "npz-coo", "npz-C", "npz-F")


def kind_of(way: str) -> str:
    return way.partition("-")[0]


def _svmlight_line(row: list[float], label: float) -> str:
    pairs = " ".join(f"{column}:{value!r}" for column, value in enumerate(row, 1) if value)
    return f"{label!r} {pairs}\n"
