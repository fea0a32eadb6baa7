"""TypedDicts of the JSON files of datasets, runs and models; `blocks.json_files.read_json` validates files against
them.

Annotations are not strings here: from Python 3.14 on, msgspec would look for their names where a schema is extended.
"""

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

NO_NUL = r"^[^\0]*\Z"  # of paths
RUN_ID = r"^[0-9a-f]{32}\Z"  # of a run; a file has it as its name
Count = Annotated[int, Meta(ge=0, lt=1 << 53)]


class File(TypedDict):
    """Entry of a file of a dataset or a model."""

    file: str
    bytes: Count
    checksum: str


class ArrayFile(File):
    """Entry of a file of named arrays, with the position of each, as `blocks.arrays.Where`."""

    arrays: dict[str, tuple[Count, str, Count]]


class Kind(TypedDict):
    """Field that decides which schema applies."""

    kind: str


class InputEntry(TypedDict):
    """Entry of an input file."""

    name: str
    hash: NotRequired[str]  # XXH3-128 of its content, see `blocks.corpus.request.inputs_told`


class Dropped(TypedDict):
    """Tokens or words dropped from a corpus for one reason."""

    words: NotRequired[Count]
    tokens: Count


class IngestedBatch(TypedDict, total=False):
    """How documents got into a dataset. All fields are optional: a dataset made from arrays has only some of them."""

    ooc: str
    kind: str
    options: dict[str, Any]
    inputs: list[InputEntry]
    dropped: dict[str, Dropped]
    skipped: Count
    first_skipped: str | None
    left_out: dict[str, Count]
    advice: list[str]
    known: Count  # documents left out that the dataset had already
    duplicates: Count
    unknown: Count


class Appended(IngestedBatch):
    """How documents were appended, and their number."""

    documents: Count
    tokens: Count


class Made(IngestedBatch, total=False):
    """How a dataset was made and appended to."""

    appended: list[Appended]


class Manifest(Kind):
    """Fields of the manifest of every dataset."""

    generation: Count
    identity: str
    made: Made
    index: ArrayFile


class Shard(TypedDict):
    """The "shard" entry of a shard's manifest, without its whole."""

    number: Count
    shards: Annotated[int, Meta(ge=1, lt=1 << 20)]
    index: ArrayFile
