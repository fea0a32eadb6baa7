"""Where a command writes a file that it makes: under a name, or to standard output, a pipe or a device."""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blocks.files import (
    disk_errors,
    publish,
    remove_leftovers,
    require_new,
    scratch_directory,
    temporary_directory,
)

STANDARD_OUTPUT = Path("-")


def is_passed_on(path: Path) -> bool:
    """Whether what is written there is gone at once: nothing is replaced."""
    if path == STANDARD_OUTPUT:
        return True
    try:
        return not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISDIR(mode))
    except OSError:
        return False


def require_free(path: Path, *, overwrite: bool) -> None:
    """Refuse to write over a file that exists unless that was asked for."""
    if not is_passed_on(path):
        require_new(path, overwrite=overwrite)


@contextmanager
def output(path: Path) -> Iterator[Path]:
    """Publish a file, see `blocks.files.publish`; or pass it on once it is complete. Yields the path to write to.

    What killed attempts at the file left is removed.
    """
    if not is_passed_on(path):
        with disk_errors(path):
            remove_leftovers(path.parent, path.name)
        with publish(path) as beside:
            yield beside
        return
    with temporary_directory() as directory:
        file = directory / "output"
        yield file
        with file.open("rb") as made:
            if path == STANDARD_OUTPUT:
                sys.stdout.flush()
                shutil.copyfileobj(made, sys.stdout.buffer)
                sys.stdout.flush()
                return
            with disk_errors(path), path.open("wb") as pipe:
                shutil.copyfileobj(made, pipe)


@contextmanager
def scratch_for(path: Path) -> Iterator[Path]:
    """A directory for what it takes to make a file, on the disk of the file where it has one."""
    with temporary_directory() if is_passed_on(path) else scratch_directory(path) as directory:
        yield directory
