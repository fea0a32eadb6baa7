"""Datasets and runs that nobody is to see: of estimators, whose users have arrays and want arrays."""

from __future__ import annotations

import weakref
from contextlib import ExitStack

from blocks.files import temporary_directory


class Workspace:
    """A directory for temporary files that goes when this object does, and at the latest with the process.

    As the files of the commands it is on disk, where it stays in the page cache if memory is plenty: a tmpfs such as
    /dev/shm may be read-only or small, as in containers. `fit` is not faster there. Attribute: `path`.
    """

    def __init__(self) -> None:
        stack = ExitStack()
        self.path = stack.enter_context(temporary_directory())
        self._end = weakref.finalize(self, stack.close)

    def remove(self) -> None:
        self._end()
