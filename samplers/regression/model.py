"""A trained Lasso or l1 logistic regression on disk: its coefficients for each lambda of the path.

model.json       schema, loss, classes, columns, dataset identity, which lambda was chosen, the columns that were left
                 out as constant (names, or numbers if columns have none), and the table of the files: the commit point
coefficients.h5  `lambdas`, falling, `intercepts`, `objectives`, `gaps` float64 (N,); `offsets` int64 (N+1,), where the
                 `columns` int64, `coefficients` that are not 0 and `means` float64 begin for each; with folds also
                 `held_out_errors` and `standard_errors` float64 (N,)
columns.txt      name of column j on line j; absent if columns go by their numbers

Coefficients are those of the columns as they are, standardised or not.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.arrays import map_arrays, write_arrays
from blocks.design.design import Design
from blocks.errors import RequestError, WorkFailed
from blocks.files import checksum, publish, read_json, write_json
from blocks.store import check_file, read_lines
from samplers.regression.cross_validation import Validation

SCHEMA = 1
KIND = "sparse regression"
MANIFEST = "model.json"


class Coefficients(NamedTuple):
    """Those for one lambda."""

    level: float
    intercept: float
    columns: np.ndarray  # int64 (m,), ascending
    values: np.ndarray  # float64 (m,)
    means: np.ndarray  # float64 (m,), what missing values of these columns count as


class RegressionModel:
    """A regression opened for reading. Attributes: `loss`, "squared" or "logistic"; `classes`, what y was for 0 and 1
    of the latter; `columns`, their number; `chosen`, number of a lambda; `arrays` of coefficients.h5; `manifest`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_json(path / MANIFEST, what="a trained model", schema=SCHEMA)
        if self.manifest["kind"] != KIND:
            raise RequestError(f"{path} holds a {self.manifest['kind']}, but a {KIND} is needed here")
        self.loss: str = self.manifest["loss"]
        self.classes: list[float] = self.manifest["classes"]
        self.columns: int = self.manifest["columns"]
        self.chosen: int = self.manifest["chosen"]
        entry = self.manifest["files"]["coefficients"]
        file = path / entry["file"]
        if not file.exists() or file.stat().st_size != entry["bytes"]:
            raise WorkFailed(f"damaged: {file} is missing or cut short", "Write the model again with `ooc resume`.")
        self.arrays = map_arrays(file, entry["arrays"])

    def coefficients(self, level: float | None = None) -> Coefficients:
        """For the lambda nearest to `level`, by ratio; None for the one that was chosen."""
        number = self.chosen
        if level is not None:
            number = int(np.argmin(np.abs(np.log(self.arrays["lambdas"] / level))))
        begin, end = self.arrays["offsets"][number : number + 2]
        return Coefficients(
            float(self.arrays["lambdas"][number]),
            float(self.arrays["intercepts"][number]),
            self.arrays["columns"][begin:end],
            self.arrays["coefficients"][begin:end],
            self.arrays["means"][begin:end],
        )

    def column_names(self) -> list[str] | None:
        entry = self.manifest["files"].get("columns")
        return read_lines(self.path / entry["file"]) if entry else None

    def problems(self) -> Iterator[str]:
        """What is wrong with the model's files, compared with their checksums."""
        for entry in self.manifest["files"].values():
            if problem := check_file(self.path / entry["file"], entry):
                yield problem


def write_regression(
    directory: Path,
    design: Design,
    *,
    loss: str,
    classes: list[float],
    arrays: dict[str, np.ndarray],
    constant: np.ndarray,
    validation: Validation | None,
) -> None:
    """Write a model into an empty directory. arrays: of coefficients.h5, all but means and errors. constant: int64,
    columns that were left out."""
    means = design.means if design.offsets is None else design.means + design.offsets
    arrays = {**arrays, "means": means[arrays["columns"]]}
    chosen = arrays["lambdas"].size - 1
    told: dict[str, Any] = {}
    if validation:
        chosen = validation.chosen
        told = {"best": validation.best}
        arrays |= {"held_out_errors": validation.errors, "standard_errors": validation.standard_errors}
    files = {"coefficients": write_arrays(directory, "coefficients.h5", arrays)}
    if entry := design.manifest["texts"].get("columns"):
        path = directory / "columns.txt"
        with publish(path) as beside:
            shutil.copyfile(design.path / entry["file"], beside)
        files["columns"] = {"file": path.name, "bytes": path.stat().st_size, "checksum": checksum(path)}
    write_json(
        directory / MANIFEST,
        {
            "schema": SCHEMA,
            "kind": KIND,
            "dataset": design.whole_identity,
            "loss": loss,
            "classes": classes,
            "columns": design.columns,
            "first_column": design.manifest["first_column"],
            "chosen": chosen,
            "constant_columns": design.names_of(constant),
            **told,
            "files": files,
        },
    )
