"""`ooc ingest`: create datasets from text, bags of words, ratings or synthetic documents.

See `ooc.cli.design` for datasets of numbers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blocks.errors import RequestError
from blocks.plurals import count_of
from ooc.cli import design
from ooc.cli import ingest_options as groups
from ooc.cli.command import is_overruled
from ooc.cli.console import JSON, note
from ooc.cli.design_options import CsvDesignOptions, DesignBlockOptions, ReusedColumnsOptions
from ooc.cli.ingest_ratings import ingest_ratings
from ooc.cli.ingest_shared import INPUTS, OUT, create, print_split_summary, print_summary, refuse_shards, resources
from ooc.cli.options import on_ring, options, parameter, takes
from ooc.cli.session import RING, CommandSession, options_equal_on_ranks, session
from samplers.options import of_several

if TYPE_CHECKING:
    from blocks.corpus.dataset import Dataset
    from blocks.corpus.request import CorpusRequest
    from blocks.ratings.matrix import Matrix

app = typer.Typer(
    help="Convert text, ratings or numbers into a dataset.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

CONTEXT = parameter("context", typer.Context)
_CORPUS = (groups.VocabularyReuseOptions, groups.CorpusBlockOptions, groups.ShardsOptions, groups.DatasetOptions)
_TEXT = (
    groups.TokenizationOptions,
    groups.VocabularyOptions,
    groups.InvalidRecordOptions,
    groups.KeptColumnOptions,
    *_CORPUS,
)


@app.command("uci")
@on_ring
@takes(
    INPUTS,
    OUT,
    options(groups.UciOptions, groups.TextEncodingOptions, groups.StopWordsOptions, groups.VocabularyOptions, *_CORPUS),
    *RING,
    JSON,
    CONTEXT,
)
def ingest_uci(context: typer.Context, **given: Any) -> None:
    """Ingest bags of words: lines of document, word and count.

    Reads the format of the UCI collections, which has a header of three lines, and LDA-C files, with one document per
    line.

    Example: ooc ingest uci docword.nips.txt.gz nips --vocab vocab.nips.txt
    """
    _ingest("uci", given, context)


@app.command("text")
@on_ring
@takes(
    parameter(
        "inputs",
        Annotated[list[str], typer.Argument(help="Text files, or directories of text files; - is standard input.")],
    ),
    OUT,
    options(groups.TextFilesOptions, groups.TextEncodingOptions, *_TEXT),
    *RING,
    JSON,
    CONTEXT,
)
def ingest_text(context: typer.Context, **given: Any) -> None:
    """Ingest text files, with one document per file or per line.

    Example: ooc ingest text papers/ corpus --glob '*.txt' --min-df 5
    """
    _ingest("text", given, context)


@app.command("jsonl")
@on_ring
@takes(INPUTS, OUT, options(groups.JsonLinesOptions, groups.TextEncodingOptions, *_TEXT), *RING, JSON, CONTEXT)
def ingest_jsonl(context: typer.Context, **given: Any) -> None:
    """Ingest JSON Lines: each line is an object with a document.

    A file can also be one JSON array of such objects.

    Example: ooc ingest jsonl papers.jsonl.gz corpus --text-field abstract --max-vocab 100000
    """
    _ingest("jsonl", given, context)


_NUMBERS = (CsvDesignOptions, ReusedColumnsOptions, DesignBlockOptions)
_TABLE = (
    groups.TextColumnsOptions,
    groups.DelimitedTableOptions,
    groups.TextEncodingOptions,
    groups.DatabaseQueryOptions,
)


@app.command("csv")
@on_ring
@takes(INPUTS, OUT, options(*_NUMBERS, *_TABLE, *_TEXT), *RING, JSON, CONTEXT)
def ingest_csv(context: typer.Context, **given: Any) -> None:
    """Ingest CSV, TSV, Parquet or Arrow: each row is a document.

    With --target, creates a design matrix from columns of numbers. If the input is a directory, reads all Parquet and
    Arrow files in it.

    Examples: ooc ingest csv reviews.csv corpus --text-column review

    ooc ingest csv houses.csv houses --target price --drop id
    """
    if given["target"] or given["columns_from"]:
        with session() as here:
            if of_several(here.ring):
                raise RequestError(
                    "a design matrix cannot be created on several machines",
                    "Ingest on one machine, then split the dataset with `ooc shard`.",
                )
            inputs, out = [_placed(path, here) for path in given["inputs"]], _placed(given["out"], here)
            design.ingest_table({**given, "inputs": inputs, "out": out})
        return
    numbers = {name: given.pop(name) for name in design.NUMBERS_ONLY}
    if unfit := next((name for name, value in numbers.items() if value), None):
        raise RequestError(
            f"--{unfit.replace('_', '-')} can only be used to create a design matrix",
            "Name the column of y with --target.",
        )
    _ingest("csv", given, context)


app.command("svmlight")(design.svmlight)
app.command("mtx")(design.mtx)
app.command("npz")(design.npz)
app.command("plink")(design.plink)


app.command("ratings")(ingest_ratings)


@app.command("synthetic")
@takes(
    OUT, options(groups.SyntheticOptions, groups.CorpusBlockOptions, groups.ShardsOptions, groups.DatasetOptions), JSON
)
def ingest_synthetic(**given: Any) -> None:
    """Generate documents from an LDA model with known topics.

    Example: ooc ingest synthetic corpus --documents 1000000 --vocabulary 100000 --topics 1000
    """
    from blocks.corpus.synthetic import Synthetic, synthesize

    started = time.monotonic()
    as_json, shards, common = given.pop("json"), given.pop("shards"), resources(given)
    out, overwrite = given.pop("out"), given.pop("overwrite")
    request = Synthetic(**{name: value for name, value in given.items() if value is not None})

    def make(path: str) -> Dataset:
        return synthesize(request, path, overwrite=overwrite, **common)

    print_summary(create(make, out, shards, overwrite=overwrite, **common), shards, started, as_json=as_json)


def _ingest(kind: str, given: dict[str, Any], context: typer.Context) -> None:
    from blocks.corpus.duplicates import duplicates_path, parse_similarity
    from blocks.corpus.request import CorpusRequest
    from blocks.corpus.vocabulary import WordFilters
    from blocks.dataset_generations import identity_or_none

    started = time.monotonic()
    asked = {"command": f"ingest {kind}", **options_equal_on_ranks(_of_all_ranks(given))}
    joining = {each.name: given.pop(each.name) for each in RING}
    chosen = {name: given.pop(name, None) for name in WordFilters._fields}
    if given["vocab_from"]:
        chosen |= {name: None for name in chosen if is_overruled(context, name, "vocab_from")}
    documents = {name: _documents(chosen[name], f"--{name.replace('_', '-')}") for name in ("min_df", "max_df")}
    filters = WordFilters(**chosen | documents)
    shards, as_json, common = given.pop("shards"), given.pop("json"), resources(given)
    hold_out = given.pop("hold_out", None)
    if given.get("deduplicate"):
        given["deduplicate"] = parse_similarity(given["deduplicate"])
        given["duplicates_file"] = duplicates_path(given["out"])
    request = CorpusRequest(
        kind=kind, filters=filters, **{name: value for name, value in given.items() if value is not None}
    )
    if shards and request.keep:
        raise RequestError(
            "--keep and --shards are mutually exclusive: shards have no document table",
            "Ingest without --shards, then split the dataset with `ooc shard`.",
        )
    if shards and request.append:
        raise RequestError(
            "--append and --shards are mutually exclusive", "Append to the dataset, then split it with `ooc shard`."
        )
    before = identity_or_none(Path(request.out)) if request.append else None
    with session(joining, asked) as here:
        request, common = _of_rank(request, common, here)
        if hold_out is not None:
            _ingest_holding_out(request, hold_out, shards, here, started, common, as_json=as_json)
            return
        datasets = (_ingest_together if of_several(here.ring) else _ingest_here)(request, shards, here, common)
    made = datasets[0].manifest["made"]
    batch = made.get("appended", [made])[-1]
    added = batch["documents"] if datasets[0].identity != before else 0
    if added:
        _note_what_was_left_out(batch, request.out)
    else:
        note(f"nothing was added: {request.out} already has all documents")
    print_summary(datasets, shards, started, as_json=as_json, added=added if before else None)


_OF_RANK = {  # parameters in which ranks may differ
    *("inputs", "out", "vocab", "vocab_from", "workers", "memory_bytes", "overwrite", "json"),
    *(each.name for each in RING),
}


def _of_all_ranks(given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that must be equal on all ranks, by option name: all except paths and resources."""
    return {name.replace("_", "-"): value for name, value in given.items() if name not in _OF_RANK}


