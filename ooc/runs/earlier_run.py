"""Keep the run that a run of a user's program replaces until its first step is done.

The program may turn out to be invalid when it is compiled or called.

    run/replaces     mark in the new run: its first step is not done
    .run.replaced/   the earlier run

The new run and the earlier run are exchanged in one step, both when the new run is published and when the earlier run
is put back. A directory `.run.replaced` without the mark in `run` is a leftover of a killed process. So the earlier run
survives a kill at any time.
"""

from __future__ import annotations

from pathlib import Path

from blocks.directory_sync import fsync_directory
from blocks.files import RemovedPath, disk_errors, is_free, remove_path, temporary_name
from blocks.mount_points import is_mount_point
from blocks.renames import exchange
from ooc.runs.run import REPLACES, scratch_directories
from ooc.runs.scratch import remove_scratch

_REPLACED = ".replaced"


def replaced_place(run: Path) -> Path:
    """Return the path of the run that a run has replaced."""
    run = run.resolve()
    return run.with_name(f".{run.name}{_REPLACED}")


def is_replaced_place(path: Path) -> bool:
    """Return whether a path is one at which replaced runs are kept."""
    return path.name.startswith(".") and path.name.endswith(_REPLACED)


def place_to_keep(path: Path) -> Path | None:
    """Return the path at which a run that is about to be replaced is kept; None if nothing can be kept.

    Mount points are replaced in place, and a run behind a symbolic link stays where it is.
    """
    keeps = path.is_dir() and not path.is_symlink() and not is_mount_point(path) and not is_free(path)
    return replaced_place(path) if keeps else None


def mark(run: Path) -> None:
    """Mark a new run, in its temporary directory, as one that keeps the run that it replaces."""
    (run / REPLACES).touch()


def keeps_earlier(run: Path) -> bool:
    """Return whether a run still keeps the run that it has replaced."""
    return (run / REPLACES).exists() and replaced_place(run).is_dir()


def put_back(run: Path) -> None:
    """Replace a run by the run that it has replaced. The run must be locked."""
    with disk_errors(run):
        exchange(replaced_place(run), run.resolve(), temporary_name(run.resolve()))
        fsync_directory(run.resolve().parent)
        remove_stray(run)


def drop_earlier(run: Path) -> None:
    """Delete the run that a run has replaced, if it is still kept. The run must be locked."""
    if (run / REPLACES).exists():
        with disk_errors(run):
            (run / REPLACES).unlink()
            fsync_directory(run)
            remove_stray(run)


def remove_stray(run: Path) -> list[RemovedPath]:
    """Delete a directory that a killed process left where a replaced run is kept. The run must be locked."""
    stray = replaced_place(run)
    if not stray.is_dir() or keeps_earlier(run):
        return []
    removed = [gone for place in scratch_directories(stray, run) for gone in remove_scratch(place)]
    return [*removed, remove_path(stray)]
