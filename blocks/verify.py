"""Verify a dataset: every file against its checksum, then counts against each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.corpus.writer import write_slice
from blocks.dataset_generations import reference_problems as problems_of_generations
from blocks.design.design import Design
from blocks.design.design_checks import problems_of_design
from blocks.errors import RequestError
from blocks.files import disk_errors, file_lock
from blocks.json_files import write_json
from blocks.kinds import open_any
from blocks.ratings.matrix import Matrix
from blocks.ratings.matrix_writer import Entries, column_order, write_column_slice
from blocks.samples.samples import Samples
from blocks.shards.whole_dataset import check_shards_complete, problems_of_shard, shard_paths
from blocks.stored_dataset import MANIFEST, check_file


class VerificationReport(NamedTuple):
    """Result of a verification.

    problems: a line for each problem.
    remedies: what to do.
    unchecked: a line for each thing that was not checked.
    """

    files: int
    bytes: int
    problems: list[str]
    remedies: list[str]
    damaged: Sequence[str] = ()  # names of the damaged files in the manifest
    unchecked: Sequence[str] = ()


def unreadable_files(files: Iterable[Path]) -> list[str]:
    """Return a line for each file that this user may not read, which is not damage."""
    return [f"{file}: no permission to read it" for file in files if file.exists() and not os.access(file, os.R_OK)]


def verify_dataset(
    dataset: Dataset | Matrix | Samples | Design, bar: Callable[[str, int | None, str], Any]
) -> VerificationReport:
    """Verify a dataset by reading all its files.

    bar: function that creates a progress bar from what, total and unit.
    """
    files = [*dataset.files(), *_of_kept_generations(dataset)]
    total = sum(entry["bytes"] for _, entry in files)
    progress = bar("verifying", total, "B")
    damaged: set[str] = set()
    problems, unchecked = list(problems_of_generations(dataset.path)), unreadable_files(path for path, _ in files)
    for path, entry in files:
        if not unreadable_files([path]) and (problem := check_file(path, entry)):
            problems.append(problem)
            damaged.add(entry["file"])
        progress.update(entry["bytes"])
    progress.close()
    if not damaged and not unchecked:
        problems += _inside(dataset)
    remedies = list(_remedies(dataset, damaged)) if problems else []
    return VerificationReport(len(files) + 1, total, problems, remedies, sorted(damaged), unchecked)


def combine_reports(reports: Sequence[VerificationReport]) -> VerificationReport:
    """Combine several reports."""
    problems, remedies, unchecked = (
        [line for report in reports for line in getattr(report, name)] for name in ("problems", "remedies", "unchecked")
    )
    sizes = sum(report.files for report in reports), sum(report.bytes for report in reports)
    return VerificationReport(*sizes, problems, remedies, unchecked=unchecked)


def _of_kept_generations(dataset: Dataset | Matrix | Samples | Design) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Verify the files of earlier generations that runs need. See `blocks.dataset_generations`."""
    known = {path for path, _ in dataset.files()}
    for manifest in sorted(dataset.path.glob("manifest-*.json")):
        yield from ((path, entry) for path, entry in Dataset(manifest).files() if path not in known)


def verify_shards(path: Path, bar: Callable[[str, int | None, str], Any]) -> VerificationReport:
    """Verify all shards in a directory by reading all their files, and check that they belong together."""
    shards = [open_any(shard) for shard in shard_paths(path)]
    report = combine_reports([verify_dataset(shard, bar) for shard in shards])
    try:
        check_shards_complete({str(shard.path): shard.manifest.get("shard") for shard in shards})
    except RequestError as error:
        report.problems.append(error.what)
        report.remedies.append(error.remedy)
    return report


def repair_dataset(path: Path, report: VerificationReport) -> bool:
    """Rewrite damaged or missing slices from the blocks.

    Returns False, without any change, if anything else is damaged.
    Raises RequestError if another process is appending to the dataset.
    """
    with file_lock(path) as free:
        if not free:
            raise RequestError(
                f"{path} cannot be locked: another process is appending to it, or its file system has no locks",
                "Wait until the other process has ended, then try again.",
            )
        dataset = open_any(path)
        return not isinstance(dataset, Design) and _repair(dataset, report)


def _repair(dataset: Dataset | Matrix | Samples, report: VerificationReport) -> bool:
    numbers = {entry["file"]: number for number, entry in enumerate(dataset.manifest["slices"])}
    if isinstance(dataset, Samples) or not report.damaged or not set(report.damaged) <= set(numbers):
        return False
    for name in report.damaged:
        first, last = dataset.index.slice_bounds[numbers[name] : numbers[name] + 2].tolist()
        with disk_errors(dataset.path):
            (dataset.path / name).parent.mkdir(exist_ok=True)
        if isinstance(dataset, Matrix):
            entry = write_column_slice(dataset.path, name, list(_columns(dataset, first, last)), first, last)
        else:
            blocks = [dataset.block(number) for number in range(dataset.block_count)]
            entry = write_slice(dataset.path, name, blocks, first, last)
        dataset.manifest["slices"][numbers[name]] = entry
    write_json(dataset.path / MANIFEST, dataset.manifest)
    return True


