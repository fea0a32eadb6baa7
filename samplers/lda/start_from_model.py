"""Initial topics drawn from the topics of an earlier model, which may have other documents and other words.

The counts of the earlier model take the place of the counts that `samplers.lda.warm_start` learns. Words are matched by
their text. A word that is not in the earlier model has no row: its topics are drawn from the topics of its document.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocks.corpus.dataset import Dataset, TokenBlock
from blocks.errors import RequestError
from blocks.files import checksum
from ooc.program import Arrays, Job, Phase
from ooc.workers.madvise import write_back
from ooc.workers.shared_arrays import ArraySpec
from samplers.lda.document_fold_in import NO_ROW
from samplers.lda.document_kernels import find_words
from samplers.lda.warm_start import DRAW, LearnedStartLda
from samplers.model_files import MANIFEST
from samplers.topics.model import SavedTopicModel, TopicCountRows

TAKE = Phase("taking topics", "block", writes=False, staged=True, alone=True)
_WORD_BYTES = 250  # memory for matching a word: its text twice, in lists and in a dictionary


class ModelInitializedSampler(LearnedStartLda):
    """Base class of samplers whose initial topics are learned, or drawn from the topics of an earlier model.

    earlier: path of the model, checksum of its manifest, and number of words.
    """

    def __init__(self, dataset: Dataset, *, earlier: Mapping[str, Any] | None = None, **options: Any) -> None:
        self._earlier = earlier
        super().__init__(dataset, **options)

    def _topics_by_depth(self) -> tuple[int, list[int]]:
        return (1, [self.topics]) if self._earlier else super()._topics_by_depth()

    def _plan_learning(self) -> None:
        super()._plan_learning()
        if self._earlier:
            self._learning, self._depths = [TAKE], {TAKE.name: 0, DRAW.name: 0}
            self.initial = TAKE, DRAW

    def _start_specs(self) -> dict[str, ArraySpec]:
        even = -(-self.dataset.vocabulary_size // 2) * 2  # as spread arrays are sent in units of 8 bytes
        return super()._start_specs() | ({"known_rows": ArraySpec((even,), "uint32")} if self._earlier else {})

    def spread_arrays(self) -> Collection[str]:
        return (*super().spread_arrays(), "known_rows") if self._earlier else super().spread_arrays()

    def start_passes(self) -> list[int]:
        return [0] if self._earlier else super().start_passes()

    def own_bytes(self) -> int:
        words = self.dataset.vocabulary_size + self._earlier["words"] if self._earlier else 0
        return super().own_bytes() + _WORD_BYTES * words

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        if phase is not TAKE:
            return super().schedule(phase, unit, parts)
        return [range(1)] if unit == 0 else []  # a stage of no work, after which `aggregate` is called

    def update_documents(self, job: Job, block: TokenBlock, key: np.uint64) -> Any:
        return None if job.phase == TAKE.name else super().update_documents(job, block, key)

    def aggregate(
        self, phase: Phase, shared: Arrays, deltas: Sequence[Arrays], answers: Sequence[Any]
    ) -> dict[str, float]:
        if phase is TAKE and self._earlier:  # on the first machine alone, which has the earlier model
            self._take(_open(self._earlier), shared)
        return super().aggregate(phase, shared, deltas, answers)

    def _take(self, model: SavedTopicModel, shared: Arrays) -> None:
        """Set the expected counts to the counts of the earlier model, without the additions of its word prior."""
        shared["expected_totals"][:] = model.topic_tokens / model.states
        of_word, has_row = self._words_of(model), self._row_of != NO_ROW
        shared["known_rows"][: of_word.size] = np.where(of_word >= 0, self._row_of, NO_ROW)
        words = of_word[has_row]
        rows = shared["expected_rows"][: words.size * self.topics].reshape(-1, self.topics)
        for first in range(0, words.size, self._rows_at_once):
            some, of = rows[first : first + self._rows_at_once], words[first : first + self._rows_at_once]
            some[:] = 0.0
            _add_counts(some, of, model.words, 1.0 / model.states)
            if model.prior is not None:
                _add_counts(some, of, model.prior, -1.0 / model.states)
            write_back(some)
        if self._prior:
            self._prior.add(shared, 1.0)

    def _words_of(self, model: SavedTopicModel) -> np.ndarray:
        """Return the index in the model's vocabulary of the word at each rank, int64 (V,), or -1."""
        places = {word: index for index, word in enumerate(model.vocabulary())}
        found = np.array([places.get(word, -1) for word in self.dataset.vocabulary()], np.int64)
        return found[self.dataset.index.word_ids]

    def _find_rows(self, job: Job, block: TokenBlock) -> None:
        if not self._earlier:
            super()._find_rows(job, block)
            return
        span = job.share(block.words.size)
        offsets = block.word_offsets[span.start : span.stop + 1]
        find_words(job.shared["known_rows"][block.words[span]], offsets, job.shared["position_rows"])


def _open(earlier: Mapping[str, Any]) -> SavedTopicModel:
    """Open the earlier model of a run.

    Raises RequestError if it is missing or has changed.
    """
    path = Path(earlier["path"])
    if not (path / MANIFEST).is_file() or checksum(path / MANIFEST) != earlier["checksum"]:
        raise RequestError(
            f"{path}: the model from which this run starts was moved or has changed since",
            "Train a new run with --from.",
        )
    return SavedTopicModel(path)


def _add_counts(rows: np.ndarray, words: np.ndarray, counts: TopicCountRows, factor: float) -> None:
    """Add the counts of words, times a factor, to rows, float32 (n, K).

    words: int64 (n,), or -1 for none.
    """
    places = np.flatnonzero(words >= 0)
    begins, ends = counts.offsets[:-1][words[places]], counts.offsets[1:][words[places]]
    sizes = ends - begins
    entries = np.repeat(ends - np.cumsum(sizes), sizes) + np.arange(sizes.sum())
    rows[np.repeat(places, sizes), counts.topics[entries]] += np.float32(factor) * counts.counts[entries]
