"""The directory of compiled kernels.

Cached code is executed unchecked, so only this user and root may be able to write there.
"""

from __future__ import annotations

import atexit
import grp
import os
import pwd
import shutil
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import xxhash

from blocks import stderr

CHOSEN = "OOC_CACHE_DIR"
_UNKNOWN = 65534  # user id of the machine's root in a user namespace that does not map root
_ROOT = Path(__file__).resolve().parent.parent
_OPTIONS = _ROOT / "blocks" / "compiled.py"
_IMPORT = b"blocks.compiled import"  # occurs in every file with kernels
_PREFIX = "kernels-"
_INSTALLATION = "installation"  # file that names the installation to which a directory belongs


def open_directory(version: str, *, writable: bool = False) -> Path | None:
    """Return the kernel directory of this installation; create it if needed, and delete kernels of earlier sources.

    version: compiler version.
    writable: skip read-only directories, such as one filled for a container image. If no directory is safe, return a
        temporary one for this process, or None if that cannot be created either.
    """
    name = f"{_PREFIX}{_digest(version)}"
    for parent in _candidates():
        with suppress(OSError):
            directory = _opened(parent, name)
            if directory and os.access(directory, os.R_OK | os.X_OK | (os.W_OK if writable else 0)):
                return directory
    return _temporary(name)


@contextmanager
def write_private(path: Path) -> Iterator[IO[bytes]]:
    """Write a temporary file next to `path`, then rename it. Only its owner can write to it, whatever the umask."""
    beside = path.with_name(f"{path.name}.tmp.{uuid.uuid4().hex}")
    try:
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, 0o644)) as file:
            yield file
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def is_private(path: Path) -> bool:
    """Return whether only this user and root can put files into a directory, or replace the directory."""
    absolute, real = path.absolute(), path.resolve()
    above = {*absolute.parents, *real.parents, absolute} - {real}
    return _is_ours(real) and all(_is_ours(each, above=True) for each in above)


def _digest(version: str) -> str:
    """Return a hash of everything that compiled kernels depend on, except the processor, which numba records.

    The hash covers all files with kernels, and the file with their compilation options.
    """
    digest = xxhash.xxh3_64("\0".join([str(_ROOT), version, sys.version]).encode())
    for package in ("blocks", "ooc", "samplers"):
        for file in sorted((_ROOT / package).rglob("*.py")):
            text = file.read_bytes()
            if _IMPORT in text or file == _OPTIONS:
                digest.update(text)
    return digest.hexdigest()


def _candidates() -> Iterator[Path]:
    """Yield candidate parent directories, best first; none depends on the working directory."""
    chosen, home = os.environ.get(CHOSEN, ""), os.environ.get("XDG_CACHE_HOME", "")
    if Path(chosen).is_absolute():
        yield Path(chosen)
    if Path(home).is_absolute():
        yield Path(home) / "ooc"
    else:
        with suppress(RuntimeError):  # raised if this user has no home
            if (home_cache := Path("~/.cache/ooc").expanduser()).is_absolute():
                yield home_cache
    yield from (place / f"ooc-{os.getuid()}" for place in _temporary_places())


def _temporary_places() -> list[Path]:
    places = [os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp", "/dev/shm"]
    return [Path(place) for place in places if Path(place).is_absolute() and os.access(place, os.W_OK | os.X_OK)]


def _opened(parent: Path, name: str) -> Path | None:
    """Return the directory with the given name if it is private, else None."""
    directory = parent / name
    if not directory.exists():
        mode = 0o755 if parent == Path(os.environ.get(CHOSEN, "")) else 0o700  # in an image it must be readable by all
        parent.mkdir(mode, parents=True, exist_ok=True)
        if not is_private(parent):
            return None
        _make(directory, mode)
        _remove_earlier(directory)
    return directory if is_private(parent) and is_private(directory) else None


def _make(directory: Path, mode: int) -> None:
    """Create a directory together with the file that names its installation, for `_remove_earlier`."""
    beside = directory.with_name(f".new-{uuid.uuid4().hex}")
    beside.mkdir(mode)
    (beside / _INSTALLATION).write_text(str(_ROOT), encoding="utf-8")
    try:
        beside.rename(directory)
    except OSError:
        shutil.rmtree(beside)
        if not directory.exists():  # else another process created it first
            raise


def _remove_earlier(directory: Path) -> None:
    """Delete the kernels of earlier sources of this installation, and of installations that no longer exist.

    A directory that does not name its installation may belong to another program, and is kept.
    """
    for other in directory.parent.glob(f"{_PREFIX}*"):
        if other != directory and not other.is_symlink():
            place = _installation(other)
            if place and (place == _ROOT or not place.exists()):
                shutil.rmtree(other, ignore_errors=True)


def _installation(directory: Path) -> Path | None:
    try:
        return Path((directory / _INSTALLATION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _temporary(name: str) -> Path | None:
    """Return a new temporary directory with the given name, which is removed when this process exits."""
    stderr.print_note(
        "kernels are compiled again in every process, because no cache directory is both private and writable\n"
        f"Set {CHOSEN} to a directory that only you can write to."
    )
    for place in _temporary_places():
        fresh = Path(tempfile.mkdtemp(prefix="ooc-", dir=place))
        atexit.register(shutil.rmtree, fresh, ignore_errors=True)
        (fresh / name).mkdir()
        return fresh / name
    return None


def _is_ours(path: Path, *, above: bool = False) -> bool:
    """Return whether this user or root owns a path.

    above: the path is a parent directory, in which other users must only be unable to rename entries they do not own.
    """
    status = path.lstat()
    if status.st_uid not in (0, os.getuid()) and not (above and status.st_uid == _UNKNOWN):
        return False
    if stat.S_ISLNK(status.st_mode) or (above and status.st_mode & stat.S_ISVTX):
        return True
    group_writes = bool(status.st_mode & stat.S_IWGRP) and not _is_group_of_one(status.st_gid)
    return not (group_writes or status.st_mode & stat.S_IWOTH)


def _is_group_of_one(number: int) -> bool:
    """Return whether a group is the private group of this user, which many systems create for each user.

    number: group id.
    """
    try:
        user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_name == user and not set(group.gr_mem) - {user}
