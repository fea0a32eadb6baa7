"""Gather the names and ids of the documents of all machines in a ring at rank 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ooc.program import Job, Phase, StaticProgram, Sweep
from samplers.external_sort import lines_in_order
from samplers.gathered_names import gather_names, names_of_block


class GatheredDocuments(StaticProgram):
    """Mixin for an LDA program whose model has the documents of all machines, in the order of the whole dataset.

    List it before the program in the bases. `document_names` is swept before the rows of documents, `document_numbers`
    after them.
    """

    trains_on_shards = True
    document_names = Phase("names of documents", "block", writes=False)
    document_numbers = Phase("numbers of documents", "block", writes=False)

    def export_bytes(self) -> int:
        """Return the memory in bytes that an export needs, first to gather the names, then to order the rows."""
        return 40 * max(self.dataset.vocabulary_size, self.dataset.whole.documents)

    def schedule(self, phase: Phase, unit: int, parts: int) -> Sequence[Sequence[int]]:
        return [range(1)] if phase == self.document_names else super().schedule(phase, unit, parts)

    def update(self, job: Job) -> Any:
        if job.phase == self.document_names.name:
            return names_of_block(self.dataset, "documents", job.unit)
        if job.phase == self.document_numbers.name:
            return np.empty(0, np.uint32), self.dataset.originals()[job.data.documents[job.first : job.last]]
        return super().update(job)

    def of_whole(self, sweep: Sweep, directory: Path) -> dict[str, Any]:
        """Return the documents of all machines in the form that `write_model` takes.

        directory: for temporary files.
        """
        numbers = (numbers for _, numbers in sweep(self.document_numbers))
        return {"document_names": self._lines(sweep, directory), "document_order": numbers}

    def _lines(self, sweep: Sweep, directory: Path) -> Iterator[bytes] | None:
        """Return the lines with the names of all documents, or None if documents have no names."""
        numbers, lines = gather_names(sweep(self.document_names), directory)
        return lines_in_order(lines, np.argsort(numbers)) if lines.size > numbers.size else None
