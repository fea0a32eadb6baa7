"""Options for ingesting a corpus: defaults and valid combinations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from blocks.append import require_replaceable
from blocks.arrow_tables import pyarrow_module
from blocks.corpus import uci
from blocks.corpus.dataset import Dataset
from blocks.corpus.duplicates import is_leftover_list
from blocks.corpus.held_out_fraction import HeldOutFraction
from blocks.corpus.partition import BLOCK_TOKENS, PART_TOKENS
from blocks.corpus.stop_words import read_stop_words
from blocks.corpus.tokenization_rules import SEGMENT_PATTERN, TOKEN_PATTERN, TokenizationRules, checked_rules
from blocks.corpus.vocabulary import WordFilters, require_ngrams
from blocks.documents.kept_columns import ALL, TEXT, UNKNOWN, KeptColumns
from blocks.encodings import require_encoding
from blocks.errors import RequestError
from blocks.files import checksum, is_free
from blocks.input_directories import FoundTextFiles, find_files, require_outside, table_files
from blocks.outputs import require_free
from blocks.text_inputs import STANDARD_INPUT, InputErrors, Progress, input_facts, input_size, is_stream

KINDS = ("uci", "text", "jsonl", "csv")
PYTHON = "python"  # documents given to `Dataset.create`


@dataclass(frozen=True)
class CorpusRequest:
    """Options of an ingestion. None stands for a default, which may depend on the input kind or the vocabulary."""

    kind: str
    inputs: Sequence[str]
    out: str
    vocab: str | None = None  # UCI: vocabulary file
    lines: bool = False  # text: one document per line
    glob: str = "*"  # text: files to take from directories
    text_field: str = "text"
    name_field: str | None = None
    text_column: str = "text"
    name_column: str | None = None
    delimiter: str | None = None  # csv: see `blocks.delimited.options_dialect`
    quote: str | None = None
    no_header: bool = False  # csv: columns are named by their numbers
    encoding: str | None = None  # encoding of all inputs, None for UTF-8
    query: str | None = None  # csv: query of a SQLite database
    token_pattern: str | None = None
    lower: bool | None = None
    stop_words: str | None = None
    ngrams: int | None = None
    segment: str | None = None  # language written without spaces between words, see `blocks.corpus.segmentation`
    filters: WordFilters = field(default_factory=WordFilters)
    on_error: str = "fail"
    vocabulary: Sequence[str] | None = None  # python: the words to keep, in this order
    slices: int | None = None  # None: chosen from the number of tokens
    vocab_from: str | None = None
    vocab_told: str | None = None  # name of vocab_from in the manifest, None for its path
    append: bool = False  # to an existing dataset; if there is none, it is created
    skip_known: bool = False  # append: skip documents and inputs that the dataset already has
    keep: Sequence[str] = ()  # columns of the document table, see `blocks.documents.kept_columns`
    share: HeldOutFraction | None = None  # the documents to ingest, None for all
    deduplicate: float | None = None  # similarity of duplicates to leave out, 1 for exact ones; None for none
    duplicates_file: str | None = None  # where to list them
    seed: int = 0
    block_tokens: int = BLOCK_TOKENS
    part_tokens: int = PART_TOKENS
    overwrite: bool = False

    @property
    def reading(self) -> str:
        """Return how chunks are read: `lines` or `files` for text, otherwise the input kind."""
        return self.kind if self.kind != "text" else "lines" if self.lines else "files"


class ValidatedRequest(NamedTuple):
    """A validated request and its consequences, before anything is read.

    base: dataset whose vocabulary is used, if any.
    rules: tokenization rules.
    words: words of a UCI vocabulary file, or the given words.
    options: options that influence the result.
    files: inputs read whole, one document each; empty if inputs are read by records.
    kept: columns of the document table, None for no table.
    """

    request: CorpusRequest
    base: Dataset | None
    rules: TokenizationRules
    words: list[str] | None
    options: dict[str, Any]
    files: FoundTextFiles
    kept: KeptColumns | None


def validated_request(request: CorpusRequest, *, together: bool) -> ValidatedRequest:
    """Validate a request; an append to a missing dataset creates it.

    together: whether several machines ingest.

    Raises RequestError if options contradict each other, an input does not exist, or `out` may not be replaced.
    """
    if request.kind == "csv":
        request = replace(request, inputs=table_files(request.inputs))
    _check(request)
    if request.append and (is_free(Path(request.out)) or not Path(request.out).exists()):
        request = replace(request, append=False, skip_known=False)
    if together and request.keep:
        raise RequestError(
            "--keep cannot be used on several machines: shards have no document table",
            "Ingest on one machine, split the dataset with `ooc shard`, and read its documents there.",
        )
    if together and request.deduplicate is not None:
        raise RequestError(
            "--deduplicate cannot be used on several machines, because each machine reads only some of the documents",
            "Ingest on one machine, then split the dataset with `ooc shard`.",
        )
    if together and (request.append or request.vocab_from):
        raise RequestError(
            "--append and --vocab-from cannot be used on several machines, which build a new vocabulary together",
            "Omit both options.",
        )
    if not request.append:
        require_replaceable(Path(request.out), request.overwrite)
    base = _base_of(request)
    rules = _rules_of(request, base)
    words = list(request.vocabulary) if request.vocabulary is not None else None
    if request.kind == "uci" and request.vocab:
        words = uci.read_vocabulary(request.vocab, request.encoding)
    files = find_files(request.inputs, request.glob) if request.reading == "files" else FoundTextFiles([], {})
    return ValidatedRequest(request, base, rules, words, _options_told(request, rules), files, _kept_of(request, base))


def _check(request: CorpusRequest) -> None:
    """Raise RequestError if options contradict each other or an input does not exist."""
    if request.kind not in (*KINDS, PYTHON):
        raise RequestError(f"unknown input kind {request.kind!r}", f"Choose one of: {', '.join(KINDS)}.")
    if not request.inputs and request.kind != PYTHON:
        raise RequestError("no input file is given")
    if request.on_error not in ("fail", "skip"):
        raise RequestError(f"--on-error must be fail or skip, got {request.on_error!r}")
    require_encoding(request.encoding)
    if request.block_tokens < 1 or request.part_tokens < 1:
        raise RequestError(f"--block-tokens must be at least 1, got {request.block_tokens}")
    if request.append and request.overwrite:
        raise RequestError(
            "--append and --overwrite are mutually exclusive: one adds to a dataset, the other replaces it",
            "Use only one of them.",
        )
    _check_deduplicate(request)
    if request.skip_known and not request.append:
        raise RequestError("--skip-known can only be used with --append", "Add --append, or omit --skip-known.")
    if request.vocab_from and request.vocabulary is not None:
        raise RequestError(
            "vocabulary and vocab_from are mutually exclusive",
            "Omit vocabulary: the dataset of vocab_from already has one.",
        )
    if (request.vocab_from or request.vocabulary is not None) and request.filters != WordFilters():
        raise RequestError(
            "--min-df, --max-df, --max-vocab and --min-npmi cannot be used when the vocabulary is given",
            "Omit these options.",
        )
    if request.reading == "files" and not request.append:
        require_outside(request.out, request.inputs)
    for path in request.inputs:
        if request.kind != "text" or request.lines:
            if Path(path).is_dir():
                raise RequestError(
                    f"{path} is a directory; expected a file", "Only `ooc ingest text` reads directories of files."
                )
            input_size(path)


def _check_deduplicate(request: CorpusRequest) -> None:
    """Raise RequestError if duplicates are to be left out, but cannot be found."""
    if request.deduplicate is None:
        return
    if request.kind == "uci":
        raise RequestError(
            "--deduplicate cannot be used for bags of words, where the order of the words is lost",
            "Omit --deduplicate, or ingest the texts.",
        )
    if request.append:
        raise RequestError(
            "--deduplicate and --append are mutually exclusive: a dataset does not keep the hashes of its documents",
            "Ingest all documents again with --deduplicate.",
        )
    if once := next((path for path in request.inputs if is_stream(path) and not Path(path).is_dir()), None):
        raise RequestError(
            f"--deduplicate reads the inputs twice, and {once} can be read only once", "Write it to a file first."
        )
    if request.duplicates_file:
        listed = Path(request.duplicates_file)
        require_free(listed, overwrite=request.overwrite or is_leftover_list(listed, Path(request.out)))


def _base_of(request: CorpusRequest) -> Dataset | None:
    """Return the dataset whose vocabulary is used, if any."""
    if request.append:
        base = Dataset(request.out)
        if "shard" in base.manifest:
            raise RequestError(
                f"{request.out} is a shard, and documents cannot be appended to a single shard",
                "Append to the whole dataset, then split it again with `ooc shard`.",
            )
        _require_same_choice(request, base)
        return base
    return Dataset(request.vocab_from) if request.vocab_from else None


def _require_same_choice(request: CorpusRequest, base: Dataset) -> None:
    """Raise RequestError if options would choose a vocabulary other than the dataset's."""
    earlier = base.manifest["made"].get("options", {})
    for name, given in (*request.filters._asdict().items(), ("vocab_from", request.vocab_from)):
        if given is not None and given != (before := earlier.get(name)):
            option = f"--{name.replace('_', '-')}"
            was = f"without {option}" if before is None else f"with {option} {before}"
            raise RequestError(
                f"{option} {given}: {base.path} was ingested {was}, and appending cannot change that",
                f"Omit {option}.",
            )


