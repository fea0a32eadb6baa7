"""Durable files: the only functions that publish, check and read back files."""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import xxhash

from blocks.directory_sync import fsync_directory
from blocks.errors import RequestError, WorkFailed, out_of_memory
from blocks.mount_points import complete_move, is_mount_point, move_up, names_in
from blocks.renames import exchange, rename_new

_CHUNK = 8 << 20  # number of bytes hashed at a time
_MOST_JSON = 64 << 20  # bytes: the manifest of a dataset with 100,000 blocks and slices has 60 MB
_NO_ROOM = 1 << 20  # bytes: a disk with less free space counts as full, as some users may not use its last blocks
REMEDY = "Restore the file from a copy, or make it again."  # remedy for damaged files
TEMPORARY = ".partial-"  # part of the name of every incomplete file or directory
_UNLOCKED = ".unlocked"  # suffix of a temporary name until its lock is held
_LONG_AGO = 60.0  # seconds after which an unlocked temporary file is a leftover


def checksum(path: Path, progress: Callable[[int], object] = lambda _: None) -> str:
    """Return the XXH3-128 of a file in hexadecimal. progress: function called with the number of bytes just read."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            progress(len(chunk))
    return digest.hexdigest()


def _settle(path: Path) -> None:
    """Sync the directory of a new file. Raises WorkFailed if this fails: the file exists, but may be lost."""
    try:
        fsync_directory(path.parent)
    except OSError as error:
        raise WorkFailed(
            f"{path} was written, but may be lost in a power cut: {os.strerror(error.errno or 0)}",
            "Check the disk, then check datasets and runs with `ooc verify`.",
        ) from error


class RemovedPath(NamedTuple):
    """A deleted file or directory."""

    path: Path
    bytes: int


@contextmanager
def file_lock(path: Path) -> Iterator[bool]:
    """Hold the lock of a file or directory; the lock ends with the process.

    Yields False, without a lock, if another process holds it or the file system does not support locks (NFS, for
    directories).
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
    """Return a temporary name next to `path`, which `remove_leftovers` recognizes."""
    return path.with_name(f".{path.name}{TEMPORARY}{uuid.uuid4().hex[:8]}")


@contextmanager
def publish_file(path: Path) -> Iterator[Path]:
    """Write a file next to `path`, then flush it, rename it and make the rename durable; on failure nothing is left.

    Yields the temporary path, an empty file with a held lock, so that other processes do not take it for a leftover. A
    file that is at `path` at the beginning is replaced. Raises RequestError if `path` is a directory, or if something
    else is there at the end.
    """
    if path.is_dir():
        raise RequestError(f"{path} is a directory; expected the path of a file to write", "Choose another name.")
    beside, seen = temporary_name(path), file_identity(path)
    try:
        with disk_errors(path), _locked_anew(beside, directory=False):
            yield beside
            _sync_file(beside)
            _put_in_place(beside, path, seen)
            _settle(path)
    finally:
        with suppress(OSError):  # for example, nothing of that name exists on a read-only file system
            beside.unlink()


@contextmanager
def _locked_anew(beside: Path, *, directory: bool, mode: int = 0o777) -> Iterator[None]:
    """Create a file or directory under a temporary name that appears only once its lock is held."""
    unlocked = beside.with_name(beside.name + _UNLOCKED)
    try:
        unlocked.mkdir(mode) if directory else unlocked.touch(exist_ok=False)
        with file_lock(unlocked):
            unlocked.rename(beside)
            yield
    except BaseException:
        with suppress(OSError):  # the file system is read-only
            remove_path(unlocked)
        raise


def file_identity(path: Path | int) -> tuple[int, int] | None:
    """Return the device and inode of a path or a descriptor; None if it does not exist."""
    try:
        found = os.fstat(path) if isinstance(path, int) else path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _put_in_place(beside: Path, path: Path, seen: tuple[int, int] | None) -> None:
    """Rename to `path`, atomically, if it still is what was seen there; a replaced directory is then at `beside`.

    Raises RequestError if `path` has become something else.
    """
    if file_identity(path) == seen:
        if seen is None:
            try:
                rename_new(beside, path)
                return
            except FileExistsError:
                pass
        elif path.is_dir() and not path.is_symlink():
            exchange(beside, path, temporary_name(path))
            return
        else:
            beside.replace(path)
            return
    raise _made_meanwhile(path)


