"""Document-major LDA that does not start with topics at random, see `samplers.lda.scvb0`.

Two kinds of phases fill the state. Those that learn go through the blocks, as often as it takes to have enough
minibatches, each in two stages: its documents are folded in, then the rows of words take in what they say. The last
phase draws a topic for every token from what was learned. Expected counts lie where the rows of counts come to lie
afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from blocks.corpus.dataset import Block, Dataset
from blocks.errors import RequestError
from ooc.program import Arrays, Job, Phase
from ooc.workers.shared_arrays import ArraySpec
from samplers.lda import scvb0
from samplers.lda.doc_major import SMALL, DocMajor

MINIBATCHES = 128  # that a corpus is cut into, but
LEAST_TOKENS, MOST_TOKENS = 1 << 14, 1 << 17  # in each
FEWEST = 400  # minibatches in all, or, as each costs less,
FEWEST_TOPICS = 200_000  # minibatches times topics if that is more, unless it takes each block more than
MOST_TIMES = 8  # times: one after the other, or, if the window is larger than a minibatch, in passes over all blocks
WINDOW = 1000  # tokens a topic, that are remembered at first, but fewer
FEW_TOKENS = 550_000  # where the square of the tokens a topic is less than `WINDOW` times this
FEW_A_TOPIC = 10_000  # tokens: with fewer, documents are folded in by more sweeps, and rho falls faster
LEAST_SCALE = 1e-20  # of the rows: the largest count of a corpus, divided by it, fits in 32 bits
STARTS = ("scvb0", "random")
DRAW = Phase("drawing", "block", staged=True)


class WarmStart(DocMajor):
    """Subclasses add `sample_cell`, and take whole blocks.

    start: one of STARTS, or None for the first where the model is small enough for it.
    """

    whole_blocks = True

    def __init__(self, dataset: Dataset, *, start: str | None = None, **options: Any) -> None:
        super().__init__(dataset, **options)
        if start not in (None, *STARTS):
            raise RequestError(f"--start: {start!r} is not known", f"Choose one of: {', '.join(STARTS)}.")
        if start == "scvb0" and not self.whole_blocks:
            raise RequestError(
                "--start scvb0 can only be used with --update delayed and a model of at most "
                f"{SMALL >> 20} MiB (4 bytes for each topic of each word)",
                "Leave --start out: the initial topics are random then.",
            )
        self.starts_warm = self.whole_blocks and start != "random"
        self._learning: list[Phase] = []
        if self.starts_warm:
            self._batch_tokens = min(max(dataset.tokens // MINIBATCHES, LEAST_TOKENS), MOST_TOKENS)
            batches = sum(self._minibatches(unit) for unit in range(dataset.block_count))
            fewest = max(FEWEST, FEWEST_TOPICS // self.topics)
            times = min(-(-fewest // max(batches, 1)), MOST_TIMES)
            few = dataset.tokens < FEW_A_TOPIC * self.topics
            self._sweeps, self._power = (5, 0.7) if few else (3, 0.5)
            self._share = min(self._batch_tokens / topic_window(dataset.tokens, self.topics), 1.0)
            passes, self._turns = (1, times) if self._share == 1.0 else (times, 1)
            self._learning = [Phase(f"learning {n + 1}", "block", writes=False, staged=True) for n in range(passes)]
            self.initial = *self._learning, DRAW

    def _minibatches(self, unit: int) -> int:
        return max(int(self.dataset.index.cells[unit].sum()) // self._batch_tokens, 1)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        if not self.starts_warm:
            return super().shared_arrays()
        documents = max((entry["documents"] for entry in self.dataset.manifest["blocks"]), default=0)
        return super().shared_arrays() | {
            "mixture_sizes": ArraySpec((documents,), "uint32"),
            "mixture_counts": ArraySpec((self._most_tokens,), "float32"),
            "next_positions": ArraySpec((self.dataset.vocabulary_size,), "uint32"),
            "expected_totals": ArraySpec((self.topics,), "float64"),
            "estimate": ArraySpec((2,), "float64"),  # minibatches done, and the scale of the rows
        }

    def large_arrays(self) -> Collection[str]:
        return {*super().large_arrays(), "dense_rows"}

    def scratch_bytes(self) -> int:
        fold_in = 36 * self.topics + 16 * self.dataset.longest_document
        return super().scratch_bytes() + (fold_in if self.starts_warm else 0)

    def begin(self, phase: Phase, shared: Arrays) -> None:
        super().begin(phase, shared)
        if phase in self._learning[:1]:
            shared["expected_totals"][:] = 0.0
            shared["estimate"][:] = 0.0, 1.0

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
            self.find_words(job, block, job.share(block.words.size))
            return None
        where = job.state, int(job.bases[job.unit]), block.offsets, block.positions, job.shared["position_words"]
        estimate = self._estimate(job.shared)
        scvb0.draw_documents(*where, job.first, job.last, estimate, job.delta["topic_counts"], key)
        return None

    def _learn(self, job: Job, block: Block, key: np.uint64) -> Any:
        mixtures = scvb0.Mixtures(
            job.shared["mixture_sizes"],
            job.shared["token_topics"],
            job.shared["mixture_counts"],
            job.shared["token_words"],
        )
        if job.stage == 0:
            self.find_words(job, block, job.share(block.words.size))
            scvb0.find_documents(block.offsets, block.positions, job.first, job.last, mixtures.documents)
            begins = job.unit == 0 and job.phase == self._learning[0].name
            return self._random_rows(job, key) if begins else None
        turn, step = divmod(job.stage - 1, 2)
        batches = self._minibatches(job.unit)
        marks = block.positions.size * np.array([turn % batches, turn % batches + 1]) // batches
        first, last = np.searchsorted(block.offsets[:-1], marks).tolist()
        estimate = self._estimate(job.shared)
        if step == 0:
            mine = job.share(last - first)
            where = block.offsets, block.positions, job.shared["position_words"]
            scvb0.fold_documents(*where, first + mine.start, first + mine.stop, estimate, mixtures)
            return None
        return self._count_words(job, block, first, last, mixtures)

    def _random_rows(self, job: Job, key: np.uint64) -> np.ndarray:
        """Expected counts of some words, at random; returns the sum for each topic."""
        rows = self._expected(job.shared)
        mine = job.share(len(rows))
        frequencies = self.dataset.index.frequencies[mine].astype(np.float32)
        random = np.random.default_rng(int(key))
        random.random(out=rows[mine], dtype=np.float32)
        rows[mine] += 0.5
        rows[mine] *= frequencies[:, None] / self.topics
        return rows[mine].sum(axis=0, dtype=np.float64)

    def _count_words(self, job: Job, block: Block, first: int, last: int, mixtures: scvb0.Mixtures) -> np.ndarray:
        """Take documents into the rows of this job's words; returns `totals` of `scvb0.count_words`."""
        mine = self.words_of_part(job, block, 0)
        nexts, starts = job.shared["next_positions"][mine], block.word_offsets[mine.start : mine.stop + 1]
        if first == 0:
            nexts[:] = starts[:-1]
        tokens = int(block.offsets[last] - block.offsets[first])
        estimate, rate = self._estimate(job.shared), self._rate(job.shared)
        added = rate * self.dataset.tokens / max(tokens, 1) / ((1.0 - rate) * estimate.scale)
        totals, scratch = np.zeros(self.topics), scvb0.new_scratch(self.topics)
        words = block.words[mine], starts[1:], nexts, last
        scvb0.count_words(*words, block.offsets, estimate, mixtures, added, scratch, totals)
        return totals

    def _rate(self, shared: Arrays) -> float:
        """rho_t: what is replaced by the next minibatch."""
        return float(self._share * (1.0 + self._share * (shared["estimate"][0] + 1.0)) ** -self._power)

    def _expected(self, shared: Arrays) -> np.ndarray:
        """float32 (V, K): the rows of expected counts, which are not needed any more when those of counts are made."""
        return shared["dense_rows"].view(np.float32).reshape(-1, self.topics)

    def _estimate(self, shared: Arrays) -> scvb0.Estimate:
        alpha, beta = self.priors(shared)
        shares = 1.0 / (shared["expected_totals"] + self.dataset.vocabulary_size * beta)
        scale = float(shared["estimate"][1])
        rows = self._expected(shared).reshape(-1)
        return scvb0.Estimate(rows, scale, shares.astype(np.float32), alpha.astype(np.float32), beta, self._sweeps)

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        if phase in self._learning and answers[0] is not None:
            self._take_in(shared, np.sum(answers, axis=0))
        return super().aggregate(phase, shared, deltas, answers)

    def _take_in(self, shared: Arrays, totals: np.ndarray) -> None:
        """Take in the sums over topics of expected counts: first of rows made at random, then of each minibatch."""
        if not shared["expected_totals"].any():
            shared["expected_totals"][:] = totals
            return
        rate = self._rate(shared)
        shared["expected_totals"] *= 1.0 - rate
        shared["expected_totals"] += rate * self.dataset.tokens / max(totals.sum(), 1.0) * totals
        shared["estimate"] += 1.0, -rate * shared["estimate"][1]
        if shared["estimate"][1] < LEAST_SCALE:
            self._expected(shared)[:] *= np.float32(shared["estimate"][1])
            shared["estimate"][1] = 1.0


def topic_window(tokens: int, topics: int) -> float:
    """Tokens that the expected counts stand for at first; docs/notes/sampling.md has the measurements."""
    return max(topics * min(WINDOW, (tokens / topics) ** 2 / FEW_TOKENS), 1.0)