def _rules_of(request: CorpusRequest, base: Dataset | None) -> TokenizationRules:
    """Return the tokenization rules: each from the request, else from the base dataset, else the default."""
    earlier = base.manifest["made"].get("options", {}) if base else {}

    def choice(name: str, default: Any) -> Any:
        given = getattr(request, name)
        return earlier.get(name, default) if given is None else given

    default = "none" if request.kind == "uci" else "english"
    stop_words = request.stop_words or earlier.get("stop_words", default)
    listed = tuple(stop_words) if isinstance(stop_words, list) else read_stop_words(stop_words)
    segment = choice("segment", None)
    pattern = choice("token_pattern", SEGMENT_PATTERN if segment else TOKEN_PATTERN)
    rules = checked_rules(TokenizationRules(pattern, choice("lower", True), listed, choice("ngrams", 1), segment))
    require_ngrams(request.filters, rules)
    return rules


def _named(request: CorpusRequest) -> KeptColumns:
    """Return the columns of --keep, a comma-separated list."""
    texts = {"jsonl": request.text_field, "csv": request.text_column, PYTHON: request.text_column}
    text = texts.get(request.kind, TEXT)
    names = [name.strip() for given in request.keep for name in given.split(",") if name.strip()]
    if request.keep and not names:
        raise RequestError("--keep names no column", "For example: --keep text,date")
    kept = dict.fromkeys(text if name == TEXT else name for name in names if name != UNKNOWN)
    return KeptColumns(tuple(kept), text, UNKNOWN in names)


