"""`ooc ingest`: text, bags of words, ratings and synthetic documents to a dataset; of numbers see `cli.design`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blocks.errors import RequestError
from cli import design, shard
from cli.console import Encoding, Json, Memory, Overwrite, Workers, note, one_of, print_json, progress_bar, say
from cli.options import on_ring
from cli.session import Session, session

if TYPE_CHECKING:
    from blocks.corpus.dataset import Dataset
    from blocks.corpus.request import Request
    from blocks.ratings.matrix import Matrix

app = typer.Typer(
    help="Make a dataset of text, bags of words, ratings or numbers, or a synthetic one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Inputs = Annotated[list[str], typer.Argument(help="Input files, plain or .gz, .xz, .zst, .zip; - is standard input.")]
Out = Annotated[str, typer.Argument(help="The dataset: a directory to be made.")]
Seed = Annotated[int, typer.Option(min=0, help="Shuffles the documents and deals the words.")]
Append = Annotated[
    bool, typer.Option("--append", help="Add the documents to OUT, keeping its vocabulary; make it if it is not there.")
]
SkipKnown = Annotated[
    bool, typer.Option("--skip-known", help="Of an append: pass over input files and named documents that OUT has.")
]
VocabFrom = Annotated[str | None, typer.Option(metavar="DATASET", help="Use the vocabulary of this dataset.")]
MinDf = Annotated[
    str | None,
    typer.Option(metavar="N|SHARE", help="Words in fewer documents are dropped: a number, or a fraction as 0.01."),
]
MaxDf = Annotated[
    str | None,
    typer.Option(metavar="N|SHARE", help="Words in more documents are dropped: a number, or a fraction as 0.5."),
]
MaxVocab = Annotated[int | None, typer.Option(min=1, help="Keep this many words, the most frequent.")]
Shards = Annotated[
    int | None,
    typer.Option(min=1, help="Make so many shards, as `ooc shard` does; OUT may have {rank} in it."),
]
BlockTokens = Annotated[int | None, typer.Option(min=1, help="Tokens of a block.")]
TokenPattern = Annotated[str | None, typer.Option(help=r"Regular expression of a token [default: (?u)\b\w\w+\b].")]
Lower = Annotated[bool | None, typer.Option("--lower/--no-lower", help="Turn text to lower case [default: lower].")]
_STOP_WORDS = (
    "Stop words to drop: a language (german or de), a file with one word per line, or a comma-separated list of these"
)
StopWords = Annotated[str | None, one_of("LANGUAGE|FILE|english|none", f"{_STOP_WORDS} [default: english].")]
NoStopWords = Annotated[str | None, one_of("LANGUAGE|FILE|english|none", f"{_STOP_WORDS} [default: none].")]
Ngrams = Annotated[
    int | None,
    typer.Option(min=1, help="Up to this many words in a row, without stop words, become words too [default: 1]."),
]
MinNpmi = Annotated[
    float | None,
    typer.Option(
        min=-1.0, max=1.0, metavar="VALUE", help="Drop n-grams whose normalised pointwise mutual information is less."
    ),
]
Segment = Annotated[str | None, one_of("chinese|japanese|thai", "Find words in text that has no spaces between them.")]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Character between columns, or its name, as tab [default: tab for .tsv, else comma]."),
]
Quote = Annotated[
    str | None,
    typer.Option(metavar="CHARACTER|none", help='Character that encloses fields, or none for no quoting [default: "].'),
]
FieldDelimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter", help="Character between fields, its name, as semicolon, or :: [default: found from line 1]."
    ),
]
NoHeader = Annotated[bool, typer.Option("--no-header", help="Columns have no names, but numbers from 1.")]
Query = Annotated[str | None, typer.Option(metavar="SQL", help="Rows to take from a SQLite database.")]
Decimal = Annotated[str | None, one_of(".|,", "Mark before the fraction of a number [default: .].")]
UserColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="User column: name, or number from 1 [default: by name, or 1]."),
]
ItemColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Item column: name, or number from 1 [default: by name, or 2]."),
]
RatingColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Rating column: name, number, or none if all are 1 [default: by name, or 3]."),
]
OnError = Annotated[str, one_of("fail|skip", "What to do at a record that cannot be read.")]


@app.command("uci")
@on_ring
def ingest_uci(
    inputs: Inputs,
    out: Out,
    vocab: Annotated[str | None, typer.Option(metavar="FILE", help="Line i is word i.")] = None,
    encoding: Encoding = None,
    stop_words: NoStopWords = None,
    min_df: MinDf = None,
    max_df: MaxDf = None,
    max_vocab: MaxVocab = None,
    vocab_from: VocabFrom = None,
    append: Append = False,
    skip_known: SkipKnown = False,
    seed: Seed = 0,
    block_tokens: BlockTokens = None,
    shards: Shards = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Bags of words: lines of document, word and count.

    Below a header of three lines, as in the collections of UCI. LDA-C files, a document a line, are read, too.

    Example: ooc ingest uci docword.nips.txt.gz nips --vocab vocab.nips.txt
    """
    _ingest("uci", locals())


