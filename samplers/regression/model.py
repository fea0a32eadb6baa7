"""A trained Lasso, or l1 logistic or Poisson regression, on disk: its coefficients for each lambda of the path.

    model.json        schema, loss, classes, columns, dataset identity, index of the chosen lambda, constant columns
                      that were left out (names, or indices without names), table of the files: the commit point
    coefficients.h5   `lambdas`, descending, `intercepts`, `objectives`, `gaps` float64 (N,); `offsets` int64 (N+1,),
                      start of each model in `columns` int64, nonzero `coefficients` and `means` float64; with folds
                      `held_out_errors` and `standard_errors` float64 (N,)
    columns.txt       name of column j on line j; absent if columns have no names

Coefficients are on the original scale of the columns, standardized or not.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import numpy as np

from blocks.arrays import Float64, Int64, write_arrays
from blocks.bounds_checks import require_below, require_offsets, require_valid
from blocks.design.design import Design
from blocks.errors import RequestError
from blocks.files import publish_file
from blocks.schemas import ArrayFileEntry, Count, FileEntry
from samplers.model_files import ModelManifest, SavedModel, file_entry, write_manifest
from samplers.regression.path.cross_validation import RULES, CrossValidationErrors

KIND = "sparse regression"


class Coefficients(NamedTuple):
    """Coefficients for one lambda."""

    lam: float
    intercept: float
    columns: np.ndarray  # int64 (m,), ascending
    values: np.ndarray  # float64 (m,)
    means: np.ndarray  # float64 (m,), the values that replace missing values of these columns


class CoefficientArrays(NamedTuple):
    """Arrays for N lambdas with m nonzero coefficients in total."""

    lambdas: Float64  # (N,)
    intercepts: Float64  # (N,)
    objectives: Float64  # (N,)
    gaps: Float64  # (N,)
    offsets: Int64  # (N+1,)
    columns: Int64  # (m,)
    coefficients: Float64  # (m,)
    means: Float64  # (m,)
    held_out_errors: Float64 = np.empty(0)  # (N,) with folds
    standard_errors: Float64 = np.empty(0)  # (N,) with folds


class RegressionFiles(TypedDict):
    """Manifest entries for the files of a regression."""

    coefficients: ArrayFileEntry
    columns: NotRequired[FileEntry]


class RegressionManifest(ModelManifest):
    """Manifest of a regression."""

    loss: Literal["squared", "logistic", "poisson"]
    classes: list[float]
    columns: Count
    first_column: Count
    chosen: Count
    best: NotRequired[Count]
    constant_columns: NotRequired[list[str]]
    files: RegressionFiles


class RegressionModel(SavedModel):
    """A regression opened for reading.

    Attributes: `loss`, "squared", "logistic" or "poisson"; `classes`, the values of y for 0 and 1; `columns`, the
    number of columns; `chosen`, the index of the chosen lambda; `arrays` of coefficients.h5; `manifest`.
    """

    kind = KIND
    holds = RegressionManifest

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.loss: str = self.manifest["loss"]
        self.classes: list[float] = self.manifest["classes"]
        self.columns: int = self.manifest["columns"]
        self.chosen: int = self.manifest["chosen"]
        self.arrays = self.map("coefficients", CoefficientArrays)
        self._check(path / self.manifest["files"]["coefficients"]["file"])

    def _check(self, file: Path) -> None:
        """Raise WorkFailed unless arrays and manifest are consistent."""
        arrays, lambdas = self.arrays, self.arrays["lambdas"].size
        of_lambdas = ("intercepts", "objectives", "gaps", "held_out_errors", "standard_errors")
        require_valid(
            {arrays[name].size for name in of_lambdas if name in arrays} == {lambdas},
            file,
            f"its arrays do not match {lambdas} lambdas",
        )
        require_offsets(file, "offsets", arrays["offsets"], lambdas, arrays["columns"].size)
        of_columns = {arrays[name].size for name in ("columns", "coefficients", "means")}
        require_valid(len(of_columns) == 1, file, "its columns do not have a coefficient and a mean each")
        require_valid(int(arrays["columns"].min(initial=0)) >= 0, file, "it names a column below 0")
        require_below(file, "columns", arrays["columns"], self.columns)
        numbers = (self.chosen, self.manifest.get("best", 0))
        require_valid(max(numbers) < lambdas, file, f"lambda {max(numbers)} was chosen of {lambdas}")
        require_valid(len(self.classes) == (2 if self.loss == "logistic" else 0), file, f"{len(self.classes)} classes")

    def coefficients(self, lam: float | str | None = None) -> Coefficients:
        """Return the coefficients for the lambda whose ratio to `lam` is closest to 1.

        lam: a value above 0; after cross-validation also "min", the lambda with the smallest error, or "1se", the
            lambda chosen by the one-standard-error rule; None for the chosen lambda.
        Raises RequestError if there is no such lambda.
        """
        number = self.chosen
        if lam == "min" and "best" in self.manifest:
            number = self.manifest["best"]
        elif lam in RULES and "best" not in self.manifest:
            raise RequestError(
                f"lambda {lam!r} needs cross-validation, and this path was trained without it",
                "Train with --cross-validate, or set a number.",
            )
        elif isinstance(lam, float | int):
            number = int(np.argmin(np.abs(np.log(self.arrays["lambdas"] / lam))))
        begin, end = self.arrays["offsets"][number : number + 2]
        return Coefficients(
            float(self.arrays["lambdas"][number]),
            float(self.arrays["intercepts"][number]),
            self.arrays["columns"][begin:end],
            self.arrays["coefficients"][begin:end],
            self.arrays["means"][begin:end],
        )

    def column_names(self) -> list[str] | None:
        return self.lines("columns", self.columns)


def write_regression(
    directory: Path,
    design: Design,
    *,
    loss: str,
    classes: list[float],
    arrays: dict[str, np.ndarray],
    constant: np.ndarray,
    validation: CrossValidationErrors | None,
) -> None:
    """Write a model into an empty directory.

    arrays: contents of coefficients.h5, except means and errors.
    constant: int64, constant columns that were left out.
    """
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
        with publish_file(path) as beside:
            shutil.copyfile(design.path / entry["file"], beside)
        files["columns"] = file_entry(path)
    write_manifest(
        directory,
        KIND,
        design.whole_identity,
        files,
        loss=loss,
        classes=classes,
        columns=design.columns,
        first_column=design.manifest["first_column"],
        chosen=chosen,
        constant_columns=design.names_of(constant),
        **told,
    )
