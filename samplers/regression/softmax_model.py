"""A trained multi-class regression on disk.

model.json   schema, loss, columns, dataset identity, and the table of the files: the commit point
softmax.npz  `weights` float32 (classes, columns), `intercepts` float32 and `labels` float64 (classes,)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from blocks.errors import RequestError, WorkFailed
from blocks.files import checksum, read_json, write_json
from blocks.npz import write_npz
from blocks.samples.samples import Samples
from blocks.store import check_file

SCHEMA = 1
KIND = "multi-class regression"
MANIFEST = "model.json"


class SoftmaxModel:
    """A regression opened for reading. Attributes: `loss`; `columns`, their number; `arrays` of softmax.npz;
    `manifest`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_json(path / MANIFEST, what="a trained model", schema=SCHEMA)
        if self.manifest["kind"] != KIND:
            raise RequestError(f"{path} holds a {self.manifest['kind']}, but a {KIND} is needed here")
        self.loss: str = self.manifest["loss"]
        self.columns: int = self.manifest["columns"]
        entry = self.manifest["files"]["weights"]
        file = path / entry["file"]
        if not file.exists() or file.stat().st_size != entry["bytes"]:
            raise WorkFailed(f"damaged: {file} is missing or cut short", "Write the model again with `ooc resume`.")
        with np.load(file, allow_pickle=False) as arrays:
            self.arrays: dict[str, np.ndarray] = dict(arrays)

    def problems(self) -> Iterator[str]:
        """What is wrong with the model's files, compared with their checksums."""
        for entry in self.manifest["files"].values():
            if problem := check_file(self.path / entry["file"], entry):
                yield problem


def write_softmax(
    directory: Path, samples: Samples, *, loss: str, weights: np.ndarray, intercepts: np.ndarray, labels: np.ndarray
) -> None:
    """Write a model into an empty directory."""
    path = directory / "softmax.npz"
    write_npz(path, {"weights": weights, "intercepts": intercepts, "labels": labels})
    files = {"weights": {"file": path.name, "bytes": path.stat().st_size, "checksum": checksum(path)}}
    told = {"schema": SCHEMA, "kind": KIND, "dataset": samples.whole_identity, "loss": loss, "columns": samples.columns}
    write_json(directory / MANIFEST, {**told, "files": files})
