"""Base class of LDA samplers whose initial topics are learned instead of random, see `samplers.lda.scvb0`.

Two kinds of phases fill the state. Learning phases go through the blocks, as often as it takes for enough minibatches.
A minibatch has two stages: its documents are folded in, then the rows of words are updated. The last phase draws a
topic for every token from the learned counts, and writes it.

Rows of expected counts are kept for the most frequent words, as many as fit in ROWS bytes, whatever the memory limit:
so the topics do not depend on it. The rows are in a file if they do not fit in memory. The topics of other words are
drawn from the topics of their document. For more than MOST_TOPICS topics, groups of topics are learned, and each
document draws at random one topic of each of its groups.

On a ring the first machine learns, from its own documents, and all machines draw from the learned counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from blocks.corpus.dataset import Block, Dataset
from blocks.errors import RequestError
from ooc.program import Arrays, Job, Phase
from ooc.workers.madvise import UNWRITTEN, write_back
from ooc.workers.shared_arrays import ArraySpec
from samplers.lda import scvb0
from samplers.lda.documents import find_words
from samplers.lda.program import Lda, topic_type

MINIBATCHES = 128  # that a corpus is cut into, but
LEAST_TOKENS, MOST_TOKENS = 1 << 14, 1 << 17  # in each
FEWEST = 400  # minibatches in all, or, as each costs less,
FEWEST_TOPICS = 200_000  # minibatches times topics if that is more, unless it takes each block more than
MOST_TIMES = 8  # times: one after the other, or, if the window is larger than a minibatch, in passes over all blocks
MOST_WORK = 4000  # times and topics multiplied, where rows are left out
WINDOW = 1000  # tokens a topic, that are remembered at first, but fewer
FEW_TOKENS = 550_000  # where the square of the tokens a topic is less than `WINDOW` times this
FEW_A_TOPIC = 10_000  # tokens: with fewer, rho falls faster
SWEEPS = 2  # over a document's words
LEAST_SCALE = 1e-20  # of the rows: the largest count of a corpus, divided by it, fits in 32 bits
ROWS = 1 << 29  # bytes of rows at most
MOST_TOPICS = 10_000  # that are learned; of more, as many groups at most
STARTS = ("scvb0", "random")
DRAW = Phase("drawing", "block", staged=True)


class WarmStart(Lda):
    """Base class of samplers with a learned start; a subclass adds `phases`. start: one of STARTS."""

    def __init__(self, dataset: Dataset, *, start: str = "random", **options: Any) -> None:
        super().__init__(dataset, **options)
        if start not in STARTS:
            raise RequestError(f"--start: {start!r} is not known", f"Choose one of: {', '.join(STARTS)}.")
        self.starts_warm = start == "scvb0"
        self._learning: list[Phase] = []
        if self.starts_warm:
            self._plan_learning()

    def _plan_learning(self) -> None:
        dataset = self.dataset
        self._each = -(-self.topics // MOST_TOPICS)  # topics of a group
        self._groups = -(-self.topics // self._each)
        tokens, frequencies = dataset.whole.tokens, dataset.whole.frequencies
        self._row_of = rows_of_words(frequencies, ROWS // (4 * self._groups))
        self._row_frequencies = frequencies[self._row_of != scvb0.NO_ROW]
        self._row_tokens = int(self._row_frequencies.sum())
        self._batch_tokens = min(max(dataset.tokens // MINIBATCHES, LEAST_TOKENS), MOST_TOKENS)
        batches = sum(self._minibatches(unit) for unit in range(dataset.block_count))
        fewest = max(FEWEST, FEWEST_TOPICS // self._groups)
        times = min(-(-fewest // max(batches, 1)), MOST_TIMES)
        if self._row_frequencies.size < dataset.vocabulary_size:
            times = min(times, max(MOST_WORK // self._groups, 1))
        few = tokens < FEW_A_TOPIC * self._groups
        self._power = 0.7 if few else 0.5
        self._share = min(self._batch_tokens / topic_window(tokens, self._groups), 1.0)
        passes, self._turns = (1, times) if self._share == 1.0 else (times, 1)
        names = [f"learning {n + 1}" for n in range(passes)]
        self._learning = [Phase(name, "block", writes=False, staged=True, alone=True) for name in names]
        self.initial = *self._learning, DRAW

    def _minibatches(self, unit: int) -> int:
        return max(int(self.dataset.index.cells[unit].sum()) // self._batch_tokens, 1)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        return super().shared_arrays() | (self._start_specs() if self.starts_warm else {})

    def _start_specs(self) -> dict[str, ArraySpec]:
        documents = max((entry["documents"] for entry in self.dataset.manifest["blocks"]), default=0)
        tokens = int(self.dataset.block_tokens().max(initial=1))
        return {
            "expected_rows": ArraySpec((-(-self._row_frequencies.size * self._groups // 2) * 2,), "float32"),
            "expected_totals": ArraySpec((self._groups,), "float64"),
            "estimate": ArraySpec((3,), "float64"),  # minibatches done, the scale of the rows, tokens of a minibatch
            "position_rows": ArraySpec((tokens,), "uint32"),
            "position_documents": ArraySpec((tokens,), "uint32"),
            "next_positions": ArraySpec((self.dataset.vocabulary_size,), "uint32"),
            "mixture_sizes": ArraySpec((documents,), "uint32"),
            "mixture_topics": ArraySpec((tokens,), topic_type(self._groups)),
            "mixture_counts": ArraySpec((tokens,), "float32"),
        }

    def start_arrays(self) -> Collection[str]:
        return self._start_specs().keys() if self.starts_warm else ()

    def filed_arrays(self) -> Collection[str]:
        return ("expected_rows",) if self.starts_warm else ()

    def spread_arrays(self) -> Collection[str]:
        return "expected_rows", "expected_totals", "estimate"

    def later_arrays(self) -> Collection[str]:
        """Return the arrays that only the sampler uses, after the start."""
        return self.shared_arrays().keys() - Lda.shared_arrays(self).keys() - {*self.start_arrays()}

    def large_arrays(self) -> Collection[str]:
        return {*super().large_arrays(), *self.filed_arrays()}

    def own_bytes(self) -> int:
        return super().own_bytes() + (
            2 * (self._row_of.nbytes + self._row_frequencies.nbytes) if self.starts_warm else 0
        )

    def scratch_bytes(self) -> int:
        if not self.starts_warm:
            return super().scratch_bytes()
        longest = self.dataset.longest_document
        words = min(longest, self._row_frequencies.size)  # of a document
        return super().scratch_bytes() + 36 * self.topics + 8 * longest + 4 * scvb0.LIKELY * words

    def warm_up(self) -> None:
        if not self.starts_warm:
            super().warm_up()
            return
        own, self._row_of = self._row_of, np.zeros(1, np.uint32)
        super().warm_up()
        self._row_of = own

    def priors(self, shared: Arrays) -> tuple[np.ndarray, float]:
        """Return alpha, float64 (K,), and beta."""
        return np.full(self.topics, shared["alpha"]), float(shared["beta"][0])

    def begin(self, phase: Phase, shared: Arrays) -> None:
        super().begin(phase, shared)
        if phase in self._learning[:1]:
            shared["expected_totals"][:] = 0.0
            shared["estimate"][:] = 0.0, 1.0, 0.0

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        if phase in self._learning:
            return [range(parts)] * (1 + 2 * self._turns * self._minibatches(unit))
        return [range(parts)] * 2 if phase is DRAW else super().schedule(phase, unit, parts)

    def update_documents(self, job: Job, block: Block, key: np.uint64) -> Any:
        if any(job.phase == phase.name for phase in self._learning):
            return self._learn(job, block, key)
        if job.phase != DRAW.name:
            return super().update_documents(job, block, key)
        if job.stage == 0:
            self._find_rows(job, block)
            return None
        where = job.state, int(job.bases[job.unit]), block.offsets, block.positions, job.shared["position_rows"]
        drawn, prior = job.delta["topic_counts"], self.document_prior(job.shared)
        scvb0.draw_documents(*where, job.first, job.last, self._estimate(job.shared), prior, self._each, drawn, key)
        return None

    def _find_rows(self, job: Job, block: Block) -> None:
        """Set the row of the word at each position of this job's share of a block's words."""
        mine = job.share(block.words.size)
        offsets = block.word_offsets[mine.start : mine.stop + 1]
        find_words(self._row_of[block.words[mine]], offsets, job.shared["position_rows"])

    def _learn(self, job: Job, block: Block, key: np.uint64) -> Any:
        mixtures = scvb0.Mixtures(
            job.shared["mixture_sizes"],
            job.shared["mixture_topics"],
            job.shared["mixture_counts"],
            job.shared["position_documents"],
        )
        if job.stage == 0:
            self._find_rows(job, block)
            scvb0.find_documents(block.offsets, block.positions, job.first, job.last, mixtures.documents)
            begins = job.unit == 0 and job.phase == self._learning[0].name
            return self._random_rows(job, key) if begins else None
        turn, step = divmod(job.stage - 1, 2)
        batches = self._minibatches(job.unit)
        marks = block.positions.size * np.array([turn % batches, turn % batches + 1]) // batches
        first, last = np.searchsorted(block.offsets[:-1], marks).tolist()
        if step == 0:
            mine = job.share(last - first)
            where = block.offsets, block.positions, job.shared["position_rows"]
            estimate = self._estimate(job.shared)
            return scvb0.fold_documents(*where, first + mine.start, first + mine.stop, estimate, mixtures)
        return self._count_words(job, block, first, last, mixtures)

    def _random_rows(self, job: Job, key: np.uint64) -> np.ndarray:
        """Set this job's share of the rows to random expected counts; returns their sum for each topic."""
        words = min(job.shared["expected_rows"].size // self._groups, self._row_frequencies.size)
        mine = job.share(words)
        rows = job.shared["expected_rows"][: words * self._groups].reshape(words, self._groups)
        rng, random, counts = (
            np.random.default_rng(int(key)),
            rows[mine],
            self._row_frequencies[mine].astype(np.float32),
        )
        for first in range(0, len(random), self._rows_at_once):
            some = random[first : first + self._rows_at_once]
            rng.random(out=some, dtype=np.float32)
            some += 0.5
            some *= counts[first : first + self._rows_at_once, None] / self._groups
            write_back(some)
        return random.sum(axis=0, dtype=np.float64)

    @property
    def _rows_at_once(self) -> int:
        """Return the number of rows that a worker may change before it writes them back."""
        return max(UNWRITTEN // (4 * self._groups), 1)

    def _count_words(self, job: Job, block: Block, first: int, last: int, mixtures: scvb0.Mixtures) -> np.ndarray:
        """Add the counts of documents to the rows of this job's words; returns `totals` of `scvb0.count_words`."""
        share = job.share(block.positions.size)
        mine = slice(*np.searchsorted(block.word_offsets[:-1], [share.start, share.stop]))
        rows, starts = self._row_of[block.words[mine]], block.word_offsets[mine.start : mine.stop + 1]
        nexts = job.shared["next_positions"][mine]
        if first == 0:
            nexts[:] = starts[:-1]
        estimate, rate = self._estimate(job.shared), self._rate(job.shared)
        tokens = max(int(job.shared["estimate"][2]), 1)
        added = rate * self._row_tokens / tokens / ((1.0 - rate) * estimate.scale)
        totals, scratch = np.zeros(self._groups), scvb0.new_scratch(self._groups)
        for at in range(0, rows.size, self._rows_at_once):
            some = slice(at, at + self._rows_at_once)
            words = rows[some], starts[1:][some], nexts[some], last
            scvb0.count_words(*words, block.offsets, estimate, mixtures, added, scratch, totals)
            if (changed := rows[some][rows[some] != scvb0.NO_ROW]).size:
                write_back(estimate.rows[int(changed[0]) * self._groups : (int(changed[-1]) + 1) * self._groups])
        return totals

    def _rate(self, shared: Arrays) -> float:
        """Return rho_t, the share of the expected counts that the next minibatch replaces."""
        return float(self._share * (1.0 + self._share * (shared["estimate"][0] + 1.0)) ** -self._power)

    def _estimate(self, shared: Arrays) -> scvb0.Estimate:
        alpha, beta = self.priors(shared)
        if self._each > 1:
            alpha = np.add.reduceat(alpha, np.arange(0, self.topics, self._each))
        shares = 1.0 / (shared["expected_totals"] + self.dataset.vocabulary_size * beta)
        scale, kinds = float(shared["estimate"][1]), (shares.astype(np.float32), alpha.astype(np.float32))
        return scvb0.Estimate(shared["expected_rows"], scale, *kinds, beta, SWEEPS)

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        if phase in self._learning and answers[0] is not None:
            if isinstance(answers[0], np.ndarray):
                self._take_in(shared, np.sum(answers, axis=0))
            else:
                shared["estimate"][2] = sum(answers)
        return super().aggregate(phase, shared, deltas, answers)

    def _take_in(self, shared: Arrays, totals: np.ndarray) -> None:
        """Update the topics' expected counts by sums over words: first of the random rows, then of each minibatch."""
        if not shared["expected_totals"].any():
            shared["expected_totals"][:] = totals
            return
        if not totals.any():  # no documents, since one before is longer than a minibatch, or no words with rows
            return
        rate = self._rate(shared)
        shared["expected_totals"] *= 1.0 - rate
        shared["expected_totals"] += rate * self._row_tokens / totals.sum() * totals
        shared["estimate"][:2] += 1.0, -rate * shared["estimate"][1]
        if shared["estimate"][1] < LEAST_SCALE:
            self._scale_anew(shared)

    def _scale_anew(self, shared: Arrays) -> None:
        """Multiply the rows by their scale, and set the scale to 1."""
        rows, size = shared["expected_rows"], self._rows_at_once * self._groups
        for first in range(0, rows.size, size):
            rows[first : first + size] *= np.float32(shared["estimate"][1])
            write_back(rows[first : first + size])
        shared["estimate"][1] = 1.0


def rows_of_words(frequencies: np.ndarray, most: int) -> np.ndarray:
    """Return the row of each word, uint32 (V,), or NO_ROW.

    frequencies: int64 (V,). The `most` most frequent words have rows, which are numbered in the order of the words.
    """
    chosen = np.sort(np.argsort(-frequencies, kind="stable")[:most])
    rows = np.full(frequencies.size, scvb0.NO_ROW, np.uint32)
    rows[chosen] = np.arange(chosen.size, dtype=np.uint32)
    return rows


def topic_window(tokens: int, topics: int) -> float:
    """Return the number of tokens that the expected counts stand for at first (measured in docs/notes/sampling.md)."""
    return max(topics * min(WINDOW, (tokens / topics) ** 2 / FEW_TOKENS), 1.0)
