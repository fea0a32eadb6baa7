"""Out-of-core ingestion of a corpus: the steps of `blocks.ingestion.pipeline` for documents and their words.

    read      each worker tokenizes chunks with its own vocabulary; a row is a document, an entry is a token
    choose    the vocabularies are merged and filtered, and words are ranked
    shuffle   documents, as ranks of their words, are distributed over blocks
    finish    document names, slices, index and manifest are written

The result does not depend on which worker does what.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocks.append import DatasetTarget, append_to, new_dataset
from blocks.arrow_tables import MEMORY as ARROW_BYTES
from blocks.arrow_tables import arrow_bytes
from blocks.control_groups import core_count
from blocks.corpus import known_documents, uci
from blocks.corpus.dataset import Dataset
from blocks.corpus.duplicates import LEFT_OUT, write_list
from blocks.corpus.input_chunks import UciFile, empty_documents, input_chunks, pieces_of
from blocks.corpus.messages import WORDS, CorpusReaderSettings, ParsedDocumentChunk, SignChunkTask
from blocks.corpus.partition import bucket_count
from blocks.corpus.request import CorpusRequest, ValidatedRequest, input_records, validated_request
from blocks.corpus.vocabulary import ChosenVocabulary, choose_vocabulary, keep_dataset_vocabulary, select_words
from blocks.corpus.vocabulary_advice import vocabulary_advice
from blocks.corpus.writer import RankedWords, finish_corpus_files
from blocks.dataset_generations import keep_referred
from blocks.documents.kept_columns import ALL
from blocks.documents.table_writer import table_files
from blocks.errors import RequestError
from blocks.ingestion.manifest import creation_record
from blocks.ingestion.memory_budget import NAME_BYTES, MemoryBudget
from blocks.ingestion.messages import spill_file
from blocks.ingestion.name_merging import MergedNames, merge_names, write_places
from blocks.ingestion.pipeline import RUN, IngestionPipeline, answers_in_order
from blocks.plurals import count_of
from blocks.progress_bar import Bar, no_bar
from blocks.shards.joint_ingestion import IngestionPeers, JointIngestion, WordsOfInputs
from blocks.stored_dataset import write_lines
from blocks.text_inputs import LONGEST_RECORD, InputOpenOptions, input_size
from blocks.workers import WorkerPool

_BYTES_OF_TOKEN = 20  # memory for each token of a block or run while it is sorted and written
_BYTES_OF_DOCUMENT = 64  # memory for each document: 50M documents, most without tokens, took 3.2 GB
_RECORD_BYTES = 14  # maximum memory for each byte of a record, in the main process and in its worker together
_LEAST_RECORD = 4 << 20  # size of a record that is always allowed: `ONE_WORKER` has room for it
_WORKER_WORD_BYTES = 48  # memory for each word of a UCI file in a worker: three counters, while the arrays grow


class DuplicateSummary(NamedTuple):
    """Documents that are left out. exact: number of those with the same tokens as an earlier one. listed: rows of the
    list of all."""

    exact: int
    listed: list[list[Any]]


class ParsedCorpus(NamedTuple):
    """Result of reading the inputs."""

    chunks: list[ParsedDocumentChunk]
    empty: list[int]  # number of documents without lines in a UCI file before each chunk, and after the last
    merged: MergedNames
    left_out: dict[str, int]  # number of files left out of directories, by reason
    duplicates: DuplicateSummary | None = None

    @property
    def documents(self) -> int:
        return self.total("documents") + sum(self.empty)

    def total(self, name: str) -> int:
        """Return the sum of a field over all chunks."""
        return sum(getattr(chunk, name) for chunk in self.chunks)


def ingest(
    request: CorpusRequest,
    *,
    workers: int | None = None,
    memory: int | None = None,
    bar: Bar | None = None,
    others: IngestionPeers | None = None,
) -> Dataset:
    """Write a dataset, or append to one. With `skip_known`, a dataset that already has all documents stays unchanged.

    workers: number of processes, None for all cores. memory: bytes for all processes, None for a quarter of the
    available memory; neither changes the result. bar: function that creates progress bars. others: machines that ingest
    their own inputs at the same time, into shards of one dataset; all of them must call this function. Raises
    RequestError for bad input, and WorkFailed for a full disk or a dead worker; nothing is left behind then.
    """
    together, bar = JointIngestion(others) if others else None, bar or no_bar
    asked = validated_request(request, together=together is not None)
    request, count = asked.request, workers or core_count()
    budget = _budget(asked, memory, count)
    with append_to(request.out) if request.append else new_dataset(request.out, request.overwrite) as target:
        inputs = _inputs_told(request, bar)
        if target.old:
            inputs = known_documents.new_inputs(inputs, target.old, skip=request.skip_known)
            if not inputs:
                return target.old
            asked = asked._replace(request=replace(request, inputs=[each["name"] for each in inputs]))
        reading = reading_of(asked, budget, target)
        with WorkerPool("blocks.corpus.worker:start", reading, count) as pool:
            pipeline = IngestionPipeline(pool, target, bar)
            duplicates = _find_duplicates(pool, pipeline, asked, reading) if request.deduplicate else None
            read = _read(pipeline, asked, reading)._replace(duplicates=duplicates)
            if target.old and not read.documents and read.total("known"):
                return target.old
            table = write_table(pipeline, asked, read)
            chosen, blocks = choose_and_shuffle(pipeline, asked, budget, reading, read, together)
        finish_corpus(target, asked, inputs, read, chosen, blocks, table, together)
        if duplicates and request.duplicates_file:  # before the dataset appears, so that no dataset lacks its list
            write_list(duplicates.listed, Path(request.duplicates_file))
    return Dataset(request.out)


def choose_and_shuffle(
    pipeline: IngestionPipeline,
    asked: ValidatedRequest,
    budget: MemoryBudget,
    reading: CorpusReaderSettings,
    read: ParsedCorpus,
    together: JointIngestion | None = None,
) -> tuple[ChosenVocabulary, list[dict[str, Any]]]:
    """Choose the vocabulary and write the blocks. Returns the vocabulary and the manifest entries of the blocks."""
    request = asked.request
    names = read.merged.terms if reading.vocabulary is None and not reading.bags else []
    budget.require_names(_block_bytes(request, read), names)
    chosen = _choose(asked, read, together)
    write_places(pipeline.target.spill, WORDS, read.merged, chosen.rank_of_term)
    buckets = bucket_count(int(chosen.frequencies.sum()), request.block_tokens)
    pieces = pieces_of(read.chunks, read.empty)
    return chosen, pipeline.shuffle(pieces, buckets, request.seed, chosen.slice_bounds)


def _budget(asked: ValidatedRequest, memory: int | None, workers: int) -> MemoryBudget:
    request, base = asked.request, asked.base
    beside = known_documents.NAME_BYTES * base.documents if base and request.append else 0
    beside += workers * ARROW_BYTES if asked.kept else 0
    return MemoryBudget(memory, workers, beside + (arrow_bytes(request.inputs) if request.kind == "csv" else 0))


def _inputs_told(request: CorpusRequest, bar: Bar) -> list[dict[str, Any]]:
    progress = bar("checking", sum(map(input_size, request.inputs)) or None, "B")
    told = input_records(request, progress.update)
    progress.close()
    return told


def reading_of(asked: ValidatedRequest, budget: MemoryBudget, target: DatasetTarget) -> CorpusReaderSettings:
    """Return the settings for reading the inputs, after writing the files with known names and words that workers
    need."""
    request = asked.request
    room = budget.names_bytes(_BYTES_OF_TOKEN * max(request.block_tokens, RUN))
    record = min(max(room // (4 * _RECORD_BYTES), _LEAST_RECORD), LONGEST_RECORD)
    return CorpusReaderSettings(
        spill=str(target.spill),
        rules=asked.rules,
        skip=request.on_error == "skip",
        bags=request.kind == "uci",
        vocabulary=_fixed_words(asked),
        vocabulary_bytes=room - _RECORD_BYTES * (record - _LEAST_RECORD),
        longest=min(budget.each_worker // uci.TOKEN_BYTES, uci.LONGEST),
        opening=InputOpenOptions(request.encoding, record, request.query),
        known=known_documents.write_known_names(target.spill / "known", target.old) if target.old else None,
        skip_known=request.skip_known,
        kept=asked.kept,
        share=request.share,
        left_out=str(target.spill / LEFT_OUT) if request.deduplicate else None,
    )


def _fixed_words(asked: ValidatedRequest) -> list[str] | None:
    """Return the words of a vocabulary that is fixed before ingestion, or None if there is none.

    UCI files also give None: their words are numbered already.
    """
    if asked.request.kind == "uci":
        return None
    return asked.base.vocabulary() if asked.base else asked.words


def _block_bytes(request: CorpusRequest, read: ParsedCorpus) -> int:
    """Return the number of bytes that a worker needs to sort or write the largest block or run."""
    tokens = read.total("tokens")
    largest = min(tokens, max(request.block_tokens, RUN))
    documents = read.documents // bucket_count(tokens, request.block_tokens)
    return max(_BYTES_OF_TOKEN * largest, _BYTES_OF_DOCUMENT * documents)


def _find_duplicates(
    pool: WorkerPool, pipeline: IngestionPipeline, asked: ValidatedRequest, reading: CorpusReaderSettings
) -> DuplicateSummary:
    """Read the inputs to find duplicates, and write the file that tells the workers which documents to leave out."""
    from blocks.corpus.duplicate_search import DuplicateSearch  # imports numba, which only this needs

    request, spill = asked.request, pipeline.target.spill
    total = sum(map(input_size, [path for path, _ in asked.files.found] or request.inputs))
    with DuplicateSearch(spill, request.deduplicate or 1.0) as search:
        with pipeline.reading(total, "comparing") as progress:
            chunks = input_chunks(asked, 0, [], reading.opening, progress)
            messages = (SignChunkTask(chunk.number, chunk, search.signature_size) for chunk in chunks)
            for signed in answers_in_order(pool.map_unordered(messages)):
                search.add(signed)
        found = search.find()
        search.write_left_out(found, spill / LEFT_OUT)
        return DuplicateSummary(found.exact, search.listed(found))


def _read(pipeline: IngestionPipeline, asked: ValidatedRequest, reading: CorpusReaderSettings) -> ParsedCorpus:
    request, workers = asked.request, len(pipeline.pool)
    most_words = reading.vocabulary_bytes * workers // (NAME_BYTES + workers * _WORKER_WORD_BYTES)
    uci_files: list[UciFile] = []
    with pipeline.reading(sum(map(input_size, [path for path, _ in asked.files.found] or request.inputs))) as progress:
        opened = input_chunks(asked, most_words, uci_files, reading.opening, progress)
        chunks: list[ParsedDocumentChunk] = pipeline.parse(opened)
    shared, empty = reading.vocabulary, [0] * (len(chunks) + 1)
    if uci_files:
        empty = empty_documents(uci_files, chunks)
        shared = asked.words or [str(number + 1) for number in range(uci_files[0].header.words)]
    return ParsedCorpus(chunks, empty, merge_names(pipeline.reports(), shared), asked.files.left_out)


def _choose(asked: ValidatedRequest, read: ParsedCorpus, together: JointIngestion | None) -> ChosenVocabulary:
    request, base = asked.request, asked.base
    if read.documents == 0:
        if request.share and request.share.held:
            raise RequestError("--hold-out: no document was selected to be held out", "Use a larger fraction.")
        skipped = read.total("skipped")
        raise RequestError(
            f"{', '.join(request.inputs)}: no documents found"
            + (f" ({skipped} bad records were skipped)" if skipped else "")
        )
    if base:
        chosen = keep_dataset_vocabulary(read.merged, base, asked.rules.stop_words)
        if request.kind != "uci":  # workers have dropped the words already, and counted their tokens
            chosen = chosen._replace(dropped={why: {"tokens": read.total(why)} for why in chosen.dropped})
    elif request.vocabulary is not None:
        dropped = {"unknown": {"tokens": read.total("unknown")}}
        chosen = choose_vocabulary(
            read.merged, np.arange(len(request.vocabulary)), dropped, request.seed, request.slices
        )
    else:
        found = WordsOfInputs(read.merged, read.documents, read.total("stop_words"))
        if together:
            chosen = together.choose(found, lambda all_: _select(asked, all_), request.seed)
        else:
            chosen = choose_vocabulary(read.merged, *_select(asked, found), request.seed, request.slices)
    if chosen.frequencies.sum() == 0 and not request.vocab_from:  # with vocab_from the topics equal the prior
        raise _nothing_left(read.documents, chosen.dropped)
    return chosen


def _select(asked: ValidatedRequest, found: WordsOfInputs) -> tuple[np.ndarray, dict[str, Any]]:
    """Select the vocabulary (see `vocabulary.select_words`). Raises RequestError if no word is kept."""
    is_uci, filters = asked.request.kind == "uci", asked.request.filters
    stop_words = asked.rules.stop_words if is_uci else ()
    kept, dropped = select_words(found.merged, found.documents, filters, in_order=is_uci, stop_words=stop_words)
    if found.stopped:
        dropped = {"stop_words": {"tokens": found.stopped}, **dropped}
    if found.merged.tokens[kept].sum() == 0:
        raise _nothing_left(found.documents, dropped)
    return kept, dropped


def _nothing_left(documents: int, dropped: dict[str, Any]) -> RequestError:
    told = [
        f"{why.replace('_', '-')} dropped {what['tokens']} tokens" for why, what in dropped.items() if what["tokens"]
    ]
    return RequestError(
        f"no tokens are left in {count_of(documents, 'document')}: {', '.join(told) or 'all documents are empty'}",
        "Loosen the filters, or check that this field, column or file has the text.",
    )


def finish_corpus(
    target: DatasetTarget,
    asked: ValidatedRequest,
    inputs: list[dict[str, Any]],
    read: ParsedCorpus,
    chosen: ChosenVocabulary,
    entries: list[dict[str, Any]],
    table: dict[str, Any] | None,
    together: JointIngestion | None = None,
) -> None:
    """Write the texts and all derived files, then the manifest. table: manifest entry from `write_table`."""
    made = _made(asked, inputs, read, chosen, entries)
    frequencies, document_frequencies = chosen.frequencies, chosen.document_frequencies
    texts, blocks = {}, entries
    if old := target.old:
        frequencies[chosen.word_ids] += old.index.frequencies
        document_frequencies[chosen.word_ids] += old.index.document_frequencies
        texts["vocabulary"] = old.manifest["texts"]["vocabulary"]
        blocks = old.manifest["blocks"] + entries
        made = {**old.manifest["made"], "appended": [*old.manifest["made"].get("appended", []), made]}
    else:
        texts["vocabulary"] = write_lines(target.root, "vocabulary.txt", chosen.words)
    if read.total("name_bytes") or (old and "documents" in old.manifest["texts"]):
        texts["documents"] = write_lines(target.root, f"documents{target.suffix}.txt", _all_names(target, read))
    shutil.rmtree(target.spill)
    if old:
        keep_referred(target.root)
    finish_corpus_files(
        target.root,
        shard=together.shard(target.root, entries, texts) if together else None,
        blocks=blocks,
        words=RankedWords(chosen.word_ids, chosen.slice_bounds, frequencies, document_frequencies),
        texts=texts,
        made=made,
        part_tokens=old.part_size if old else asked.request.part_tokens,
        generation=target.generation,
        planted=old.manifest.get("planted") if old else None,
        table=table,
    )
    if together:
        together.wait()


def write_table(pipeline: IngestionPipeline, asked: ValidatedRequest, read: ParsedCorpus) -> dict[str, Any] | None:
    """Write the document table. Returns its manifest entry with all its files, or None if no columns are kept.

    Raises RequestError if no document has a column that is to be kept, or if values do not have the column types of the
    dataset to which they are appended.
    """
    if asked.kept is None:
        return None
    old = pipeline.target.old.manifest["table"] if pipeline.target.old else None
    columns = {column["name"]: column["kind"] for column in old["columns"]} if old else None
    text = asked.kept.text if asked.kept.has_text else None
    spilled = [chunk.table for chunk in read.chunks if chunk.table and chunk.table.rows]
    messages = list(table_files(spilled, text, len(old["files"]) if old else 0, columns))
    kinds = messages[0].kinds if messages else {}
    may_lack = old or not messages or (asked.request.share and asked.request.share.held)  # few are held out
    if not may_lack and (missing := [name for name in asked.kept.names if name not in (ALL, *kinds)]):
        raise RequestError(f"no document has the field {missing[0]!r}, which --keep lists", "Choose an existing field.")
    if not kinds:
        return None
    files = pipeline.write("writing documents", messages, "file")
    if old:
        return {**old, "files": old["files"] + files}
    listed = [{"name": name, "kind": kind} for name, kind in kinds.items()]
    return {"columns": listed, "text": text if text in kinds else None, "files": files}


def _duplicates_told(found: DuplicateSummary | None) -> dict[str, int]:
    if found is None:
        return {}
    return {"exact_duplicates": found.exact, "near_duplicates": len(found.listed) - found.exact}


def _all_names(target: DatasetTarget, read: ParsedCorpus) -> Iterator[str]:
    """Yield the name of each document; empty if it has none."""
    if target.old:
        yield from target.old.each_name()
    for chunk, before in zip(read.chunks, read.empty, strict=False):
        if not chunk.name_bytes:
            yield from [""] * (before + chunk.documents)
            continue
        last = chunk.pieces[-1]
        with spill_file(target.spill, last.worker).open("rb") as file:
            file.seek(last.offset + 4 * (last.rows + last.entries))
            yield from file.read(chunk.name_bytes).decode("utf-8").split("\n")[:-1]
    yield from [""] * read.empty[-1]


def _made(
    asked: ValidatedRequest,
    inputs: list[dict[str, Any]],
    read: ParsedCorpus,
    chosen: ChosenVocabulary,
    entries: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return the manifest entry that records how the documents were ingested."""
    kind = asked.request.kind
    advice = [] if kind == "uci" else vocabulary_advice(chosen.words, chosen.frequencies)
    return creation_record(
        kind=kind,
        options=asked.options,
        inputs=inputs,
        documents=read.documents,
        tokens=sum(entry["tokens"] for entry in entries),
        skipped=read.total("skipped"),
        first_skipped=next((chunk.first_problem for chunk in read.chunks if chunk.first_problem), None),
        **({"known": read.total("known")} if read.total("known") else {}),
        dropped=chosen.dropped,
        **({"left_out": read.left_out} if read.left_out else {}),
        **_duplicates_told(read.duplicates),
        **({"advice": advice} if advice else {}),
    )
