"""The samplers of LDA by name: adding one is a file of kernels and a class here."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocks.dataset import Block, Slice
from blocks.errors import RequestError
from ooc.program import Job, Phase
from ooc.shared import ArraySpec
from samplers import gibbs, two_phase
from samplers.lda import Lda


class TwoPhase(Lda):
    """Word phase slice-outer, document phase block-outer; no model is stored. See `samplers.two_phase`.

    mh_steps: proposals that each phase draws for a token, and the other judges.
    """

    phases = (Phase("word", "slice"), Phase("document", "block"))

    def __init__(self, *args: Any, mh_steps: int = 1, **options: Any) -> None:
        if not 1 <= mh_steps <= 64:
            raise RequestError(f"--mh-steps {mh_steps}: from 1 to 64 proposals are possible")
        super().__init__(*args, **options)
        self.proposals = mh_steps

    def sample_documents(self, job: Job, block: Block, key: np.uint64) -> int:
        return two_phase.document_phase(
            job.state,
            job.bases[job.unit],
            block.offsets[job.first : job.last + 1],
            block.positions,
            self.scratch,
            self.document_prior,
            job.shared["summary"],
            job.delta["topic_counts"],
            key,
        )

    def sample_words(self, job: Job, slice_: Slice, key: np.uint64) -> int:
        return two_phase.word_phase(
            job.state,
            job.bases,
            slice_.run_offsets[job.first : job.last + 1],
            slice_.blocks,
            slice_.starts,
            slice_.lengths,
            self.scratch,
            self.word_prior,
            job.shared["summary"],
            job.delta["topic_counts"],
            key,
        )


class Gibbs(Lda):
    """Dense Gibbs sampling, the reference: O(K) a token, all counts of words in memory. See `samplers.gibbs`.

    Words are counted once an iteration (delayed counts); a document's counts are always exact.
    """

    phases = (Phase("count words", "slice", writes=False), Phase("document", "block"))

    def shared_arrays(self) -> dict[str, ArraySpec]:
        rows = ArraySpec((self.dataset.vocabulary_size, self.topics), "int32")
        return {**super().shared_arrays(), "word_counts": rows}

    def sample_words(self, job: Job, slice_: Slice, key: np.uint64) -> int:
        first = int(self.dataset.index.slice_bounds[job.unit])
        return gibbs.count_words(
            job.state,
            job.bases,
            slice_.run_offsets[job.first : job.last + 1],
            slice_.blocks,
            slice_.starts,
            slice_.lengths,
            job.shared["word_counts"][first + job.first : first + job.last],
        )

    def sample_documents(self, job: Job, block: Block, key: np.uint64) -> int:
        return gibbs.document_phase(
            job.state,
            job.bases[job.unit],
            block.offsets[job.first : job.last + 1],
            block.positions,
            block.words,
            block.word_offsets,
            self.scratch,
            np.broadcast_to(self.alpha, self.topics),
            self.beta,
            job.shared["word_counts"],
            job.shared["summary"],
            job.delta["topic_counts"],
            key,
        )


SAMPLERS: dict[str, type[Lda]] = {"two-phase": TwoPhase, "gibbs": Gibbs}
AUTO = "two-phase"


def sampler_target(name: str) -> str:
    """The "module:Class" of a sampler; raises RequestError for a name that is none."""
    chosen = AUTO if name == "auto" else name
    if chosen not in SAMPLERS:
        raise RequestError(f"--sampler {name!r} is not a sampler", f"Choose one of: auto, {', '.join(SAMPLERS)}.")
    return f"{__name__}:{SAMPLERS[chosen].__name__}"
