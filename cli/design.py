"""`ooc ingest svmlight|mtx|npz|plink`, and `csv` with numbers: design matrices."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from blocks.errors import RequestError
from cli.console import Json, Memory, Overwrite, Workers, note, print_json, progress_bar, say

Inputs = Annotated[list[str], typer.Argument(help="Input files, plain or .gz, .xz, .zst; - is standard input.")]
Input = Annotated[str, typer.Argument(help="The file, plain or .gz, .xz, .zst; - is standard input.")]
Out = Annotated[str, typer.Argument(help="The design matrix: a directory to be made.")]
ColumnsFrom = Annotated[
    str | None,
    typer.Option(metavar="DESIGN", help="Have the columns of this one, to predict by what was trained on it."),
]
Target = Annotated[
    str | None, typer.Option(metavar="FILE", help="Holds y: .npy, or a text file with a number on each line.")
]
BlockSize = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Of the columns of a block, about [default: 32MiB].")
]


def svmlight(
    inputs: Inputs,
    out: Out,
    columns_from: ColumnsFrom = None,
    zero_based: Annotated[bool, typer.Option("--zero-based", help="Indices count from 0, not from 1.")] = False,
    by_rows: Annotated[
        bool, typer.Option("--by-rows", help="Samples one after the other, shuffled, for `ooc train softmax`.")
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the shuffle, with --by-rows [default: 0].")] = None,
    block_size: BlockSize = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """A design matrix of svmlight (LIBSVM) files.

    Lines: `label index:value index:value ...`. Indices count from 1 and ascend on a line. Labels are kept as y; `qid:1`
    after one is passed over. By rows it is a set of labelled samples.

    Example: ooc ingest svmlight rcv1.svm.gz rcv1
    """
    options = dict(locals())
    by_rows, seed = options.pop("by_rows"), options.pop("seed")
    if by_rows:
        ingest_by_rows(options, seed or 0)
        return
    if seed is not None:
        raise RequestError("--seed is for --by-rows", "Leave it out.")
    ingest("svmlight", options)


def ingest_by_rows(options: dict[str, Any], seed: int) -> None:
    """Make a set of labelled samples as the options of `ooc ingest svmlight` say, and tell of it."""
    from blocks.describe import describe
    from blocks.samples.ingestion import ingest_samples

    for name in ("block_size", "workers", "memory"):
        if options.pop(name) is not None:
            raise RequestError(f"--{name.replace('_', '-')} is not for --by-rows", "Leave it out.")
    started, as_json = time.monotonic(), options.pop("json")
    samples = ingest_samples(**options, seed=seed, bar=progress_bar)
    facts = describe(samples)
    labels = f"{facts['labels']:,} labels" if facts["labels"] else "labels are numbers"
    held = f"{samples.rows:,} samples, {samples.columns:,} columns, {samples.entries:,} entries, {labels}"
    tell(facts, f"{samples.path}: {held}\n{facts['blocks']:,} blocks", started, as_json)


def mtx(
    input: Input,
    out: Out,
    target: Target = None,
    block_size: BlockSize = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """A design matrix of a MatrixMarket file, sparse or dense.

    Example: ooc ingest mtx x.mtx.gz design --target y.npy
    """
    ingest("mtx", locals())


def npz(
    input: Annotated[str, typer.Argument(help="A file of scipy.sparse.save_npz, or with a dense array X.")],
    out: Out,
    target: Target = None,
    block_size: BlockSize = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """A design matrix of an .npz file. An array y in it holds the labels, unless --target is given.

    Example: ooc ingest npz leukemia.npz leukemia
    """
    ingest("npz", locals())


def plink(
    input: Annotated[str, typer.Argument(help="The .bed file; .bim and .fam stand beside it.")],
    out: Out,
    target: Target = None,
    covariates: Annotated[
        str | None, typer.Option(metavar="FILE", help="More columns: lines of FID IID value ..., in any order.")
    ] = None,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Leave out individuals without a phenotype or covariates.")
    ] = False,
    block_size: BlockSize = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """A design matrix of PLINK genotypes.

    It holds how often individuals have allele A1 of each variant. A genotype that is missing counts as the mean of its
    variant. y is the phenotype of the .fam file, unless --target is given. Covariates, a text file as plink --covar
    takes it, are joined by the names of individuals and become the last columns; NA and -9 are missing. Needs
    bed-reader: pip install "ooc[plink]"

    Example: ooc ingest plink mice.bed mice --target bmi.txt
    """
    ingest("plink", locals())


def ingest(kind: str, options: dict[str, Any]) -> None:
    """Make a design matrix as the options of a command say, and tell of it."""
    from blocks.describe import describe, what_is_missing
    from blocks.design.design import FORMS
    from blocks.design.ingestion import ingest_design
    from blocks.design.request import DesignRequest
    from blocks.memory import parse_size

    started = time.monotonic()
    workers, memory, size, as_json = (options.pop(name) for name in ("workers", "memory", "block_size", "json"))
    options["inputs"] = options.get("inputs") or [options.pop("input")]
    if size:
        options["block_bytes"] = parse_size(size, "--block-size")
    request = DesignRequest(kind=kind, **{name: value for name, value in options.items() if value is not None})
    design = ingest_design(request, workers=workers, memory=parse_size(memory) if memory else None, bar=progress_bar)
    facts = describe(design)
    held = f"{facts['rows']:,} rows, {facts['columns']:,} columns, {facts['entries']:,} entries"
    labels = "" if facts["y"] else ", no labels"
    if without := facts["made"].get("without_y"):
        labels += f" ({without:,} rows without {what_is_missing(facts['made'])} left out)"
    if others := facts["made"].get("without_genotypes"):
        labels += f" (covariates of {others:,} without genotypes are not used)"
    tell(facts, f"{design.path}: {held}{labels}\n{facts['blocks']:,} blocks, {FORMS[design.form]}", started, as_json)


def tell(facts: dict[str, Any], held: str, started: float, as_json: bool) -> None:
    """What was made, since `started` on the monotonic clock."""
    if facts["made"].get("queries"):
        note("note: qid, the query that a row belongs to, is passed over")
    seconds = round(time.monotonic() - started, 3)
    if as_json:
        print_json(facts | {"seconds": seconds})
    else:
        say(f"{held}, {facts['bytes'] / 1e6:,.1f} MB, in {seconds:.1f} s")


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
    "memory",
    "overwrite",
    "json",
}
_DEFAULTS = (None, False, 0, "fail")


def ingest_table(options: dict[str, Any]) -> None:
    """What `ooc ingest csv` does with columns of numbers; refuses the options that concern text."""
    for name in options.keys() - _TAKEN:
        if options[name] not in _DEFAULTS:
            raise RequestError(
                f"--{name.replace('_', '-')} is for text, but --target and --columns-from ask for a design matrix"
            )
    ingest("csv", {name: options[name] for name in _TAKEN})