def _kept_of(request: CorpusRequest, base: Dataset | None) -> KeptColumns | None:
    """Return the columns to keep: the requested ones, or those of the dataset that documents are appended to."""
    kept = _named(request)
    if base and request.append:
        kept = _kept_before(kept, base)
    if not kept.told:
        return None
    if kept.unknown and not base and request.vocabulary is None:
        raise RequestError(
            f"--keep {UNKNOWN} needs a given vocabulary: without one, no token is unknown",
            f"Add --vocab-from DATASET, or omit {UNKNOWN}.",
        )
    if request.kind == "uci":
        raise RequestError(
            f"{', '.join(kept.told)} cannot be kept for bags of words, which have no texts or columns",
            "Ingest texts, JSON Lines, CSV or Parquet.",
        )
    if request.kind == "text" and not set(kept.names) <= {ALL, TEXT}:
        raise RequestError(
            f"{', '.join(kept.names)} cannot be kept: text files only have the text of each document",
            "Use --keep text, or ingest JSON Lines, CSV or Parquet.",
        )
    pyarrow_module()  # raises early if it is missing
    return kept


def _kept_before(asked: KeptColumns, base: Dataset) -> KeptColumns:
    """Return the columns that a dataset keeps.

    Raises RequestError if other columns are requested.
    """
    table = base.table()
    there = tuple(table.kinds) if table else ()
    if table and table.text not in (None, asked.text):
        raise RequestError(
            f"{base.path} keeps texts as column {table.text!r}, but the new documents use {asked.text!r}",
            f"Name the column with the new texts {table.text!r}, too.",
        )
    if {*asked.told} != {*there} and asked.told not in ((), (ALL,) if there else ()):
        raise RequestError(
            f"--keep {','.join(asked.told)}: appending cannot change the columns that {base.path} keeps, which are "
            f"{', '.join(there) or 'nothing'}",
            "Omit --keep.",
        )
    return KeptColumns(tuple(name for name in there if name != UNKNOWN), asked.text, UNKNOWN in there)


def _options_told(request: CorpusRequest, rules: TokenizationRules) -> dict[str, Any]:
    """Return the options that influence the result, for the manifest."""
    names = {"uci": ["vocab"], "text": ["lines", "glob"], "jsonl": ["text_field", "name_field", "on_error"]}
    names |= {PYTHON: [], "csv": ["text_column", "name_column", "delimiter", "quote", "no_header", "query", "on_error"]}
    options = {name: getattr(request, name) for name in [*names[request.kind], "encoding"]}
    if request.kind != "uci":
        options |= rules._asdict()
    options |= {"stop_words": _stop_words_told(rules)}
    options |= request.filters._asdict()
    options |= {"keep": list(_named(request).told)} if request.keep else {}
    options |= {"deduplicate": request.deduplicate} if request.deduplicate else {}
    options |= {"hold_out": request.share.share, "held": request.share.held} if request.share else {}
    options |= {
        "vocab_from": request.vocab_told or request.vocab_from,
        "seed": request.seed,
        "block_tokens": request.block_tokens,
    }
    return options


def _stop_words_told(rules: TokenizationRules) -> str | list[str]:
    """Return `none`, `english`, or the words of any other list."""
    if not rules.stop_words:
        return "none"
    return "english" if rules.stop_words == read_stop_words("english") else list(rules.stop_words)


def input_records(request: CorpusRequest, progress: Progress) -> list[dict[str, Any]]:
    """Return the name, size and content hash of each input; a directory has the total size of its files.

    Only files of records are hashed. Queried databases are not, nor are files that are single documents, since
    duplicates of those may be intended.

    progress: function called with the number of bytes just read.
    """
    return [
        {"name": path, "bytes": sum(input_size(file) for file, _ in find_files([path], request.glob).found)}
        if path != STANDARD_INPUT and Path(path).is_dir()
        else _file_told(path, hashed=request.reading != "files" and not request.query, progress=progress)
        for path in request.inputs
    ]


def _file_told(path: str, *, hashed: bool, progress: Progress) -> dict[str, Any]:
    told = input_facts(path)
    if hashed and told["bytes"]:  # empty inputs are never duplicates
        with InputErrors(path):
            told["hash"] = checksum(Path(path), progress)
    return told