def _made_meanwhile(path: Path) -> RequestError:
    return RequestError(
        f"{path} was created by another program in the meantime, and is left as it is", "Choose another name."
    )


@contextmanager
def publish_directory(path: Path, *, overwrite: bool = False, keep: Path | None = None) -> Iterator[Path]:
    """Fill a directory next to `path`, then rename it; on failure nothing is left under `path`.

    keep: new path, in the same directory, of the directory that is replaced; None to delete it. All files are made
    durable first, and leftovers of killed attempts removed. An empty directory is replaced, as are the contents of a
    mount point. Raises RequestError if `path` changes meanwhile, or exists and either `overwrite` is not set or ooc did
    not create it.
    """
    path = path.resolve() if is_free(path) else path  # `path` may be a symbolic link
    inside = is_mount_point(path)
    place = path / path.name if inside else path
    with disk_errors(path):
        place.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(place.parent, path.name)
    require_new(path, overwrite=overwrite, directory=True)
    seen, free = file_identity(path), is_free(path)
    if seen and not free and not _is_ours(path):
        raise RequestError(f"{path} was not made by ooc, so it is not replaced", "Choose another name, or remove it.")
    beside = temporary_name(place)
    try:
        with disk_errors(path), _locked_anew(beside, directory=True):
            yield beside
            _sync_tree(beside)
            if inside:
                move_up(beside, _MARKS)
            elif free:
                _fill(path, beside)
            elif keep:
                beside.rename(keep)
                _put_in_place(keep, path, seen)
            else:
                _put_in_place(beside, path, seen)
            _settle(path)
    finally:
        if inside:
            complete_move(beside, _MARKS)
        shutil.rmtree(beside, ignore_errors=True)


def _fill(path: Path, beside: Path) -> None:
    """Replace an empty directory, keeping its mode and group. Raises RequestError if it is no longer empty."""
    shutil.copymode(path, beside)
    with suppress(PermissionError):
        os.chown(beside, -1, path.stat().st_gid)
    try:
        beside.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise _made_meanwhile(path) from None


