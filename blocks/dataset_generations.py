"""Generations of a dataset to which documents are appended, and the runs that need earlier generations.

    runs/ID.json       a run that was started on the dataset: its path, and the identity of the dataset at that time;
                       runs/ID-2.json, and so on, for copies of the run
    manifest-3.json    manifest of generation 3 from before an append, kept while a run refers to it

Later generations share blocks; each generation has its own derived files. A run continues with its own
generation: it opens `manifest-3.json` instead of the dataset.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from blocks.errors import OocError
from blocks.files import RemovedPath, publish_file, remove_path
from blocks.json_files import read_json, write_json
from blocks.schemas import NO_NUL, DatasetManifest, ManifestKind
from blocks.stored_dataset import MANIFEST, NEWEST, SCHEMA, dataset_manifest

RUNS = "runs"
APPENDABLE = "corpus"  # the only kind of dataset with appends
_CONFIG = "config.json"  # configuration of a run
_ID = 32  # length of a run's id


class RunReference(TypedDict):
    """Contents of runs/ID.json."""

    run: Annotated[str, Meta(min_length=1, pattern=NO_NUL)]
    identity: str


class _RunConfigFields(TypedDict):
    """Fields of a run's configuration that are needed here."""

    id: NotRequired[str]
    state_removed: bool


def record_reference(root: Path, identity: str, run: Path, name: str) -> None:
    """Record in a dataset that a run was started on its generation with the given identity.

    name: the run's id.

    Does nothing for other kinds of datasets, for unknown generations, or for a read-only dataset, to which nobody
    appends.
    """
    with suppress(OSError, OocError):
        dataset = read_json(
            dataset_manifest(generation_of(root, identity)), what="a dataset", schema=NEWEST, holds=ManifestKind
        )
        if (dataset["kind"], dataset.get("identity")) != (APPENDABLE, identity) or (root / RUNS).is_symlink():
            return
        place = str(run.resolve())
        told = {"schema": SCHEMA, "run": place, "identity": identity}
        file = _file_for(root / RUNS, name, place)
        if not file.exists() or _read(file) != told:
            file.parent.mkdir(exist_ok=True)
            write_json(file, told)


def _file_for(folder: Path, name: str, run: str) -> Path:
    """Return the file for the reference of a run; never the file of another existing copy of the run."""
    files = (folder / f"{name}{suffix}.json" for suffix in chain([""], (f"-{number}" for number in count(2))))
    noted = sorted(folder.glob(f"{name}*.json"))
    of_run = [file for file in noted if _read(file)["run"] == run]
    return next(chain(of_run, (file for file in files if file not in noted or not _has_run(file, _read(file)))))


def _has_run(file: Path, reference: dict[str, Any]) -> bool:
    """Return whether the run of a reference, or a copy of the run, exists at its recorded path."""
    with suppress(OocError):
        return _config_of(Path(reference["run"])).get("id") == file.name[:_ID]
    return False


def generation_of(path: Path, identity: str) -> Path:
    """Return the path for opening the generation with a given identity; the dataset itself if no such generation is
    kept.
    """
    with suppress(OocError):
        if _identity(path) == identity:
            return path
    for manifest in sorted(path.glob("manifest-*.json")):
        with suppress(OocError):
            if _identity(manifest) == identity:
                return manifest
    return path


def has_generation(path: Path, identity: str) -> bool:
    """Return whether a dataset has this identity, or keeps a generation that has it."""
    return identity_or_none(generation_of(path, identity)) == identity


def keep_referred(root: Path) -> None:
    """Keep the current manifest if a run refers to this generation. Called before an append, with the lock held."""
    dataset = read_json(root / MANIFEST, what="a dataset", schema=SCHEMA, holds=DatasetManifest)
    if dataset["identity"] in {reference["identity"] for reference in _references(root).values()}:
        kept = root / f"manifest-{dataset['generation']}.json"
        if not kept.exists():
            with publish_file(kept) as beside:
                shutil.copyfile(root / MANIFEST, beside)


def delete_unreferenced(root: Path, *, gone: bool = False) -> list[RemovedPath]:
    """Delete the manifests of generations that no run refers to, and stale references.

    gone: also delete references of runs that are no longer at their recorded path, although they may have been moved.
    """
    if any(reference_problems(root)):  # a damaged reference may mean any generation, so all are kept
        return []
    references = _references(root)
    outdated = [file for file, reference in references.items() if not _is_needed(file, reference, gone=gone)]
    needed = {reference["identity"] for file, reference in references.items() if file not in outdated}
    kept = {None, *needed}  # None: a damaged manifest may belong to a needed generation
    manifests = [file for file in root.glob("manifest-*.json") if identity_or_none(file) not in kept]
    return [remove_path(file) for file in (*outdated, *manifests)]


def reference_problems(root: Path) -> Iterator[str]:
    """Yield damaged references of runs."""
    for file in _reference_files(root):
        try:
            _read(file)
        except OocError as error:
            yield error.what


def kept_files(root: Path) -> set[Path]:
    """Return the files of the kept generations, and their manifests."""
    files = set()
    for manifest in root.glob("manifest-*.json"):
        content = read_json(manifest, what="a dataset", schema=SCHEMA, holds=DatasetManifest)
        entries = [content["index"], *content["texts"].values(), *content["blocks"], *content["slices"]]
        entries += content.get("table", {}).get("files", [])
        files |= {manifest, *(root / entry["file"] for entry in entries)}
    return files


def references_folder(root: Path) -> list[Path]:
    """Return the directory of references if it exists and is not a symbolic link, which could lead anywhere."""
    folder = root / RUNS
    return [folder] if folder.is_dir() and not folder.is_symlink() else []


def _reference_files(root: Path) -> list[Path]:
    return sorted(file for folder in references_folder(root) for file in folder.glob("*.json"))


def _references(root: Path) -> dict[Path, dict[str, Any]]:
    found = {}
    for file in _reference_files(root):
        with suppress(OocError):  # a damaged manifest has no known identity
            found[file] = _read(file)
    return found


def _read(file: Path) -> dict[str, Any]:
    return read_json(file, what="a reference of a run", schema=SCHEMA, holds=RunReference)


def _is_needed(file: Path, reference: dict[str, Any], *, gone: bool) -> bool:
    run = Path(reference["run"])
    if not (run / _CONFIG).exists():
        return not gone
    try:
        config = _config_of(run)
    except OocError:
        return True
    return config.get("id") == file.name[:_ID] and not config["state_removed"]


def _config_of(run: Path) -> dict[str, Any]:
    return read_json(run / _CONFIG, what="a run", schema=SCHEMA, holds=_RunConfigFields)


def _identity(path: Path) -> str:
    content = read_json(dataset_manifest(path), what="a dataset", schema=NEWEST, holds=ManifestKind)
    return str(content.get("identity"))


def identity_or_none(path: Path) -> str | None:
    """Return the identity of a dataset or generation; None if it does not exist or cannot be read."""
    with suppress(OocError):
        return _identity(path)
    return None
