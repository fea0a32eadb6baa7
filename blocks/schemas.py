"""TypedDicts of the JSON files of datasets, runs and models, for validation by `blocks.json_files.read_json`.

Annotations are not strings here: from Python 3.14 on, msgspec would resolve their names in the module that extends a
schema.
"""

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

NO_NUL = r"^[^\0]*\Z"  # pattern of paths
RUN_ID = r"^[0-9a-f]{32}\Z"  # id of a run, which is also used as a file name
Count = Annotated[int, Meta(ge=0, lt=1 << 53)]


class FileEntry(TypedDict):
    """Manifest entry for a file of a dataset or model."""

    file: str
    bytes: Count
    checksum: str


class ArrayFileEntry(FileEntry):
    """Manifest entry for a file of named arrays, with the position of each array as a `blocks.arrays.ArrayLocation`."""

    arrays: dict[str, tuple[Count, str, Count]]


class ManifestKind(TypedDict):
    """The field that determines which schema applies."""

    kind: str


class InputEntry(TypedDict):
    """Manifest entry for an input file."""

    name: str
    hash: NotRequired[str]  # XXH3-128 of the contents, see `blocks.corpus.request.input_records`


class DroppedCounts(TypedDict):
    """Numbers of words and tokens dropped from a corpus for one reason."""

    words: NotRequired[Count]
    tokens: Count


class IngestionRecord(TypedDict, total=False):
    """Record of how documents were ingested.

    All fields are optional: a dataset made from arrays has only some of them.
    """

    ooc: str
    kind: str
    options: dict[str, Any]
    inputs: list[InputEntry]
    dropped: dict[str, DroppedCounts]
    skipped: Count
    first_skipped: str | None
    left_out: dict[str, Count]
    advice: list[str]
    known: Count  # number of documents skipped because the dataset already had them
    exact_duplicates: Count  # number of documents left out that have the same tokens as an earlier one
    near_duplicates: Count  # number of documents left out that are similar to an earlier one
    duplicates: Count
    unknown: Count


class AppendRecord(IngestionRecord):
    """Record of how documents were appended, and how many."""

    documents: Count
    tokens: Count


class CreationRecord(IngestionRecord, total=False):
    """Record of how a dataset was made and appended to."""

    appended: list[AppendRecord]


class DatasetManifest(ManifestKind):
    """Fields that the manifest of every dataset has."""

    generation: Count
    identity: str
    made: CreationRecord
    index: ArrayFileEntry


class ShardEntry(TypedDict):
    """The "shard" entry of a shard's manifest, without the entry `whole`."""

    number: Count
    shards: Annotated[int, Meta(ge=1, lt=1 << 20)]
    index: ArrayFileEntry
