"""The scratch directory (`--scratch`) with a run's state on another disk: who owns it, and how it is removed safely.

    owner.json       id and path of the run
    state/, slices/

A configuration may be untrusted, and a copied run names the scratch directory of the original run. Therefore a
directory is only used, and its contents only deleted, if its owner is the run that names it.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, TypedDict

from msgspec import Meta

from blocks.errors import OocError, RequestError, WorkFailed
from blocks.files import RemovedPath, disk_errors, remove_path
from blocks.json_files import read_json, write_json
from blocks.schemas import NO_NUL
from ooc.state.slice_file import SLICES

SCHEMA = 1
OWNER = "owner.json"
STATE = "state"


class ScratchMissing(WorkFailed):
    """Raised when a scratch directory is missing, perhaps because its disk is not mounted."""


class ScratchOwner(TypedDict):
    """Contents of owner.json: the run that owns a scratch directory."""

    id: str
    run: Annotated[str, Meta(pattern=NO_NUL)]


@contextmanager
def new_scratch(parent: Path | None, run: Path, identity: str) -> Iterator[str | None]:
    """Create a scratch directory in `parent` for the state of the run at path `run` with the id `identity`.

    Yields the path of the directory, or None if parent is None. The directory is deleted if the context raises.
    """
    if parent is None:
        yield None
        return
    place = parent.resolve() / f"ooc-{uuid.uuid4().hex[:12]}"
    with disk_errors(parent):
        place.mkdir(parents=True)
    try:
        note_place(place, run, identity)
        yield str(place)
    except BaseException:
        shutil.rmtree(place)
        raise


def require_owned(place: Path, run: Path, identity: str | None) -> None:
    """Raise RequestError unless a run owns a scratch directory, and ScratchMissing if the directory is missing.

    A run that was moved keeps its scratch directory unless there is still a run at the old path.
    """
    if not place.exists():
        raise ScratchMissing(
            f"{place}, the --scratch directory of {run}, is missing; it contains the state of the run",
            "Mount the directory again, or train again with --overwrite.",
        )
    owner = read_json(place / OWNER, what="a scratch directory of `ooc train`", schema=SCHEMA, holds=ScratchOwner)
    if owner["id"] != identity:
        raise RequestError(
            f"{place}, the --scratch directory of {run}, belongs to another run, {owner['run']}",
            "Train again with --overwrite.",
        )
    if owner["run"] != str(run.resolve()) and Path(owner["run"]).exists():
        raise RequestError(
            f"{run} is a copy of {owner['run']}, which owns the state in {place}",
            "Continue the original run. The model of the copy, if any, can still be used.",
        )


def owns_scratch(place: Path, run: Path, identity: str | None) -> bool:
    """Return whether a run owns a scratch directory; see `require_owned`."""
    with suppress(OocError):
        require_owned(place, run, identity)
        return True
    return False


def note_place(place: Path, run: Path, identity: str) -> None:
    """Record the current path of the run in its scratch directory, in case the run was moved."""
    with disk_errors(place):
        write_json(place / OWNER, {"schema": SCHEMA, "id": identity, "run": str(run.resolve())})


def remove_scratch(place: Path) -> list[RemovedPath]:
    """Delete a run's state in its scratch directory, and then the directory if it is empty."""
    removed = [remove_path(place / name) for name in (STATE, SLICES, OWNER) if (place / name).exists()]
    with suppress(OSError):
        place.rmdir()
    return removed
