"""The command line: each command turns its options into one call; no algorithm lives here.

Heavy modules, numpy among them, are imported inside the commands, so that `ooc --help` answers at once.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Annotated, Any, NoReturn

import typer

from blocks.errors import OocError, RequestError

app = typer.Typer(
    name="ooc",
    help="Train models on data larger than memory.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
ingest_app = typer.Typer(help="Make a dataset from text or bags of words.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(ingest_app, name="ingest")

_debug = False


def main() -> NoReturn:
    """Run a command; failures become a line that says what, a line that says what to do, and an exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(standalone_mode=False)  # typer makes 130 of a KeyboardInterrupt
        if code == 130:
            raise KeyboardInterrupt
    except OocError as error:
        _fail(error.what, error.remedy, error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", "", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; there is nobody to tell
        sys.exit(1)
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)
            sys.exit(2)
        if (told := getattr(error, "format_message", None)) is not None:  # unknown options and the like
            _fail(told(), f"Try: {_help_command(error)}", 2)
        _fail(f"{type(error).__name__}: {error}", "This is a mistake in ooc; --debug shows where.", 1)
    sys.exit(code or 0)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _fail(what: str, remedy: str, code: int) -> NoReturn:
    if _debug and sys.exc_info()[0] is not None:
        import traceback

        traceback.print_exc()
    print(f"ooc: {what}", file=sys.stderr)
    if remedy:
        print(remedy, file=sys.stderr)
    sys.exit(code)


def _help_command(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'ooc'} --help"


