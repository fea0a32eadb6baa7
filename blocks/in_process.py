"""A worker inside the calling process, for data so small that starting processes would take longer than the work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from blocks.workers import worker_failure


class InProcessWorker:
    """One worker with the interface of `blocks.workers.WorkerPool`, which handles a message when its answer is
    requested.

    Errors are raised as a worker process would report them.
    """

    pids: tuple[int, ...] = ()  # there are no other processes

    def __init__(self, handler: Callable[[Any], Any]) -> None:
        self._handler = handler
        self._asked: deque[Any] = deque()

    def __len__(self) -> int:
        return 1

    def send(self, worker: int, message: Any) -> None:
        """Queue a message."""
        self._asked.append(message)

    def receive(
        self, wake: Connection | None = None, progress: Callable[[], object] = lambda: None
    ) -> Iterator[tuple[int, Any, Any]]:
        """Handle the oldest message; yield (worker, message, answer)."""
        message = self._asked.popleft()
        yield 0, message, self.ask(0, message)

    def ask(self, worker: int, message: Any) -> Any:
        """Handle a message immediately."""
        try:
            return self._handler(message)
        except Exception as error:
            raise worker_failure(error) from error

    def map_numbered(self, messages: Iterable[Any], done: Callable[[], object] = lambda: None) -> list[Any]:
        """Handle messages one after another.

        done: function called after each message.
        """
        answers = []
        for message in messages:
            answers.append(self.ask(0, message))
            done()
        return answers

    def close(self) -> None:
        """Drop all queued messages."""
        self._asked.clear()
