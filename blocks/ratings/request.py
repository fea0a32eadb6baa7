"""Request for an ingestion of ratings, and its checks before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from blocks.append import require_replaceable
from blocks.encodings import require_encoding
from blocks.errors import RequestError
from blocks.ratings.formats import RatingsFormatOptions, check_options
from blocks.ratings.hold_out import HoldOutRule
from blocks.ratings.matrix import Matrix
from blocks.text_inputs import input_size

_BYTES_OF_ENTRY = 80  # memory for each entry of a block while it is sorted and written
_BYTES_OF_SPLIT_ENTRY = 160  # the same if some entries are held out


@dataclass(frozen=True)
class RatingsRequest:
    """Options for ingesting ratings.

    names_from: matrix whose users and items are used; other ratings are left out. items_from: matrix whose items are
    used. low, high: allowed range of ratings. format_options: line format. encoding: None for UTF-8. query: query of a
    SQLite database. hold_out: which ratings `ingest_holding_out` writes to a second dataset. grid: numbers of blocks
    and slices, None to choose them from the number of entries.
    """

    inputs: Sequence[str]
    out: str
    names_from: str | None = None
    items_from: str | None = None
    low: float = -np.inf
    high: float = np.inf
    format_options: RatingsFormatOptions = field(default_factory=RatingsFormatOptions)
    encoding: str | None = None
    query: str | None = None
    on_error: str = "fail"
    seed: int = 0
    grid: int | None = None
    overwrite: bool = False
    hold_out: HoldOutRule | None = None

    @property
    def entry_bytes(self) -> int:
        """Return the memory for each entry of a block while it is sorted and written."""
        return _BYTES_OF_SPLIT_ENTRY if self.hold_out else _BYTES_OF_ENTRY


def check_request(request: RatingsRequest) -> None:
    """Raise RequestError if options contradict each other or an input does not exist."""
    if not request.inputs:
        raise RequestError("no input file is given")
    if request.on_error not in ("fail", "skip"):
        raise RequestError(f"--on-error must be fail or skip, got {request.on_error!r}")
    require_one_base(request)
    if not request.low <= request.high:
        raise RequestError(f"--lowest {request.low:g} is above --highest {request.high:g}")
    check_options(request.format_options)
    require_encoding(request.encoding)
    for path in request.inputs:
        if Path(path).is_dir():
            raise RequestError(f"{path} is a directory; expected a file", f"Name its files, as in {path}/*.txt")
        input_size(path)
    require_replaceable(Path(request.out), request.overwrite)


def require_one_base(request: RatingsRequest) -> None:
    """Raise RequestError if the request names two matrices whose names are to be used."""
    if request.names_from and request.items_from:
        raise RequestError(
            "--names-from and --items-from are mutually exclusive",
            "Omit --items-from: --names-from keeps the items, too.",
        )


def base_matrix(request: RatingsRequest) -> Matrix | None:
    """Return the dataset whose users and items are used, if any."""
    return Matrix(path) if (path := request.names_from or request.items_from) else None
