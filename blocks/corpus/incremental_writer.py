"""Write corpora document by document from Python. See `Dataset.create`."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise, repeat
from typing import Any

import numpy as np

from blocks.append import DatasetTarget
from blocks.arrow_tables import MEMORY as ARROW_BYTES
from blocks.corpus.ingestion import ParsedCorpus, choose_and_shuffle, finish_corpus, reading_of, write_table
from blocks.corpus.messages import BagOfWordsChunk, ParsedDocumentChunk, TableTextsChunk
from blocks.corpus.record_parsers import Text, document_name, token_problem
from blocks.corpus.request import PYTHON, CorpusRequest, ValidatedRequest, validated_request
from blocks.corpus.vocabulary import WordFilters
from blocks.corpus.worker import CorpusIngestWorker
from blocks.documents.kept_columns import ALL
from blocks.errors import RequestError
from blocks.given_tables import InputRows, InputTable, column_names, column_values, is_table, table_column
from blocks.in_process import InProcessWorker
from blocks.ingestion.incremental_writer import (
    DatasetWriter,
    adds_data,
    incremental_dataset,
    options_as_parameters,
    writer_budget,
)
from blocks.ingestion.memory_budget import MemoryBudget
from blocks.ingestion.name_merging import merge_names
from blocks.ingestion.pipeline import RUN, IngestionPipeline
from blocks.plurals import count_of
from blocks.progress_bar import no_bar
from blocks.stored_dataset import range_parts
from blocks.text_inputs import CHUNK

_DOCUMENTS = "Pass a list of strings, or of lists of words."
_COLUMNS = "Pass columns={name: values} with a value for each document."
_BATCH = 1 << 14  # number of entries of a count matrix whose tokens are written together


class CorpusWriter(DatasetWriter):
    """Writer that adds documents to a corpus. Created by `Dataset.create`."""

    def __init__(self, asked: ValidatedRequest, budget: MemoryBudget, target: DatasetTarget) -> None:
        self._asked, self._budget = asked, budget
        self._reading = reading_of(asked, budget, target)
        self._pipeline = IngestionPipeline(InProcessWorker(CorpusIngestWorker(self._reading)), target, no_bar)
        self._parsed: list[ParsedDocumentChunk] = []
        self._pending: list[tuple[Text, str, Mapping[str, Any] | None]] = []
        self._held = self._added = 0  # characters of buffered documents, number of documents

    @adds_data
    def add(
        self,
        documents: Any,
        names: Iterable[object] | None = None,
        columns: Mapping[str, Iterable[Any]] | None = None,
    ) -> None:
        """Add documents.

        Parameters
        ----------
        documents : iterable of str or of lists of str
            Strings, which are tokenized, or lists of words, which are used unchanged. A generator is read one
            document at a time. Or a pandas, polars or pyarrow table with the documents in column `text_column`. Or a
            count matrix (scipy.sparse or a two-dimensional array) with a row for each document and a column for
            each word of the vocabulary.
        names : iterable, optional
            Name of each document.
        columns : mapping of str to iterable, optional
            Values of each document in the columns that ``create(keep=...)`` keeps. Tables bring their own columns.

        Raises
        ------
        RequestError
            For an invalid document; the message gives its index, counted from 0 over all calls.
        """
        if is_table(documents):
            request, table = self._asked.request, documents
            documents = table_column(table, request.text_column, "text_column")
            kept = self._asked.kept
            if kept and columns is None:
                there = column_names(table)
                kept_names = kept.names_of("the table", list(map(str, there)))
                columns = {str(name): table[name] for name in there if str(name) in kept_names and name != kept.text}
            if request.name_column:
                names = table_column(table, request.name_column, "name_column")
        if hasattr(documents, "tocsr") or (isinstance(documents, np.ndarray) and documents.ndim == 2):
            self._add_counts(documents, names, columns)
            return
        if isinstance(documents, str | bytes | Mapping) or not isinstance(documents, Iterable):
            raise RequestError(
                f"documents must be a list, got {_kind(documents)} {reprlib.repr(documents)}", _DOCUMENTS
            )
        rows = self._rows(columns)
        for document, name in _paired(column_values(documents), names, self._added):
            text = _checked(document, self._added)
            self._pending.append((text, name, self._row(rows, text)))
            self._added += 1
            self._held += len(text) if isinstance(text, str) else sum(map(len, text)) + len(text)
            if self._held >= CHUNK:
                self._flush()
        _require_end(rows)

    def _rows(self, columns: Mapping[str, Iterable[Any]] | None) -> Iterator[Mapping[str, Any]] | None:
        """Return an iterator over the values of each document in the kept columns; None if only texts are kept."""
        kept = self._asked.kept
        if columns is not None and kept is None:
            raise RequestError(
                "columns were given, but the dataset keeps no columns",
                'Call create() with keep="all" or with column names.',
            )
        if kept is None or not columns:
            if kept and (missing := [name for name in kept.names if name not in (ALL, kept.text)]):
                raise RequestError(f"the column {missing[0]!r}, which keep lists, was not given", _COLUMNS)
            return None
        names = kept.names_of("columns", [*columns, *([] if kept.text in columns else [kept.text])])
        given = {name: column_values(columns[name]) for name in names if name in columns}
        if not given:
            return None
        return (dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True))

    def _row(self, rows: Iterator[Mapping[str, Any]] | None, text: Text | None) -> Mapping[str, Any] | None:
        """Return the values of the next document.

        text: value of the column that holds its text.
        """
        if rows is None:
            return None
        try:
            row = next(rows)
        except (StopIteration, ValueError):
            raise RequestError(f"columns: document {self._added} (counted from 0) has no value", _COLUMNS) from None
        kept = self._asked.kept
        return {kept.text: text, **row} if kept and kept.has_text and text is not None else row

    def _flush(self) -> None:
        if self._pending:
            source = f"document {self._added}"
            self._parsed += self._pipeline.parse([TableTextsChunk(0, source, 0, self._pending)])
            self._pending, self._held = [], 0

    def _add_counts(
        self, counts: Any, names: Iterable[object] | None, columns: Mapping[str, Iterable[Any]] | None
    ) -> None:
        vocabulary = self._reading.vocabulary
        if vocabulary is None:
            raise RequestError(
                "a count matrix has no words, and no vocabulary was given",
                "Pass create() the words of the columns as vocabulary, or a dataset with the same words as vocab_from.",
            )
        table = InputTable(counts, "the count matrix")
        if table.columns != len(vocabulary):
            words = count_of(len(vocabulary), "word")
            raise RequestError(f"the count matrix has {table.columns} columns, but the vocabulary has {words}")
        given = [""] * table.rows if names is None else list(map(document_name, column_values(names)))
        if len(given) != table.rows:
            raise _lengths_differ(len(given), table.rows)
        self._flush()
        values = self._rows(columns)
        end = self._added + table.rows
        for rows in table.sparse(_BATCH, self._added):
            self._require_counts(rows, table)
            tokens = np.concatenate(([0], np.cumsum(rows.values, dtype=np.int64)))[rows.offsets]
            for first, last in pairwise(range_parts(tokens, RUN).tolist()):
                some = slice(rows.offsets[first], rows.offsets[last])
                ids = np.repeat(rows.columns[some].astype(np.uint32), rows.values[some].astype(np.int64))
                lengths = np.diff(tokens[first : last + 1]).astype(np.uint32)
                done = table.rows - (end - self._added)
                names_ = given[done : done + last - first]
                of_rows = [self._row(values, None) or {} for _ in range(first, last)]
                self._parsed += self._pipeline.parse([BagOfWordsChunk(0, ids, lengths, names_, of_rows)])
                self._added += last - first
        _require_end(values)

    def _require_counts(self, rows: InputRows, table: InputTable) -> None:
        values = rows.values
        wrong = (values < 0) | (values != np.floor(values))
        if wrong.any():
            at = int(wrong.argmax())
            place = table.place(self._added + rows.row_of(at), int(rows.columns[at]))
            raise RequestError(
                f"{place}: {values[at]} is not a count", "Use non-negative integers: how often each word occurs."
            )
        tokens = np.diff(np.concatenate(([0], np.cumsum(values, dtype=np.float64)))[rows.offsets])
        if (tokens > self._reading.longest).any():
            at, longest = int(tokens.argmax()), self._reading.longest
            what = f"document {self._added + at} (counted from 0) has {tokens[at]:,.0f} tokens; at most {longest:,} fit"
            raise RequestError(f"{what} in memory", "Pass create() a larger memory.")

    def _finish(self) -> None:
        self._flush()
        asked, pipeline = self._asked, self._pipeline
        if not self._added:
            raise RequestError(f"{asked.request.out}: no documents were added", "Call add() with at least one.")
        merged = merge_names(pipeline.reports(), self._reading.vocabulary)
        read = ParsedCorpus(self._parsed, [0] * (len(self._parsed) + 1), merged, {})
        table = write_table(pipeline, asked, read)
        chosen, blocks = choose_and_shuffle(pipeline, asked, self._budget, self._reading, read)
        finish_corpus(pipeline.target, asked, [], read, chosen, blocks, table)


def create_corpus(
    out: str, *, vocabulary: Sequence[str] | None = None, memory: int | str | None = None, **options: Any
) -> AbstractContextManager[CorpusWriter]:
    """Create a corpus. See `Dataset.create`."""
    if isinstance(vocabulary, str):
        raise RequestError(
            f"vocabulary must be a list of words, got the string {reprlib.repr(vocabulary)}", "Pass a list of words."
        )
    filters = WordFilters(**{name: options.pop(name) for name in WordFilters._fields if name in options})
    with options_as_parameters():
        asked = validated_request(
            CorpusRequest(PYTHON, [], out, vocabulary=vocabulary, filters=filters, **options), together=False
        )
    budget = writer_budget(memory)._replace(beside=ARROW_BYTES if asked.kept else 0)
    return incremental_dataset(out, asked.request.overwrite, lambda target: CorpusWriter(asked, budget, target))


def _paired(documents: Iterable[Any], names: Iterable[object] | None, first: int) -> Iterator[tuple[Any, str]]:
    """Yield each document with its name.

    Raises RequestError if there are more documents than names, or fewer.
    """
    if names is None:
        yield from zip(documents, repeat(""))
        return
    found, count = iter(column_values(names)), 0
    for count, document in enumerate(documents, 1):
        try:
            name = next(found)
        except StopIteration:
            raise _lengths_differ(count - 1, None) from None
        yield document, document_name(name)
    if more := sum(1 for _ in found):
        raise _lengths_differ(count + more, count)


def _require_end(rows: Iterator[Any] | None) -> None:
    """Raise RequestError if columns have more values than there are documents."""
    try:
        more = rows is not None and next(rows, None) is not None
    except ValueError:  # only some of the columns
        more = True
    if more:
        raise RequestError("columns: there are more values than documents", _COLUMNS)


def _lengths_differ(names: int, documents: int | None) -> RequestError:
    there = "more documents" if documents is None else f"{documents} documents"
    return RequestError(
        f"names has {names} elements, but there are {there}", "Pass one name for each document, or omit names."
    )


def _checked(document: Any, number: int) -> Text:
    """Return a string or a list of words.

    Raises RequestError for anything else.
    """
    where = f"document {number} (counted from 0)"
    if isinstance(document, str):
        if "\0" in document:
            raise RequestError(f"{where} contains a NUL character, so it is not text", "Remove the character.")
        return document
    if isinstance(document, bytes | Mapping) or not isinstance(document, Iterable):
        missing = document is None or (isinstance(document, float) and math.isnan(document))
        remedy = "Remove the document, or pass an empty string." if missing else _DOCUMENTS
        raise RequestError(f"{where} is {reprlib.repr(document)}, neither a string nor a list of words", remedy)
    tokens = list(map(_as_text, document))
    if strange := [token for token in tokens if not isinstance(token, str)]:
        raise RequestError(f"{where} contains {reprlib.repr(strange[0])}, which is not a string", _DOCUMENTS)
    if problem := token_problem(tokens):
        raise RequestError(f"{where} {problem}", "Words must not be empty or contain a line break or NUL.")
    return tokens


def _as_text(token: Any) -> Any:
    return str(token) if isinstance(token, str) else token  # converts NumPy strings


def _kind(given: Any) -> str:
    return f"one {type(given).__name__}," if isinstance(given, str | bytes | Mapping) else f"the {type(given).__name__}"
