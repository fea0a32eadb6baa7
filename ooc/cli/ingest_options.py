"""Options of `ooc ingest`, in groups shared by its commands."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from samplers.options import (
    INPUT,
    LAYOUT,
    OUTPUT,
    RESOURCES,
    WORDS,
    Option,
    Options,
    TrainingResources,
    described,
    size_of,
)

_STOP_WORDS = (
    "Stop words to drop: a language (english, german, de), a file with one word per line, a comma-separated list of"
    " these, or none"
)
_WORDS = "LANGUAGE|FILE|english|none"


class TextEncodingOptions:
    """Options of text files."""

    group = INPUT

    encoding: Annotated[
        str | None,
        Option("Encoding of the inputs, such as latin-1 or cp1252 [default: utf-8, or as a byte order mark says]."),
    ] = None


class UciOptions:
    """Options of `ooc ingest uci`."""

    group = INPUT

    vocab: Annotated[str | None, Option("Vocabulary file: line i is the word with number i.", metavar="FILE")] = None


class TextFilesOptions:
    """Options of `ooc ingest text`."""

    group = INPUT

    lines: Annotated[bool, Option("Read each line, rather than each file, as a document.")] = False
    glob: Annotated[str, Option("Pattern of the files to read from directories, such as '*.txt'.")] = "*"


class JsonLinesOptions:
    """Options of `ooc ingest jsonl`."""

    group = INPUT

    text_field: Annotated[
        str, Option("Field with the text, or with a list of tokens; body.text is a field of a nested object.")
    ] = "text"
    name_field: Annotated[str | None, Option("Field with the name of the document [default: id, if there is one].")] = (
        None
    )


class TextColumnsOptions:
    """Options of `ooc ingest csv` with text."""

    group = INPUT

    text_column: Annotated[str | None, Option("Column with the text [default: text].", metavar="COLUMN")] = None
    name_column: Annotated[str | None, Option("Column with the name of the document.", metavar="COLUMN")] = None


class DelimitedTableOptions:
    """Options of the format of a table."""

    group = INPUT

    delimiter: Annotated[
        str | None, Option("Character between columns, or its name, such as tab [default: tab for .tsv, else comma].")
    ] = None
    quote: Annotated[
        str | None,
        Option(
            'Quote character of fields; none if quotes have no special meaning [default: "].', metavar="CHARACTER|none"
        ),
    ] = None
    no_header: Annotated[bool, Option("Treat the first row as data; columns are then numbered from 1.")] = False
    decimal: Annotated[str | None, Option("Decimal mark of numbers [default: .].", choices=".|,")] = None


class DatabaseQueryOptions:
    """Options of databases."""

    group = INPUT

    query: Annotated[str | None, Option("Query that selects the rows of a SQLite database.", metavar="SQL")] = None


class TokenizationOptions:
    """Options for splitting text into words."""

    group = WORDS

    token_pattern: Annotated[
        str | None, Option(r"Regular expression that matches a token [default: (?u)\b\w\w+\b].")
    ] = None
    lower: Annotated[bool | None, Option("Convert text to lower case [default: lower].")] = None
    stop_words: Annotated[str | None, Option(f"{_STOP_WORDS} [default: english].", choices=_WORDS)] = None
    segment: Annotated[
        str | None, Option("Segment text that has no spaces between words.", choices="chinese|japanese|thai")
    ] = None
    ngrams: Annotated[
        int | None,
        Option("Add n-grams of up to N words without stop words to the vocabulary [default: 1].", least=1),
    ] = None
    min_npmi: Annotated[
        float | None,
        Option(
            "Drop n-grams whose normalised pointwise mutual information (NPMI) is below this value.",
            metavar="VALUE",
            least=-1.0,
            most=1.0,
        ),
    ] = None


class StopWordsOptions:
    """Stop word options for text that is already split into words."""

    group = WORDS

    stop_words: Annotated[str | None, Option(f"{_STOP_WORDS} [default: none].", choices=_WORDS)] = None


class VocabularyOptions:
    """Options for choosing the vocabulary."""

    group = WORDS

    min_df: Annotated[
        str | None,
        Option(
            "Drop words in fewer documents than this: a count such as 5, or a fraction of all documents such as 0.01.",
            metavar="N|FRACTION",
        ),
    ] = None
    max_df: Annotated[
        str | None,
        Option(
            "Drop words in more documents than this: a count such as 500, or a fraction of all documents such as 0.5.",
            metavar="N|FRACTION",
        ),
    ] = None
    max_vocab: Annotated[
        int | None, Option("Keep only the N most frequent words (scikit-learn's max_features).", least=1)
    ] = None


class InvalidRecordOptions:
    """Options for records that cannot be read."""

    group = INPUT

    on_error: Annotated[
        str, Option("Stop at a record that cannot be read (fail), or skip it (skip).", choices="fail|skip")
    ] = "fail"


class KeptColumnOptions:
    """Options for the texts and columns that a corpus keeps."""

    group = OUTPUT

    keep: Annotated[
        Sequence[str],
        Option(
            "Keep these columns or fields of the documents, separated by commas, such as text,date,category: text is "
            "the text of a document; all keeps everything. unknown_tokens, with --vocab-from, is the number of a "
            "document's tokens that are not in the vocabulary.",
            metavar="COLUMNS",
        ),
    ] = ()
    deduplicate: Annotated[
        str | None,
        Option(
            "Remove documents with the same tokens as an earlier document (exact), or with at least this Jaccard "
            "similarity of their word trigrams, such as 80%. OUT-duplicates.csv lists the removed documents.",
            metavar="exact|SIMILARITY",
        ),
    ] = None
    hold_out: Annotated[
        str | None,
        Option(
            "Hold out this fraction of the documents, such as 5%, in a second dataset OUT-held-out with the vocabulary "
            "of the first; documents are chosen by their text and --seed.",
            metavar="SHARE",
        ),
    ] = None


class VocabularyReuseOptions:
    """Options for reusing the vocabulary of an existing corpus, or appending to it, and the random seed."""

    group = OUTPUT

    vocab_from: Annotated[
        str | None,
        Option("Use the vocabulary of this dataset; other words are dropped.", metavar="DATASET", group=WORDS),
    ] = None
    append: Annotated[
        bool, Option("Append the documents to OUT and keep its vocabulary; create OUT if it does not exist.")
    ] = False
    skip_known: Annotated[bool, Option("With --append: skip input files and named documents that OUT already has.")] = (
        False
    )
    seed: Annotated[
        int, Option("Random seed for the order of documents and words in the dataset.", least=0, group=LAYOUT)
    ] = 0


class CorpusBlockOptions:
    """Options of the blocks of a corpus."""

    group = LAYOUT

    block_tokens: Annotated[int | None, Option("Number of tokens in a block [default: 1048576].", least=1)] = None


class ShardsOptions:
    """Options of datasets that can be created as shards."""

    group = LAYOUT

    shards: Annotated[
        int | None,
        Option("Number of shards to split the dataset into, as with `ooc shard`; OUT may contain {rank}.", least=1),
    ] = None


@dataclass(frozen=True, kw_only=True)
class DatasetOptions(Options):
    """Options of every dataset."""

    group = RESOURCES

    workers: Annotated[int | None, described(TrainingResources)["workers"].option] = None
    memory_bytes: Annotated[
        int | None,
        Option(
            "Memory limit of all processes together, such as 2GB [default: a quarter of the free memory].",
            name="memory",
            metavar="SIZE",
            read=size_of,
        ),
    ] = None
    overwrite: Annotated[bool, Option("Replace OUT if it exists.", group=OUTPUT)] = False


class RatingsOptions:
    """First options of `ooc ingest ratings`."""

    group = INPUT

    names_from: Annotated[
        str | None, Option("Keep only the users and items of this dataset of ratings.", metavar="MATRIX")
    ] = None
    items_from: Annotated[
        str | None,
        Option("Keep only the items of this dataset of ratings, to recommend them to new users.", metavar="MATRIX"),
    ] = None
    lowest: Annotated[float | None, Option("Smallest valid rating; a lower rating is an error.")] = None
    highest: Annotated[float | None, Option("Largest valid rating; a higher rating is an error.")] = None
    user_column: Annotated[
        str | None,
        Option(
            "User column: name, or number from 1 [default: a known name such as userId, or 1].",
            metavar="COLUMN",
        ),
    ] = None
    item_column: Annotated[
        str | None,
        Option(
            "Item column: name, or number from 1 [default: a known name such as movieId, or 2].",
            metavar="COLUMN",
        ),
    ] = None
    rating_column: Annotated[
        str | None,
        Option("Rating column: name, number, or none if all are 1 [default: by name, or 3].", metavar="COLUMN"),
    ] = None
    time_column: Annotated[
        str | None,
        Option(
            "Time column for --hold-out last-N: name, or number from 1; numbers, or dates such as 2015-09-30 "
            "[default: by name, or 4].",
            metavar="COLUMN",
        ),
    ] = None
    delimiter: Annotated[
        str | None,
        Option("Field delimiter: a character, its name (such as semicolon), or :: [default: detected from line 1]."),
    ] = None
    quote: Annotated[str | None, described(DelimitedTableOptions)["quote"].option] = None
    decimal: Annotated[str | None, described(DelimitedTableOptions)["decimal"].option] = None


class SyntheticOptions:
    """Options of `ooc ingest synthetic`."""

    documents: Annotated[int, Option("Number of documents to generate.")]
    vocabulary: Annotated[int, Option("Number of words in the vocabulary.")]
    topics: Annotated[int, Option("Number of topics to generate the documents from.")]
    length: Annotated[float, Option("Mean number of tokens in a document.")] = 100.0
    alpha: Annotated[float, Option("Concentration of the symmetric Dirichlet prior over the topics of a document.")] = (
        0.1
    )
    concentration: Annotated[
        float,
        Option(
            "Concentration of the Dirichlet prior over the words of a topic; smaller values give topics of fewer words."
        ),
    ] = 200.0
    zipf: Annotated[float, Option("Exponent of the power law of word frequencies.")] = 1.1
    seed: Annotated[int, Option("Random seed of topics and documents.", least=0)] = 0
    topics_seed: Annotated[
        int | None,
        Option(
            "Random seed of the topics only; give another dataset's seed to generate more documents from its topics "
            "[default: --seed].",
            least=0,
        ),
    ] = None
