"""LDA by collapsed Gibbs sampling of weighted documents, as a stochastic program (Splash, sections 4.3 and 6.3).

Each token has ten topics, drawn independently, and each of them counts as a tenth of a token (over-sampling). Counts
are in tenths. They stay integers, exactly, because a worker's tenths of weight m are divided by m when workers are
combined. A token that is sampled is first taken out of the counts with all ten topics, including additions delayed
since they were drawn (equations 12 and 13). The counts of a document are not weighted: a document of weight m stands
for m such documents, each with its own mixture, not for one document that is m times as long.

With one worker and one topic per token this is the sampler of `samplers.lda.gibbs`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks.compiled import inlined_kernel, kernel
from blocks.corpus.dataset import Dataset
from blocks.errors import RequestError
from ooc.program import Arrays, Job, Phase, Sweep
from ooc.stochastic.elements import uniform
from ooc.stochastic.program import Local, StochasticProgram
from ooc.stochastic.variable_arrays import Shared
from samplers.lda.gathered_documents import GatheredDocuments
from samplers.lda.program import check_options, topic_type
from samplers.topics.model import live_topics, write_model

SHARES = 10  # number of topics per token
_WORDS = 1 << 12  # number of words whose rows are written at a time


class SplashLda(StochasticProgram):
    """Program of the stochastic engine for LDA.

    topics: K.
    alpha: one value for all topics, or one per topic.
    beta: prior of words. For the other parameters see `StochasticProgram`.
    """

    maps: Sequence[str] = ("document_likelihood",)
    document_rows = Phase("topics of documents", "block", writes=False)
    exported: Sequence[Phase] = (document_rows,)

    def __init__(
        self,
        dataset: Dataset,
        *,
        topics: int,
        alpha: float | Sequence[float],
        beta: float,
        parallelism: int = 1,
        **options: Any,
    ) -> None:
        check_options(topics, alpha, beta)
        self.topics, self.beta = topics, beta
        self.alpha = np.broadcast_to(np.asarray(alpha, np.float64), topics).copy()
        if parallelism == "auto":
            raise RequestError("--parallelism auto cannot be used with --sampler splash", "Set a number.")
        super().__init__(dataset, parallelism=parallelism, **options)
        self.reading_phases = (*self.reading_phases, *self.exported)

    def own_bytes(self) -> int:
        return self.export_bytes()

    def export_bytes(self) -> int:
        """Return the memory in bytes that `write_model` needs to order the rows."""
        return 36 * max(self.dataset.vocabulary_size, self.dataset.documents)

    def shared_variables(self) -> dict[str, Shared]:
        words = self.dataset.vocabulary_size, self.topics
        return {"word_topics": Shared(words, delayed=True), "topics": Shared((1, self.topics), delayed=True)}

    def local_variables(self) -> dict[str, Local]:
        work = Local((self.topics,), per="work")
        return {
            "z": Local((SHARES,), topic_type(self.topics), per="entry"),
            "counts": work,
            "row": work,
            "totals": work,
        }

    def constants(self) -> dict[str, Any]:
        return {"alpha": SHARES * self.alpha, "beta": SHARES * self.beta, "vocabulary": self.dataset.vocabulary_size}

    @staticmethod
    def process(element, weight, shared, local):
        counts, row, totals = local.counts, local.row, local.totals
        counts[:] = 0.0
        if element.visit:
            for token in range(element.words.size):
                for share in range(local.z.shape[1]):
                    counts[local.z[token, share]] += 1.0
        for token in range(element.words.size):
            word = element.words[token]
            for share in range(local.z.shape[1] if element.visit else 0):
                topic = local.z[token, share]
                counts[topic] -= 1.0
                shared.word_topics.late_add(word, topic, -1.0)
                shared.topics.late_add(0, topic, -1.0)
            shared.word_topics.get_row(word, row)
            shared.topics.get_row(0, totals)
            total = 0.0
            for topic in range(row.size):
                mass = shared.vocabulary * shared.beta + totals[topic]
                total += (counts[topic] + shared.alpha[topic]) * (row[topic] + shared.beta) / mass
                row[topic] = total
            for share in range(local.z.shape[1]):
                drawn = uniform(element.key, token * local.z.shape[1] + share) * total
                topic = place_of(drawn, row)
                local.z[token, share] = topic
                counts[topic] += 1.0
                shared.word_topics.add(word, topic, weight)
                shared.topics.add(0, topic, weight)

    @staticmethod
    def document_likelihood(element, shared, local):
        counts, tenth = local.counts, 1.0 / local.z.shape[1]
        counts[:] = 0.0
        for token in range(element.words.size):
            for share in range(local.z.shape[1]):
                counts[local.z[token, share]] += tenth
        likelihood, prior = 0.0, 0.0
        for topic in range(counts.size):
            alpha = shared.alpha[topic] * tenth
            prior += alpha
            if counts[topic] > 0.0:
                likelihood += math.lgamma(counts[topic] + alpha) - math.lgamma(alpha)
        return likelihood + math.lgamma(prior) - math.lgamma(prior + element.words.size)

    def update(self, job: Job) -> Any:
        if job.phase != self.document_rows.name:
            return super().update(job)
        first, offsets = int(self.first_entries[job.unit]), job.data.offsets[job.first : job.last + 1]
        return topics_of_documents(offsets, job.shared["local.z"][first : first + job.data.offsets[-1], 0], self.topics)

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        documents = math.fsum(math.fsum(some) for some in self.values("document_likelihood", sweep))
        return {"documents": documents}

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        tokens = self.dataset.whole.tokens
        totals = shared["topics"][0] / SHARES
        words, nonzeros = word_likelihood(shared["word_topics"], self.beta, SHARES)
        mass = self.dataset.vocabulary_size * self.beta
        words += math.fsum(math.lgamma(mass) - math.lgamma(mass + count) for count in totals.tolist())
        return {
            "log_likelihood_per_token": (sums["documents"] + words) / tokens,
            "doc_log_likelihood_per_token": sums["documents"] / tokens,
            "word_log_likelihood_per_token": words / tokens,
            "nonzeros": int(nonzeros),
            "live_topics": int(live_topics(totals).sum()),
            **super().objective({}, shared),
        }

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        self.write(sweep, shared, directory)

    def write(self, sweep: Sweep, shared: Arrays, directory: Path, **more: Any) -> None:
        """Write a model; see `write_model`."""
        write_model(
            directory,
            self.dataset,
            alpha=self.alpha,
            beta=self.beta,
            topic_counts=shared["topics"][0] / SHARES,
            topic_type=topic_type(self.topics),
            word_rows=self._word_rows(shared["word_topics"]),
            document_rows=sweep(self.document_rows),
            **more,
        )

    def _word_rows(self, counts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the topics of words, with float32 counts, in the form that `write_model` takes."""
        for first in range(0, len(counts), _WORDS):
            some = counts[first : first + _WORDS]
            words, topics = np.nonzero(some)
            exact = (some[words, topics] / SHARES).astype(np.float32)
            yield sizes_of(words, len(some)), topics.astype(np.uint64) << np.uint64(32) | exact.view(np.uint32)