@contextmanager
def scratch_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary directory next to `path`, removed at the end; a killed process leaves it behind."""
    beside = temporary_name(path)
    try:
        with disk_errors(path), _locked_anew(beside, directory=True, mode=0o700):
            yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def temporary_directory(parent: Path | None = None) -> Iterator[Path]:
    """Yield a temporary directory in `parent`, or in $TMPDIR or /tmp, removed at the end.

    `ooc clean` removes the directories of killed processes. Raises RequestError if no such place is writable.
    """
    try:
        place = parent or Path(tempfile.gettempdir())
    except FileNotFoundError:
        raise RequestError(
            "no directory for temporary files is writable", "Set TMPDIR to a writable directory."
        ) from None
    with scratch_directory(place / "ooc") as directory:
        yield directory


def _sync_tree(directory: Path) -> None:
    """Make a directory tree durable; files that are already durable cost nothing."""
    for place, _, names in os.walk(directory):
        for name in names:
            _sync_file(Path(place, name))
        fsync_directory(Path(place))


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_MARKS = {"manifest.json": "kind", "model.json": "kind", "config.json": "program", "chains.json": "chains"}


def _is_ours(path: Path) -> bool:
    """Return whether ooc may replace a directory: a dataset, shards, a run, a model, or a part of a run."""
    for place in (path, path / "shard-0", path.parent):
        for name, key in _MARKS.items():
            with suppress(OSError, ValueError, RecursionError):
                content = json.loads(read_small(place / name))
                if isinstance(content, dict) and {"schema", key} <= content.keys():
                    return True
    return False


def is_free(path: Path) -> bool:
    """Return whether a path does not exist or is an empty directory, such as schedulers and containers create.

    An interrupted move into a mount point is completed first.
    """
    if is_mount_point(path):
        remove_leftovers(path, path.name)
    return path.is_dir() and os.access(path, os.R_OK) and not names_in(path)


def require_new(path: Path, *, overwrite: bool = False, directory: bool = False) -> None:
    """Raise RequestError if `path` exists and is not to be overwritten. directory: accept an empty directory."""
    if os.path.lexists(path) and not overwrite and not (directory and is_free(path)):
        raise RequestError(f"{path} already exists", "Choose another name, or replace it with --overwrite.")


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn operating system errors about `path` into errors with a remedy."""
    try:
        yield
    except BrokenPipeError:  # from standard output
        raise
    except OSError as error:
        there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        where, free = error.filename or path, shutil.disk_usage(there).free
        # Libraries such as NumPy's `tofile` may not say why they wrote less than they should have.
        if error.errno in (errno.ENOSPC, errno.EDQUOT) or (error.errno is None and free < _NO_ROOM):
            raise WorkFailed(
                f"{where}: the disk is full ({free / 1e6:.0f} MB free)",
                "Free some disk space, then run the same command again.",
            ) from error
        if error.errno == errno.EACCES and Path(where).exists() and not os.access(where, os.R_OK):
            raise RequestError(
                f"{where}: no permission to read it", "Ask the owner of the file for permission."
            ) from error
        if error.errno == errno.EROFS:
            raise RequestError(
                f"{where}: the file system is read-only",
                "Choose a directory on another file system, or mount this one writable.",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise RequestError(
                f"{where}: no permission to write", "Choose a directory that you can write to."
            ) from error
        if error.errno in (errno.ENODEV, errno.ENOSYS, errno.EOPNOTSUPP):
            raise WorkFailed(
                f"{where}: the file system cannot map, allocate or rename files ({os.strerror(error.errno)})",
                "Choose a directory on a local file system, such as ext4 or XFS.",
            ) from error
        if lack := out_of_memory(error):
            raise lack from error
        if error.errno is None:
            raise WorkFailed(f"{where}: {error}", "If the disk is full, free some space, then try again.") from error
        raise WorkFailed(f"{where}: {os.strerror(error.errno)}") from error


def remove_path(path: Path) -> RemovedPath:
    """Delete a file or a directory tree; do nothing if it does not exist."""
    if path.is_dir():
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        shutil.rmtree(path, ignore_errors=True)
    else:
        size = path.stat().st_size if path.exists() else 0
        path.unlink(missing_ok=True)
    return RemovedPath(path, size)


def remove_leftovers(directory: Path, name: str | None = None, *, exclusive: bool = False) -> list[RemovedPath]:
    """Delete temporary files of killed processes in a directory. name: delete only temporary files of this name.

    exclusive: no other process is publishing there, so an unlocked file is a leftover even if it is new.
    """
    removed = []
    for leftover in directory.glob(f".{'*' if name is None else glob.escape(name)}{TEMPORARY}*"):
        with suppress(FileNotFoundError), file_lock(leftover) as free:
            may_be_locked = leftover.name.endswith(_UNLOCKED) and not exclusive
            if free and not (may_be_locked and time.time() - leftover.stat().st_mtime < _LONG_AGO):
                if is_mount_point(directory):
                    complete_move(leftover, _MARKS)
                removed.append(remove_path(leftover))
    return removed


def no_such_file(path: Path) -> RequestError:
    """Return the error for a missing path; it suggests a similar existing name."""
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, names, 1)
    what = f"{path}: there is no such file or directory"
    return RequestError(what, f"Did you mean {path.parent / close[0]}?" if close else "Check the name.")


def read_small(path: Path) -> bytes:
    """Return the bytes of a small file. Raises ValueError if it is not regular, or larger than any such file of ooc."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a regular file")
        if found.st_size > _MOST_JSON:
            raise ValueError(f"it has {found.st_size} bytes, too many for a file of ooc")
        return file.read()


def allocate(path: Path, size: int) -> None:
    """Create a file of `size` allocated zero bytes, so that writing to its memory map cannot fail on a full disk."""
    with disk_errors(path), path.open("wb") as file:
        if hasattr(os, "posix_fallocate") and size:
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
