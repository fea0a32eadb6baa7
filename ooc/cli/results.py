"""`ooc topics`, `infer`, `evaluate`, `export` and `import`: use a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blocks.errors import RequestError
from blocks.plurals import count_of, size_text
from ooc.cli import console
from ooc.cli.console import Json, Overwrite, Workers, note, print_json, print_line

if TYPE_CHECKING:
    pass

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a finished run.")]

DataOfRun = Annotated[
    Path | None,
    typer.Option(metavar="DATASET", help="Training dataset, if it was moved, or if the run was trained on its shards."),
]
Spread = Annotated[
    bool,
    typer.Option("--spread", help="For mixtures: also write the posterior standard deviation of each share."),
]
Top = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="For mixtures: write only the N largest topics of each document.")
]
Batch = Annotated[
    str | None,
    typer.Option(
        metavar="N|N-|new",
        help="Use only batch N of the documents in DATA (N), batch N and later (N-), or batches appended after the "
        "training (new).",
    ),
]
TopDocuments = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Number of documents with the largest shares to show for each topic, with their texts if `ooc ingest "
        "--keep text` kept them.",
    ),
]
Ranking = Annotated[
    str,
    typer.Option(
        "--rank-words-by",
        metavar="probability|frex|lift|c-tf-idf",
        help="Ranking of the words: probability in the topic; lift, the probability relative to that in all tokens; "
        "frex, the harmonic mean of the ranks of probability and exclusivity; c-tf-idf, the probability times the "
        "logarithm of the word's rarity, as in BERTopic.",
    ),
]
Since = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="Compare each topic with the topic of the same number in this earlier run, such as that of `ooc train lda "
        "--from`: Hellinger distance, and words whose shares rose and fell most.",
    ),
]
Likelihood = Annotated[
    bool,
    typer.Option("--log-likelihood", help="Also write the log-likelihood of each document's tokens under its mixture."),
]
Assignments = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Also write a table of the most probable topic of each word of each document: .csv, .jsonl or .parquet.",
    ),
]


def topics(
    run: RunPath,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Number of words to show for each topic.")] = 10,
    documents: TopDocuments = 0,
    largest: Annotated[int | None, typer.Option(min=1, metavar="N", help="Show only the N largest topics.")] = None,
    ranking: Ranking = "probability",
    correlated: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Number of topics with the largest correlations over documents to show for each."
        ),
    ] = 0,
    since: Since = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write the topics to this CSV file, instead of printing them.")
    ] = None,
    data: DataOfRun = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Print the topics with their top words, largest first.

    Examples: ooc topics run --top 8 --documents 3 --largest 20

    ooc topics run --rank-words-by frex --csv topics.csv
    """
    from blocks.outputs import publish_text, require_free
    from samplers.models import open_model
    from samplers.topics.results import describe_topics, topics_table, write_topics
    from samplers.topics.topic_documents import add_texts

    if csv:
        require_free(csv, overwrite=overwrite)
    model = open_model(run)
    ranked: dict[str, Any] = {"ranking": ranking, "correlated": correlated}
    ranked |= {"earlier": open_model(since)} if since else {}
    described = describe_topics(model, top=top, documents=documents, **ranked)[:largest]
    if documents or data:
        add_texts(model, described, data)
    if csv:
        with publish_text(csv) as file:
            write_topics(described, file)
        print_line(f"{csv}: {count_of(len(described), 'topic')}")
    if json or not csv:
        print_json(described) if json else print(topics_table(described, ranking))
    if (live := int(model.live.sum())) < model.topics:
        note(
            f"{live:,} of {count_of(model.topics, 'topic')} are live: each of the others has less than a tenth of the"
            " tokens of an average topic\nTo avoid topics that are not live, train with a smaller --topics"
        )


