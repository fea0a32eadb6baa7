"""What JSON files have to hold, in terms of which each kind of dataset, run and model says what its own has to.

`blocks.json_files.read_json` compares: what a file says is used only if it fits.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

NO_NUL = r"^[^\0]*\Z"  # of paths
RUN_ID = r"^[0-9a-f]{32}\Z"  # of a run; a file has it as its name
Count = Annotated[int, Meta(ge=0, lt=1 << 53)]


class File(TypedDict):
    """A file of a dataset or a model."""

    file: str
    bytes: Count
    checksum: str


class ArrayFile(File):
    """One of named arrays: where each lies, as `blocks.arrays.Where`."""

    arrays: dict[str, tuple[Count, str, Count]]


class Kind(TypedDict):
    """What says which schema is the right one."""

    kind: str


class Input(TypedDict):
    """What a dataset was made of."""

    name: str
    hash: NotRequired[str]  # XXH3-128 of its content, see `blocks.corpus.request.inputs_told`


class Dropped(TypedDict):
    """What was left out of a corpus for one reason."""

    words: NotRequired[Count]
    tokens: Count


class Batch(TypedDict, total=False):
    """How documents got into a dataset. All fields are optional: a dataset made from arrays has only some of them."""

    ooc: str
    kind: str
    options: dict[str, Any]
    inputs: list[Input]
    dropped: dict[str, Dropped]
    skipped: Count
    first_skipped: str | None
    left_out: dict[str, Count]
    advice: list[str]
    known: Count  # documents left out that the dataset had already
    duplicates: Count
    unknown: Count


class Appended(Batch):
    """How documents were appended, and how many there are."""

    documents: Count
    tokens: Count


class Made(Batch, total=False):
    """How a dataset was made, and what was appended to it."""

    appended: list[Appended]


class Manifest(Kind):
    """The fields that the manifest of every dataset has."""

    generation: Count
    identity: str
    made: Made
    index: ArrayFile


class Shard(TypedDict):
    """What the manifest of a shard says of it, but for its whole."""

    number: Count
    shards: Annotated[int, Meta(ge=1, lt=1 << 20)]
    index: ArrayFile
