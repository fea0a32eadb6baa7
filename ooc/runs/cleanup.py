"""Find and delete leftovers of killed processes and state that is no longer needed, but nothing that is in use."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from blocks.append import remove_strays
from blocks.errors import RequestError
from blocks.files import Removed, disk_errors, remove_leftovers
from blocks.files import locked as dataset_locked
from blocks.generations import drop_unreferred
from blocks.store import MANIFEST
from blocks.synced import sync_directory
from ooc.runs.chains import CHAINS, read_chains
from ooc.runs.previous import drop_previous
from ooc.runs.run import CONFIG, Run, locked
from ooc.state.generations import remove_uncommitted


class Cleaned(NamedTuple):
    """Deleted files, and the reasons why other files were not deleted."""

    removed: list[Removed]
    skipped: list[str]


def clean(path: Path, *, state: bool = False) -> Cleaned:
    """Delete leftovers in a dataset, in a run, or in all datasets and runs of a directory.

    state: whether to delete the state of finished runs, too; these runs can then not be continued. Raises RequestError
    if `path` is none of these, or is in use; in a directory, datasets and runs in use are skipped.
    """
    with disk_errors(path):
        cleaned = _clean_known(path, state=state) or _clean_inside(path, state=state)
        for directory in filter(Path.is_dir, {gone.path.parent for gone in cleaned.removed}):
            sync_directory(directory)  # otherwise a power failure could bring back deleted files
        return cleaned


def _clean_inside(path: Path, *, state: bool) -> Cleaned:
    """Clean a directory, including the datasets and runs in it."""
    if not path.is_dir():
        raise RequestError(
            f"{path} is not a directory",
            "Give the path of a dataset, of a run, or of a directory that contains several.",
        )
    removed, skipped = remove_leftovers(path), []
    runs_first = sorted(path.iterdir(), key=lambda child: ((child / MANIFEST).exists(), child))
    for child in runs_first:  # first, as they record in datasets which generations they need
        try:
            inside = _clean_known(child, state=state) or Cleaned([], [])
        except RequestError as error:
            inside = Cleaned([], [error.what])
        removed += inside.removed
        skipped += inside.skipped
    return Cleaned(removed, skipped)


def _clean_known(path: Path, *, state: bool) -> Cleaned | None:
    """Clean a dataset, a run or a directory of chains; returns None for any other path."""
    if (path / CHAINS).exists():
        with locked(path) as removed:
            chains = [_clean_run(Run(config.parent), state=state) for config in sorted(path.glob(f"*/{CONFIG}"))]
            found = [gone for chain in chains for gone in chain.removed]
            found += drop_previous(path) if read_chains(path)["best"] else []
            return Cleaned(removed + found, [problem for chain in chains for problem in chain.skipped])
    if (path / CONFIG).exists():
        return _clean_run(Run(path), state=state)
    if (path / MANIFEST).exists():
        return _clean_dataset(path)
    return None


def _clean_dataset(path: Path) -> Cleaned:
    with dataset_locked(path) as free:
        if not free:
            raise RequestError(
                f"{path} is in use: another process is appending to it", "Wait until the other process has ended."
            )
        return Cleaned(remove_leftovers(path) + drop_unreferred(path, gone=True) + remove_strays(path), [])


def _clean_run(run: Run, *, state: bool) -> Cleaned:
    with run.locked() as uncommitted:
        # A power failure may have restored the files that were deleted last.
        removed = uncommitted + (drop_previous(run.path) if run.config["finished"] else [])
        if run.config["state_removed"] or (state and run.config["finished"]):
            return Cleaned(removed + run.remove_state(), [])
        strays = remove_uncommitted(run.scratch / "state") if (run.scratch / "state").exists() else []
        return Cleaned(removed + strays, [f"{run.path} is not finished: it needs its state"] if state else [])
