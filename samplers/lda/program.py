"""Latent Dirichlet allocation as a program: the parts shared by all samplers.

Joint log-likelihood of words and topics, split into the parts that the LightLDA paper reports (section 7):

    document part   sum_d [lgamma(abar) - lgamma(abar + N_d) + sum_k (lgamma(n_kd + alpha_k) - lgamma(alpha_k))]
    word part       sum_k [lgamma(V*beta) - lgamma(V*beta + n_k) + sum_w (lgamma(n_kw + beta) - lgamma(beta))]

With a word prior (`samplers.lda.word_prior`), beta_kw replaces beta, and its sum over words replaces V*beta.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks.alias_table import alias_table
from blocks.corpus.dataset import Dataset, TokenBlock, WordSlice
from blocks.errors import RequestError
from ooc.program import Arrays, Job, LocalState, Phase, StaticProgram, Sweep
from ooc.ring.packet_slots import PartInTransit
from ooc.rng import stream_key
from ooc.workers.shared_arrays import ArraySpec
from samplers.lda import hyperparameters, token_kernels
from samplers.lda import word_prior as word_priors
from samplers.topics.model import live_topics, write_model

MOST_TOPICS = 1_000_000
LEAST_PRIOR, MOST_PRIOR = 1e-9, 1e9  # a much larger sum would lose token counts to rounding


def topic_type(topics: int) -> str:
    """Return the smallest dtype that can hold every topic."""
    return "uint8" if topics <= 1 << 8 else "uint16" if topics <= 1 << 16 else "uint32"


class LdaProgram(StaticProgram):
    """Base class of LDA programs; subclasses add `phases` and their updates.

    topics: K. alpha: one value for all topics, or one per topic. beta: prior of words. seed: seed of all random
    streams. optimize_every: number of iterations between estimates of alpha and beta
    (`samplers.lda.hyperparameters`), 0 to keep them fixed; the first estimate is made after `burn_in` iterations.
    word_prior: priors of single words in topics (`samplers.lda.word_prior.pack_pairs`); beta is then not estimated.
    """

    initial: Sequence[Phase] = (Phase("initial topics", "block"),)
    phases: Sequence[Phase] = ()
    word_likelihood = Phase("word likelihood", "slice", writes=False)
    document_likelihood = Phase("document likelihood", "block", writes=False)
    word_rows = Phase("topics of words", "slice", writes=False)
    document_rows = Phase("topics of documents", "block", writes=False)
    document_histograms = Phase("histograms of documents", "block", writes=False)
    word_histograms = Phase("histograms of words", "slice", writes=False)
    reading_phases: Sequence[Phase] = (
        word_likelihood,
        document_likelihood,
        word_rows,
        document_rows,
        document_histograms,
        word_histograms,
    )
    exported: Sequence[Phase] = (word_rows, document_rows)
    state_name = "topics of the tokens"
    columns = 1  # columns of the local state: the topic, and data that a sampler stores with it

    def __init__(
        self,
        dataset: Dataset,
        *,
        topics: int,
        alpha: float | Sequence[float],
        beta: float,
        seed: int,
        optimize_every: int = 0,
        burn_in: int = 0,
        word_prior: str | None = None,
    ) -> None:
        check_options(topics, alpha, beta, optimize_every, burn_in)
        self.dataset = dataset
        self.topics, self.seed = topics, seed
        self.first_alpha, self.first_beta = np.atleast_1d(np.asarray(alpha, np.float64)), float(beta)
        self.optimize_every, self.burn_in = optimize_every, burn_in
        self.alpha_bounds = hyperparameters.alpha_bounds(topics).including(self.first_alpha)
        self.beta_bounds = hyperparameters.BETA_BOUNDS.including(np.array([beta]))
        self.first_alpha = np.broadcast_to(self.first_alpha, topics) if optimize_every else self.first_alpha
        self.own_prior, self.prior_masses = None, np.full(1, dataset.vocabulary_size * beta)
        if word_prior is not None:
            self.own_prior = word_priors.word_prior(word_prior, dataset.index.word_ids, topics, beta)
            self.prior_masses = self.prior_masses + word_priors.added_by_topic(self.own_prior)
        self._scratch: token_kernels.GroupScratch | None = None

    def local_state(self) -> LocalState:
        return LocalState(topic_type(self.topics), self.columns, self.topics)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        size = self.first_alpha.size
        return {
            "topic_counts": ArraySpec((self.topics,), "int64"),
            "summary": ArraySpec((self.topics,), "float64"),
            "alpha": ArraySpec((size,), "float64"),
            "alpha_cut": ArraySpec((size,), "float64"),
            "alpha_alias": ArraySpec((size,), "uint32"),
            "beta": ArraySpec((1,), "float64"),
        }

    def primary_arrays(self) -> Sequence[str]:
        return ("topic_counts", "alpha", "beta")

    def summed_arrays(self) -> Sequence[str]:
        return ("topic_counts",)

    def large_arrays(self) -> Collection[str]:
        """Return the names of the shared arrays that are as large as the model."""
        return self.sliced_arrays()

    def document_prior(self, shared: Arrays) -> token_kernels.GroupPrior:
        """Return alpha, the prior of the topics in a document."""
        alpha = shared["alpha"]
        if alpha.size == 1:
            return token_kernels.symmetric_prior(self.topics, float(alpha[0]))
        return token_kernels.weighted_prior(alpha, shared["alpha_cut"], shared["alpha_alias"])

    def word_prior(self, shared: Arrays) -> token_kernels.GroupPrior:
        """Return beta, the prior of the topics of words without a prior of their own, the same for all topics."""
        return token_kernels.symmetric_prior(self.topics, float(shared["beta"][0]))

    def delta_arrays(self) -> dict[str, ArraySpec]:
        return {"topic_counts": ArraySpec((self.topics,), "int64")}

    def largest_group(self) -> int:
        """Return the most tokens that are sampled together: those of a document, or of a word in a part."""
        most_frequent = int(self.dataset.index.frequencies.max(initial=0))
        return max(min(most_frequent, self.dataset.part_size), self.dataset.longest_document, 1)

    def own_bytes(self) -> int:
        return self.export_bytes() + (sum(array.nbytes for array in self.own_prior) if self.own_prior else 0)

    def export_bytes(self) -> int:
        """Return the memory in bytes that `write_model` needs to order the rows."""
        return 36 * max(self.dataset.vocabulary_size, self.dataset.documents)

    def sent_bytes(self, machines: int, iteration: int = 1) -> int:
        """Return 0, as a single machine sends nothing."""
        return 0

    def scratch_bytes(self) -> int:
        of_prior = sum(array.nbytes for array in self.own_prior) + 48 * self.topics if self.own_prior else 0
        return sum(spec.bytes for spec in self._scratch_specs(self.largest_group()).values()) + of_prior

    def _scratch_specs(self, tokens: int) -> dict[str, ArraySpec]:
        return {
            "where": ArraySpec((tokens,), "int64"),
            "topics": ArraySpec((tokens,), topic_type(self.topics)),
            "counts": ArraySpec((self.topics,), "int32"),
        }

    def make_scratch(self, tokens: int) -> token_kernels.GroupScratch:
        return token_kernels.GroupScratch(**{name: spec.zeros() for name, spec in self._scratch_specs(tokens).items()})

    @property
    def scratch(self) -> token_kernels.GroupScratch:
        """Return the working memory of this worker."""
        if self._scratch is None:
            self._scratch = self.make_scratch(self.largest_group())
        return self._scratch

    def warm_up(self) -> None:
        """Compile every phase by running it once on a corpus of one token, with arrays of the actual types."""
        block, slice_ = tiny_data()
        state = np.zeros((1, self.columns), topic_type(self.topics))
        large = self.large_arrays()  # in this corpus: K elements for its word, and K elements common to all words
        shared = {
            name: np.zeros(2 * self.topics if name in large else spec.shape, spec.dtype)
            for name, spec in self.shared_arrays().items()
        }
        delta = {name: spec.zeros() for name, spec in self.delta_arrays().items()}
        self._scratch = self.make_scratch(2)
        for phase in (*self.initial, *self.reading_phases, *self.phases):
            data = block if phase.order == "block" else slice_
            self.begin(phase, shared)
            for stage, parts in enumerate(self.schedule(phase, 0, 1)):
                for part in parts[:1]:
                    stream = (0, 0, 0, stage, part)
                    where = np.array([0, 1]), data, state, np.zeros(1, np.int64)
                    passage = self.tiny_passage(phase, state)
                    self.update(Job(phase.name, 0, stage, part, *where, shared, delta, stream, passage))
        self._scratch = None
        observed = hyperparameters.observed_words(hyperparameters.histogram(np.ones(1, np.uint64)), np.ones(1))
        hyperparameters.fit_prior(np.ones(1), 2, observed, self.beta_bounds)

    def tiny_passage(self, phase: Phase, state: np.ndarray) -> PartInTransit | None:
        """Return the slice in transit for the corpus of `warm_up`, in phases with rotating slices."""
        return None

    def restore(self, sweep: Sweep, shared: Arrays) -> None:
        self._refresh_priors(shared)

    def begin(self, phase: Phase, shared: Arrays) -> None:
        if phase is self.initial[0]:
            shared["alpha"][:], shared["beta"][:] = self.first_alpha, self.first_beta
            self._refresh_priors(shared)
        self._refresh_summary(shared)

    def census(self, iteration: int, sweep: Sweep, shared: Arrays) -> Sequence[np.ndarray]:
        """Return the histograms of topics in documents, of document lengths, and of topics of words."""
        since = iteration - max(self.burn_in, 1)
        if not self.optimize_every or since < 0 or since % self.optimize_every:
            return ()
        rows, lengths = zip(*sweep(self.document_histograms), strict=True)
        merge = hyperparameters.merge_histograms
        return [*merge(rows), *merge(lengths), *merge(sweep(self.word_histograms))]

    def adapt(self, censuses: Sequence[Sequence[np.ndarray]], shared: Arrays) -> None:
        rows, lengths, counts = (
            hyperparameters.merge_histograms(hyperparameters.ValueHistogram(*each[at : at + 2]) for each in censuses)
            for at in (0, 2, 4)
        )
        documents = hyperparameters.observed_documents(rows, lengths, self.topics)
        words = hyperparameters.observed_words(counts, shared["topic_counts"])
        vocabulary = self.dataset.vocabulary_size
        shared["alpha"][:] = hyperparameters.fit_prior(shared["alpha"], self.topics, documents, self.alpha_bounds)
        if self.own_prior is None:
            shared["beta"][:] = hyperparameters.fit_prior(shared["beta"], vocabulary, words, self.beta_bounds)
        self._refresh_priors(shared)

    def bounds_met(self, iteration: int, shared: Arrays) -> dict[str, str]:
        """Return a message, keyed by bound, for each estimated prior that has reached a bound after an iteration."""
        if not self.optimize_every or iteration <= max(self.burn_in, 1):
            return {}
        met = hyperparameters.bounds_met
        found = met("alpha", shared["alpha"], self.alpha_bounds)
        return found if self.own_prior else found | met("beta", shared["beta"], self.beta_bounds)

    def _refresh_priors(self, shared: Arrays) -> None:
        shared["alpha_cut"][:], shared["alpha_alias"][:] = alias_table(shared["alpha"])

    def _refresh_summary(self, shared: Arrays) -> None:
        np.add(shared["topic_counts"], self.masses(shared), out=shared["summary"])

    def masses(self, shared: Arrays) -> np.ndarray:
        """Return the prior of all words in each topic, float64 (K,) or, if the same for all topics, (1,)."""
        return self.prior_masses if self.own_prior else self.dataset.vocabulary_size * shared["beta"]

    def key(self, job: Job) -> np.uint64:
        """Return the key of a job's random stream."""
        return stream_key(self.seed, *job.stream)

    def update(self, job: Job) -> Any:
        key = self.key(job)
        if isinstance(job.data, TokenBlock):
            return self.update_documents(job, job.data, key)
        return self.update_words(job, job.data, key)

    def update_documents(self, job: Job, block: TokenBlock, key: np.uint64) -> Any:
        """Run one part of a block-outer phase on its documents: initialize, sample, evaluate or export their topics."""
        where = tokens_of_documents(job, block)
        if job.phase == LdaProgram.initial[0].name:
            tokens = token_kernels.initial_topics(*where, self.topics, job.delta["topic_counts"], key)
            word_priors.draw_anew(where, block, self.own_prior, job.delta["topic_counts"], key)
            return tokens
        if job.phase == self.document_likelihood.name:
            return token_kernels.document_likelihood(*where, self.scratch, self.document_prior(job.shared))
        if job.phase == self.document_rows.name:
            return token_kernels.document_rows(*where, self.scratch, self.topics)
        if job.phase == self.document_histograms.name:
            rows = token_kernels.document_rows(*where, self.scratch, self.topics)[1]
            lengths = np.diff(block.offsets[job.first : job.last + 1])
            return hyperparameters.histogram(rows), hyperparameters.histogram(lengths.astype(np.uint64))
        return self.sample_documents(job, block, key)

    def update_words(self, job: Job, slice_: WordSlice, key: np.uint64) -> Any:
        """Run one part of a slice-outer phase on its words: sample, evaluate or export their topics."""
        where, own_prior = tokens_of_words(job, slice_), self.own_prior_of(job)
        if job.phase == self.word_likelihood.name:
            return word_priors.word_likelihood(*where, self.scratch, self.word_prior(job.shared), own_prior)
        if job.phase == self.word_rows.name:
            return word_priors.rows_of_model(token_kernels.word_rows(*where, self.scratch, self.topics), own_prior)
        if job.phase == self.word_histograms.name:
            rows = token_kernels.word_rows(*where, self.scratch, self.topics)[1]
            return hyperparameters.histogram(rows & hyperparameters.COUNT)
        return self.sample_words(job, slice_, key)

    def first_word(self, job: Job) -> int:
        """Return the rank of the first word of a job's part of a slice."""
        return int(self.dataset.index.slice_bounds[job.unit]) + job.first

    def own_prior_of(self, job: Job) -> word_priors.WordPrior | None:
        """Return the word prior of the words of a job's part of a slice, and of those after them."""
        return self.own_prior.from_word(self.first_word(job)) if self.own_prior else None

    def sample_documents(self, job: Job, block: TokenBlock, key: np.uint64) -> int:
        """Run one part of the sampler's block-outer phase and return how many tokens changed topic."""
        raise NotImplementedError

    def sample_words(self, job: Job, slice_: WordSlice, key: np.uint64) -> int:
        """Run one part of the sampler's slice-outer phase and return how many tokens changed topic."""
        raise NotImplementedError

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        for delta in deltas:
            shared["topic_counts"][:] += delta["topic_counts"]
        self._refresh_summary(shared)
        return {} if phase in self.initial else {"changed_fraction": sum(answers)}

    def measure(self, sweep: Sweep, shared: Arrays) -> dict[str, float]:
        documents, words = math.fsum(sweep(self.document_likelihood)), [*sweep(self.word_likelihood)]
        likelihood, nonzeros = math.fsum(each for each, _ in words), sum(each for _, each in words)
        return {"documents": documents, "words": likelihood, "nonzeros": nonzeros}

    def objective(self, sums: dict[str, float], shared: Arrays) -> dict[str, float]:
        tokens, counts = int(shared["topic_counts"].sum()), shared["topic_counts"].tolist()
        masses = np.broadcast_to(self.masses(shared), self.topics).tolist()
        pairs = zip(masses, counts, strict=True)
        topics = math.fsum(math.lgamma(mass) - math.lgamma(mass + count) for mass, count in pairs)
        word_part = sums["words"] + topics
        priors = {"alpha_sum": self.document_prior(shared).total, "beta": float(shared["beta"][0])}
        return {
            "log_likelihood_per_token": (sums["documents"] + word_part) / tokens,
            "doc_log_likelihood_per_token": sums["documents"] / tokens,
            "word_log_likelihood_per_token": word_part / tokens,
            "nonzeros": int(sums["nonzeros"]),
            "live_topics": int(live_topics(shared["topic_counts"]).sum()),
            **(priors if self.optimize_every else {}),
        }

    def export(self, sweep: Sweep, shared: Arrays, directory: Path) -> None:
        self.write(sweep, shared, directory, shared["topic_counts"], sweep(self.word_rows))

    def of_whole(self, sweep: Sweep, directory: Path) -> dict[str, Any]:
        """Return no further arguments of `write_model`: this machine has all documents."""
        return {}

    def write(
        self, sweep: Sweep, shared: Arrays, directory: Path, topic_counts: np.ndarray, word_rows: Iterator[Any]
    ) -> None:
        """Write the rows of words and documents as a model.

        topic_counts: (K,), sums over words, in the dtype of the rows. word_rows: see `write_model`.
        """
        of_whole = self.of_whole(sweep, directory)
        beta, ids = float(shared["beta"][0]), self.dataset.index.word_ids
        write_model(
            directory,
            self.dataset,
            alpha=np.broadcast_to(shared["alpha"], self.topics),
            **word_priors.totals_of_model(beta, topic_counts, self.own_prior, ids),
            topic_type=topic_type(self.topics),
            word_rows=word_rows,
            document_rows=sweep(self.document_rows),
            **of_whole,
        )


