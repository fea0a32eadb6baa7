"""Targets of an ingestion: a new directory, which appears once it is complete, or an existing dataset to append to.

An append writes new blocks and a new generation of all derived files beside the old ones, then replaces the manifest;
until then the dataset is unchanged. If an append crashes, the next one removes its leftovers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from blocks.corpus.dataset import Dataset
from blocks.dataset_generations import delete_unreferenced, kept_files, references_folder
from blocks.documents.table_writer import FOLDER
from blocks.errors import RequestError
from blocks.files import (
    RemovedPath,
    disk_errors,
    file_lock,
    is_free,
    publish_directory,
    remove_leftovers,
    remove_path,
    require_new,
    temporary_name,
)
from blocks.kinds import open_any
from blocks.shards.whole_dataset import shard_paths
from blocks.stored_dataset import MANIFEST

_WRITTEN = ("blocks/*.h5", "index*.h5", "documents*.txt", f"{FOLDER}/*.parquet")


@dataclass(frozen=True)
class DatasetTarget:
    """Where to write.

    root: dataset directory.
    spill: empty directory for temporary files.
    """

    root: Path
    spill: Path
    old: Dataset | None = None

    @property
    def generation(self) -> int:
        """Return the generation of the manifest to be written."""
        return self.old.manifest["generation"] + 1 if self.old else 0

    @property
    def suffix(self) -> str:
        """Return the suffix of this generation's file names."""
        return f"-{self.generation}" if self.old else ""

    @property
    def first_block(self) -> int:
        """Return the index of the first new block."""
        return self.old.block_count if self.old else 0

    @property
    def first_document(self) -> int:
        """Return the index of the first new document."""
        return self.old.documents if self.old else 0


def require_replaceable(out: Path, overwrite: bool) -> None:
    """Raise RequestError if `out` exists and must not be overwritten, or is not a dataset."""
    require_new(out, overwrite=overwrite, directory=True)
    if out.exists() and not (is_free(out) or (out / MANIFEST).is_file() or shard_paths(out)):
        raise RequestError(
            f"{out} exists and is not a dataset, so it is not replaced", "Choose another name, or remove it."
        )


@contextmanager
def new_dataset(out: str, overwrite: bool) -> Iterator[DatasetTarget]:
    """Yield the target of a new dataset, which is renamed to its final path once it is complete."""
    with publish_directory(Path(out), overwrite=overwrite) as root:
        (root / "blocks").mkdir()
        (root / "spill").mkdir()
        yield DatasetTarget(root, root / "spill")


@contextmanager
def append_to(out: str) -> Iterator[DatasetTarget]:
    """Yield the target of an append to a dataset; stray files are removed before and after.

    Only one append can run at a time.
    """
    root = Path(out)
    with disk_errors(root), file_lock(root) as free:
        if not free:
            raise RequestError(
                f"{root} cannot be locked: another process is appending to it, or its file system has no locks",
                "Wait until the other process has ended, then try again.",
            )
        remove_strays(root)
        spill = temporary_name(root / "spill")
        spill.mkdir()
        try:
            yield DatasetTarget(root, spill, Dataset(root))
        finally:
            shutil.rmtree(spill, ignore_errors=True)
            remove_strays(root)


def remove_strays(root: Path) -> list[RemovedPath]:
    """Delete files of a dataset that its manifest does not name.

    These are leftovers of a failed append, or belong to an old generation that no run needs.
    """
    dropped = delete_unreferenced(root)
    named = {path for path, _ in open_any(root).files()} | {root / MANIFEST} | kept_files(root)
    folders = {path.parent for path in named}
    removed = [gone for folder in sorted({*folders, *references_folder(root)}) for gone in remove_leftovers(folder)]
    files = [file for pattern in _WRITTEN for file in root.glob(pattern)]
    strays = [file for file in files if file not in named]
    strays += [folder for folder in root.glob("slices*") if folder not in folders]
    return dropped + removed + [remove_path(stray) for stray in strays]
