"""The LDA samplers by name. To add one, write its kernels, a class here, and an entry in `samplers.programs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blocks.corpus.dataset import Dataset, TokenBlock, WordSlice
from blocks.errors import RequestError
from ooc.program import Arrays, Job, Phase
from ooc.workers.shared_arrays import ArraySpec
from ooc.workers.worker import ProgramSpec
from samplers.lda import aliaslda, gibbs, lightlda, sparse_gibbs, sparselda, two_phase
from samplers.lda.doc_major import DocumentMajorLda, is_small
from samplers.lda.document_kernels import DocumentCell
from samplers.lda.options import LdaOptions
from samplers.lda.program import tokens_of_documents, tokens_of_words
from samplers.lda.running_mean import RunningMeanLda
from samplers.lda.start_from_model import ModelInitializedSampler
from samplers.lda.table_major import AliasTableLda
from samplers.lda.topic_tree import AT_ONCE
from samplers.options import described, takers
from samplers.programs import target


class TwoPhase(ModelInitializedSampler):
    """Two-phase sampler, which stores no model. See `samplers.lda.two_phase`.

    The word phase iterates over slices, the document phase over blocks.

    mh_steps: number of proposals that each phase draws per token, for the other phase to accept or reject. 2 reaches a
        held-out likelihood sooner than 1, and at K = 1,000 sooner than 4 (docs/benchmarks.md).
    """

    phases = (Phase("word", "slice"), Phase("document", "block"))

    def __init__(self, *args: Any, mh_steps: int = 2, **options: Any) -> None:
        super().__init__(*args, **options)
        self.columns = 1 + check_steps(mh_steps)
        self.state_name = "topics and proposals of the tokens"
        self._large: np.ndarray | None = None

    def delta_arrays(self) -> dict[str, ArraySpec]:
        return super().delta_arrays() | {"totals": ArraySpec((self.topics,), two_phase.TOTAL)}

    def scratch_bytes(self) -> int:
        most_frequent = int(self.dataset.index.frequencies.max(initial=0))
        table = 48 * min(self.topics, most_frequent) if most_frequent > self.largest_group() else 0  # alias table
        return super().scratch_bytes() + table + self._large_topics() * two_phase.COUNT.itemsize

    def _large_topics(self) -> int:
        """Return the number of topics for which counts of large groups are kept: K if there are such groups, else 1."""
        most_frequent = int(self.dataset.index.frequencies.max(initial=0))
        largest = self.largest_group()
        return self.topics if max(most_frequent, largest) > min(largest, two_phase.MOST_COUNTED) else 1

    def sample_documents(self, job: Job, block: TokenBlock, key: np.uint64) -> int:
        tokens, prior = tokens_of_documents(job, block), self.document_prior(job.shared)
        return two_phase.document_phase(*tokens, self.scratch, prior, self._totals(job), key)

    def sample_words(self, job: Job, slice_: WordSlice, key: np.uint64) -> int:
        tokens, prior = tokens_of_words(job, slice_), self.word_prior(job.shared)
        return two_phase.word_phase(*tokens, self.scratch, prior, self._totals(job), key, self.own_prior_of(job))

    def _totals(self, job: Job) -> two_phase.TopicTotals:
        topics = job.delta["totals"]
        if topics["summary"][0] == 0:  # this worker's first job of the phase
            topics["summary"] = job.shared["summary"]
        if self._large is None:
            self._large = np.zeros(self._large_topics(), two_phase.COUNT)
        return two_phase.TopicTotals(topics, job.delta["topic_counts"], self._large)

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        for delta in deltas:
            shared["topic_counts"][:] += delta["totals"]["change"]
        return super().aggregate(phase, shared, deltas, answers)


class Gibbs(DocumentMajorLda):
    """Reference: Gibbs sampling with dense conditionals, O(K) per token. See `samplers.lda.gibbs`."""

    def sample_cell(self, job: Job, cell: DocumentCell, key: np.uint64) -> int:
        priors = self.priors(job.shared)
        return gibbs.sample_cell(cell, self.rows(job.shared), self.counts, *priors, self.in_place, key, self.own_prior)


class SparseGibbs(RunningMeanLda):
    """Gibbs sampling with exact conditionals, O(K_d) per token. See `samplers.lda.sparse_gibbs`.

    start: "scvb0", "random", or None. None means scvb0 if `update` is "delayed" and the model is small, else random.
        The configurations of runs older than this option have no value.
    """

    def __init__(
        self, dataset: Dataset, *, topics: int, update: str = "delayed", start: str | None = None, **options: Any
    ) -> None:
        if start is None:
            start = "scvb0" if begins_warm(topics, dataset.vocabulary_size, update) else "random"
        super().__init__(dataset, topics=topics, update=update, start=start, **options)

    def shared_arrays(self) -> dict[str, ArraySpec]:
        return super().shared_arrays() | {"rests": ArraySpec((self.dataset.vocabulary_size,), "float64")}

    def steps(self) -> tuple[str, ...]:
        return ("sample", "aggregate") if self.whole_blocks else ("rests", "sample", "aggregate")

    def words_found(self, job: Job, words: np.ndarray) -> None:
        if self.whole_blocks:
            self._sum_rests(job, words)

    def do_step(self, step: str, job: Job, block: TokenBlock, slice_: int, key: np.uint64) -> int:
        if step != "rests":
            return super().do_step(step, job, block, slice_, key)
        self._sum_rests(job, block.words[self.words_of_part(job, block, slice_)])
        return 0

    def rows_counted(self, job: Job, words: np.ndarray) -> None:
        if self.update_mode == "data-parallel":
            self._sum_rests(job, words)

    def _sum_rests(self, job: Job, words: np.ndarray) -> None:
        priors, summary, rests = self.priors(job.shared), job.shared["summary"], job.shared["rests"]
        sparse_gibbs.sum_rests(self.rows(job.shared), words, self.counts, *priors, summary, rests, self.own_prior)

    def sample_cell(self, job: Job, cell: DocumentCell, key: np.uint64) -> int:
        priors, rests = self.priors(job.shared), job.shared["rests"]
        return sparse_gibbs.sample_cell(
            cell, self.rows(job.shared), rests, self.counts, *priors, self.in_place, key, self.own_prior
        )


class SparseLda(DocumentMajorLda):
    """SparseLDA, O(K_d + K_w) per token. See `samplers.lda.sparselda`."""

    def sample_cell(self, job: Job, cell: DocumentCell, key: np.uint64) -> int:
        return sparselda.sample_cell(
            cell, self.rows(job.shared), self.counts, *self.priors(job.shared), self.in_place, key
        )


class AliasLda(AliasTableLda):
    """AliasLDA, O(K_d) per token. See `samplers.lda.aliaslda`.

    mh_steps: number of proposals per token.
    """

    def __init__(self, *args: Any, mh_steps: int = 2, **options: Any) -> None:
        super().__init__(*args, **options)
        self.mh_steps = check_steps(mh_steps)

    def table_weights(self, shared: Arrays) -> np.ndarray:
        return shared["alpha"] / shared["summary"]

    def sample_cell(self, job: Job, cell: DocumentCell, key: np.uint64) -> int:
        return aliaslda.sample_cell(
            cell,
            self.rows(job.shared),
            self.tables(job.shared),
            self.table_scratch,
            self.counts,
            *self.priors(job.shared),
            self.mh_steps,
            self.in_place,
            key,
        )


class LightLda(AliasTableLda):
    """LightLDA, O(1) per token. See `samplers.lda.lightlda`.

    mh_steps: number of proposals per token, of each kind if `proposal` is "cycle".
    """

    def __init__(self, *args: Any, mh_steps: int = 2, proposal: str = "cycle", **options: Any) -> None:
        super().__init__(*args, **options)
        self.mh_steps = check_steps(mh_steps)
        if proposal not in lightlda.PROPOSALS:
            raise RequestError(
                f"--proposal: unknown proposal {proposal!r}", f"Choose one of: {', '.join(lightlda.PROPOSALS)}."
            )
        self.proposal = lightlda.PROPOSALS.index(proposal)

    def table_weights(self, shared: Arrays) -> np.ndarray:
        return 1.0 / shared["summary"]

    def sample_cell(self, job: Job, cell: DocumentCell, key: np.uint64) -> int:
        return lightlda.sample_cell(
            cell,
            self.rows(job.shared),
            self.tables(job.shared),
            self.table_scratch,
            self.counts,
            self.document_prior(job.shared),
            *self.priors(job.shared),
            self.proposal,
            self.mh_steps,
            self.in_place,
            key,
        )


def check_steps(mh_steps: int) -> int:
    """Return `mh_steps`.

    Raises RequestError unless it is a valid number of proposals.
    """
    if not 1 <= mh_steps <= 64:
        raise RequestError(f"--mh-steps must be from 1 to 64, got {mh_steps}")
    return mh_steps


SAMPLERS = ("two-phase", "gibbs", "sparse-gibbs", "sparselda", "aliaslda", "lightlda", "splash")
IN_WORD_PRIOR = ("topic_word_prior", "seed_words", "seed_weight")  # options that make a program's word prior
_FILES = (*IN_WORD_PRIOR, "start_from")  # options that a program has in another form
TAKES = takers(LdaOptions) | {"running_mean": ("sparse-gibbs",)}  # options that not every sampler has


def auto_samplers(topics: int, vocabulary_size: int, given: dict[str, Any]) -> list[str]:
    """Return the samplers that `--sampler auto` chooses from, fastest first (docs/sampling.md).

    A second sampler is for memory limits that are too small for the first.

    given: see `sampler_spec`; samplers that lack one of the given options are left out, unless all samplers do.
    """
    small = is_small(topics, vocabulary_size)
    candidates = ["sparse-gibbs", "two-phase"] if small else ["two-phase", "sparse-gibbs"]
    wanted = [option for option, value in given.items() if value is not None]
    taking = [name for name in candidates if all(name in TAKES[option] for option in wanted)]
    return (taking or candidates)[: 2 if small and taking else 1]


def begins_warm(topics: int, vocabulary_size: int, update: str | None) -> bool:
    """Return whether sparse-gibbs learns its initial topics if `start` is not given."""
    return update in (None, "delayed") and is_small(topics, vocabulary_size)


def initial_topics(
    name: str, topics: int, vocabulary_size: int, given: dict[str, Any], *, on_ring: bool
) -> dict[str, Any]:
    """Return `given` with the `start` of a new run: "scvb0", or None if the sampler has its own default or no option
    `start`, or "random" for a word prior with more topics than are learned at once.
    """
    if given.get("start_from") is not None and name in TAKES["start"]:
        return {**given, "start": "scvb0"}
    if topics > AT_ONCE and any(given.get(option) is not None for option in IN_WORD_PRIOR):
        return {**given, "start": given.get("start") or "random"}
    by_itself = not on_ring and name == "sparse-gibbs" and begins_warm(topics, vocabulary_size, given.get("update"))
    return {"start": None if by_itself or name not in TAKES["start"] else "scvb0"} | {
        option: value for option, value in given.items() if value is not None
    }


def sampler_spec(name: str, options: dict[str, Any], given: dict[str, Any], *, on_ring: bool = False) -> ProgramSpec:
    """Return the program of a sampler.

    options: options common to all samplers.
    given: options in TAKES, None for the sampler's default.
    on_ring: whether the sampler runs on several machines, in a new run.
    Raises RequestError if the sampler is unknown or lacks a given option.
    """
    if name not in SAMPLERS:
        raise RequestError(f"--sampler: unknown sampler {name!r}", f"Choose one of: auto, {', '.join(SAMPLERS)}.")
    for option, value in given.items():
        if value is not None:
            if name not in TAKES[option]:
                takers = ", ".join(TAKES[option])
                raise RequestError(
                    f"--{described(LdaOptions)[option].name} cannot be used with --sampler {name}",
                    f"It is only for {takers}.",
                )
            options = options if option in _FILES else {**options, option: value}
    if on_ring and name in TAKES["running_mean"]:  # runs on a ring older than this option have no value
        options = {"running_mean": True} | options
    return ProgramSpec(target(f"lda-{name}"), options | ({"on_ring": True} if on_ring else {}))
