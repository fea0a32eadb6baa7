"""Corpora drawn from LDA's own generative process, of any size and with known topics.

The words of topic k are drawn from phi_k ~ Dirichlet(c * H), H a power law over the vocabulary: word r has probability
~ (r + 2.7)^-s (Mandelbrot). The mean of all topics is H, so words are as frequent as in language, and the smaller c,
the fewer words a topic has. phi_k is drawn by stick breaking (Sethuraman 1994), which ends where about a thousandth of
the stick is left. The topics of a document are drawn from theta_d ~ Dirichlet(alpha), its length from a Poisson
distribution.

Documents are independent, so blocks are generated in place, twice: to count words, which gives them their ranks, and to
write. Nothing is spilled, and a block depends on the seed and its number only.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blocks.append import DatasetTarget, new_dataset
from blocks.arrays import write_arrays
from blocks.control_groups import core_count
from blocks.corpus.dataset import Dataset
from blocks.corpus.partition import BLOCK_TOKENS, PART_TOKENS, rank_words, slice_count
from blocks.corpus.writer import RankedWords, finish_corpus_files
from blocks.errors import RequestError
from blocks.files import require_new
from blocks.progress_bar import Bar, no_bar
from blocks.stored_dataset import write_lines
from blocks.workers import WorkerPool

SHIFT = 2.7  # added to ranks in the power law
RANKS = "spill/ranks"  # uint32 (V,): where the main process tells the workers the rank of each word
_LEFT = 1e-3  # fraction of a topic's probability left after its last stick
_STICK_BYTES = 16  # memory for each stick: word, probability, alias table
_WORKER_BYTES = 60 << 20  # besides 24 bytes for each word and 40 bytes for each token of a block
_BASE_BYTES = 170 << 20


@dataclass(frozen=True)
class Synthetic:
    """Parameters of a synthetic corpus.

    length: mean number of tokens per document.
    alpha: symmetric Dirichlet parameter of the documents' topic distributions.
    concentration: c.
    zipf: s.
    topics_seed: seed of the topics, to share the topics of another dataset.
    """

    documents: int
    vocabulary: int
    topics: int
    length: float = 100.0
    alpha: float = 0.1
    concentration: float = 200.0
    zipf: float = 1.1
    seed: int = 0
    topics_seed: int | None = None
    block_tokens: int = BLOCK_TOKENS
    part_tokens: int = PART_TOKENS

    @property
    def block_documents(self) -> int:
        """Return the number of documents in each block; the last block has the rest."""
        return max(1, round(self.block_tokens / self.length))

    @property
    def blocks(self) -> int:
        return -(-self.documents // self.block_documents)

    @property
    def sticks(self) -> int:
        """Return the number of sticks of a topic, so that on average (of the logarithm) exp(-sticks / c) of the stick
        is left.
        """
        return max(1, math.ceil(self.concentration * math.log(1.0 / _LEFT)))


@dataclass
class GenerateBlockTask:
    """Message: generate a block and count its words, or write it, ordered by word rank, if slice bounds are given."""

    number: int
    slice_bounds: np.ndarray | None = None


def synthesize(
    request: Synthetic,
    out: str | Path,
    *,
    workers: int | None = None,
    memory: int | None = None,
    overwrite: bool = False,
    bar: Bar = no_bar,
) -> Dataset:
    """Write a synthetic dataset; word r of the vocabulary is `w<r>`, and `planted_topics` returns phi.

    workers: number of processes, None for all cores; does not change the result.
    memory: bytes for all processes, None for a quarter of the available memory.
    Raises RequestError if the request is invalid or the memory is insufficient.
    """
    count = workers or core_count()
    _check(request, count, memory)
    require_new(Path(out), overwrite=overwrite)
    with new_dataset(str(out), overwrite) as target:
        planted = write_arrays(target.root, "topics.h5", plant_topics(request))
        with WorkerPool("blocks.corpus.synthetic_worker:start", (request, str(target.root), planted), count) as pool:
            progress = bar("generating", 2 * request.blocks, "block")
            for _ in pool.map_unordered(map(GenerateBlockTask, range(request.blocks))):
                progress.update(1)
            frequencies, document_frequencies = _counted(pool, request.vocabulary)
            word_ids, slice_bounds = rank_words(frequencies, slice_count(int(frequencies.sum())), request.seed)
            entries = _write(pool, request, target, word_ids, slice_bounds, progress)
            progress.close()
        shutil.rmtree(target.spill)
        vocabulary = (f"w{rank + 1}" for rank in range(request.vocabulary))
        finish_corpus_files(
            target.root,
            blocks=entries,
            words=RankedWords(word_ids, slice_bounds, frequencies, document_frequencies),
            texts={"vocabulary": write_lines(target.root, "vocabulary.txt", vocabulary)},
            planted=planted,
            made=_made(request),
            part_tokens=request.part_tokens,
        )
    return Dataset(out)


def _check(request: Synthetic, workers: int, memory: int | None) -> None:
    from blocks.memory import available_memory

    for name, least in (("documents", 1), ("vocabulary", 1), ("topics", 1), ("block_tokens", 1), ("part_tokens", 1)):
        if getattr(request, name) < least:
            raise RequestError(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(request, name)}")
    for name, most in (("length", 1e6), ("alpha", 1e6), ("concentration", 1e6), ("zipf", 10.0)):
        if not 0 < getattr(request, name) <= most:
            raise RequestError(f"--{name} must be above 0 and at most {most:g}, got {getattr(request, name):g}")
    budget = available_memory() // 4 if memory is None else memory
    needed = _BASE_BYTES + _STICK_BYTES * request.topics * request.sticks + 40 * request.vocabulary
    needed += workers * (_WORKER_BYTES + 24 * request.vocabulary + 40 * request.block_tokens)
    if needed > budget:
        raise RequestError(
            f"--memory {budget >> 20}MiB is too small: it must be at least {-(-needed >> 20)}MiB",
            "Increase --memory, or reduce --topics, --workers or --concentration.",
        )


def plant_topics(request: Synthetic) -> dict[str, np.ndarray]:
    """Return the topics: `offsets` int64 (K+1,), `words` uint32 (from 0) and `probabilities` float32; the words of a
    topic may repeat."""
    seed = request.seed if request.topics_seed is None else request.topics_seed
    random = np.random.default_rng([seed, 0])
    law = np.cumsum((np.arange(request.vocabulary) + 1 + SHIFT) ** -request.zipf)
    sticks, concentration = request.sticks, request.concentration
    words = np.empty((request.topics, sticks), np.uint32)
    probabilities = np.empty((request.topics, sticks), np.float32)
    for topic in range(request.topics):
        words[topic] = np.searchsorted(law, random.random(sticks) * law[-1])
        # The logarithm of the stick that remains after each break is a sum of exponential variables.
        left = np.exp(-np.cumsum(random.standard_exponential(sticks)) / concentration)
        lengths = -np.diff(left, prepend=1.0)
        probabilities[topic] = lengths / lengths.sum()
    offsets = np.arange(request.topics + 1, dtype=np.int64) * sticks
    return {"offsets": offsets, "words": words.reshape(-1), "probabilities": probabilities.reshape(-1)}


def _counted(pool: WorkerPool, vocabulary: int) -> np.ndarray:
    """Return the number of tokens and documents of each word over all workers, int64 (2, V)."""
    counts = np.zeros((2, vocabulary), np.int64)
    for worker in range(len(pool)):
        counts += np.fromfile(pool.ask(worker, None), np.int64).reshape(2, vocabulary)
    return counts


def _write(
    pool: WorkerPool,
    request: Synthetic,
    target: DatasetTarget,
    word_ids: np.ndarray,
    slice_bounds: np.ndarray,
    progress: Any,
) -> list[dict[str, Any]]:
    ranks = np.empty(request.vocabulary, np.uint32)
    ranks[word_ids] = np.arange(request.vocabulary, dtype=np.uint32)
    (target.root / RANKS).write_bytes(ranks.data)
    messages = (GenerateBlockTask(number, slice_bounds) for number in range(request.blocks))
    return pool.map_numbered(messages, lambda: progress.update(1))


def _made(request: Synthetic) -> dict[str, Any]:
    from importlib.metadata import version

    options = asdict(request)
    return {"ooc": version("ooc"), "command": "ingest", "kind": "synthetic", "options": options, "inputs": []}
