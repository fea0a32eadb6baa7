"""Whether a dataset is what was written: every file against its checksum, then the counts against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.corpus_writer import write_slice
from blocks.dataset import MANIFEST, Dataset, check_file
from blocks.errors import RequestError
from blocks.files import disk_errors, locked, write_json


class Report(NamedTuple):
    """What was found: a line for each problem, and what can still be done."""

    files: int
    bytes: int
    problems: list[str]
    remedies: list[str]
    damaged: Sequence[str] = ()  # files of a dataset, as its manifest names them


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
    remedies = list(_remedies(dataset, damaged)) if problems else []
    return Report(len(files) + 1, total, problems, remedies, sorted(damaged))


def repair_dataset(path: Path, report: Report) -> bool:
    """Write damaged or missing slices anew from the blocks; False, and nothing done, if anything else is damaged.

    Raises RequestError if another process appends to the dataset.
    """
    with locked(path) as free:
        if not free:
            raise RequestError(
                f"another process is appending to {path}, or there are no locks on its disk", "Wait until it has ended."
            )
        return _repair(Dataset(path), report)


def _repair(dataset: Dataset, report: Report) -> bool:
    numbers = {entry["file"]: number for number, entry in enumerate(dataset.manifest["slices"])}
    if not report.damaged or not set(report.damaged) <= set(numbers):
        return False
    blocks = [dataset.block(number) for number in range(dataset.block_count)]
    for name in report.damaged:
        first, last = dataset.index.slice_bounds[numbers[name] : numbers[name] + 2].tolist()
        with disk_errors(dataset.path):
            (dataset.path / name).parent.mkdir(exist_ok=True)
        dataset.manifest["slices"][numbers[name]] = write_slice(dataset.path, name, blocks, first, last)
    write_json(dataset.path / MANIFEST, dataset.manifest)
    return True


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
    of_blocks = {entry["file"] for entry in dataset.manifest["blocks"]}
    if damaged and damaged <= {entry["file"] for entry in dataset.manifest["slices"]}:
        yield f"All {len(of_blocks)} blocks are whole, and what is damaged is derived from them."
        yield f"Write it anew with: ooc verify --repair {dataset.path}"
        return
    yield "Make the dataset again, or restore these files from a copy."
    if not damaged & of_blocks:
        yield f"All {len(of_blocks)} blocks are whole: no document is lost."
        return
    whole = [entry for entry in dataset.manifest["blocks"] if entry["file"] not in damaged]
    documents = sum(entry["documents"] for entry in whole)
    yield f"{len(whole)} of {len(of_blocks)} blocks are whole, with {documents} of {dataset.documents} documents."
