"""Directory of a trained model: a manifest that lists files of arrays and of lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from blocks.arrays import open_arrays
from blocks.errors import RequestError
from blocks.files import checksum
from blocks.json_files import read_json, require_fit, write_json
from blocks.schemas import FileEntry, ManifestKind
from blocks.stored_dataset import check_file, read_lines

SCHEMA = 1
MANIFEST = "model.json"
REMEDY = "Write the model again with `ooc resume RUN`."


class ModelManifest(ManifestKind):
    """Manifest fields common to all models."""

    dataset: str


class SavedModel:
    """A model opened for reading; subclasses define its contents. Attributes: `path`, `manifest`."""

    kind: ClassVar[str]
    holds: ClassVar[Any] = ModelManifest

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_manifest(path)
        if self.manifest["kind"] != self.kind:
            raise RequestError(f"{path} is a {self.manifest['kind']}; expected a {self.kind}")
        require_fit(path / MANIFEST, self.manifest, self.holds)
        require_fit(path / MANIFEST, self.manifest.get("files"), dict[str, FileEntry])

    def map(self, name: str, holds: Any) -> dict[str, np.ndarray]:
        """Memory-map the arrays of a file, given its name in the manifest; see `open_arrays` for `holds` and errors."""
        entry = self.manifest["files"][name]
        return open_arrays(self.path / entry["file"], entry, holds, remedy=REMEDY)

    def lines(self, name: str, count: int) -> list[str] | None:
        """Return the lines of a file, given its name in the manifest, or None if there is no such file; see
        `read_lines`.
        """
        if name not in self.manifest["files"]:
            return None
        return read_lines(self.path / self.manifest["files"][name]["file"], count)

    def problems(self) -> Iterator[str]:
        """Yield a description of each file that does not match its checksum."""
        for entry in self.manifest["files"].values():
            if problem := check_file(self.path / entry["file"], entry):
                yield problem


def read_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest of a model of any kind; the class of the model validates the other fields later."""
    return read_json(path / MANIFEST, what="a trained model", schema=SCHEMA, holds=ManifestKind)


def write_manifest(path: Path, kind: str, dataset: str, files: dict[str, Any], **told: Any) -> None:
    """Write the manifest for existing files; this is the commit point."""
    write_json(path / MANIFEST, {"schema": SCHEMA, "kind": kind, "dataset": dataset, **told, "files": files})


def file_entry(path: Path) -> dict[str, Any]:
    """Return a file's entry in the manifest of its directory."""
    return {"file": path.name, "bytes": path.stat().st_size, "checksum": checksum(path)}
