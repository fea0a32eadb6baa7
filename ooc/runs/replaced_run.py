"""Keep the model of a run that is being replaced until the new run has a model."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from blocks.errors import OocError
from blocks.files import RemovedPath, remove_path
from ooc.runs.chains import is_chains, read_chains

MODEL = "model"
PREVIOUS = "previous"  # name of the model's directory in the run


def keep_model(old: Path, new: Path) -> None:
    """Copy the model of an old run, or of its best chain, if any, into a new run in its temporary directory.

    Files are hard-linked if possible, otherwise copied.
    """
    places = [old / MODEL, old / PREVIOUS]
    if is_chains(old):
        with suppress(OocError):  # damaged chains have no best chain
            places.insert(0, old / (read_chains(old)["best"] or "") / MODEL)
    if models := [place for place in places if place.is_dir() and not place.is_symlink()]:
        shutil.copytree(models[0], new / PREVIOUS, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copyfile(source, target, follow_symlinks=False)


def drop_previous(run: Path) -> list[RemovedPath]:
    """Delete the model that a run keeps from the run that it replaced."""
    return [remove_path(run / PREVIOUS)] if (run / PREVIOUS).is_dir() else []
