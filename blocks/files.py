"""Durable files: the one way in which anything is published, checked and read back."""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from blocks.errors import RequestError, WorkFailed

_CHUNK = 8 << 20  # bytes hashed at a time
TEMPORARY = ".partial-"  # in the name of everything that is not complete yet


def checksum(path: Path) -> str:
    """XXH3-128 of a file, as hex."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _settle(path: Path) -> None:
    """Make a name that was just given durable; raises WorkFailed, which says that it is there, if that fails."""
    try:
        sync_directory(path.parent)
    except OSError as error:
        raise WorkFailed(
            f"{path} was written, but may not outlive a power cut: {os.strerror(error.errno or 0)}",
            "Look after the disk; `ooc verify` reads datasets and runs again.",
        ) from error


class Removed(NamedTuple):
    """Something that was deleted."""

    path: Path
    bytes: int


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock of a file or directory, which ends with the process.

    Yields False, and holds nothing, if another process holds it or the file system (NFS, for directories) has no locks.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def temporary_name(path: Path) -> Path:
    """A name beside `path` for what is not complete yet, recognised as a leftover by `remove_leftovers`."""
    return path.with_name(f".{path.name}{TEMPORARY}{uuid.uuid4().hex[:8]}")


@contextmanager
def publish(path: Path) -> Iterator[Path]:
    """Write beside `path`, then flush, rename and make the rename durable; nothing is left when it fails.

    Yields the temporary path to write to, an empty file whose lock is held, so that no other process takes it for a
    leftover.
    """
    beside = temporary_name(path)
    try:
        with disk_errors(path), beside.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield beside
            os.fsync(file.fileno())
            beside.replace(path)
            _settle(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def publish_directory(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Fill a directory beside `path`, then rename it; nothing is left under `path` when it fails.

    Every file put in it must have been published or synced by its writer. What killed attempts at it left is removed.
    Raises RequestError when `path` exists and `overwrite` is not set.
    """
    require_new(path, overwrite=overwrite)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, path.name)
        beside = temporary_name(path)
        beside.mkdir()
    try:
        with disk_errors(path), locked(beside):
            yield beside
            sync_directory(beside)
            old = temporary_name(path) if path.exists() else None
            if old:
                path.rename(old)
            beside.rename(path)
            _settle(path)
            if old:
                shutil.rmtree(old)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def require_new(path: Path, *, overwrite: bool = False) -> None:
    """Refuse to write over something that exists unless that was asked for."""
    if path.exists() and not overwrite:
        raise RequestError(f"{path} exists already", "Choose another name, or replace it with --overwrite.")


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's errors about `path` into ones that say what to do."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(_existing_parent(path)).free
            raise WorkFailed(
                f"{where}: the disk is full ({free / 1e6:.0f} MB free)",
                "Make room, then run the same command again.",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise RequestError(
                f"{where}: no permission to write here", "Choose a directory you may write to."
            ) from error
        if error.errno in (errno.ENODEV, errno.ENOSYS, errno.EOPNOTSUPP):
            raise WorkFailed(
                f"{where}: this file system cannot map, allocate or rename files ({os.strerror(error.errno)})",
                "Choose a directory on a local one, such as ext4, XFS or APFS.",
            ) from error
        if error.errno is None:
            raise
        raise WorkFailed(f"{where}: {os.strerror(error.errno)}") from error


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in (path, *path.absolute().parents) if parent.exists())


def remove(path: Path) -> Removed:
    """Delete a file, or a directory with all that is in it; what is gone already is no error."""
    if path.is_dir():
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        shutil.rmtree(path, ignore_errors=True)
    else:
        size = path.stat().st_size if path.exists() else 0
        path.unlink(missing_ok=True)
    return Removed(path, size)


def remove_leftovers(directory: Path, name: str | None = None) -> list[Removed]:
    """Delete what killed processes were about to publish in a directory, under a name if one is given."""
    removed = []
    for leftover in directory.glob(f".{'*' if name is None else glob.escape(name)}{TEMPORARY}*"):
        with suppress(FileNotFoundError), locked(leftover) as free:
            if free:
                removed.append(remove(leftover))
    return removed


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Publish a small JSON file (the commit point of whatever it describes)."""
    with publish(path) as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def no_such_file(path: Path) -> RequestError:
    """The error to raise for a path that a user misspelt, with what is there of nearly the same name."""
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, names, 1)
    what = f"{path}: there is no such file or directory"
    return RequestError(what, f"Did you mean {path.parent / close[0]}?" if close else "Check the name.")


def read_json(path: Path, *, what: str, schema: int) -> dict[str, Any]:
    """Read a JSON file written by `write_json`, which holds the schema version, up to `schema`, under "schema".

    Raises RequestError if it is not there or of another schema, WorkFailed if it is damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if not path.parent.exists():
            raise no_such_file(path.parent) from None
        raise RequestError(f"{path.parent} is not {what}: it has no {path.name}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise WorkFailed(f"{path} is damaged: {error}", "Restore it from a copy, or make it again.") from error
    found = content.get("schema") if isinstance(content, dict) else None
    if found not in range(1, schema + 1):
        raise RequestError(
            f"{path} has schema version {found}; this version of ooc reads {'1' if schema == 1 else f'1 to {schema}'}",
            "Use the version of ooc that wrote it, or make it again.",
        )
    return content


def allocate(path: Path, size: int) -> None:
    """Create a file of so many zero bytes that are there: mapping it writable cannot end in a signal on a full disk."""
    with disk_errors(path), path.open("wb") as file:
        if hasattr(os, "posix_fallocate") and size:
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
