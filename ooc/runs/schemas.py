"""TypedDicts of a run's configuration, which `blocks.json_files.read_json` validates.

Annotations are not strings here: from Python 3.14 on, msgspec would look up their names in the module that extends a
schema.
"""

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from blocks.schemas import NO_NUL, RUN_ID, Count


class DatasetEntry(TypedDict):
    """Entry for a dataset in a run's configuration.

    relative: path relative to the run; absent in runs of earlier versions.
    """

    path: Annotated[str, Meta(min_length=1, pattern=NO_NUL)]
    identity: str
    relative: NotRequired[Annotated[str, Meta(min_length=1, pattern=NO_NUL)]]


class RunSettings(TypedDict):
    """Settings of the ring, and observer settings that all models share."""

    held_out: NotRequired[DatasetEntry | None]
    staleness: NotRequired[Count]
    on_node: NotRequired[bool]


class HeldOutObserverSettings(TypedDict):
    """Settings of an observer that evaluates on held-out data."""

    held_out: DatasetEntry | None


class RunConfig(TypedDict):
    """Contents of config.json."""

    id: NotRequired[Annotated[str, Meta(pattern=RUN_ID)]]
    version: str
    program: str
    program_source: NotRequired[str | None]
    options: dict[str, Any]
    dataset: DatasetEntry
    iterations: Count
    evaluate_every: Annotated[int, Meta(ge=1, lt=1 << 53)]
    extended_at: Count
    settings: RunSettings
    scratch: Annotated[str, Meta(min_length=1, pattern=NO_NUL)] | None
    finished: bool
    state_removed: bool
