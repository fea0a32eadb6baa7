"""Specification that a contestant gets (`TopicModelSpec`), and what it returns: a `ContestantRecord`, and counts at
each checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

COUNT_FILES = {"sizes": np.int64, "words": np.uint32, "counts": np.float64}


@dataclass(frozen=True)
class TopicModelSpec:
    """Specification for a contestant.

    `corpus` and `dataset` are paths of the same documents; `out` is an empty directory.

    variant: sampler and proposals of ooc ("two-phase:2"), or parallel scheme of tomotopy.
    documents: number of documents to train on, from the first; 0 for all.
    checkpoints: iterations (passes over the documents), ascending.
    """

    corpus: str
    dataset: str
    out: str
    topics: int
    alpha: float
    beta: float
    workers: int
    seed: int
    checkpoints: tuple[int, ...]
    documents: int = 0
    variant: str = ""


@dataclass
class TopicCheckpoint:
    """Topics after some iterations.

    counts: path of a model trained by ooc, or of a file written by `save_counts`.
    """

    iteration: int
    seconds: float
    counts: str


@dataclass
class ContestantRecord:
    """Report of a contestant.

    tokens: number of training tokens.
    seconds: time of each iteration.
    intervals: times of training on the monotonic clock, by which memory samples are selected.
    """

    tokens: int = 0
    documents: int = 0
    seconds: list[float] = field(default_factory=list)
    intervals: list[tuple[float, float]] = field(default_factory=list)
    checkpoints: list[TopicCheckpoint] = field(default_factory=list)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Count the context as training in the memory measurement."""
        began = time.monotonic()
        yield
        self.intervals.append((began, time.monotonic()))

    @contextmanager
    def timed(self, iterations: int = 1) -> Iterator[None]:
        """Count the time of the context as that of some iterations."""
        began = time.perf_counter()
        yield
        self.seconds += [(time.perf_counter() - began) / iterations] * iterations


def save_counts(path: Path, rows: Iterator[tuple[np.ndarray, np.ndarray]]) -> str:
    """Write the topics one by one, so that saving does not increase the peak memory.

    rows: for each topic, its words and their numbers of tokens.
    """
    path.mkdir()
    with ExitStack() as stack:
        files = {name: stack.enter_context((path / name).open("wb")) for name in COUNT_FILES}
        for words, counts in rows:
            for name, array in (("sizes", np.array([words.size])), ("words", words), ("counts", counts)):
                array.astype(COUNT_FILES[name]).tofile(files[name])
    return str(path)
