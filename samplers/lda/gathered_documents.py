"""The documents of a model on a ring of machines: each tells the first one the names and numbers of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ooc.program import Job, Phase, StaticProgram, Sweep
from samplers.gathered_names import gather_names, names_of_block
from samplers.spool import lines_in_order


class GatheredDocuments(StaticProgram):
    """Comes before a program of LDA, whose model then has the documents of all machines, in the order of the whole that
    they have shards of. `document_names` is swept before the rows of documents, `document_numbers` after them."""

    trains_on_shards = True
    document_names = Phase("names of documents", "block", writes=False)
    document_numbers = Phase("numbers of documents", "block", writes=False)

    def export_bytes(self) -> int:
        """To order rows, and names before them."""
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
        """What `write_model` is told of the documents of all machines. directory: to keep names in."""
        numbers = (numbers for _, numbers in sweep(self.document_numbers))
        return {"document_names": self._lines(sweep, directory), "document_order": numbers}

    def _lines(self, sweep: Sweep, directory: Path) -> Iterator[bytes] | None:
        """The names of all documents, line after line; None if there are none."""
        numbers, lines = gather_names(sweep(self.document_names), directory)
        return lines_in_order(lines, np.argsort(numbers)) if lines.size > numbers.size else None