@app.callback()
def _global(debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of failures.")] = False) -> None:
    global _debug  # noqa: PLW0603  (it must outlive the command, whose failure it explains)
    _debug = debug


Inputs = Annotated[list[str], typer.Argument(help="Input files, plain or .gz, .xz, .zst; - is standard input.")]
Out = Annotated[str, typer.Argument(help="The dataset: a directory to be made.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Worker processes [default: all cores].")]
Memory = Annotated[
    str | None, typer.Option(help="Memory of all processes, as 2GB [default: a quarter of what is free].")
]
Seed = Annotated[int, typer.Option(min=0, help="Shuffles the documents and deals the words.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")]
Append = Annotated[bool, typer.Option("--append", help="Add the documents to OUT, keeping its vocabulary.")]
VocabFrom = Annotated[str | None, typer.Option(metavar="DATASET", help="Use the vocabulary of this dataset.")]
MinDf = Annotated[
    str | None, typer.Option(help="Words in fewer documents are dropped: a number, or a fraction as 0.01.")
]
MaxDf = Annotated[str | None, typer.Option(help="Words in more documents are dropped: a number, or a fraction as 0.5.")]
MaxVocab = Annotated[int | None, typer.Option(min=1, help="Keep this many words, the most frequent.")]
BlockTokens = Annotated[int | None, typer.Option(min=1, help="Tokens of a block.")]
TokenPattern = Annotated[str | None, typer.Option(help=r"Regular expression of a token [default: (?u)\b\w\w+\b].")]
Lower = Annotated[bool | None, typer.Option("--lower/--no-lower", help="Turn text to lower case [default: lower].")]
StopWords = Annotated[str | None, typer.Option(metavar="english|FILE|none", help="Words to drop [default: english].")]
NoStopWords = Annotated[str | None, typer.Option(metavar="english|FILE|none", help="Words to drop [default: none].")]
Ngrams = Annotated[int | None, typer.Option(min=1, help="Runs of up to this many words become words too [default: 1].")]
OnError = Annotated[str, typer.Option(metavar="fail|skip", help="What to do at a record that cannot be read.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@ingest_app.command("uci")
def ingest_uci(
    inputs: Inputs,
    out: Out,
    vocab: Annotated[str | None, typer.Option(metavar="FILE", help="Line i is word i.")] = None,
    stop_words: NoStopWords = None,
    min_df: MinDf = None,
    max_df: MaxDf = None,
    max_vocab: MaxVocab = None,
    vocab_from: VocabFrom = None,
    append: Append = False,
    seed: Seed = 0,
    block_tokens: BlockTokens = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Bags of words: lines of document, word and count below a header of three lines."""
    _ingest("uci", locals())


@ingest_app.command("text")
def ingest_text(
    inputs: Annotated[list[str], typer.Argument(help="Text files, and directories of them; - is standard input.")],
    out: Out,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a document, rather than each file.")] = False,
    glob: Annotated[str, typer.Option(help="Files to take from directories.")] = "*",
    token_pattern: TokenPattern = None,
    lower: Lower = None,
    stop_words: StopWords = None,
    ngrams: Ngrams = None,
    min_df: MinDf = None,
    max_df: MaxDf = None,
    max_vocab: MaxVocab = None,
    on_error: OnError = "fail",
    vocab_from: VocabFrom = None,
    append: Append = False,
    seed: Seed = 0,
    block_tokens: BlockTokens = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Text files: each file is a document, or with --lines each line."""
    _ingest("text", locals())


@ingest_app.command("jsonl")
def ingest_jsonl(
    inputs: Inputs,
    out: Out,
    text_field: Annotated[str, typer.Option(help="Holds the text, or a list of tokens, taken as they are.")] = "text",
    name_field: Annotated[str | None, typer.Option(help="Holds the document's name [default: id, if any].")] = None,
    token_pattern: TokenPattern = None,
    lower: Lower = None,
    stop_words: StopWords = None,
    ngrams: Ngrams = None,
    min_df: MinDf = None,
    max_df: MaxDf = None,
    max_vocab: MaxVocab = None,
    on_error: OnError = "fail",
    vocab_from: VocabFrom = None,
    append: Append = False,
    seed: Seed = 0,
    block_tokens: BlockTokens = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """JSON Lines: each line is an object that holds a document."""
    _ingest("jsonl", locals())


@ingest_app.command("csv")
def ingest_csv(
    inputs: Inputs,
    out: Out,
    text_column: Annotated[str, typer.Option(help="Holds the text.")] = "text",
    name_column: Annotated[str | None, typer.Option(help="Holds the document's name.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between columns [default: tab for .tsv, else comma].")] = None,
    token_pattern: TokenPattern = None,
    lower: Lower = None,
    stop_words: StopWords = None,
    ngrams: Ngrams = None,
    min_df: MinDf = None,
    max_df: MaxDf = None,
    max_vocab: MaxVocab = None,
    on_error: OnError = "fail",
    vocab_from: VocabFrom = None,
    append: Append = False,
    seed: Seed = 0,
    block_tokens: BlockTokens = None,
    workers: Workers = None,
    memory: Memory = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """CSV or TSV with a header row: each row is a document."""
    _ingest("csv", locals())


def _ingest(kind: str, options: dict[str, Any]) -> None:
    from blocks.describe import describe
    from blocks.ingestion import ingest
    from blocks.memory import parse_size
    from blocks.request import Request
    from blocks.vocabulary import Filters

    started = time.monotonic()
    filters = Filters(
        _documents(options.pop("min_df"), "--min-df"),
        _documents(options.pop("max_df"), "--max-df"),
        options.pop("max_vocab"),
    )
    workers, memory, as_json = (options.pop(name) for name in ("workers", "memory", "json"))
    given = {name: value for name, value in options.items() if value is not None}
    request = Request(kind=kind, filters=filters, **given)
    dataset = ingest(request, workers=workers, memory=parse_size(memory) if memory else None, bar=progress_bar)
    facts = describe(dataset)
    if as_json:
        print_json(facts | {"seconds": round(time.monotonic() - started, 3)})
        return
    made = dataset.manifest["made"]
    latest = made.get("appended", [made])[-1]
    if latest["skipped"]:
        print(f"skipped {latest['skipped']:,} bad records, the first: {latest['first_skipped']}", file=sys.stderr)
    if unknown := latest["dropped"].get("unknown", {}).get("tokens"):
        print(f"dropped {unknown:,} tokens whose words the vocabulary lacks", file=sys.stderr)
    print(
        f"{dataset.path}: {dataset.documents:,} documents ({facts['empty_documents']:,} empty), "
        f"{dataset.tokens:,} tokens, vocabulary {dataset.vocabulary_size:,}\n"
        f"{dataset.block_count} blocks x {dataset.slice_count} slices, {facts['bytes'] / 1e6:,.1f} MB, "
        f"in {time.monotonic() - started:.1f} s"
    )


def _documents(text: str | None, option: str) -> int | float | None:
    """A number of documents, or a fraction of them if it is written with a point."""
    try:
        return None if text is None else int(text) if text.isdigit() else float(text)
    except ValueError:
        raise RequestError(
            f"{option}: {text!r} is not a number", "Write documents, as 5, or a fraction, as 0.5."
        ) from None


def progress_bar(what: str, total: int | None, unit: str) -> Any:
    """A bar on standard error; nothing if that is not a terminal."""
    from tqdm import tqdm

    return tqdm(total=total, desc=what, unit=unit, unit_scale=unit == "B", disable=None, leave=False)


def print_json(content: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(content, indent=1))


@app.command()
def info(path: Annotated[str, typer.Argument(help="A dataset.")], json: Json = False) -> None:
    """Say what a dataset holds and how it was made."""
    from blocks import Dataset
    from blocks.describe import describe, told

    facts = describe(Dataset(path))
    print_json(facts) if json else print("\n".join(told(facts)))


@app.command()
def verify(path: Annotated[str, typer.Argument(help="A dataset.")], json: Json = False) -> None:
    """Read all files again and compare them with their checksums and with each other."""
    from blocks import Dataset, WorkFailed
    from blocks.verify import verify_dataset

    report = verify_dataset(Dataset(path), bar=progress_bar)
    if json:
        print_json(report._asdict())
        sys.exit(1 if report.problems else 0)
    if report.problems:
        raise WorkFailed("\n".join(report.problems), "\n".join(report.remedies))
    print(f"{path}: {report.files} files, {report.bytes / 1e6:,.1f} MB, all as they were written")


if __name__ == "__main__":
    main()
