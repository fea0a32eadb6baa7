"""What a contestant is told and what it leaves: a `TopicModelSpec`, a `ContestantRecord`, and counts at each
checkpoint."""

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
    """What a contestant is to do. Paths: `corpus` and `dataset` hold the same documents, `out` is an empty directory.

    variant: sampler and proposals of ooc ("two-phase:2"), parallel scheme of tomotopy. documents: how many to train
    on, the first ones; 0 means all. checkpoints: iterations (passes over the documents), ascending.
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
    """Topics after some iterations. counts: a trained model of ooc, or a file of `save_counts`."""

    iteration: int
    seconds: float
    counts: str


@dataclass
class ContestantRecord:
    """What a contestant reports.

    tokens: it trained on. seconds: of each iteration. intervals: when it trained, on the monotonic clock, so that
    memory can be looked up.
    """

    tokens: int = 0
    documents: int = 0
    seconds: list[float] = field(default_factory=list)
    intervals: list[tuple[float, float]] = field(default_factory=list)
    checkpoints: list[TopicCheckpoint] = field(default_factory=list)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Everything inside counts as training for the memory."""
        began = time.monotonic()
        yield
        self.intervals.append((began, time.monotonic()))

    @contextmanager
    def timed(self, iterations: int = 1) -> Iterator[None]:
        """The time inside is that of some iterations."""
        began = time.perf_counter()
        yield
        self.seconds += [(time.perf_counter() - began) / iterations] * iterations


def save_counts(path: Path, rows: Iterator[tuple[np.ndarray, np.ndarray]]) -> str:
    """Write the topics one after the other, so that saving takes no memory that training would be blamed for.

    rows: the words of each topic, and how many of their tokens it has.
    """
    path.mkdir()
    with ExitStack() as stack:
        files = {name: stack.enter_context((path / name).open("wb")) for name in COUNT_FILES}
        for words, counts in rows:
            for name, array in (("sizes", np.array([words.size])), ("words", words), ("counts", counts)):
                array.astype(COUNT_FILES[name]).tofile(files[name])
    return str(path)
