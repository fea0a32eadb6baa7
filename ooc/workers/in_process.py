"""A worker that is this process itself, where data are so small that to start others takes longer than all the work."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any


class OwnWorker:
    """Does what `blocks.workers.Workers` of one process does, when its answers are asked for.

    What the handler raises is raised by `receive` as it is.
    """

    pids: tuple[int, ...] = ()  # of other processes

    def __init__(self, target: str, argument: Any) -> None:
        module, _, name = target.partition(":")
        self._handler = getattr(importlib.import_module(module), name)(argument)
        self._asked: deque[Any] = deque()

    def __len__(self) -> int:
        return 1

    def send(self, worker: int, message: Any) -> None:
        self._asked.append(message)

    def receive(
        self, wake: Connection | None = None, progress: Callable[[], object] = lambda: None
    ) -> Iterator[tuple[int, Any, Any]]:
        """Answer the oldest message."""
        message = self._asked.popleft()
        yield 0, message, self._handler(message)

    def __enter__(self) -> OwnWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self._asked.clear()