@app.command("text")
@on_ring
def ingest_text(
    inputs: Annotated[list[str], typer.Argument(help="Text files, and directories of them; - is standard input.")],
    out: Out,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a document, rather than each file.")] = False,
    glob: Annotated[str, typer.Option(help="Files to take from directories.")] = "*",
    encoding: Encoding = None,
    token_pattern: TokenPattern = None,
    lower: Lower = None,
    stop_words: StopWords = None,
    segment: Segment = None,
    ngrams: Ngrams = None,
    min_npmi: MinNpmi = None,
    min_df: MinDf = None,
    max_df: MaxDf = None,
    max_vocab: MaxVocab = None,
    on_error: OnError = "fail",
    vocab_from: VocabFrom = None,
    append: Append = False,
    skip_known: SkipKnown = False,
    seed: Seed = 0,
    block_tokens: BlockTokens = None,
    shards: Shards = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Text files: each file is a document, or with --lines each line.

    Example: ooc ingest text papers/ corpus --glob '*.txt' --min-df 5
    """
    _ingest("text", locals())


@app.command("jsonl")
@on_ring
def ingest_jsonl(
    inputs: Inputs,
    out: Out,
    text_field: Annotated[
        str, typer.Option(help="Holds the text, or a list of tokens, taken as they are; as body.text in objects.")
    ] = "text",
    name_field: Annotated[str | None, typer.Option(help="Holds the document's name [default: id, if any].")] = None,
    encoding: Encoding = None,
    token_pattern: TokenPattern = None,
    lower: Lower = None,
    stop_words: StopWords = None,
    segment: Segment = None,
    ngrams: Ngrams = None,
    min_npmi: MinNpmi = None,
    min_df: MinDf = None,
    max_df: MaxDf = None,
    max_vocab: MaxVocab = None,
    on_error: OnError = "fail",
    vocab_from: VocabFrom = None,
    append: Append = False,
    skip_known: SkipKnown = False,
    seed: Seed = 0,
    block_tokens: BlockTokens = None,
    shards: Shards = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """JSON Lines: each line is an object that holds a document; or a file is an array of such objects.

    Example: ooc ingest jsonl papers.jsonl.gz corpus --text-field abstract --max-vocab 100000
    """
    _ingest("jsonl", locals())


@app.command("csv")
@on_ring
def ingest_csv(
    inputs: Inputs,
    out: Out,
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="Holds y: make a design matrix.")] = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Not to be in the design matrix.")] = None,
    columns_from: design.ColumnsFrom = None,
    block_size: design.BlockSize = None,
    text_column: Annotated[str | None, typer.Option(help="Holds the text [default: text].")] = None,
    name_column: Annotated[str | None, typer.Option(help="Holds the document's name.")] = None,
    delimiter: Delimiter = None,
    quote: Quote = None,
    no_header: NoHeader = False,
    decimal: Decimal = None,
    encoding: Encoding = None,
    query: Query = None,
    token_pattern: TokenPattern = None,
    lower: Lower = None,
    stop_words: StopWords = None,
    segment: Segment = None,
    ngrams: Ngrams = None,
    min_npmi: MinNpmi = None,
    min_df: MinDf = None,
    max_df: MaxDf = None,
    max_vocab: MaxVocab = None,
    on_error: OnError = "fail",
    vocab_from: VocabFrom = None,
    append: Append = False,
    skip_known: SkipKnown = False,
    seed: Seed = 0,
    block_tokens: BlockTokens = None,
    shards: Shards = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """CSV or TSV with a header row, or Parquet or Arrow: each row is a document.

    With --target, a design matrix of columns of numbers. A directory stands for the Parquet and Arrow files in it.

    Examples: ooc ingest csv reviews.csv corpus --text-column review

    ooc ingest csv houses.csv houses --target price --drop id
    """
    options = locals()
    if target or columns_from:
        design.ingest_table(options)
        return
    numbers = {name: options.pop(name) for name in design.NUMBERS_ONLY}
    if given := next((name for name, value in numbers.items() if value), None):
        raise RequestError(f"--{given.replace('_', '-')} is for a design matrix", "Name the column of y with --target.")
    _ingest("csv", options)


app.command("svmlight")(design.svmlight)
app.command("mtx")(design.mtx)
app.command("npz")(design.npz)
app.command("plink")(design.plink)


@app.command("ratings")
def ingest_ratings(
    inputs: Inputs,
    out: Out,
    names_from: Annotated[
        str | None, typer.Option(metavar="MATRIX", help="Keep the users and items of this one; leave out others.")
    ] = None,
    items_from: Annotated[
        str | None, typer.Option(metavar="MATRIX", help="Keep the items of this one, for users who came later.")
    ] = None,
    lowest: Annotated[float | None, typer.Option(help="The least rating there may be.")] = None,
    highest: Annotated[float | None, typer.Option(help="The largest.")] = None,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    rating_column: RatingColumn = None,
    delimiter: FieldDelimiter = None,
    quote: Quote = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    query: Query = None,
    on_error: OnError = "fail",
    seed: Annotated[int, typer.Option(min=0, help="Shuffles the users and deals the items.")] = 0,
    shards: Shards = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Ratings of items by users.

    MovieLens, Netflix and MatrixMarket files, and lines of user, item and rating. A header names the columns, or
    --user-column, --item-column and --rating-column do.

    Of several ratings of an item by a user the last counts; lines without a rating are ratings of 1.

    Example: ooc ingest ratings ml-20m/ratings.csv ratings
    """
    from dataclasses import replace

    from blocks.memory import parse_size
    from blocks.ratings.formats import FormatOptions
    from blocks.ratings.ingestion import RatingsRequest
    from blocks.ratings.ingestion import ingest_ratings as ingest

    started = time.monotonic()
    low = -math.inf if lowest is None else lowest
    high = math.inf if highest is None else highest
    written = FormatOptions(delimiter, quote, decimal or ".", user_column, item_column, rating_column)
    rest: dict[str, Any] = {"on_error": on_error, "seed": seed, "overwrite": overwrite}
    request = RatingsRequest(inputs, out, names_from, items_from, low, high, written, encoding, query, **rest)
    common: dict[str, Any] = {"workers": workers, "memory": parse_size(memory) if memory else None, "bar": progress_bar}

    def make(path: str) -> Matrix:
        return ingest(replace(request, out=path), **common)

    matrices = _make(make, out, shards, overwrite=overwrite, **common)
    made = matrices[0].manifest["made"]
    if made["skipped"]:
        note(f"skipped {made['skipped']:,} bad records, the first: {made['first_skipped']}")
    if made["duplicates"]:
        note(f"{made['duplicates']:,} ratings were given again later, and do not count")
    if made["unknown"]:
        where = f"whose user or item is not in {names_from}" if names_from else f"whose item is not in {items_from}"
        note(f"left out {made['unknown']:,} ratings {where}")
    _tell(matrices, shards, started, as_json=json)


@app.command("synthetic")
def ingest_synthetic(
    out: Out,
    documents: Annotated[int, typer.Option(help="Documents to draw.")],
    vocabulary: Annotated[int, typer.Option(help="Words there are.")],
    topics: Annotated[int, typer.Option(help="Topics the documents are drawn from.")],
    length: Annotated[float, typer.Option(help="Mean tokens of a document.")] = 100.0,
    alpha: Annotated[float, typer.Option(help="Prior of a topic in a document.")] = 0.1,
    concentration: Annotated[float, typer.Option(help="The smaller, the fewer words a topic has.")] = 200.0,
    zipf: Annotated[float, typer.Option(help="Exponent of the power law of words.")] = 1.1,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    topics_seed: Annotated[
        int | None, typer.Option(min=0, help="Of the topics, for more documents of those of another dataset.")
    ] = None,
    block_tokens: BlockTokens = None,
    shards: Shards = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Documents drawn from LDA itself, with topics that are known.

    Example: ooc ingest synthetic corpus --documents 1000000 --vocabulary 100000 --topics 1000
    """
    from dataclasses import replace

    from blocks.corpus.synthetic import Synthetic, synthesize
    from blocks.memory import parse_size

    started = time.monotonic()
    request = Synthetic(documents, vocabulary, topics, length, alpha, concentration, zipf, seed, topics_seed)
    if block_tokens:
        request = replace(request, block_tokens=block_tokens)
    common: dict[str, Any] = {"workers": workers, "memory": parse_size(memory) if memory else None, "bar": progress_bar}

    def make(path: str) -> Dataset:
        return synthesize(request, path, overwrite=overwrite, **common)

    _tell(_make(make, out, shards, overwrite=overwrite, **common), shards, started, as_json=json)


def _ingest(kind: str, options: dict[str, Any]) -> None:
    from blocks.corpus.request import Request
    from blocks.corpus.vocabulary import Filters
    from blocks.generations import identity_or_none
    from blocks.memory import parse_size

    started = time.monotonic()
    filters = Filters(
        _documents(options.pop("min_df"), "--min-df"),
        _documents(options.pop("max_df"), "--max-df"),
        options.pop("max_vocab"),
        options.pop("min_npmi", None),
    )
    workers, memory, shards, as_json = (options.pop(name) for name in ("workers", "memory", "shards", "json"))
    given = {name: value for name, value in options.items() if value is not None}
    request = Request(kind=kind, filters=filters, **given)
    if shards and request.append:
        raise RequestError("--append and --shards exclude each other", "Append to a dataset, then `ooc shard` it.")
    common: dict[str, Any] = {"workers": workers, "memory": parse_size(memory) if memory else None, "bar": progress_bar}
    before = identity_or_none(Path(request.out)) if request.append else None
    with session(None) as here:
        datasets = (_ingest_together if here.ring else _ingest_here)(request, shards, here, common)
    made = datasets[0].manifest["made"]
    batch = made.get("appended", [made])[-1]
    added = batch["documents"] if datasets[0].identity != before else 0
    if added:
        _note_what_was_left_out(batch)
    else:
        note(f"nothing was added: {request.out} has it already")
    _tell(datasets, shards, started, as_json=as_json, added=added if before else None)


def _note_what_was_left_out(batch: dict[str, Any]) -> None:
    for what, files in batch.get("left_out", {}).items():
        note(f"left out {files:,} {what} in the directories")
    if batch.get("known"):
        note(f"left out {batch['known']:,} documents that are there already")
    if batch["skipped"]:
        note(f"skipped {batch['skipped']:,} bad records, the first: {batch['first_skipped']}")
    dropped = {why: batch["dropped"].get(why, {}).get("tokens", 0) for why in ("unknown", "stop_words")}
    if dropped["unknown"]:
        besides = f", besides {dropped['stop_words']:,} stop words" if dropped["stop_words"] else ""
        note(f"dropped {dropped['unknown']:,} tokens whose words the vocabulary lacks{besides}")
    for line in batch.get("advice", ()):
        note(line)


def _ingest_here(
    request: Request, shards: int | None, here: Session, common: dict[str, Any]
) -> Sequence[Dataset | Matrix]:
    from dataclasses import replace

    from blocks.corpus.ingestion import ingest

    def make(path: str) -> Dataset:
        return ingest(replace(request, out=path), **common)

    return _make(make, request.out, shards, overwrite=request.overwrite, **common)


def _ingest_together(
    request: Request, shards: int | None, here: Session, common: dict[str, Any]
) -> Sequence[Dataset | Matrix]:
    """This rank's shard, of the files that it has."""
    from dataclasses import replace

    from blocks.corpus.ingestion import ingest
    from ooc.ring.relay import Talk
    from samplers.ring_checks import check_apart

    assert here.ring
    if shards or "-" in request.inputs:
        raise RequestError("several machines read files, and each makes a shard", "Leave out --shards, and no -.")
    out, inputs = here.place(Path(request.out)), [str(here.place(Path(path))) for path in request.inputs]
    check_apart(here.ring, out)
    common |= {"workers": here.workers or common["workers"], "memory": here.memory or common["memory"]}
    return [ingest(replace(request, out=str(out), inputs=inputs), others=Talk(here.ring), **common)]


def _make(
    make: Callable[[str], Dataset | Matrix], out: str, shards: int | None, **options: Any
) -> Sequence[Dataset | Matrix]:
    """A dataset, or the shards of one."""
    if shards is None:
        return [make(out)]
    from blocks.shards.splitting import ingest_shards

    return ingest_shards(make, out, shards, **options)


def _tell(
    made: Sequence[Dataset | Matrix], shards: int | None, started: float, *, as_json: bool, added: int | None = None
) -> None:
    """Tell what was made. added: documents, of an append."""
    from blocks.describe import describe

    if shards is not None:
        shard.tell(made, started, as_json=as_json)
        return
    (dataset,) = made
    facts, seconds = describe(dataset), round(time.monotonic() - started, 3)
    if as_json:
        print_json(facts | ({} if added is None else {"added": added}) | {"seconds": seconds})
        return
    if facts["kind"] == "matrix":
        held = f"{facts['rows']:,} users, {facts['columns']:,} items, {facts['entries']:,} ratings"
    else:
        held = (
            f"{facts['documents']:,} documents ({facts['empty_documents']:,} empty), "
            f"{facts['tokens']:,} tokens, vocabulary {facts['vocabulary']:,}"
        )
    held += "" if added is None else f"; {added:,} documents are new"
    grid = f"{dataset.block_count} blocks x {dataset.slice_count} slices"
    say(f"{dataset.path}: {held}\n{grid}, {facts['bytes'] / 1e6:,.1f} MB, in {seconds:.1f} s")


def _documents(text: str | None, option: str) -> int | float | None:
    """A number of documents, or a fraction of them if it is written with a point."""
    try:
        return None if text is None else int(text) if text.isdigit() else float(text)
    except ValueError:
        raise RequestError(
            f"{option}: {text!r} is not a number", "Write documents, as 5, or a fraction, as 0.5."
        ) from None
