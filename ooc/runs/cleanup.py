"""Find and delete leftovers of killed processes and state that is no longer needed, but nothing that is in use."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from blocks.append import remove_strays
from blocks.dataset_generations import delete_unreferenced
from blocks.directory_sync import fsync_directory
from blocks.errors import RequestError
from blocks.files import RemovedPath, disk_errors, remove_leftovers
from blocks.files import file_lock as dataset_locked
from blocks.stored_dataset import MANIFEST
from ooc.runs.chains import CHAINS, read_chains
from ooc.runs.earlier_run import is_replaced_place, remove_stray
from ooc.runs.replaced_run import drop_previous
from ooc.runs.run import CONFIG, Run, run_lock
from ooc.state.generations import remove_uncommitted


class CleanupResult(NamedTuple):
    """Deleted files, and the reasons why other files were not deleted."""

    removed: list[RemovedPath]
    skipped: list[str]


def clean(path: Path, *, state: bool = False) -> CleanupResult:
    """Delete leftovers in a dataset, in a run, or in all datasets and runs of a directory.

    state: whether to delete the state of finished runs, too; these runs can then not be continued.
    Raises RequestError if `path` is none of these, or is in use; in a directory, datasets and runs in use are skipped.
    """
    with disk_errors(path):
        cleaned = _clean_known(path, state=state) or _clean_inside(path, state=state)
        for directory in filter(Path.is_dir, {gone.path.parent for gone in cleaned.removed}):
            fsync_directory(directory)  # otherwise a power failure could bring back deleted files
        return cleaned


def _clean_inside(path: Path, *, state: bool) -> CleanupResult:
    """Clean a directory, including the datasets and runs in it."""
    if not path.is_dir():
        raise RequestError(
            f"{path} is not a directory",
            "Specify the path of a dataset, of a run, or of a directory that contains several.",
        )
    removed, skipped = remove_leftovers(path), []
    runs_first = sorted(path.iterdir(), key=lambda child: ((child / MANIFEST).exists(), child))
    for child in runs_first:  # first, as they record in datasets which generations they need
        if is_replaced_place(child):  # is cleaned with the run that has replaced it
            continue
        try:
            inside = _clean_known(child, state=state) or CleanupResult([], [])
        except RequestError as error:
            inside = CleanupResult([], [error.what])
        removed += inside.removed
        skipped += inside.skipped
    return CleanupResult(removed, skipped)


def _clean_known(path: Path, *, state: bool) -> CleanupResult | None:
    """Clean a dataset, a run or a directory of chains; returns None for any other path."""
    if (path / CHAINS).exists():
        with run_lock(path) as removed:
            chains = [_clean_run(Run(config.parent), state=state) for config in sorted(path.glob(f"*/{CONFIG}"))]
            found = [gone for chain in chains for gone in chain.removed]
            found += drop_previous(path) if read_chains(path)["best"] else []
            return CleanupResult(
                removed + found + remove_stray(path), [problem for chain in chains for problem in chain.skipped]
            )
    if (path / CONFIG).exists():
        return _clean_run(Run(path), state=state)
    if (path / MANIFEST).exists():
        return _clean_dataset(path)
    return None


def _clean_dataset(path: Path) -> CleanupResult:
    with dataset_locked(path) as free:
        if not free:
            raise RequestError(
                f"{path} is in use: another process is appending to it", "Wait until the other process has ended."
            )
        return CleanupResult(remove_leftovers(path) + delete_unreferenced(path, gone=True) + remove_strays(path), [])


def _clean_run(run: Run, *, state: bool) -> CleanupResult:
    with run.locked() as uncommitted:
        # A power failure may have restored the files that were deleted last.
        removed = uncommitted + (drop_previous(run.path) if run.config["finished"] else []) + remove_stray(run.path)
        if run.config["state_removed"] or (state and run.config["finished"]):
            return CleanupResult(removed + run.remove_state(), [])
        strays = remove_uncommitted(run.scratch / "state") if (run.scratch / "state").exists() else []
        return CleanupResult(removed + strays, [f"{run.path} is not finished, so its state is kept"] if state else [])
