"""Write the document table: workers spill columns chunk by chunk, then write files of consecutive chunks.

The type of a column depends on all of its values, so files are written only after all chunks have been read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import zstandard

from blocks.arrow_tables import pyarrow_module
from blocks.documents.column_types import DocumentColumn, Kind, arrow_array, joint_kind, unicode_text
from blocks.documents.document_table import arrow_type
from blocks.errors import RequestError
from blocks.files import checksum, publish_file
from blocks.ingestion.messages import spill_file

FOLDER = "documents"
_FILE = 64 << 20  # bytes of the values of a file, about
_GROUP = 1 << 20  # bytes of the values of a row group, about: what is read for a single document
_MOST_ROWS = 1 << 16  # of a row group


class SpilledDocumentColumns(NamedTuple):
    """Document columns of a chunk in the spill file of a worker.

    size: number of bytes of the values.
    """

    worker: int
    offset: int
    bytes: int
    rows: int
    size: int
    kinds: dict[str, Kind]


@dataclass
class WriteTableFileTask:
    """Message: write a file of consecutive chunks.

    kinds: types of all columns, in column order.
    text: name of the text column, in which empty values are not missing.
    """

    number: int
    chunks: list[SpilledDocumentColumns] = field(repr=False)
    kinds: dict[str, Kind]
    text: str | None


def pack_columns(columns: Mapping[str, DocumentColumn]) -> tuple[bytes, int]:
    """Serialize columns for the spill file; returns the bytes, and the number of bytes of the values."""
    values = {name: column.values for name, column in columns.items()}
    try:
        spelled = orjson.dumps(values)
    except TypeError:  # a lone surrogate, which JSON can have
        spelled = orjson.dumps(
            {name: [text if text is None else unicode_text(text) for text in listed] for name, listed in values.items()}
        )
    return zstandard.ZstdCompressor(level=1).compress(spelled), len(spelled)


def table_files(
    chunks: Sequence[SpilledDocumentColumns], text: str | None, first: int, old: Mapping[str, Kind] | None
) -> Iterator[WriteTableFileTask]:
    """Yield the messages that write all chunks.

    first: number of the first file.
    old: column types of the dataset to which documents are appended.
    Raises RequestError if values have other types.
    """
    kinds = _all_kinds(chunks, text) if old is None else _kept_kinds(chunks, old)
    together: list[SpilledDocumentColumns] = []
    for chunk in chunks:
        if together and sum(each.size for each in together) + chunk.size > _FILE:
            yield WriteTableFileTask(first, together, kinds, text)
            first, together = first + 1, []
        together.append(chunk)
    if together:
        yield WriteTableFileTask(first, together, kinds, text)


def _all_kinds(chunks: Sequence[SpilledDocumentColumns], text: str | None) -> dict[str, Kind]:
    names = dict.fromkeys(name for chunk in chunks for name in chunk.kinds)
    found = {name: joint_kind(chunk.kinds.get(name, "missing") for chunk in chunks) for name in names}
    return {name: "text" if name == text or kind == "missing" else kind for name, kind in found.items()}


def _kept_kinds(chunks: Sequence[SpilledDocumentColumns], old: Mapping[str, Kind]) -> dict[str, Kind]:
    for name, kind in old.items():
        for new in (chunk.kinds.get(name, "missing") for chunk in chunks):
            if joint_kind((kind, new)) != kind:
                raise RequestError(
                    f"column {name!r} has the type {kind} in the dataset, but {new} in the new documents",
                    "Correct the new documents, or ingest all documents again.",
                )
    return dict(old)


def write_table_file(root: Path, spill: Path, message: WriteTableFileTask) -> dict[str, Any]:
    """Publish a Parquet file of the table; returns its manifest entry."""
    arrow = pyarrow_module()
    schema = arrow.schema([(name, arrow_type(kind, arrow)) for name, kind in message.kinds.items()])
    name = f"{FOLDER}/{message.number:05}.parquet"
    (root / FOLDER).mkdir(exist_ok=True)
    with publish_file(root / name) as beside:
        with arrow.parquet.ParquetWriter(beside, schema, compression="zstd", write_page_checksum=True) as writer:
            for chunk in message.chunks:
                rows = min(max(_GROUP * chunk.rows // max(chunk.size, 1), 1), _MOST_ROWS)
                writer.write_table(_table(spill, chunk, message, schema, arrow), row_group_size=rows)
        entry = {"bytes": beside.stat().st_size, "checksum": checksum(beside)}
    return {"file": name, **entry, "documents": sum(chunk.rows for chunk in message.chunks)}


def _table(spill: Path, chunk: SpilledDocumentColumns, message: WriteTableFileTask, schema: Any, arrow: Any) -> Any:
    with spill_file(spill, chunk.worker).open("rb") as file:
        file.seek(chunk.offset)
        values = orjson.loads(zstandard.ZstdDecompressor().decompress(file.read(chunk.bytes)))
    arrays = []
    for name, kind in message.kinds.items():
        listed = values.pop(name, None) or [None] * chunk.rows
        if kind == "text" and name != message.text:
            listed = [text or None for text in listed]
        arrays.append(arrow_array(listed, kind, arrow))
    return arrow.table(arrays, schema=schema)
