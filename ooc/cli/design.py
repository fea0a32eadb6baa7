"""`ooc ingest svmlight|mtx|npz|plink`, and `csv` with numbers: create design matrices."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from blocks.errors import RequestError
from blocks.plurals import count_of, size_text
from ooc.cli import ingest_options as groups
from ooc.cli.console import JSON, note, print_json, print_line, progress_bar
from ooc.cli.design_options import (
    DesignBlockOptions,
    GenotypesOptions,
    ReusedColumnsOptions,
    SvmlightOptions,
    TargetFileOptions,
)
from ooc.cli.options import options, parameter, takes

INPUTS = parameter(
    "inputs",
    Annotated[
        list[str], typer.Argument(help="Input files, plain or compressed (.gz, .xz, .zst); - is standard input.")
    ],
)
INPUT = parameter(
    "input",
    Annotated[str, typer.Argument(help="Input file, plain or compressed (.gz, .xz, .zst); - is standard input.")],
)
OUT = parameter("out", Annotated[str, typer.Argument(help="Directory of the new dataset.")])


@takes(
    INPUTS,
    OUT,
    options(ReusedColumnsOptions, SvmlightOptions, DesignBlockOptions, groups.DatasetOptions),
    JSON,
)
def svmlight(**given: Any) -> None:
    """Ingest svmlight (LIBSVM) files as a design matrix.

    Each line is `label index:value index:value ...`; indices start at 1 and ascend within a line. Labels become y; a
    `qid:1` after a label is ignored. With --by-rows, creates a set of labelled samples for `ooc train softmax`.

    Example: ooc ingest svmlight rcv1.svm.gz rcv1
    """
    by_rows, seed = given.pop("by_rows"), given.pop("seed")
    if by_rows:
        ingest_by_rows(given, seed or 0)
        return
    if seed is not None:
        raise RequestError("--seed can only be used with --by-rows", "Omit --seed.")
    ingest("svmlight", given)


def ingest_by_rows(given: dict[str, Any], seed: int) -> None:
    """Create a sample set from the options of `ooc ingest svmlight --by-rows`, and print a summary."""
    from blocks.dataset_description import describe, size_summary
    from blocks.samples.ingestion import ingest_samples

    for name in ("block_size", "workers", "memory_bytes"):
        if given.pop(name) is not None:
            option = name.removesuffix("_bytes").replace("_", "-")
            raise RequestError(f"--{option} cannot be used with --by-rows", f"Omit --{option}.")
    started, as_json = time.monotonic(), given.pop("json")
    samples = ingest_samples(**given, seed=seed, bar=progress_bar)
    facts = describe(samples)
    labels = count_of(facts["labels"], "label") if facts["labels"] else "numeric labels"
    held = f"{samples.path}: {size_summary(samples)}, {labels}"
    tell(facts, f"{held}\n{count_of(facts['blocks'], 'block')}", started, as_json)


@takes(INPUT, OUT, options(TargetFileOptions, DesignBlockOptions, groups.DatasetOptions), JSON)
def mtx(**given: Any) -> None:
    """Ingest a MatrixMarket file as a design matrix.

    Example: ooc ingest mtx x.mtx.gz design --target y.npy
    """
    ingest("mtx", given)


@takes(
    parameter(
        "input",
        Annotated[str, typer.Argument(help="File of scipy.sparse.save_npz, or of numpy.savez with a dense array X.")],
    ),
    OUT,
    options(TargetFileOptions, DesignBlockOptions, groups.DatasetOptions),
    JSON,
)
def npz(**given: Any) -> None:
    """Ingest an .npz file as a design matrix.

    An array y in the file is the target, unless --target is given.

    Example: ooc ingest npz leukemia.npz leukemia
    """
    ingest("npz", given)


@takes(
    parameter(
        "input", Annotated[str, typer.Argument(help="The .bed file; its .bim and .fam files must be beside it.")]
    ),
    OUT,
    options(TargetFileOptions, GenotypesOptions, DesignBlockOptions, groups.DatasetOptions),
    JSON,
)
def plink(**given: Any) -> None:
    """Ingest PLINK genotypes as a design matrix.

    An entry is the number of A1 alleles of an individual at a variant; a missing genotype becomes the mean of its
    variant. y is the phenotype in the .fam file, unless --target is given. Covariates, in a text file as for plink
    --covar, are joined by FID and IID and become the last columns; NA and -9 are missing values. Needs bed-reader: pip
    install "ooc[plink]"

    Example: ooc ingest plink mice.bed mice --target bmi.txt
    """
    ingest("plink", given)


def ingest(kind: str, given: dict[str, Any]) -> None:
    """Create a design matrix from the options of a command, and print a summary."""
    from blocks.dataset_description import describe, missing_values_text, size_summary
    from blocks.design.design import FORMS
    from blocks.design.ingestion import ingest_design
    from blocks.design.request import DesignRequest
    from blocks.memory import parse_size

    started = time.monotonic()
    workers, memory, size, as_json = (given.pop(name) for name in ("workers", "memory_bytes", "block_size", "json"))
    given["inputs"] = given.get("inputs") or [given.pop("input")]
    if size:
        given["block_bytes"] = parse_size(size, "--block-size")
    request = DesignRequest(kind=kind, **{name: value for name, value in given.items() if value is not None})
    design = ingest_design(request, workers=workers, memory=parse_size(memory) if memory else None, bar=progress_bar)
    facts = describe(design)
    held = f"{design.path}: {size_summary(design)}{'' if facts['y'] else ', no target'}"
    if without := facts["made"].get("without_y"):
        held += f" ({count_of(without, 'row')} without {missing_values_text(facts['made'])} left out)"
    if others := facts["made"].get("without_genotypes"):
        held += f" (covariates of {count_of(others, 'individual')} without genotypes not used)"
    tell(facts, f"{held}\n{count_of(facts['blocks'], 'block')}, {FORMS[design.form]}", started, as_json)


def tell(facts: dict[str, Any], held: str, started: float, as_json: bool) -> None:
    """Print a summary of the new dataset.

    started: start time on the monotonic clock, in seconds.
    """
    if facts["made"].get("queries"):
        note("note: qid, the query id of a row, is ignored")
    seconds = round(time.monotonic() - started, 3)
    if as_json:
        print_json(facts | {"seconds": seconds})
    else:
        print_line(f"{held}, {size_text(facts['bytes'])}, in {seconds:.1f} s")


NUMBERS_ONLY = ("target", "drop", "columns_from", "block_size", "decimal")
_TAKEN = {
    *NUMBERS_ONLY,
    "inputs",
    "out",
    "delimiter",
    "quote",
    "no_header",
    "encoding",
    "query",
    "workers",
    "memory_bytes",
    "overwrite",
    "json",
}
_DEFAULTS = (None, False, 0, "fail")


def ingest_table(given: dict[str, Any]) -> None:
    """Run `ooc ingest csv` on columns of numbers.

    Raises RequestError for options that only apply to text.
    """
    for name in given.keys() - _TAKEN:
        if given[name] not in _DEFAULTS:
            raise RequestError(
                f"--{name.replace('_', '-')} is for text and cannot be used with --target or --columns-from",
                f"Omit --{name.replace('_', '-')}.",
            )
    ingest("csv", {name: given[name] for name in _TAKEN})
