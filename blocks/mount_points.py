"""Publish into a mount point, which cannot be replaced, by moving the contents of a complete subdirectory up. Entries
are moved one by one; the file by which a dataset, run or model is recognized is moved last. Old contents are moved away
first. If the process is killed, the next process that looks for leftovers completes the move or undoes it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from blocks.directory_sync import fsync_directory

_AWAY, _COMPLETE = ".away", ".complete"  # directory of old contents; marker that all of them were moved
_OF_FILE_SYSTEM = {"lost+found"}  # entries that file systems have at their root


def is_mount_point(path: Path) -> bool:
    """Return whether a directory is a mount point, which may be the only writable place of a container."""
    return path.is_dir() and not path.is_symlink() and path.is_mount()


def names_in(directory: Path) -> list[str]:
    """Return the names in a directory, except names that file systems create, such as lost+found."""
    return [entry.name for entry in directory.iterdir() if entry.name not in _OF_FILE_SYSTEM]


def move_up(inside: Path, known_by: Collection[str]) -> None:
    """Move the durable contents of a directory to its parent, whose old contents are deleted.

    known_by: names of the files that make the rest visible; they are moved last.
    """
    away, directory = inside / _AWAY, inside.parent
    away.mkdir()
    for name in _ordered(set(names_in(directory)) - {inside.name}, known_by)[::-1]:
        (directory / name).rename(away / name)
    fsync_directory(away)
    fsync_directory(directory)
    (inside / _COMPLETE).touch()
    fsync_directory(inside)
    complete_move(inside, known_by)


def complete_move(inside: Path, known_by: Collection[str]) -> None:
    """Complete or undo an interrupted `move_up`; does nothing if it had not started."""
    source = inside if (inside / _COMPLETE).exists() else inside / _AWAY
    if not source.is_dir():
        return
    for name in _ordered({entry.name for entry in source.iterdir()} - {_AWAY, _COMPLETE}, known_by):
        if not os.path.lexists(inside.parent / name):
            (source / name).rename(inside.parent / name)
    fsync_directory(inside.parent)
    shutil.rmtree(inside, ignore_errors=True)


def _ordered(names: Collection[str], known_by: Collection[str]) -> list[str]:
    return sorted(names, key=lambda name: (name in known_by, name))
