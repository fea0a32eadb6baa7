"""A thread that spins while it waits for work, because waking a sleeping thread takes as long as much of the work.

If other processes use the processors, the thread may not run when it is needed: the caller takes back work that the
thread has not started.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import numpy as np

from blocks.compiled import unmanaged_kernel
from ooc.workers.atomics import counters_spec, have_reached, raise_to

_HANDED, _DONE = range(2)  # counters

Outcome = tuple[Any, BaseException | None]  # a result, or the exception that was raised


def outcome_of(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Outcome:
    try:
        return work(*arguments), None
    except BaseException as error:
        return None, error


class WorkerThread:
    """Runs tasks one after the other until it is no longer referenced.

    begin: first task.
    looks: number of polls after which the thread, or a thread that waits for it, sleeps.
    """

    def __init__(self, begin: Callable[[], object], looks: int) -> None:
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self._counts, self._looks = np.zeros(counters_spec(2).shape, np.int64), looks
        shared = self._tasks, self._outcomes, self._counts, looks
        Thread(target=_serve, args=(begin, *shared), daemon=True).start()
        weakref.finalize(self, self._tasks.put, None)

    def hand(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._tasks.put((work, arguments))
        self._counts[_HANDED, 0] += 1

    def outcome(self) -> Outcome:
        """Return the result of the task, once per task; the caller runs the task itself if the thread has not started
        it.
        """
        with suppress(Empty):
            task = self._tasks.get_nowait()
            self._counts[_HANDED, 0] -= 1  # the thread may have been woken: it finds no task, and sleeps again
            return outcome_of(*task)
        have_reached(self._counts, _DONE, _DONE + 1, int(self._counts[_HANDED, 0]), self._looks)
        return self._outcomes.get()


def _serve(
    begin: Callable[[], object], tasks: SimpleQueue[Any], outcomes: SimpleQueue[Outcome], counts: np.ndarray, looks: int
) -> None:
    begin()
    while (task := tasks.get()) is not None:
        outcomes.put(outcome_of(*task))
        del task  # also releases the objects to which the task refers
        tell_and_wait(counts, int(counts[_DONE, 0]) + 1, looks)


@unmanaged_kernel
def tell_and_wait(counts, done, looks):
    """Publish the number of finished tasks, and wait for the next task.

    This happens only after the interpreter lock is released: the waiting thread needs the lock at once, and would
    otherwise have to sleep.
    """
    raise_to(counts, _DONE, done)
    have_reached(counts, _HANDED, _HANDED + 1, done + 1, looks)