def infer(
    run: RunPath,
    data: Annotated[Path, typer.Argument(help="Documents ingested with --vocab-from and the training dataset.")],
    out: Annotated[Path, typer.Argument(help="File to write: .npz, .csv, .jsonl or .parquet.")],
    batch: Batch = None,
    top: Top = None,
    spread: Spread = False,
    likelihood: Likelihood = False,
    assignments: Assignments = None,
    workers: Workers = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Infer the topic mixtures of new documents.

    Writes a row for each document, in the original order: name, number of tokens, the columns kept by `ooc ingest
    --keep` except the text, and mixture. A document without known words has 0 tokens and the prior as its mixture. To
    write the trained mixtures of the training documents, use `ooc export RUN OUT --format mixtures`.

    Examples: ooc infer run new mixtures.csv --top 3

    ooc infer run corpus appended.csv --batch new
    """
    from blocks.control_groups import core_count
    from blocks.corpus.batches import all_batches, chosen_batches
    from blocks.corpus.dataset import Dataset
    from blocks.outputs import publish_output, require_free, scratch_for
    from samplers.models import open_model
    from samplers.topics import inference, word_topics
    from samplers.topics.document_files import check_format, columns_beside, suffix_of
    from samplers.topics.labels import label_list
    from samplers.topics.mixtures import write_mixtures

    check_format(out)
    require_free(out, overwrite=overwrite)
    if assignments:
        _check_assignments(assignments, out, overwrite=overwrite)
    dataset, model = Dataset(data), open_model(run)
    batches = chosen_batches(dataset, batch, model.dataset) if batch else all_batches(dataset)
    tokens, names = batches.lengths(dataset), batches.names(dataset)
    wanted = inference.DocumentResultChoice(spread, likelihood, assignments is not None)
    how: dict[str, Any] = {"batches": batches, "top": top, "wanted": wanted, "quiet": console.quiet}
    with scratch_for(out) as scratch, publish_output(out) as beside:
        found = inference.infer(model, dataset, scratch, workers=workers or core_count(), **how)
        columns = columns_beside(dataset.table(), batches.documents)
        write_mixtures(beside, suffix_of(out), found, tokens, names, columns, label_list(model))
        if assignments:
            with publish_output(assignments) as words:
                rows = word_topics.inferred_rows(found, names, model.vocabulary())
                word_topics.write_words(words, suffix_of(assignments), rows)
    if model.dataset == dataset.identity and tokens.size:
        note(
            f"{run} was trained on {data}: these mixtures were inferred anew and differ from the mixtures at the end of"
            " training\n"
            f"Write the mixtures at the end of training with: ooc export {run} OUT --format mixtures"
        )
    _tell_inferred(out, inference.facts(batches, tokens), as_json=json)


def _check_assignments(path: Path, out: Path, *, overwrite: bool) -> None:
    """Raise RequestError if the file of --assignments cannot be written beside OUT."""
    from blocks.outputs import require_free
    from samplers.topics import word_topics

    if path.resolve() == out.resolve():
        raise RequestError(f"{out} is given both as OUT and as --assignments", "Choose two different files.")
    word_topics.check_table_format(path)
    require_free(path, overwrite=overwrite)


def _tell_inferred(out: Path, facts: dict[str, Any], *, as_json: bool) -> None:
    """Print what `infer` wrote.

    facts: counts of documents and tokens.
    """
    if as_json:
        print_json({"path": str(out), **facts})
        return
    left_out = {"unknown word": facts["unknown_tokens"], "stop word": facts["stop_words"]}
    counted = " and ".join(count_of(count, noun) for noun, count in left_out.items() if count)
    empty = f" ({count_of(facts['empty_documents'], 'document')} empty)" if facts["empty_documents"] else ""
    held = f"{count_of(facts['documents'], 'document')}, {count_of(facts['tokens'], 'token')}{empty}"
    print_line(f"{out}: topic mixtures of {held}{f'; left out {counted}' if counted else ''}")


def export(
    run: RunPath,
    out: Annotated[Path, typer.Argument(help="File to write, or directory if the format has several files.")],
    format: Annotated[
        str,
        typer.Option(
            metavar="npz|mixtures|words|scipy|parquet|pyldavis|gensim|mallet|tomotopy|word2vec",
            help="Format: npz and parquet for all models, word2vec for factorizations, the others for topic models.",
        ),
    ] = "npz",
    top: Top = None,
    spread: Spread = False,
    data: DataOfRun = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Export a model to a file format of other programs.

    Words and documents are in their original order. --format mixtures writes a table (.npz, .csv, .jsonl or .parquet)
    of the training documents: name, number of tokens, the columns that `ooc ingest --keep` kept except the text, and
    trained topic mixture. --format words writes a table (.csv, .jsonl or .parquet) of the topics of the tokens at the
    end of training. For new documents, use `ooc infer`.

    Examples: ooc export run model --format gensim

    ooc export run mixtures.csv --format mixtures
    """
    from samplers.interchange import formats as interchange

    size = interchange.export(run, out, format, top=top, spread=spread, data=data, overwrite=overwrite)
    print_json({"path": str(out), "bytes": size}) if json else print_line(f"{out}: {size_text(size)}")


def import_(
    format: Annotated[str, typer.Argument(metavar="mallet|gensim|tomotopy", help="Program that created the model.")],
    source: Annotated[
        Path,
        typer.Argument(
            help="File of MALLET's --output-state, of gensim's LdaModel.save or of tomotopy's LDAModel.save."
        ),
    ],
    out: Annotated[Path, typer.Argument(help="Directory of the new model; commands use it like a run.")],
    trust_pickle: Annotated[
        bool,
        typer.Option(
            "--trust-pickle", help="Allow loading pickles, such as gensim's models: a pickle can run arbitrary code."
        ),
    ] = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Import a topic model from another program.

    Example: ooc import mallet state.gz model
    """
    from samplers.interchange.formats import import_model

    model = import_model(format, source, out, overwrite=overwrite, trust_pickle=trust_pickle)
    facts = {"topics": model.topics, "words": model.vocabulary_size, "documents": model.documents.offsets.size - 1}
    if json:
        print_json({"path": str(out), **facts})
        return
    print_line(f"{out}: {', '.join(count_of(number, what.removesuffix('s')) for what, number in facts.items())}")
    print_line(f"See the topics with: ooc topics {out}")