def _ingest_holding_out(
    request: CorpusRequest,
    share: str,
    shards: int | None,
    here: CommandSession,
    started: float,
    common: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    from blocks.corpus.held_out import ingest_holding_out
    from blocks.corpus.held_out_fraction import parse_share

    refuse_shards(shards or of_several(here.ring))
    both = ingest_holding_out(request, parse_share(share, "--hold-out"), **common)
    _note_what_was_left_out(both[0].manifest["made"], request.out)
    print_split_summary(both, started, as_json=as_json)


def _note_what_was_left_out(batch: dict[str, Any], out: str) -> None:
    from blocks.corpus.duplicates import duplicates_path

    duplicates = {kind: batch.get(f"{kind}_duplicates", 0) for kind in ("exact", "near")}
    if any(duplicates.values()):
        counted = " and ".join(f"{number:,} {kind}" for kind, number in duplicates.items() if number)
        noun = "duplicate" if sum(duplicates.values()) == 1 else "duplicates"
        note(f"left out {counted} {noun}, which {duplicates_path(out)} lists")
    for what, files in batch.get("left_out", {}).items():
        note(f"left out {files:,} {what} in the input directories")
    if batch.get("known"):
        note(f"left out {count_of(batch['known'], 'document')} that the dataset already has")
    if batch["skipped"]:
        note(f"skipped {count_of(batch['skipped'], 'bad record')}, the first: {batch['first_skipped']}")
    dropped = {why: batch["dropped"].get(why, {}).get("tokens", 0) for why in ("unknown", "stop_words")}
    if dropped["unknown"]:
        besides = f" and {dropped['stop_words']:,} stop words" if dropped["stop_words"] else ""
        note(f"dropped {count_of(dropped['unknown'], 'token')} of words that are not in the vocabulary{besides}")
    for line in batch.get("advice", ()):
        note(line)


def _of_rank(
    request: CorpusRequest, common: dict[str, Any], here: CommandSession
) -> tuple[CorpusRequest, dict[str, Any]]:
    """Return a request with the paths of this rank, and `common` with its resources."""
    from dataclasses import replace

    inputs, out = [_placed(path, here) for path in request.inputs], _placed(request.out, here)
    duplicates = request.duplicates_file and _placed(request.duplicates_file, here)
    own = {"workers": here.workers or common["workers"], "memory": here.memory or common["memory"]}
    return replace(request, out=out, inputs=inputs, duplicates_file=duplicates), common | own


def _placed(path: str, here: CommandSession) -> str:
    """Return a path, or another name of an input, with {rank} replaced by this rank."""
    return str(here.place(Path(path))) if here.ring else path


def _ingest_here(
    request: CorpusRequest, shards: int | None, here: CommandSession, common: dict[str, Any]
) -> Sequence[Dataset | Matrix]:
    from dataclasses import replace

    from blocks.corpus.ingestion import ingest

    def make(path: str) -> Dataset:
        return ingest(replace(request, out=path), **common)

    return create(make, request.out, shards, overwrite=request.overwrite, **common)


def _ingest_together(
    request: CorpusRequest, shards: int | None, here: CommandSession, common: dict[str, Any]
) -> Sequence[Dataset | Matrix]:
    """Create this rank's shard from this rank's files."""
    from blocks.corpus.ingestion import ingest
    from ooc.ring.message_relay import MessageRelay
    from samplers.ring_checks import check_paths_differ

    assert here.ring
    if shards or "-" in request.inputs:
        raise RequestError(
            "--shards and standard input (-) cannot be used on several machines",
            "Omit --shards, and name files: each machine creates a shard.",
        )
    check_paths_differ(here.ring, Path(request.out))
    return [ingest(request, others=MessageRelay(here.ring), **common)]


def _documents(text: str | None, option: str) -> int | float | None:
    """Parse a count of documents, or a fraction of all documents if `text` has a decimal point."""
    try:
        return None if text is None else int(text) if text.isdigit() else float(text)
    except ValueError:
        raise RequestError(
            f"{option}: {text!r} is not a number",
            "Use a count of documents such as 5, or a fraction of them such as 0.5.",
        ) from None
