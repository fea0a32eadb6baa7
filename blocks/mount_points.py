"""Publishing in a directory that cannot be replaced, a mount point: what is complete in a directory in it is moved up.

Names are moved one by one, that of the file by which a dataset, a run or a model is known as the last: until then there
is none. What was there before is moved away first. If a process is killed meanwhile, the next one that looks after
leftovers moves the rest, or moves back what was away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from blocks.synced import sync_directory

_AWAY, _COMPLETE = ".away", ".complete"  # in the directory: what was there before, and that this is all there
_OF_FILE_SYSTEM = {"lost+found"}  # at its root


def is_mount_point(path: Path) -> bool:
    """Whether a directory is one: of a volume, it may be the only part that a container can write to."""
    return path.is_dir() and not path.is_symlink() and path.is_mount()


def names_in(directory: Path) -> list[str]:
    """The names in a directory but for what the file system has there of its own."""
    return [entry.name for entry in directory.iterdir() if entry.name not in _OF_FILE_SYSTEM]


def move_up(inside: Path, known_by: Collection[str]) -> None:
    """Move all that is in a directory, and durable, to the directory that it is in, whose content is deleted.

    known_by: names of files without which nobody takes notice of the others.
    """
    away, directory = inside / _AWAY, inside.parent
    away.mkdir()
    for name in _ordered(set(names_in(directory)) - {inside.name}, known_by)[::-1]:
        (directory / name).rename(away / name)
    sync_directory(away)
    sync_directory(directory)
    (inside / _COMPLETE).touch()
    sync_directory(inside)
    settle(inside, known_by)


def settle(inside: Path, known_by: Collection[str]) -> None:
    """Go on with `move_up` where it has ended, forwards or back; nothing is done if it had not begun."""
    source = inside if (inside / _COMPLETE).exists() else inside / _AWAY
    if not source.is_dir():
        return
    for name in _ordered({entry.name for entry in source.iterdir()} - {_AWAY, _COMPLETE}, known_by):
        if not os.path.lexists(inside.parent / name):
            (source / name).rename(inside.parent / name)
    sync_directory(inside.parent)
    shutil.rmtree(inside, ignore_errors=True)


def _ordered(names: Collection[str], known_by: Collection[str]) -> list[str]:
    return sorted(names, key=lambda name: (name in known_by, name))
