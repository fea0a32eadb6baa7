"""Worker process for synthetic corpora: generate blocks, count their words, write them."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from blocks.alias_table import alias_table
from blocks.arrays import map_arrays
from blocks.compiled import unmanaged_kernel
from blocks.compiler import compile_kernels
from blocks.corpus.block_writer import word_major, write_block
from blocks.corpus.synthetic import RANKS, GenerateBlockTask, Synthetic, plant_topics
from blocks.files import disk_errors
from blocks.ingestion.word_counter import WordCounter


def stick_tables(offsets: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Build the alias table (see `alias_table`) of each topic's sticks; indices in `alias` count from the topic's first
    stick.

    offsets: int64 (K+1,).
    probabilities: float32 (n,).
    Returns cut float32 (n,) and alias uint32 (n,).
    """
    cut, alias = np.empty(probabilities.size, np.float32), np.empty(probabilities.size, np.uint32)
    for first, last in pairwise(offsets.tolist()):
        cut[first:last], alias[first:last] = alias_table(probabilities[first:last].astype(np.float64))
    return cut, alias


@unmanaged_kernel
def generate(random, lengths, alpha_total, offsets, words, cut, alias, topics, tokens):
    """Draw the tokens of documents, with theta integrated out.

    random: NumPy Generator.
    lengths: int64 (D,), number of tokens of each document.
    alpha_total: K*alpha.
    offsets, words, cut, alias: sticks of the topics.
    topics: int32, workspace of the maximum document length.
    tokens: uint32 (N,), filled.
    """
    token = 0
    for length in lengths:
        for place in range(length):
            # Polya urn: the topic of an earlier token or, with probability proportional to alpha_total, any topic.
            x = random.random() * (alpha_total + place)
            if x < alpha_total:
                topic = min(np.int64(x / alpha_total * (offsets.size - 1)), offsets.size - 2)
            else:
                topic = np.int64(topics[min(np.int64(x - alpha_total), place - 1)])
            topics[place] = topic
            first, size = offsets[topic], offsets[topic + 1] - offsets[topic]
            y = random.random() * size
            stick = np.int64(y)
            if y - stick >= cut[first + stick]:
                stick = np.int64(alias[first + stick])
            tokens[token] = words[first + stick]
            token += 1


class SyntheticCorpusWorker:
    """Handles `blocks.corpus.synthetic.GenerateBlockTask`; answers None with the path of its counts, int64 (2, V), to
    CountsRequest.
    """

    def __init__(self, request: Synthetic, root: str, topics: dict[str, np.ndarray]) -> None:
        self._request, self._root = request, Path(root)
        self._offsets, self._words = topics["offsets"], topics["words"]
        self._cut, self._alias = stick_tables(self._offsets, topics["probabilities"])
        self._counts = WordCounter()

    def __call__(self, message: GenerateBlockTask | None) -> Any:
        """Handle a message."""
        with disk_errors(self._root):
            return self._report() if message is None else self._generate(message)

    def _generate(self, block: GenerateBlockTask) -> dict[str, Any] | None:
        request = self._request
        first = block.number * request.block_documents
        documents = np.arange(first, min(first + request.block_documents, request.documents), dtype=np.uint64)
        random = np.random.Generator(np.random.PCG64([request.seed, 1, block.number]))
        lengths = random.poisson(request.length, documents.size)
        tokens = np.empty(int(lengths.sum()), np.uint32)
        topics = np.empty(int(lengths.max()), np.int32)
        sticks = (self._offsets, self._words, self._cut, self._alias)
        generate(random, lengths, request.topics * request.alpha, *sticks, topics, tokens)
        if block.slice_bounds is None:
            self._counts.add(tokens, lengths.astype(np.uint32), request.vocabulary)
            return None
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        ranks = np.memmap(self._root / RANKS, np.uint32, "r")[tokens]
        return write_block(self._root, block.number, documents, offsets, ranks, block.slice_bounds)

    def _report(self) -> str:
        path = self._root / "spill" / f"counts-{os.getpid()}"
        self._counts.write(path, self._request.vocabulary)
        return str(path)


def _warm_up() -> None:
    request = Synthetic(documents=1, vocabulary=2, topics=1, length=1.0)
    SyntheticCorpusWorker(request, "", plant_topics(request))(GenerateBlockTask(0))
    word_major(np.empty(0, np.uint32), np.zeros(1, np.int64), 1)


def start(task: tuple[Synthetic, str, dict[str, Any]]) -> Callable[[Any], Any]:
    """Return the message handler for `blocks.workers.WorkerPool`; the topic tables are shared by all forked workers."""
    request, root, planted = task
    compile_kernels(_warm_up)
    return SyntheticCorpusWorker(request, root, map_arrays(Path(root) / planted["file"], planted["arrays"]))