class RingSplashLda(GatheredDocuments, SplashLda):
    """Splash on a ring of machines, each with some of the documents and with the counts of all words.

    parallelism: one worker per machine by default.
    """

    exported: Sequence[Phase] = (
        GatheredDocuments.document_names,
        SplashLda.document_rows,
        GatheredDocuments.document_numbers,
    )

    def __init__(self, dataset: Dataset, *, parallelism: int | None = None, **options: Any) -> None:
        workers = dataset.shards if parallelism is None else parallelism
        super().__init__(dataset, parallelism=workers, on_ring=True, **options)

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        self.write(sweep, shared, directory, **self.of_whole(sweep, directory))


@inlined_kernel
def place_of(drawn, sums):
    """Return the first index at which the ascending sums, float64 (K,), exceed a number, or the last index."""
    first, last = 0, sums.size - 1
    while first < last:
        middle = (first + last) // 2
        if sums[middle] > drawn:
            last = middle
        else:
            first = middle + 1
    return first


def topics_of_documents(offsets: np.ndarray, topics: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the topics of documents in the form that `write_model` takes.

    Only the first of each token's ten topics is used, so that the counts of a document add up to its tokens.

    offsets: int64 (D+1,).
    topics: topics of all tokens of a block, integers below `count`.
    """
    mine = topics[offsets[0] : offsets[-1]].astype(np.int64)
    pairs = np.repeat(np.arange(offsets.size - 1), np.diff(offsets)) * count + mine
    found, counts = np.unique(pairs, return_counts=True)
    packed = (found % count).astype(np.uint64) << np.uint64(32) | counts.astype(np.uint64)
    return sizes_of(found // count, offsets.size - 1), packed


def sizes_of(rows: np.ndarray, count: int) -> np.ndarray:
    """Return the number of occurrences of each of `count` rows, uint32 (count,)."""
    return np.bincount(rows, minlength=count).astype(np.uint32)


@kernel
def word_likelihood(counts, beta, shares):
    """Return the word part of the joint log-likelihood without its topic terms, and the number of nonzero counts.

    counts: float64 (V, K), in units of 1 / `shares` token.
    """
    likelihood, nonzeros = 0.0, 0
    for word in range(counts.shape[0]):
        for topic in range(counts.shape[1]):
            if counts[word, topic] > 0.0:
                likelihood += math.lgamma(counts[word, topic] / shares + beta) - math.lgamma(beta)
                nonzeros += 1
    return likelihood, nonzeros
