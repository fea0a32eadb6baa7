"""Whether a dataset is what was written: every file against its checksum, then the counts against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from blocks.dataset import MANIFEST, Dataset, check_file


class Report(NamedTuple):
    """What was found: a line for each problem, and what can still be done."""

    files: int
    bytes: int
    problems: list[str]
    remedies: list[str]


def verify_dataset(dataset: Dataset, bar: Callable[[str, int | None, str], Any]) -> Report:
    """Read all files again. bar: makes a progress bar from what, total and unit."""
    files = list(dataset.files())
    total = sum(entry["bytes"] for _, entry in files)
    progress = bar("verifying", total, "B")
    damaged: set[str] = set()
    problems = []
    for path, entry in files:
        if problem := check_file(path, entry):
            problems.append(problem)
            damaged.add(entry["file"])
        progress.update(entry["bytes"])
    progress.close()
    if not damaged:
        problems += _contradictions(dataset)
    return Report(len(files) + 1, total, problems, list(_remedies(dataset, damaged)) if problems else [])


def _contradictions(dataset: Dataset) -> Iterator[str]:
    """Counts in whole files that do not agree with each other."""
    tokens = dataset.block_tokens()
    manifest = dataset.path / MANIFEST
    if int(tokens.sum()) != dataset.tokens or int(dataset.index.frequencies.sum()) != dataset.tokens:
        yield f"{manifest}: {dataset.tokens} tokens, but the cells sum to {int(tokens.sum())}"
    if not np.array_equal(np.sort(dataset.index.word_ids), np.arange(dataset.vocabulary_size)):
        yield f"{dataset.path / dataset.manifest['index']['file']}: words without a rank of their own"
    seen = np.zeros(dataset.documents, bool)
    for number, entry in enumerate(dataset.manifest["blocks"]):
        block = dataset.block(number)
        if not np.array_equal(np.sort(block.positions), np.arange(int(tokens[number]))):
            yield f"{dataset.path / entry['file']}: its positions are not a permutation of its {tokens[number]} tokens"
        if int(block.word_offsets[-1]) != int(tokens[number]) or int(block.offsets[-1]) != int(tokens[number]):
            yield f"{dataset.path / entry['file']}: its words do not add up to its tokens"
        seen[block.documents[block.documents < dataset.documents]] = True
    if not seen.all():
        yield f"{manifest}: document {int(np.argmin(seen))} is in no block"
    names = dataset.document_names()
    if names is not None and len(names) != dataset.documents:
        yield f"{dataset.path}: {len(names)} names for {dataset.documents} documents"
    if len(dataset.vocabulary()) != dataset.vocabulary_size:
        yield f"{dataset.path}: the vocabulary does not have {dataset.vocabulary_size} words"


def _remedies(dataset: Dataset, damaged: set[str]) -> Iterator[str]:
    """What can still be done."""
    yield "Make the dataset again, or restore these files from a copy."
    of_blocks = {entry["file"] for entry in dataset.manifest["blocks"]}
    if not damaged & of_blocks:
        yield f"All {len(of_blocks)} blocks are whole: no document is lost."
        if damaged <= {entry["file"] for entry in dataset.manifest["slices"]}:
            yield "What is damaged is derived from the blocks: an append to the dataset writes it anew."
    else:
        whole = [entry for entry in dataset.manifest["blocks"] if entry["file"] not in damaged]
        documents = sum(entry["documents"] for entry in whole)
        yield f"{len(whole)} of {len(of_blocks)} blocks are whole, with {documents} of {dataset.documents} documents."
