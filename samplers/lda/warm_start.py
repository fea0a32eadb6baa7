"""Base class of LDA samplers whose initial topics are learned instead of random (see `samplers.lda.scvb0`).

Two kinds of phases fill the state. Learning phases pass over the blocks until there have been enough minibatches. A
minibatch has two stages: its documents are folded in, then the word rows are updated. The last phase draws a topic for
every token from the learned counts, and writes it.

Counts are kept for the most frequent words, as many as fit in ROWS bytes whatever the memory limit is, so that the
topics do not depend on the limit. The counts are in a file if they do not fit in memory. The topics of other words are
drawn from the topics of their document. If there are more topics than `samplers.lda.topic_tree` learns at once, fewer
topics are learned first, and then split in further passes over all blocks, as often as needed.

On a ring the first machine learns from its own documents, and all machines draw from the learned counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from blocks.corpus.dataset import Dataset, TokenBlock
from blocks.errors import RequestError
from ooc.program import Arrays, Job, Phase
from ooc.rng import stream_key
from ooc.workers.madvise import UNWRITTEN, write_back
from ooc.workers.shared_arrays import ArraySpec
from samplers.lda import scvb0, topic_tree
from samplers.lda.document_fold_in import LIKELY, MOST_LIKELY, NO_ROW, ExpectedTopicCounts
from samplers.lda.document_kernels import find_words
from samplers.lda.program import LdaProgram, tokens_of_documents, topic_type
from samplers.lda.word_prior import PriorPseudoCounts, draw_anew

MINIBATCHES = 128  # number of minibatches that a corpus is divided into, within the limits of the next line
LEAST_TOKENS, MOST_TOKENS = 1 << 14, 1 << 17  # minimum and maximum number of tokens in a minibatch
FEWEST = 400  # minimum number of minibatches to learn from, counting repetitions
FEWEST_TOPICS = 200_000  # this divided by the number of topics is also a minimum, as few topics cost less per minibatch
MOST_TIMES = 8  # maximum repetitions: consecutive or, if the window exceeds a minibatch, in passes over all blocks
MOST_WORK = 4000  # maximum of repetitions times topics, if some words have no rows
WINDOW = 1000  # number of tokens per topic that the counts initially remember; fewer if
FEW_TOKENS = 550_000  # the squared number of tokens per topic is less than `WINDOW` times this
FEW_A_TOPIC = 10_000  # with fewer tokens per topic, rho decays faster
LEAST_SCALE = 1e-20  # minimum scale of the rows: the largest count of a corpus, divided by it, fits in a float32
ROWS = 1 << 29  # maximum bytes of counts
STARTS = ("scvb0", "random")
_DENSE_NS, _TOPIC_NS = 250.0, 0.3  # processor time for learning or drawing one token once, plus an amount per topic
_SPLIT_NS, _DEPTH_NS = 600.0, 400.0  # the same for topics that were split, plus an amount per depth
_SPLITS = 1 << 62  # first index of the random streams that split topics, larger than any iteration
DRAW = Phase("drawing", "block", staged=True)


class LearnedStartLda(LdaProgram):
    """Base class of samplers whose initial topics are learned; a subclass adds `phases`. start: one of STARTS."""

    def __init__(self, dataset: Dataset, *, start: str = "random", **options: Any) -> None:
        super().__init__(dataset, **options)
        if start not in STARTS:
            raise RequestError(f"--start: unknown start {start!r}", f"Choose one of: {', '.join(STARTS)}.")
        self.starts_warm = start == "scvb0"
        self._learning: list[Phase] = []
        self._prior: PriorPseudoCounts | None = None
        if self.starts_warm:
            self._plan_learning()

    def _plan_learning(self) -> None:
        dataset = self.dataset
        self._fanout, self._sizes = self._topics_by_depth()
        topics, tokens, frequencies = self._sizes[0], dataset.whole.tokens, dataset.whole.frequencies
        self._row_of = rows_of_words(frequencies, ROWS // (4 * topics))
        self._row_frequencies = frequencies[self._row_of != NO_ROW]
        self._prior = PriorPseudoCounts(self.own_prior, self._row_of, self._sizes) if self.own_prior else None
        self._row_tokens = int(self._row_frequencies.sum())
        self._batch_tokens = min(max(dataset.tokens // MINIBATCHES, LEAST_TOKENS), MOST_TOKENS)
        batches = sum(self._minibatches(unit) for unit in range(dataset.block_count))
        times = min(-(-max(FEWEST, FEWEST_TOPICS // topics) // max(batches, 1)), MOST_TIMES)
        if self._row_frequencies.size < dataset.vocabulary_size:
            times = min(times, max(MOST_WORK // topics, 1))
        shares = [min(self._batch_tokens / topic_window(tokens, size), 1.0) for size in self._sizes]
        powers = [0.7 if tokens < FEW_A_TOPIC * size else 0.5 for size in self._sizes]
        self._rates = list(zip(shares, powers, strict=True))
        passes, self._turns = (1, times) if shares[0] == 1.0 else (times, 1)
        names = [f"learning {n + 1}" for n in range(passes)]
        self._depths = dict.fromkeys(names, 0)  # depth of the topics that each phase learns or draws
        self._depths |= {f"splitting {depth}": depth for depth in range(1, len(self._sizes))}
        self._learning = [Phase(name, "block", writes=False, staged=True, alone=True) for name in self._depths]
        self._depths[DRAW.name] = len(self._sizes) - 1
        self.initial = *self._learning, DRAW

    def _topics_by_depth(self) -> tuple[int, list[int]]:
        return topic_tree.topics_by_depth(self.topics)

    def _minibatches(self, unit: int) -> int:
        return max(int(self.dataset.index.cells[unit].sum()) // self._batch_tokens, 1)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        return super().shared_arrays() | (self._start_specs() if self.starts_warm else {})

    def _start_specs(self) -> dict[str, ArraySpec]:
        documents = max((entry["documents"] for entry in self.dataset.manifest["blocks"]), default=0)
        tokens = int(self.dataset.block_tokens().max(initial=1))
        return {
            "expected_rows": ArraySpec((self._arena_size(),), "float32"),
            "expected_totals": ArraySpec((sum(self._sizes),), "float64"),
            "topic_shares": ArraySpec((sum(self._sizes),), "float32"),  # `shares` of an ExpectedTopicCounts
            "topic_alpha": ArraySpec((sum(self._sizes),), "float32"),
            "word_entries": ArraySpec((self._row_frequencies.size + 1,), "int64"),
            "tree_places": ArraySpec((3, len(self._sizes)), "int64"),  # `rows`, `links` and `sizes` of a Tree
            "estimate": ArraySpec((3,), "float64"),  # minibatches done, scale of the rows, tokens of the minibatch
            "position_rows": ArraySpec((tokens,), "uint32"),
            "position_documents": ArraySpec((tokens,), "uint32"),
            "next_positions": ArraySpec((self.dataset.vocabulary_size,), "uint32"),
            "mixture_sizes": ArraySpec((documents,), "uint32"),
            "mixture_topics": ArraySpec((tokens,), topic_type(self.topics)),
            "mixture_counts": ArraySpec((tokens,), "float32"),
        }

    def _arena_size(self) -> int:
        """Return the number of counts, rounded up to even, that holds the dense rows and later the rows of a tree."""
        dense, splits = self._row_frequencies.size * self._sizes[0], len(self._sizes) - 1
        sparse = min(splits * topic_tree.numbers_of_pair(self._fanout) * self._row_tokens, ROWS // 4)
        return -(-max(dense, sparse) // 2) * 2

    def start_arrays(self) -> Collection[str]:
        return self._start_specs().keys() if self.starts_warm else ()

    def filed_arrays(self) -> Collection[str]:
        return ("expected_rows",) if self.starts_warm else ()

    def spread_arrays(self) -> Collection[str]:
        return "expected_rows", "expected_totals", "word_entries", "tree_places", "estimate"

    def later_arrays(self) -> Collection[str]:
        """Return the names of the arrays that only the sampler uses, after the initial phases."""
        return self.shared_arrays().keys() - LdaProgram.shared_arrays(self).keys() - {*self.start_arrays()}

    def large_arrays(self) -> Collection[str]:
        return {*super().large_arrays(), *self.filed_arrays()}

    def own_bytes(self) -> int:
        if not self.starts_warm:
            return super().own_bytes()
        return super().own_bytes() + 2 * (self._row_of.nbytes + self._row_frequencies.nbytes) + 24 * self.topics

    def scratch_bytes(self) -> int:
        if not self.starts_warm:
            return super().scratch_bytes()
        longest = self.dataset.longest_document
        words = min(longest, self._row_frequencies.size)  # maximum number of distinct words with rows in a document
        of_word = 4 * MOST_LIKELY + 8 * LIKELY if len(self._sizes) > 1 else 4 * LIKELY
        return super().scratch_bytes() + 36 * self.topics + 8 * longest + of_word * words

    def start_passes(self) -> list[int]:
        """Return the depth of the topics that are learned or drawn in each pass of the initial phases over a token."""
        if not self.starts_warm:
            return []
        return [d for phase in self.initial for d in [self._depths[phase.name]] * self._turns_of(phase)]

    def start_s(self) -> float:
        """Return the estimated processor time of the initial phases in seconds, based on times measured on arXiv."""
        times = [
            _SPLIT_NS + _DEPTH_NS * d if d else _DENSE_NS + _TOPIC_NS * self._sizes[0] for d in self.start_passes()
        ]
        return 1e-9 * self.dataset.tokens * sum(times)

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
        if phase in self.initial and self.starts_warm:
            if phase in self._learning and (depth := self._depths[phase.name]):
                self._split(depth, shared)
            self._set_alpha(shared)
            self._refresh_shares(shared)

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        if phase in self._learning:
            return [range(parts)] * (1 + 2 * self._turns_of(phase) * self._minibatches(unit))
        return [range(parts)] * 2 if phase is DRAW else super().schedule(phase, unit, parts)

    def _turns_of(self, phase: Phase) -> int:
        """Return how many times a phase repeats a block before it goes on to the next block."""
        return 1 if self._depths[phase.name] or phase is DRAW else self._turns

    def update_documents(self, job: Job, block: TokenBlock, key: np.uint64) -> Any:
        if any(job.phase == phase.name for phase in self._learning):
            return self._learn(job, block, key)
        if job.phase != DRAW.name:
            return super().update_documents(job, block, key)
        if job.stage == 0:
            self._find_rows(job, block)
            return None
        where = job.state, int(job.bases[job.unit]), block.offsets, block.positions, job.shared["position_rows"]
        drawn, prior = job.delta["topic_counts"], self.document_prior(job.shared)
        scvb0.draw_documents(*where, job.first, job.last, self._estimate(job), prior, drawn, key)
        draw_anew(tokens_of_documents(job, block), block, self.own_prior, drawn, key)
        return None

    def _find_rows(self, job: Job, block: TokenBlock) -> None:
        """Set the row of the word at each position, for this job's share of a block's words."""
        span = job.share(block.words.size)
        offsets = block.word_offsets[span.start : span.stop + 1]
        find_words(self._row_of[block.words[span]], offsets, job.shared["position_rows"])

    def _learn(self, job: Job, block: TokenBlock, key: np.uint64) -> Any:
        mixtures = scvb0.DocumentMixtures(
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
            span = job.share(last - first)
            where = block.offsets, block.positions, job.shared["position_rows"]
            estimate = self._estimate(job)
            return scvb0.fold_documents(*where, first + span.start, first + span.stop, estimate, mixtures)
        return self._count_words(job, block, first, last, mixtures)

    def _random_rows(self, job: Job, key: np.uint64) -> tuple[np.ndarray, np.ndarray]:
        """Set this job's share of the rows to random expected counts; returns topics and the sums of their counts."""
        words = min(job.shared["expected_rows"].size // self._sizes[0], self._row_frequencies.size)
        span = job.share(words)
        rows = job.shared["expected_rows"][: words * self._sizes[0]].reshape(words, self._sizes[0])
        rng, random = np.random.default_rng(int(key)), rows[span]
        counts = self._row_frequencies[span].astype(np.float32)
        for first in range(0, len(random), self._rows_at_once):
            some = random[first : first + self._rows_at_once]
            rng.random(out=some, dtype=np.float32)
            some += 0.5
            some *= counts[first : first + self._rows_at_once, None] / self._sizes[0]
            write_back(some)
        return _nonzero(random.sum(axis=0, dtype=np.float64))

    @property
    def _rows_at_once(self) -> int:
        """Return the maximum number of rows that a worker changes before it writes them back."""
        return max(UNWRITTEN // (4 * self._sizes[0]), 1)

    def _count_words(self, job: Job, block: TokenBlock, first: int, last: int, mixtures: scvb0.DocumentMixtures) -> Any:
        """Add the counts of documents to the rows of this job's words; returns topics and the sums of their counts."""
        share = job.share(block.positions.size)
        span = slice(*np.searchsorted(block.word_offsets[:-1], [share.start, share.stop]))
        rows, starts = self._row_of[block.words[span]], block.word_offsets[span.start : span.stop + 1]
        nexts = job.shared["next_positions"][span]
        if first == 0:
            nexts[:] = starts[:-1]
        estimate, depth = self._estimate(job), self._depths[job.phase]
        rate = self._rate(job.shared, depth)
        tokens = max(int(job.shared["estimate"][2]), 1)
        added = rate * self._row_tokens / tokens / ((1.0 - rate) * estimate.scale)
        totals, scratch = np.zeros(self._sizes[depth]), scvb0.new_scratch(self._sizes[depth], self._sizes[0])
        for first_word, last_word in pairwise(self._marks(rows, estimate.tree)):
            some = slice(first_word, last_word)
            words = rows[some], starts[1:][some], nexts[some], last
            changed = scvb0.count_words(*words, block.offsets, estimate, mixtures, added, scratch, totals)
            write_back(estimate.rows[changed[0] : changed[1] + 1])
        return _nonzero(totals)

    def _marks(self, rows: np.ndarray, tree: topic_tree.TopicTree) -> list[int]:
        """Return bounds that divide words into parts whose counts take about UNWRITTEN bytes, or of a single word.

        rows: uint32 (n,), rows of the words, or NO_ROW.
        """
        sizes = np.full(rows.size, 4 * self._sizes[0])
        if tree.depth:
            known = np.flatnonzero(rows != NO_ROW)
            entries, begin = np.diff(tree.entries), int(tree.rows[tree.depth])
            of_entry = (topic_tree.filled(tree, tree.depth) - begin) / max(int(tree.entries[-1]), 1)
            sizes = np.zeros(rows.size)
            sizes[known] = 4 * of_entry * entries[rows[known]]
        parts = np.cumsum(sizes) // UNWRITTEN
        return [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), rows.size]

    def _rate(self, shared: Arrays, depth: int) -> float:
        """Return rho_t, the fraction of the expected counts that the next minibatch replaces."""
        share, power = self._rates[depth]
        return float(share * (1.0 + share * (shared["estimate"][0] + 1.0)) ** -power)

    def _tree(self, shared: Arrays, depth: int) -> topic_tree.TopicTree:
        arena, entries = shared["expected_rows"].view(np.uint32), shared["word_entries"]
        rows, links, sizes = shared["tree_places"]
        topics, descendants = np.cumsum([0, *self._sizes]), self._fanout**depth
        return topic_tree.TopicTree(arena, entries, rows, links, sizes, topics, self._fanout, depth, descendants)

    def _estimate(self, job: Job) -> ExpectedTopicCounts:
        shared, tree = job.shared, self._tree(job.shared, self._depths[job.phase])
        kinds = shared["topic_shares"], shared["topic_alpha"]
        scale, beta = float(shared["estimate"][1]), float(shared["beta"][0])
        return ExpectedTopicCounts(shared["expected_rows"], scale, *kinds, beta, self._sizes[0], tree)

    def _set_alpha(self, shared: Arrays) -> None:
        """Set the prior of the topics at all depths; the prior of a topic is the sum over its children."""
        alpha, places = self.priors(shared)[0], shared["topic_alpha"]
        for size, end in zip(self._sizes[::-1], np.cumsum(self._sizes)[::-1], strict=True):
            if alpha.size != size:
                alpha = np.add.reduceat(alpha, np.arange(0, alpha.size, self._fanout))
            places[end - size : end] = alpha

    def _refresh_shares(self, shared: Arrays) -> None:
        mass = self.dataset.vocabulary_size * float(shared["beta"][0])  # `expected_totals` include a word prior
        np.divide(1.0, shared["expected_totals"] + mass, out=shared["topic_shares"], casting="same_kind")

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        if phase in self._learning and answers[0] is not None:
            if isinstance(answers[0], tuple):
                found = np.zeros(self._sizes[self._depths[phase.name]])
                for topics, sums in answers:
                    found[topics] += sums
                self._take_in(shared, found, self._depths[phase.name])
            else:
                shared["estimate"][2] = sum(answers)
        return super().aggregate(phase, shared, deltas, answers)

    def _take_in(self, shared: Arrays, found: np.ndarray, depth: int) -> None:
        """Update the topics' expected counts with sums over words, first of the random rows, then of each minibatch."""
        totals = self._totals_at(shared, depth)
        if not totals.any():
            totals[:] = found
            if self._prior:
                self._prior.add(shared, 1.0)
        elif found.any():  # a minibatch may be empty (beside a longer document) or have no words with rows
            rate = self._rate(shared, depth)
            totals *= 1.0 - rate
            totals += rate * self._row_tokens / found.sum() * found
            shared["estimate"][:2] += 1.0, -rate * shared["estimate"][1]
            if self._prior:
                self._prior.add(shared, rate)
            if shared["estimate"][1] < LEAST_SCALE:
                self._scale_anew(shared, depth)
        self._refresh_shares(shared)

    def _split(self, depth: int, shared: Arrays) -> None:
        """Begin to learn the topics at a depth by splitting the topics at the previous depth."""
        if depth > 1:
            self._scale_anew(shared, depth - 1)
        scale, tree = float(shared["estimate"][1]), self._tree(shared, depth - 1)
        key = stream_key(self.seed, _SPLITS, depth)
        totals = self._totals_at(shared, depth)
        topic_tree.split_topics(shared["expected_rows"], tree, scale, self._sizes[0], totals, key)
        shared["estimate"][:] = 0.0, 1.0, 0.0

    def _totals_at(self, shared: Arrays, depth: int) -> np.ndarray:
        """Return the expected counts of the topics at a depth."""
        first = sum(self._sizes[:depth])
        return shared["expected_totals"][first : first + self._sizes[depth]]

    def _scale_anew(self, shared: Arrays, depth: int) -> None:
        """Multiply the rows at a depth by their scale, and set the scale to 1."""
        rows, tree = shared["expected_rows"], self._tree(shared, depth)
        if depth:
            rows = rows[tree.rows[depth] : topic_tree.filled(tree, depth)]
        for first in range(0, rows.size, UNWRITTEN // 4):
            rows[first : first + UNWRITTEN // 4] *= np.float32(shared["estimate"][1])
            write_back(rows[first : first + UNWRITTEN // 4])
        shared["estimate"][1] = 1.0


def _nonzero(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices and values of the nonzero sums; few topics occur in a part of the words."""
    return (found := np.flatnonzero(sums)), sums[found]


def rows_of_words(frequencies: np.ndarray, most: int) -> np.ndarray:
    """Return the row of each word, uint32 (V,), or NO_ROW.

    frequencies: int64 (V,). The `most` most frequent words have rows, numbered in the order of the words.
    """
    chosen = np.sort(np.argsort(-frequencies, kind="stable")[:most])
    rows = np.full(frequencies.size, NO_ROW, np.uint32)
    rows[chosen] = np.arange(chosen.size, dtype=np.uint32)
    return rows


def topic_window(tokens: int, topics: int) -> float:
    """Return the initial window of the expected counts in tokens (measured in docs/notes/sampling.md)."""
    return max(topics * min(WINDOW, (tokens / topics) ** 2 / FEW_TOKENS), 1.0)
