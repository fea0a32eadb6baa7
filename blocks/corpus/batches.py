"""Batches of a dataset: the documents of the first ingestion, and of each append."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from blocks.bounds_checks import require_valid
from blocks.corpus.dataset import Dataset
from blocks.dataset_generations import generation_of, has_generation
from blocks.errors import RequestError
from blocks.plurals import count_of


class DocumentBatches(NamedTuple):
    """Consecutive batches of a dataset."""

    made: list[dict[str, Any]]  # how each batch was ingested
    documents: range
    blocks: range

    def lengths(self, dataset: Dataset) -> np.ndarray:
        """Return the number of tokens in each document, int64 (D,)."""
        return dataset.document_lengths()[self.documents.start : self.documents.stop]

    def names(self, dataset: Dataset) -> list[str] | None:
        """Return the names of the documents; None if they have no names and are numbered from 1."""
        names = dataset.document_names()
        if names is None:
            return [str(number + 1) for number in self.documents] if self.documents.start else None
        return names[self.documents.start : self.documents.stop]


def all_batches(dataset: Dataset) -> DocumentBatches:
    """Return all batches of a dataset."""
    return DocumentBatches(dataset.batches, range(dataset.documents), range(dataset.block_count))


def chosen_batches(dataset: Dataset, choice: str, trained_on: str) -> DocumentBatches:
    """Return some batches of a dataset.

    choice: a batch number, from 1; N- for batch N and all later ones; or `new` for the batches added since a model was
        trained.
    trained_on: identity of the dataset when the model was trained.
    Raises RequestError if there is no such batch, or the dataset never had that identity.
    """
    if "shard" in dataset.manifest:
        raise RequestError(f"--batch: {dataset.path} is a shard, and shards have no batches", "Omit --batch.")
    ends = _ends(dataset)
    blocks = [0, *accumulate(entry["documents"] for entry in dataset.manifest["blocks"])]
    if choice == "new":
        first, last = _documents_of(dataset, trained_on), dataset.documents
    else:
        first, last = _document_range(choice, dataset, ends)
    require_valid({first, last} <= set(ends) <= set(blocks), dataset.path, "a batch does not end at the end of a block")
    made = [batch for batch, begin in zip(dataset.batches, ends, strict=False) if first <= begin < last]
    return DocumentBatches(made, range(first, last), range(blocks.index(first), blocks.index(last)))


def _ends(dataset: Dataset) -> list[int]:
    """Return the number of documents before each batch, and the total number."""
    appended = [batch["documents"] for batch in dataset.batches[1:]]
    return [0, *accumulate([dataset.documents - sum(appended), *appended])]


def _document_range(choice: str, dataset: Dataset, ends: list[int]) -> tuple[int, int]:
    """Return the first document of the chosen batches, and the end of the range (exclusive)."""
    found = re.fullmatch(r"([0-9]{1,9})(-?)", choice)
    if not found:
        raise RequestError(f"--batch must be a number N, N- for batch N and all later ones, or new; got {choice!r}")
    number, batches = int(found[1]), len(ends) - 1
    if not 1 <= number <= batches:
        raise RequestError(
            f"--batch {choice}: {dataset.path} has {count_of(batches, 'batch', 'batches')}",
            f"List the batches with: ooc info {dataset.path}",
        )
    return ends[number - 1], ends[batches if found[2] else number]


def _documents_of(dataset: Dataset, identity: str) -> int:
    """Return the number of documents that a dataset had when it had the given identity."""
    if not has_generation(dataset.path, identity):
        raise RequestError(
            f"--batch new: {dataset.path} does not know which documents it had when the run was started",
            f"If the run was trained on this dataset, give a batch number from: ooc info {dataset.path}",
        )
    return Dataset(generation_of(dataset.path, identity)).documents
