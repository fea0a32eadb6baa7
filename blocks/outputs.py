"""Output of commands to a file, standard output, a pipe or a device."""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from blocks.files import (
    disk_errors,
    publish_file,
    remove_leftovers,
    require_new,
    scratch_directory,
    temporary_directory,
)

STANDARD_OUTPUT = Path("-")


def is_passed_on(path: Path) -> bool:
    """Return whether a path is a stream, such as a pipe, to which output is passed on without replacing a file."""
    if path == STANDARD_OUTPUT:
        return True
    try:
        return not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISDIR(mode))
    except OSError:
        return False


def require_free(path: Path, *, overwrite: bool) -> None:
    """Raise RequestError if a file exists and is not to be overwritten."""
    if not is_passed_on(path):
        require_new(path, overwrite=overwrite)


@contextmanager
def publish_output(path: Path) -> Iterator[Path]:
    """Publish a file (see `blocks.files.publish_file`), or pass it on to a stream once it is complete.

    Yields the path to write; removes leftovers.
    """
    if not is_passed_on(path):
        with disk_errors(path):
            remove_leftovers(path.parent, path.name)
        with publish_file(path) as beside:
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
def publish_text(path: Path) -> Iterator[TextIO]:
    """Publish a text file, like `publish_output`; yields the file, which keeps line ends as they are written."""
    with publish_output(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        yield file


@contextmanager
def scratch_for(path: Path) -> Iterator[Path]:
    """Yield a directory for temporary data of an output, on the same disk if possible."""
    with temporary_directory() if is_passed_on(path) else scratch_directory(path) as directory:
        yield directory