def _columns(matrix: Matrix, first: int, last: int) -> Iterator[Entries]:
    """Yield, for each block, the entries of some columns, sorted by column, with the positions of their rows in the
    matrix."""
    for number, place in enumerate(matrix.index.block_bounds[:-1].tolist()):
        entries = column_order(matrix.block(number))
        span = slice(*np.searchsorted(entries.columns, (first, last)))
        yield Entries(entries.rows[span] + np.uint32(place), entries.columns[span], entries.values[span])


def _inside(dataset: Dataset | Matrix | Samples | Design) -> Iterator[str]:
    """Yield inconsistencies between undamaged files of a dataset."""
    if isinstance(dataset, Design):
        yield from problems_of_design(dataset)
        return
    if isinstance(dataset, Samples):
        yield from _in_samples(dataset)
        return
    yield from _in_matrix(dataset) if isinstance(dataset, Matrix) else _in_corpus(dataset)
    yield from problems_of_shard(dataset)


def _in_samples(samples: Samples) -> Iterator[str]:
    """Yield inconsistencies between undamaged files of a sample set."""
    seen = np.zeros(samples.rows, bool)
    for number, entry in enumerate(samples.manifest["blocks"]):
        block, path = samples.block(number), samples.path / entry["file"]
        if not int(block.offsets[-1]) == block.columns.size == block.values.size == samples.index.cells[number, 0]:
            yield f"{path}: its samples do not add up to its entries"
        if int(block.columns.max(initial=0)) >= samples.columns or int(block.rows.max(initial=0)) >= samples.rows:
            yield f"{path}: a column or sample that does not exist"
        else:
            seen[block.rows] = True
    if not seen.all():
        yield f"{samples.path / MANIFEST}: sample {int(np.argmin(seen))} is in no block"
    if (whole := samples.of_whole()) and whole["numbers"].size != samples.rows:
        yield f"{samples.path / MANIFEST}: {whole['numbers'].size} numbers in the whole for {samples.rows} samples"


def _in_matrix(matrix: Matrix) -> Iterator[str]:
    """Yield inconsistencies between undamaged files of a matrix."""
    manifest, index = matrix.path / MANIFEST, matrix.index
    if int(index.cells.sum()) != matrix.entries or int(index.column_entries.sum()) != matrix.entries:
        yield f"{manifest}: {matrix.entries} entries, but the cells sum to {int(index.cells.sum())}"
    if not np.array_equal(np.sort(index.column_ids), np.arange(matrix.columns)):
        yield f"{matrix.path / matrix.manifest['index']['file']}: columns without a rank of their own"
    for number, entry in enumerate(matrix.manifest["blocks"]):
        block = matrix.block(number)
        slices = np.searchsorted(index.slice_bounds, block.columns, side="right") - 1
        if not np.array_equal(np.bincount(slices, minlength=matrix.slice_count), index.cells[number]):
            yield f"{matrix.path / entry['file']}: its entries do not add up to its cells"
    for number, entry in enumerate(matrix.manifest["slices"]):
        first, last = index.slice_bounds[number : number + 2].tolist()
        found, wanted = matrix.slice(number), list(_columns(matrix, first, last))
        order = np.argsort(np.concatenate([part.columns for part in wanted]), kind="stable")
        for name in ("rows", "values"):
            if not np.array_equal(
                np.concatenate([getattr(part, name) for part in wanted])[order], getattr(found, name)
            ):
                yield f"{matrix.path / entry['file']}: its {name} are not those of the blocks"


def _in_corpus(dataset: Dataset) -> Iterator[str]:
    """Yield inconsistencies between undamaged files of a corpus."""
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
    if (table := dataset.table()) is not None:
        yield from table.problems()
    if len(dataset.vocabulary()) != dataset.vocabulary_size:
        yield f"{dataset.path}: the vocabulary does not have {dataset.vocabulary_size} words"


def _remedies(dataset: Dataset | Matrix | Samples | Design, damaged: set[str]) -> Iterator[str]:
    """Yield the remedies for damaged files."""
    of_blocks, what = {entry["file"] for entry in dataset.manifest["blocks"]}, dataset.counted
    if damaged and damaged <= {entry["file"] for entry in dataset.manifest["slices"]}:
        yield f"All {len(of_blocks)} blocks are undamaged, and the damaged files can be made from them."
        yield f"Repair the dataset with: ooc verify --repair {dataset.path}"
        return
    yield "Make the dataset again, or restore these files from a copy."
    if not damaged & of_blocks:
        yield f"All {len(of_blocks)} blocks are undamaged: no {what[:-1]} is lost."
        return
    whole = [entry for entry in dataset.manifest["blocks"] if entry["file"] not in damaged]
    yield (
        f"{len(whole)} of {len(of_blocks)} blocks are undamaged, with {sum(entry[what] for entry in whole)} of "
        f"{dataset.manifest[what]} {what}."
    )
