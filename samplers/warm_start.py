"""Document-major LDA that does not start with topics at random, see `samplers.scvb0`.

The phase that fills the state takes a block's documents in minibatches, each in two stages: its documents are folded
in, then the rows of words take them in and every token's topic is drawn. Where there are few minibatches in all, a
block is gone through several times. Expected counts lie where the rows of counts come to lie afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from blocks.dataset import Block, Dataset
from blocks.errors import RequestError
from ooc.program import Arrays, Job, Phase
from ooc.shared import ArraySpec
from samplers import scvb0
from samplers.doc_major import SMALL, DocMajor
from samplers.fold_in import LANES

MINIBATCHES = 32  # that a corpus is cut into, but
LEAST_TOKENS, MOST_TOKENS = 1 << 15, 1 << 19  # in each; larger ones and more turns end better, and later
FEWEST = 150  # minibatches in all turns through the blocks, unless that takes more than
MOST_TURNS = 8
LEAST_SCALE = 1e-20  # of the rows: the largest count of a corpus, divided by it, fits in 32 bits
STARTS = ("scvb0", "random")


class WarmStart(DocMajor):
    """Subclasses add `sample_cell`, and take whole blocks.

    start: one of STARTS, or None for the first where the model is small enough for it.
    """

    whole_blocks = True

    def __init__(self, dataset: Dataset, *, start: str | None = None, **options: Any) -> None:
        super().__init__(dataset, **options)
        if start not in (None, *STARTS):
            raise RequestError(f"--start {start!r} is not known", f"Choose one of: {', '.join(STARTS)}.")
        possible = self.whole_blocks and self._fold_in_bytes() <= SMALL
        if start == "scvb0" and not possible:
            raise RequestError(
                "--start scvb0 is for --update delayed and models of up to "
                f"{SMALL >> 20} MiB, 4 bytes for each topic of each word",
                "Leave the option out: such a model starts at random.",
            )
        self.starts_warm = possible and start != "random"
        if self.starts_warm:
            self.initial = Phase("start", "block", staged=True)
            self._batch_tokens = min(max(dataset.tokens // MINIBATCHES, LEAST_TOKENS), MOST_TOKENS)
            batches = [self._minibatches(unit) for unit in range(dataset.block_count)]
            self._turns = min(-(-FEWEST // max(sum(batches), 1)), MOST_TURNS)

    def _fold_in_bytes(self) -> int:
        words = min(self.dataset.longest_document, self.dataset.vocabulary_size)
        return 4 * (2 * words + 3) * -(-self.topics // LANES) * LANES

    def _minibatches(self, unit: int) -> int:
        return max(int(self.dataset.index.cells[unit].sum()) // self._batch_tokens, 1)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        if not self.starts_warm:
            return super().shared_arrays()
        documents = max((entry["documents"] for entry in self.dataset.manifest["blocks"]), default=0)
        return super().shared_arrays() | {
            "mixture_sizes": ArraySpec((documents,), "uint32"),
            "mixture_counts": ArraySpec((self._most_tokens,), "float32"),
            "expected_totals": ArraySpec((self.topics,), "float64"),
            "estimate": ArraySpec((2,), "float64"),  # minibatches done, and the scale of the rows
        }

    def large_arrays(self) -> Collection[str]:
        return {*super().large_arrays(), "dense_rows"}

    def scratch_bytes(self) -> int:
        return super().scratch_bytes() + (self._fold_in_bytes() + 28 * self.topics if self.starts_warm else 0)

    def begin(self, phase: Phase, shared: Arrays) -> None:
        super().begin(phase, shared)
        if phase is self.initial and self.starts_warm:
            shared["expected_totals"][:] = 0.0
            shared["estimate"][:] = 0.0, 1.0

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        if phase is self.initial and self.starts_warm:
            return [range(parts)] * (1 + 2 * self._turns * self._minibatches(unit))
        return super().schedule(phase, unit, parts)

    def update_documents(self, job: Job, block: Block, key: np.uint64) -> Any:
        if job.phase != self.initial.name or not self.starts_warm:
            return super().update_documents(job, block, key)
        mixtures = scvb0.Mixtures(
            job.shared["mixture_sizes"],
            job.shared["token_topics"],
            job.shared["mixture_counts"],
            job.shared["token_words"],
        )
        if job.stage == 0:
            scvb0.find_documents(block.offsets, block.positions, job.first, job.last, mixtures.documents)
            return self._random_rows(job, key) if job.unit == 0 else None
        turn, step = divmod(job.stage - 1, 2)
        batches = self._minibatches(job.unit)
        marks = block.positions.size * np.array([turn % batches, turn % batches + 1]) // batches
        first, last = np.searchsorted(block.offsets[:-1], marks).tolist()
        estimate = self._estimate(job.shared)
        if step == 0:
            mine = [first + (last - first) * part // (job.bounds.size - 1) for part in (job.part, job.part + 1)]
            words_at = self.words_at(block)
            scvb0.fold_documents(block.offsets, block.positions, words_at, *mine, estimate, mixtures)
            return None
        totals, drawn = self._count_words(job, block, first, last, estimate, mixtures, key)
        if turn >= (self._turns - 1) * batches:
            job.delta["topic_counts"] += drawn
        return totals

    def _random_rows(self, job: Job, key: np.uint64) -> np.ndarray:
        """Expected counts of some words, at random; returns the sum for each topic."""
        rows, parts = self._expected(job.shared), job.bounds.size - 1
        mine = slice(len(rows) * job.part // parts, len(rows) * (job.part + 1) // parts)
        frequencies = self.dataset.index.frequencies[mine].astype(np.float32)
        random = np.random.default_rng(int(key))
        random.random(out=rows[mine], dtype=np.float32)
        rows[mine] += 0.5
        rows[mine] *= frequencies[:, None] / self.topics
        return rows[mine].sum(axis=0, dtype=np.float64)

    def _count_words(
        self,
        job: Job,
        block: Block,
        first: int,
        last: int,
        estimate: scvb0.Estimate,
        mixtures: scvb0.Mixtures,
        key: np.uint64,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Take documents into the rows of this job's words; returns `totals` and `drawn` of `scvb0.count_words`."""
        mine = self.words_of_part(job, block, 0)
        tokens = int(block.offsets[last] - block.offsets[first])
        rate = learning_rate(job.shared)
        added = rate * self.dataset.tokens / max(tokens, 1) / ((1.0 - rate) * estimate.scale)
        totals, drawn = np.zeros(self.topics), np.zeros(self.topics, np.int64)
        scvb0.count_words(
            job.state,
            int(job.bases[job.unit]),
            block.words[mine],
            block.word_offsets[mine.start : mine.stop + 1],
            block.offsets,
            first,
            last,
            estimate,
            mixtures,
            added,
            scvb0.new_scratch(self.topics),
            totals,
            drawn,
            key,
        )
        return totals, drawn

    def _expected(self, shared: Arrays) -> np.ndarray:
        """float32 (V, K): the rows of expected counts, which are not needed any more when those of counts are made."""
        return shared["dense_rows"].view(np.float32).reshape(-1, self.topics)

    def _estimate(self, shared: Arrays) -> scvb0.Estimate:
        alpha, beta = self.priors(shared)
        shares = 1.0 / (shared["expected_totals"] + self.dataset.vocabulary_size * beta)
        scale = float(shared["estimate"][1])
        rows = self._expected(shared).reshape(-1)
        return scvb0.Estimate(rows, scale, shares.astype(np.float32), alpha.astype(np.float32), beta)

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        if phase is not self.initial or not self.starts_warm:
            return super().aggregate(phase, shared, deltas, answers)
        if answers[0] is not None:
            self._take_in(shared, np.sum(answers, axis=0))
        return super().aggregate(phase, shared, deltas, [])

    def _take_in(self, shared: Arrays, totals: np.ndarray) -> None:
        """The first totals are those of the rows made at random, the others of minibatches."""
        if not shared["expected_totals"].any():
            shared["expected_totals"][:] = totals
            return
        rate = learning_rate(shared)
        shared["expected_totals"] *= 1.0 - rate
        shared["expected_totals"] += rate * self.dataset.tokens / max(totals.sum(), 1.0) * totals
        shared["estimate"] += 1.0, -rate * shared["estimate"][1]
        if shared["estimate"][1] < LEAST_SCALE:
            self._expected(shared)[:] *= np.float32(shared["estimate"][1])
            shared["estimate"][1] = 1.0


def learning_rate(shared: Arrays) -> float:
    """rho_t: what is replaced by the next minibatch."""
    return float((shared["estimate"][0] + 2.0) ** -0.7)
