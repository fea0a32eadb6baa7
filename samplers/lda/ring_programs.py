"""The LDA samplers on a ring of machines, by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocks.corpus.dataset import TokenBlock, WordSlice
from ooc.program import Job, Phase
from samplers.lda import rotating_rows, two_phase
from samplers.lda.program import tokens_of_documents, tokens_of_words
from samplers.lda.programs import AliasLda, Gibbs, LightLda, SparseGibbs, SparseLda, TwoPhase
from samplers.lda.ring_doc_major import RingDocumentMajorLda
from samplers.lda.ring_program import RingLda
from samplers.lda.ring_running_mean import RingRunningMeanLda


class RingTwoPhase(RingLda, TwoPhase):
    """Two-phase sampler on a ring; the document phase, which needs no other machine, comes first.

    The state has an additional column, because the row of a token's word receives the moves of the document phase only
    when it arrives. See `samplers.lda.two_phase`.
    """

    phases = (Phase("document", "block"), Phase("word", "slice", travels="changed"))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.columns += rotating_rows.SPARE

    def _large_topics(self) -> int:
        return self.topics if self.dataset.longest_document > two_phase.MOST_COUNTED else 1

    def sample_documents(self, job: Job, block: TokenBlock, key: np.uint64) -> int:
        tokens, prior = tokens_of_documents(job, block), self.document_prior(job.shared)
        return two_phase.document_phase(*tokens, self.scratch, prior, self._totals(job), key, rotating_rows.SPARE)

    def sample_words(self, job: Job, slice_: WordSlice, key: np.uint64) -> int:
        assert job.passage
        tokens, prior, totals = tokens_of_words(job, slice_), self.word_prior(job.shared), self._totals(job)
        own = self.own_prior_of(job)
        return rotating_rows.word_phase(*tokens, job.passage, self.work, prior, totals, key, own)


class RingGibbs(RingDocumentMajorLda, Gibbs):
    """Dense Gibbs sampler on a ring; see `samplers.lda.gibbs`."""


class RingSparseGibbs(RingRunningMeanLda, SparseGibbs):
    """Sparse Gibbs sampler on a ring; see `samplers.lda.sparse_gibbs`.

    The configurations of runs older than the options `start` and `running_mean` have no value of them.
    """

    def __init__(self, *args: Any, start: str = "random", **options: Any) -> None:
        super().__init__(*args, start=start, **options)


class RingSparseLda(RingDocumentMajorLda, SparseLda):
    """SparseLDA on a ring; see `samplers.lda.sparselda`."""


class RingAliasLda(RingDocumentMajorLda, AliasLda):
    """AliasLDA on a ring; see `samplers.lda.aliaslda`."""


class RingLightLda(RingDocumentMajorLda, LightLda):
    """LightLDA on a ring; see `samplers.lda.lightlda`."""
