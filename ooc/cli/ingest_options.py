"""The options of `ooc ingest`, in groups that several of its commands have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from samplers.options import Option, Options, Resources, described, size_of

_STOP_WORDS = (
    "Stop words to drop: a language (german or de), a file with one word per line, or a comma-separated list of these"
)
_WORDS = "LANGUAGE|FILE|english|none"


class EncodedOptions:
    """Text files."""

    encoding: Annotated[
        str | None,
        Option("Encoding of the inputs, as latin-1 or cp1252 [default: utf-8, or what a byte order mark says]."),
    ] = None


class BagsOptions:
    """`ooc ingest uci`."""

    vocab: Annotated[str | None, Option("Line i is word i.", metavar="FILE")] = None


class TextFilesOptions:
    """`ooc ingest text`."""

    lines: Annotated[bool, Option("Each line is a document, rather than each file.")] = False
    glob: Annotated[str, Option("Files to take from directories.")] = "*"


class JsonLinesOptions:
    """`ooc ingest jsonl`."""

    text_field: Annotated[
        str, Option("Holds the text, or a list of tokens, taken as they are; as body.text in objects.")
    ] = "text"
    name_field: Annotated[str | None, Option("Holds the document's name [default: id, if any].")] = None


class NumberColumnsOptions:
    """`ooc ingest csv` with numbers."""

    target: Annotated[str | None, Option("Holds y: make a design matrix.", metavar="COLUMN")] = None
    drop: Annotated[Sequence[str], Option("Not to be in the design matrix.", metavar="COLUMN")] = ()


class TextColumnsOptions:
    """`ooc ingest csv` with text."""

    text_column: Annotated[str | None, Option("Holds the text [default: text].")] = None
    name_column: Annotated[str | None, Option("Holds the document's name.")] = None


class TableOptions:
    """How a table is written."""

    delimiter: Annotated[
        str | None, Option("Character between columns, or its name, as tab [default: tab for .tsv, else comma].")
    ] = None
    quote: Annotated[
        str | None,
        Option('Character that encloses fields, or none for no quoting [default: "].', metavar="CHARACTER|none"),
    ] = None
    no_header: Annotated[bool, Option("Columns have no names, but numbers from 1.")] = False
    decimal: Annotated[str | None, Option("Mark before the fraction of a number [default: .].", choices=".|,")] = None


class QueryOptions:
    """Databases."""

    query: Annotated[str | None, Option("Rows to take from a SQLite database.", metavar="SQL")] = None


class TokensOptions:
    """How text becomes words."""

    token_pattern: Annotated[str | None, Option(r"Regular expression of a token [default: (?u)\b\w\w+\b].")] = None
    lower: Annotated[bool | None, Option("Turn text to lower case [default: lower].")] = None
    stop_words: Annotated[str | None, Option(f"{_STOP_WORDS} [default: english].", choices=_WORDS)] = None
    segment: Annotated[
        str | None, Option("Find words in text that has no spaces between them.", choices="chinese|japanese|thai")
    ] = None
    ngrams: Annotated[
        int | None,
        Option("Up to this many words in a row, without stop words, become words too [default: 1].", least=1),
    ] = None
    min_npmi: Annotated[
        float | None,
        Option(
            "Drop n-grams whose normalised pointwise mutual information is less.",
            metavar="VALUE",
            least=-1.0,
            most=1.0,
        ),
    ] = None


class StopWordsOptions:
    """Words that are words already."""

    stop_words: Annotated[str | None, Option(f"{_STOP_WORDS} [default: none].", choices=_WORDS)] = None


class VocabularyOptions:
    """Which words are kept."""

    min_df: Annotated[
        str | None,
        Option("Words in fewer documents are dropped: a number, or a fraction as 0.01.", metavar="N|SHARE"),
    ] = None
    max_df: Annotated[
        str | None,
        Option("Words in more documents are dropped: a number, or a fraction as 0.5.", metavar="N|SHARE"),
    ] = None
    max_vocab: Annotated[int | None, Option("Keep this many words, the most frequent.", least=1)] = None


class RecordsOptions:
    """Records of which some cannot be read."""

    on_error: Annotated[str, Option("What to do at a record that cannot be read.", choices="fail|skip")] = "fail"


class CorpusOptions:
    """What the documents are added to."""

    vocab_from: Annotated[str | None, Option("Use the vocabulary of this dataset.", metavar="DATASET")] = None
    append: Annotated[bool, Option("Add the documents to OUT, keeping its vocabulary; make it if it is not there.")] = (
        False
    )
    skip_known: Annotated[bool, Option("Of an append: pass over input files and named documents that OUT has.")] = False
    seed: Annotated[int, Option("Shuffles the documents and deals the words.", least=0)] = 0


class BlocksOptions:
    """Blocks of a corpus."""

    block_tokens: Annotated[int | None, Option("Tokens of a block.", least=1)] = None


class ShardsOptions:
    """Datasets that can be made in shards."""

    shards: Annotated[
        int | None,
        Option("Number of shards to split the dataset into, as `ooc shard` does; OUT may contain {rank}.", least=1),
    ] = None


@dataclass(frozen=True, kw_only=True)
class MakingOptions(Options):
    """What every dataset is made with."""

    workers: Annotated[int | None, described(Resources)["workers"].option] = None
    memory_bytes: Annotated[
        int | None,
        Option(
            "Memory of all processes, as 2GB [default: a quarter of what is free].",
            name="memory",
            metavar="SIZE",
            read=size_of,
        ),
    ] = None
    overwrite: Annotated[bool, Option("Replace what is there.")] = False


class RatingsOptions:
    """`ooc ingest ratings`, first."""

    names_from: Annotated[
        str | None, Option("Keep the users and items of this one; leave out others.", metavar="MATRIX")
    ] = None
    items_from: Annotated[
        str | None, Option("Keep the items of this one, for users who came later.", metavar="MATRIX")
    ] = None
    lowest: Annotated[float | None, Option("The least rating there may be.")] = None
    highest: Annotated[float | None, Option("The largest.")] = None
    user_column: Annotated[
        str | None, Option("User column: name, or number from 1 [default: by name, or 1].", metavar="COLUMN")
    ] = None
    item_column: Annotated[
        str | None, Option("Item column: name, or number from 1 [default: by name, or 2].", metavar="COLUMN")
    ] = None
    rating_column: Annotated[
        str | None,
        Option("Rating column: name, number, or none if all are 1 [default: by name, or 3].", metavar="COLUMN"),
    ] = None
    delimiter: Annotated[
        str | None, Option("Character between fields, its name, as semicolon, or :: [default: found from line 1].")
    ] = None
    quote: Annotated[str | None, described(TableOptions)["quote"].option] = None
    decimal: Annotated[str | None, described(TableOptions)["decimal"].option] = None


class RatingsSeedOptions:
    """`ooc ingest ratings`, last."""

    seed: Annotated[int, Option("Shuffles the users and deals the items.", least=0)] = 0


class DrawnOptions:
    """`ooc ingest synthetic`."""

    documents: Annotated[int, Option("Documents to draw.")]
    vocabulary: Annotated[int, Option("Words there are.")]
    topics: Annotated[int, Option("Topics the documents are drawn from.")]
    length: Annotated[float, Option("Mean tokens of a document.")] = 100.0
    alpha: Annotated[float, Option("Prior of a topic in a document.")] = 0.1
    concentration: Annotated[float, Option("The smaller, the fewer words a topic has.")] = 200.0
    zipf: Annotated[float, Option("Exponent of the power law of words.")] = 1.1
    seed: Annotated[int, Option("Of everything that is drawn.", least=0)] = 0
    topics_seed: Annotated[
        int | None,
        Option("Seed of the topics; give that of another dataset to draw more documents of its topics.", least=0),
    ] = None


class ColumnsOptions:
    """Columns of another design."""

    columns_from: Annotated[
        str | None, Option("Have the columns of this one, to predict by what was trained on it.", metavar="DESIGN")
    ] = None


class SvmlightOptions:
    """`ooc ingest svmlight`."""

    zero_based: Annotated[bool, Option("Indices count from 0, not from 1.")] = False
    by_rows: Annotated[bool, Option("Samples one after the other, shuffled, for `ooc train softmax`.")] = False
    seed: Annotated[int | None, Option("Of the shuffle, with --by-rows [default: 0].", least=0)] = None


class TargetOptions:
    """A design whose y is in a file of its own."""

    target: Annotated[
        str | None, Option("Holds y: .npy, or a text file with a number on each line.", metavar="FILE")
    ] = None


class GenotypesOptions:
    """`ooc ingest plink`."""

    covariates: Annotated[
        str | None, Option("More columns: lines of FID IID value ..., in any order.", metavar="FILE")
    ] = None
    skip_missing: Annotated[bool, Option("Leave out individuals without a phenotype or covariates.")] = False


class ColumnBlocksOptions:
    """Blocks of a design."""

    block_size: Annotated[str | None, Option("Of the columns of a block, about [default: 32MiB].", metavar="SIZE")] = (
        None
    )
