"""Temporary directories for the datasets and runs of estimators."""

from __future__ import annotations

import weakref
from contextlib import ExitStack

from blocks.files import temporary_directory


class TemporaryWorkspace:
    """A temporary directory that is removed with this object, or when the process ends.

    It is on disk, where its files stay in the page cache if there is memory: a tmpfs such as /dev/shm may be read-only
    or small in containers, and does not make `fit` faster. Attribute: `path`.
    """

    def __init__(self) -> None:
        stack = ExitStack()
        self.path = stack.enter_context(temporary_directory())
        self._end = weakref.finalize(self, stack.close)

    def remove(self) -> None:
        self._end()
