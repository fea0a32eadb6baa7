"""Ingestion out of core: inputs are parsed by workers into spill files, sorted by bucket, and encoded block by block.

    read     the main process cuts inputs into chunks; workers tokenise them with a vocabulary of their own and spill
    choose   the vocabularies are merged and filtered; words get their ranks
    sort     runs of chunks are mapped to ranks and sorted by the bucket their documents go to
    encode   the buckets of a block are gathered from all runs, shuffled and written

Which worker does what has no influence on the result.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from blocks.append import Target, append_to, new_dataset, require_replaceable
from blocks.arrow_tables import arrow_bytes
from blocks.corpus import chunks, known, uci
from blocks.corpus.advice import advice_on
from blocks.corpus.dataset import Dataset
from blocks.corpus.division import blocks_of_buckets, bucket_count
from blocks.corpus.messages import Chunk, Encode, Piece, Reading, Run, SortedRun, Spilled, spill_file
from blocks.corpus.request import (
    Request,
    base_of,
    check,
    files_of,
    inputs_told,
    options_told,
    rules_of,
)
from blocks.corpus.rules import Rules
from blocks.corpus.vocabulary import Chosen, Merged, choose, keep_fixed, merge, select, write_ranks
from blocks.corpus.writer import finish
from blocks.directories import table_files
from blocks.errors import RequestError
from blocks.files import is_free
from blocks.generations import keep_referred
from blocks.ingestion.memory import NAME_BYTES, Budget
from blocks.ingestion.messages import Report
from blocks.progress_bar import Bar, no_bar
from blocks.shards.together import Found, Others, Together
from blocks.sources import LONGEST_RECORD, Opening, size_of
from blocks.store import write_lines
from blocks.workers import Workers, cores

_RUN_TOKENS = 1 << 20
_BYTES_OF_TOKEN = 20  # of a block or run, in memory while it is sorted and written
_BYTES_OF_DOCUMENT = 64  # of the same, where most documents have no token: 50M of them took 3.2 GB
_EMPTY_RUN = 1 << 19  # documents without tokens that a run may hold at most
_RECORD_BYTES = 14  # of memory for each byte of a record, in the main process and the worker that has it, at worst
_LEAST_RECORD = 4 << 20  # bytes that a record may have whatever the memory: `ONE_WORKER` has room for it
_WORKER_WORD_BYTES = 48  # of a word of a UCI file in a worker: tokens, documents and the last of them, while they grow


@dataclass
class Read:
    """What reading the inputs has found."""

    chunks: list[Spilled]
    before: list[int]  # empty documents before each chunk, that have no lines in a UCI file
    tail: int  # and after the last
    merged: Merged
    documents: int
    left_out: dict[str, int]  # files in directories, by why they were
    inputs: list[dict[str, Any]]  # what manifests tell of them

    def total(self, name: str) -> int:
        """Sum of a fact over all chunks."""
        return sum(getattr(chunk, name) for chunk in self.chunks)


def ingest(
    request: Request,
    *,
    workers: int | None = None,
    memory: int | None = None,
    bar: Bar | None = None,
    others: Others | None = None,
) -> Dataset:
    """Make a dataset, or append to one, as requested. With `skip_known` one that has all of it already stays as it is.

    workers: processes, None for all cores. memory: bytes for the whole process tree, None for a quarter of what is
    available; neither changes the result. bar: makes progress bars. others: machines that ingest at the same time, each
    its own inputs, to shards of one whole; all call this. Raises RequestError for bad input, WorkFailed for a full disk
    or a worker that died; nothing is left behind then.
    """
    if request.kind == "csv":
        request = replace(request, inputs=table_files(request.inputs))
    check(request)
    if request.append and (is_free(Path(request.out)) or not Path(request.out).exists()):
        request = replace(request, append=False, skip_known=False)
    together = Together(others) if others else None
    if together and (request.append or request.vocab_from):
        raise RequestError("several machines choose a vocabulary together", "Leave out --append and --vocab-from.")
    count = workers or cores()
    if not request.append:
        require_replaceable(Path(request.out), request.overwrite)
    base = base_of(request)
    names_bytes = known.NAME_BYTES * base.documents if base and request.append else 0
    budget = Budget(memory, count, names_bytes + (arrow_bytes(request.inputs) if request.kind == "csv" else 0))
    rules = rules_of(request, base)
    words = _fixed_words(request)
    with append_to(request.out) if request.append else new_dataset(request.out, request.overwrite) as target:
        told = _inputs_told(request, bar or no_bar)
        if target.old:
            told = known.new_inputs(told, target.old, skip=request.skip_known)
            request = replace(request, inputs=[each["name"] for each in told])
            if not told:
                return target.old
        reading = _reading(request, rules, base, budget, target)
        with Workers("blocks.corpus.worker:start", reading, count) as pool:
            read = _read(pool, request, reading, told, words, bar or no_bar)
            if target.old and not read.documents and read.total("known"):
                return target.old
            names = [] if reading.kind == "uci" or reading.vocabulary is not None else read.merged.terms
            budget.require_names(_block_bytes(request, read), names)
            chosen = _choose(request, rules, read, base, together)
            entries = _write(pool, request, target, read, chosen, bar or no_bar)
        _finish(request, rules, target, read, chosen, entries, together)
    return Dataset(request.out)


def _inputs_told(request: Request, bar: Bar) -> list[dict[str, Any]]:
    progress = bar("checking", sum(map(size_of, request.inputs)) or None, "B")
    told = inputs_told(request, progress.update)
    progress.close()
    return told


def _reading(request: Request, rules: Rules, base: Dataset | None, budget: Budget, target: Target) -> Reading:
    """How workers read the inputs; writes what of the dataset they have to know."""
    room = budget.names_bytes(_BYTES_OF_TOKEN * max(request.block_tokens, _RUN_TOKENS))
    record = min(max(room // (4 * _RECORD_BYTES), _LEAST_RECORD), LONGEST_RECORD)
    return Reading(
        kind=request.reading,
        spill=str(target.spill),
        rules=rules,
        skip=request.on_error == "skip",
        text_field=request.text_field,
        name_field=request.name_field,
        vocabulary=base.vocabulary() if base and request.kind != "uci" else None,
        vocabulary_bytes=room - _RECORD_BYTES * (record - _LEAST_RECORD),
        longest=min(budget.each_worker // uci.TOKEN_BYTES, uci.LONGEST),
        opening=Opening(request.encoding, record, request.query),
        known=known.write_known(target.spill / "known", target.old) if target.old else None,
        skip_known=request.skip_known,
    )


def _fixed_words(request: Request) -> list[str] | None:
    """The words that a UCI vocabulary file lists."""
    return uci.read_vocabulary(request.vocab, request.encoding) if request.kind == "uci" and request.vocab else None


def _block_bytes(request: Request, read: Read) -> int:
    """What a worker needs while it sorts or writes the largest block or run."""
    tokens = read.total("tokens")
    largest = min(tokens, max(request.block_tokens, _RUN_TOKENS))
    documents = read.documents // bucket_count(tokens, request.block_tokens)
    return max(_BYTES_OF_TOKEN * largest, _BYTES_OF_DOCUMENT * documents)


def _read(
    pool: Workers,
    request: Request,
    reading: Reading,
    inputs: list[dict[str, Any]],
    words: list[str] | None,
    bar: Bar,
) -> Read:
    files, left_out, archives = files_of(request)
    sizes = sum(size_of(path) for path in ([path for path, _ in files] or request.inputs))
    progress = bar("reading", sizes or None, "B")
    uci_files: list[chunks.UciFile] = []
    source: Iterator[Chunk]
    if reading.kind == "uci":
        given = len(words) if words else None
        most = reading.vocabulary_bytes * len(pool) // (NAME_BYTES + len(pool) * _WORKER_WORD_BYTES)
        source = chunks.uci_chunks(request.inputs, given, uci_files, reading.opening, most, progress.update)
    elif reading.kind == "files":
        source = chunks.file_chunks(files, archives, request.glob, reading.opening, progress.update)
    else:
        names = request.text_column, request.name_column
        columns = chunks.Columns(*names, request.delimiter, request.quote, not request.no_header)
        source = chunks.row_chunks(reading.kind, request.inputs, columns, reading.opening, progress.update)
    spilled = pool.map_numbered(source)
    progress.close()
    before, tail = chunks.check_uci(uci_files, spilled) if uci_files else ([0] * len(spilled), 0)
    reports = [answer for worker in range(len(pool)) if (answer := pool.ask(worker, Report())) is not None]
    shared = reading.vocabulary
    if uci_files:
        shared = words or [str(number + 1) for number in range(uci_files[0].header.words)]
    documents = sum(chunk.documents for chunk in spilled) + sum(before) + tail
    return Read(spilled, before, tail, merge(reports, shared), documents, left_out, inputs)


def _choose(request: Request, rules: Rules, read: Read, base: Dataset | None, together: Together | None) -> Chosen:
    if read.documents == 0:
        skipped = read.total("skipped")
        raise RequestError(
            f"{', '.join(request.inputs)}: there are no documents" + (f" ({skipped} were skipped)" if skipped else "")
        )
    if base:
        chosen = keep_fixed(read.merged, base, rules.stop_words)
        if request.kind != "uci":  # workers have dropped the words already, and counted their tokens
            chosen = chosen._replace(dropped={why: {"tokens": read.total(why)} for why in chosen.dropped})
    else:
        found = Found(read.merged, read.documents, read.total("stop_words"))
        if together:
            chosen = together.choose(found, lambda all_: _select(request, rules, all_), request.seed)
        else:
            chosen = choose(read.merged, *_select(request, rules, found), request.seed)
    if chosen.frequencies.sum() == 0 and not request.vocab_from:  # else to be told that their topics are the prior
        raise _nothing_left(read.documents, chosen.dropped)
    return chosen


def _select(request: Request, rules: Rules, found: Found) -> tuple[np.ndarray, dict[str, Any]]:
    """See `vocabulary.select`; RequestError if nothing is kept."""
    is_uci = request.kind == "uci"
    stop_words = rules.stop_words if is_uci else ()
    kept, dropped = select(found.merged, found.documents, request.filters, in_order=is_uci, stop_words=stop_words)
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
        f"no tokens are left in {documents} documents: {', '.join(told) or 'none of them has any'}",
        "Loosen the filters, or look whether this is the field, column or file that holds the text.",
    )


def _write(
    pool: Workers, request: Request, target: Target, read: Read, chosen: Chosen, bar: Bar
) -> list[dict[str, Any]]:
    """Sort and encode; returns the entries of the new blocks."""
    ranks = write_ranks(target.spill, read.merged, chosen.rank_of_term)
    tokens = int(chosen.frequencies.sum())
    buckets = bucket_count(tokens, request.block_tokens)
    runs = list(_runs(request, target, read, ranks, buckets))
    progress = bar("writing", len(runs) + buckets, "block")
    sorted_runs: dict[str, SortedRun] = {}
    for run, answer in pool.map_unordered(runs):
        sorted_runs[run.path] = answer
        progress.update(1)
    in_order = [sorted_runs[run.path] for run in runs]
    bucket_tokens = np.sum([np.diff(run.token_bounds) for run in in_order], axis=0)
    messages = [
        Encode(
            str(target.root),
            target.first_block + number,
            [_segment(run, first, last) for run in in_order],
            chosen.slice_bounds,
            request.seed,
        )
        for number, (first, last) in enumerate(pairwise(blocks_of_buckets(bucket_tokens)))
    ]
    entries = pool.map_numbered(messages, lambda: progress.update(1))
    progress.close()
    return entries


def _segment(run: SortedRun, first: int, last: int) -> tuple[str, tuple[int, int, int], tuple[int, int]]:
    """Where the documents and tokens of buckets `first` to `last` (exclusive) lie in a run."""
    documents, tokens = run.document_bounds, run.token_bounds
    return (
        run.path,
        (int(documents[first]), int(documents[last]), int(documents[-1])),
        (int(tokens[first]), int(tokens[last])),
    )


def _runs(request: Request, target: Target, read: Read, ranks: dict[int, str], buckets: int) -> Iterator[Run]:
    """Consecutive pieces, about `_RUN_TOKENS` tokens together."""
    pieces: list[Piece] = []
    first, documents, size, number = target.first_document, 0, 0, 0
    for piece in _pieces(target, read, ranks):
        pieces.append(piece)
        documents += piece.before + piece.documents
        size += piece.tokens + piece.before + piece.documents
        if size >= _RUN_TOKENS:
            yield Run(str(target.spill / f"run-{number}"), pieces, first, request.seed, buckets)
            pieces, first, documents, size, number = [], first + documents, 0, 0, number + 1
    if pieces:
        yield Run(str(target.spill / f"run-{number}"), pieces, first, request.seed, buckets)


def _pieces(target: Target, read: Read, ranks: dict[int, str]) -> Iterator[Piece]:
    """All documents in their order; long stretches of empty ones are cut so that they fit in memory."""
    for chunk, before in zip(read.chunks, read.before, strict=True):
        yield from _empty(before)
        path = str(spill_file(target.spill, chunk.worker))
        offset = chunk.offset
        for documents, tokens in chunk.pieces or [(chunk.documents, chunk.tokens)]:
            yield Piece(path, offset, 0, documents, tokens, ranks.get(chunk.worker, ""))
            offset += 4 * (documents + tokens)
    yield from _empty(read.tail)


def _empty(documents: int) -> Iterator[Piece]:
    for first in range(0, documents, _EMPTY_RUN):
        yield Piece("", 0, min(_EMPTY_RUN, documents - first), 0, 0, "")


def _finish(
    request: Request,
    rules: Rules,
    target: Target,
    read: Read,
    chosen: Chosen,
    entries: list[dict[str, Any]],
    together: Together | None,
) -> None:
    """Write the texts and everything that is derived from the blocks, then the manifest."""
    frequencies, document_frequencies = chosen.frequencies, chosen.document_frequencies
    texts, blocks = {}, entries
    made = _made(request, rules, read, chosen, entries)
    if old := target.old:
        for mine, theirs in (
            (frequencies, old.index.frequencies),
            (document_frequencies, old.index.document_frequencies),
        ):
            mine[chosen.word_ids] += theirs
        texts["vocabulary"] = old.manifest["texts"]["vocabulary"]
        blocks = old.manifest["blocks"] + entries
        made = {**old.manifest["made"], "appended": [*old.manifest["made"].get("appended", []), made]}
    else:
        texts["vocabulary"] = write_lines(target.root, "vocabulary.txt", chosen.words)
    if read.total("name_bytes") or (old and "documents" in old.manifest["texts"]):
        names = _all_names(target, read)
        texts["documents"] = write_lines(target.root, f"documents{target.suffix}.txt", names)
    shutil.rmtree(target.spill)
    if old:
        keep_referred(target.root)
    finish(
        target.root,
        shard=together.shard(target.root, entries, texts) if together else None,
        blocks=blocks,
        word_ids=chosen.word_ids,
        slice_bounds=chosen.slice_bounds,
        frequencies=frequencies,
        document_frequencies=document_frequencies,
        texts=texts,
        made=made,
        part_tokens=old.part_size if old else request.part_tokens,
        generation=target.generation,
        planted=old.manifest.get("planted") if old else None,
    )
    if together:
        together.wait()


def _all_names(target: Target, read: Read) -> Iterator[str]:
    """A name for each document, empty if it has none."""
    if target.old:
        yield from target.old.each_name()
    for chunk, before in zip(read.chunks, read.before, strict=True):
        if not chunk.name_bytes:
            yield from [""] * (before + chunk.documents)
            continue
        with spill_file(target.spill, chunk.worker).open("rb") as file:
            file.seek(chunk.offset + 4 * (chunk.documents + chunk.tokens))
            yield from file.read(chunk.name_bytes).decode("utf-8").split("\n")[:-1]
    yield from [""] * read.tail


def _made(request: Request, rules: Rules, read: Read, chosen: Chosen, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """How the dataset was made: nothing in it depends on the time, the workers or the memory."""
    from importlib.metadata import version

    advice = [] if request.kind == "uci" else advice_on(chosen.words, chosen.frequencies)
    return {
        "ooc": version("ooc"),
        "command": "ingest",
        "kind": request.kind,
        "options": options_told(request, rules),
        "inputs": read.inputs,
        "documents": read.documents,
        "tokens": sum(entry["tokens"] for entry in entries),
        "skipped": read.total("skipped"),
        "first_skipped": next((chunk.first_problem for chunk in read.chunks if chunk.first_problem), None),
        **({"known": read.total("known")} if read.total("known") else {}),
        "dropped": chosen.dropped,
        **({"left_out": read.left_out} if read.left_out else {}),
        **({"advice": advice} if advice else {}),
    }
