"""Options for ingesting a design matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from blocks.append import require_replaceable
from blocks.delimited import require_decimal
from blocks.design.genotypes import plink_files
from blocks.encodings import require_encoding
from blocks.errors import RequestError
from blocks.text_inputs import input_size

KINDS = ("svmlight", "mtx", "csv", "npz", "plink")
PYTHON = "python"  # rows given to `Design.create`
BLOCK_BYTES = 32 << 20


@dataclass(frozen=True)
class DesignRequest:
    """Options of an ingestion.

    kind: one of `KINDS`.
    target: column of y in a CSV file; for other kinds, except svmlight, a file with y.
    drop: columns of a CSV file to leave out.
    delimiter, quote: see `options_dialect`.
    no_header: columns are named by number, from 1.
    decimal: `.` or `,`.
    encoding: text encoding, None for UTF-8.
    query: query of a SQLite database.
    zero_based: svmlight indices count from 0.
    covariates: file to join to PLINK files by the names of individuals.
    skip_missing: leave out rows of PLINK files with a missing y (NaN in an .npy target) or covariate.
    columns_from: design whose columns are used.
    block_bytes: approximate size of a block.
    """

    kind: str
    inputs: Sequence[str]
    out: str
    target: str | None = None
    drop: Sequence[str] = ()
    delimiter: str | None = None
    quote: str | None = None
    no_header: bool = False
    zero_based: bool = False
    covariates: str | None = None
    skip_missing: bool = False
    decimal: str = "."
    encoding: str | None = None
    query: str | None = None
    columns_from: str | None = None
    block_bytes: int = BLOCK_BYTES
    overwrite: bool = False

    def files(self) -> list[str]:
        """Return all input files except the file of y."""
        if self.kind != "plink":
            return list(self.inputs)
        return [*plink_files(self.inputs[0]), *([self.covariates] if self.covariates else [])]


def check_design_request(request: DesignRequest) -> None:
    """Raise RequestError if options contradict each other or an input does not exist."""
    if request.kind not in KINDS:
        raise RequestError(f"unknown input kind {request.kind!r}", f"Choose one of: {', '.join(KINDS)}.")
    if not request.inputs:
        raise RequestError("no input file is given")
    if request.kind in ("mtx", "npz", "plink") and len(request.inputs) > 1:
        raise RequestError(f"`ooc ingest {request.kind}` takes one input file, got {len(request.inputs)}")
    if request.kind == "npz" and request.inputs[0] == "-":
        raise RequestError("an .npz file cannot be read from standard input", "Specify the path of the file.")
    for path in [*request.files(), *([request.target] if request.target and request.kind != "csv" else [])]:
        if Path(path).is_dir():
            raise RequestError(f"{path} is a directory; expected a file", "Name a file.")
        input_size(path)
    if request.block_bytes < 1:
        raise RequestError(f"--block-size must be at least 1 byte, got {request.block_bytes}")
    require_encoding(request.encoding)
    require_decimal(request.decimal, request.delimiter)
    require_replaceable(Path(request.out), request.overwrite)
