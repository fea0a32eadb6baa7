"""Code that worker processes import in tests: message handlers, and programs with changed behaviour."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks import RequestError
from blocks.corpus.dataset import WordSlice
from ooc.program import Job, Phase
from ooc.workers.shared_arrays import SharedArrays
from ooc.workers.work_queue import WorkQueue
from samplers.lda.document_kernels import DocumentCell
from samplers.lda.programs import SparseGibbs, TwoPhase


def nap(seconds: float) -> str:
    time.sleep(seconds)
    return "rested"


def refuse(what: str) -> None:
    raise RequestError(what, "Ask for something else.")


def divide(number: float) -> float:
    return 1 / number


def start_with_kernels(_: None) -> Callable[[str], bool]:
    """Return a handler that answers whether a module has been imported."""
    from blocks.corpus.worker import compile_ingestion

    compile_ingestion()
    return lambda module: module in sys.modules


def stopping(_: None) -> Callable[[Any], Any]:
    """Stop each worker after its fork, and then the process that forks the workers."""

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    os.register_at_fork(after_in_child=stop, after_in_parent=stop)
    return DEEDS["double"]


def doze() -> None:
    time.sleep(600)


def load() -> None:
    loaded.append(os.getpid())


loaded: list[int] = []  # processes that called `compile_ingestion`
DEEDS: dict[str, Callable[[Any], Any]] = {
    "double": lambda number: 2 * number,
    "pid": lambda _: os.getpid(),
    "nap": nap,
    "refuse": refuse,
    "divide": divide,
    "exit": os._exit,
    "leave": sys.exit,
    "kill": lambda number: os.kill(os.getpid(), number),
    "unpicklable": lambda _: lambda: None,
    "environment": os.environ.get,
    "directory": lambda _: str(Path.cwd()),
    "write": lambda descriptor: os.write(descriptor, b"written"),
    "loaded": lambda _: loaded,
}


def deeds(_: Any) -> Callable[[tuple[str, Any]], Any]:
    """Handle ("deed", argument)."""
    return lambda message: DEEDS[message[0]](message[1])


def threaded(_: Any) -> Callable[[Any], Any]:
    threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
    return lambda message: message


def failing(error: str) -> Callable[[Any], Any]:
    if error == "exit":
        os._exit(3)
    if error == "refuse":
        raise RequestError("no such thing", "Take another.")
    raise ValueError(error)


def adding(attachment: tuple[Any, int]) -> Callable[[int], float]:
    """Add a number to every element of the shared array "a", and answer with the sum of "b"."""
    shared = SharedArrays(*attachment)

    def handle(number: int) -> float:
        shared["a"][:] += number
        return float(shared["b"].sum())

    return handle


def claiming(attachment: tuple[Any, int]) -> Callable[[tuple[int, Sequence[int]]], list[int]]:
    """Claim parts: handle (unit, its parts), and answer with the claimed parts."""
    claims = WorkQueue(SharedArrays(*attachment))
    return lambda message: list(claims.take(*message))


class ReversedPartsLda(TwoPhase):
    """Program that distributes the parts of a unit in reverse order."""

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        return [range(parts)[::-1]]


class FailingLda(TwoPhase):
    """Program that fails in the word phase of slice 2 in the second iteration."""

    def sample_words(self, job: Job, slice_: WordSlice, key: np.uint64) -> int:
        if job.unit == 2 and job.stream[0] == 1:
            raise ValueError("slice 2 is cursed")
        return super().sample_words(job, slice_, key)


class StallingLda(TwoPhase):
    """Program in which one worker hangs at slice 2 of the fourth iteration, if given a file for its process id."""

    def sample_words(self, job: Job, slice_: WordSlice, key: np.uint64) -> int:
        if job.unit == 2 and job.stream[0] == 3 and (path := os.environ.get("STALLED")):
            with contextlib.suppress(FileExistsError), Path(path).open("x", encoding="ascii", buffering=1) as file:
                file.write(f"{os.getpid()}\n")
                signal.pause()
        return super().sample_words(job, slice_, key)


class CheckedDocumentsLda(SparseGibbs):
    """Program that checks the word information of blocks before documents are sampled, and counts the tokens."""

    sampled = 0

    def sample_cell(self, job: Job, cell: DocumentCell, key: np.uint64) -> int:
        words, told = job.data.words, job.shared["rests"].copy()
        self._sum_rests(job, words)
        assert np.array_equal(told[words], job.shared["rests"][words])
        positions = cell.positions[cell.offsets[0] : cell.offsets[-1]]
        of_positions = np.repeat(words, np.diff(job.data.word_offsets))
        assert np.array_equal(job.shared["token_words"][cell.offsets[0] : cell.offsets[-1]], of_positions[positions])
        self.sampled += positions.size
        return super().sample_cell(job, cell, key)