def tiny_data() -> tuple[TokenBlock, WordSlice]:
    """Return a corpus of one token."""
    zero, ends = np.zeros(1, np.uint32), np.array([0, 1])
    block = TokenBlock(np.zeros(1, np.uint64), ends, zero, zero, ends)
    slice_ = WordSlice(ends, zero, zero, np.ones(1, np.uint32), ends)
    for array in (*block, *slice_):
        array.setflags(write=False)  # mapped files are read-only, which is a different type to numba
    return block, slice_


def tokens_of_documents(job: Job, block: TokenBlock) -> tuple[Any, ...]:
    """Return the arrays that locate the tokens of a part's documents: state, base, offsets and positions (see
    `samplers.lda.token_kernels`).
    """
    return job.state, job.bases[job.unit], block.offsets[job.first : job.last + 1], block.positions


def tokens_of_words(job: Job, slice_: WordSlice) -> tuple[Any, ...]:
    """Return arrays that locate the tokens of a part's words: state, bases, runs; see `samplers.lda.token_kernels`."""
    run_offsets = slice_.run_offsets[job.first : job.last + 1]
    return job.state, job.bases, run_offsets, slice_.blocks, slice_.starts, slice_.lengths


def check_options(
    topics: int, alpha: float | Sequence[float], beta: float, optimize_every: int = 0, burn_in: int = 0
) -> None:
    """Raise RequestError if no LDA model can have these parameters."""
    if not 1 <= topics <= MOST_TOPICS:
        raise RequestError(f"--topics must be from 1 to {MOST_TOPICS:,}, got {topics}")
    weights = np.atleast_1d(np.asarray(alpha, np.float64))
    if weights.size not in (1, topics):
        raise RequestError(
            f"--alpha must have 1 or {topics} values, got {weights.size}", "Use one number, or one number per topic."
        )
    for option, value in (("--alpha", weights), ("--beta", np.array([beta]))):
        wrong = value[~((value >= LEAST_PRIOR) & (value <= MOST_PRIOR))]
        if wrong.size:
            raise RequestError(f"{option} must be from {LEAST_PRIOR:g} to {MOST_PRIOR:g}, got {wrong[0]:g}")
    for option, number in (("--optimize-every", optimize_every), ("--burn-in", burn_in)):
        if number < 0:
            raise RequestError(f"{option} must be at least 0, got {number}")
