"""A worker that is this process itself, for data so small that to start others takes longer than all the work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from blocks.workers import failure_of


class InProcess:
    """One worker with the interface of `blocks.workers.Workers`; it answers a message when the answer is asked for.

    What the handler raises is raised here as a worker process would tell it.
    """

    pids: tuple[int, ...] = ()  # no other process is started

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
        """Answer the oldest message; yields (worker, message, answer)."""
        message = self._asked.popleft()
        yield 0, message, self.ask(0, message)

    def ask(self, worker: int, message: Any) -> Any:
        """Answer a message at once."""
        try:
            return self._handler(message)
        except Exception as error:
            raise failure_of(error) from error

    def map_numbered(self, messages: Iterable[Any], done: Callable[[], object] = lambda: None) -> list[Any]:
        """Answer messages one after the other. done: called for each."""
        answers = []
        for message in messages:
            answers.append(self.ask(0, message))
            done()
        return answers

    def close(self) -> None:
        """Do not answer what is still queued."""
        self._asked.clear()
