"""Atomic renames of Linux, with several steps on file systems that do not support them, such as NFS."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

_HERE, _NO_REPLACE, _EXCHANGE = -100, 1, 2  # AT_FDCWD, RENAME_NOREPLACE, RENAME_EXCHANGE
_renameat2: Any = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def rename_new(old: Path, new: Path) -> None:
    """Rename to a path that does not exist. Raises FileExistsError if it exists."""
    if _renamed(old, new, _NO_REPLACE):
        return
    if os.path.lexists(new):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new))
    old.rename(new)


def exchange(old: Path, new: Path, aside: Path) -> None:
    """Exchange two paths of one file system.

    aside: third path, used by file systems that do not support this in one step.
    """
    if _renamed(old, new, _EXCHANGE):
        return
    new.rename(aside)
    old.rename(new)
    aside.rename(old)


def _renamed(old: Path, new: Path, flag: int) -> bool:
    """Call renameat2; returns False, without any effect, if the file system does not support the flag."""
    if _renameat2 and _renameat2(_HERE, os.fsencode(old), _HERE, os.fsencode(new), flag) == 0:
        return True
    number = ctypes.get_errno() if _renameat2 else errno.ENOSYS
    if number not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(number, os.strerror(number), str(new))
    return False
