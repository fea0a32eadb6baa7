"""A trained multi-class linear model on disk.

model.json    schema, loss, columns, dataset identity, table of the files: the commit point
softmax.npz   `weights` float32 (classes, columns), `intercepts` float32 and `labels` float64 (classes,)
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict

import numpy as np

from blocks.bounds_checks import require_valid
from blocks.errors import WorkFailed
from blocks.npz import read_npz, write_npz
from blocks.samples.samples import Samples
from blocks.schemas import Count, FileEntry
from blocks.stored_dataset import check_file
from samplers.model_files import REMEDY, ModelManifest, SavedModel, file_entry, write_manifest

KIND = "multi-class regression"


class SoftmaxFiles(TypedDict):
    """Manifest entries for the files of a multi-class model."""

    weights: FileEntry


class SoftmaxManifest(ModelManifest):
    """Manifest of a multi-class model."""

    loss: Literal["softmax", "squared", "hinge"]
    columns: Count
    files: SoftmaxFiles


class SoftmaxModel(SavedModel):
    """A multi-class model opened for reading.

    Attributes: `loss`; `columns`, the number of columns; `arrays` of softmax.npz; `manifest`.
    """

    kind = KIND
    holds = SoftmaxManifest

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.loss: str = self.manifest["loss"]
        self.columns: int = self.manifest["columns"]
        file = path / self.manifest["files"]["weights"]["file"]
        if problem := check_file(file, self.manifest["files"]["weights"]):
            raise WorkFailed(f"{self.path} is damaged: {problem}", REMEDY)
        self.arrays = read_npz(file, {"weights": "float32", "intercepts": "float32", "labels": "float64"})
        classes = self.arrays["labels"].size
        shapes = {"weights": (classes, self.columns), "intercepts": (classes,), "labels": (classes,)}
        for name, shape in shapes.items():
            require_valid(self.arrays[name].shape == shape, file, f"its {name} are not {shape}")


def write_softmax(
    directory: Path, samples: Samples, *, loss: str, weights: np.ndarray, intercepts: np.ndarray, labels: np.ndarray
) -> None:
    """Write a model into an empty directory."""
    path = directory / "softmax.npz"
    write_npz(path, {"weights": weights, "intercepts": intercepts, "labels": labels})
    files = {"weights": file_entry(path)}
    write_manifest(directory, KIND, samples.whole_identity, files, loss=loss, columns=samples.columns)
