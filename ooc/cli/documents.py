"""`ooc documents`, `compare` and `label`: read the documents of topics, compare groups of them, and name topics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from blocks.plurals import count_of
from ooc.cli.console import Json, Overwrite, print_json, print_line, show
from ooc.cli.results import DataOfRun, RunPath

Where = Annotated[
    str | None,
    typer.Option(
        metavar="CONDITION",
        help="Condition on the columns of the documents, such as 'year(date) > 2015 and category == \"cs.LG\"'.",
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column to group the documents by, or year(COLUMN), quarter(COLUMN), month(COLUMN), decade(COLUMN).",
    ),
]
Regress = Annotated[
    str | None,
    typer.Option(
        metavar="TERMS",
        help="Instead of groups: regress the shares of topics on these terms, such as 'category + year(date)'; "
        "factor(TERM) for numbers that are categories.",
    ),
]


def documents(
    run: RunPath,
    topic: Annotated[int, typer.Option(min=0, metavar="N", help="Topic number.")],
    where: Where = None,
    number: Annotated[int, typer.Option(min=1, metavar="N", help="Number of documents to list.")] = 10,
    width: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of characters of each text to show; 0 for none.")
    ] = 400,
    data: DataOfRun = None,
    json: Json = False,
) -> None:
    """List the training documents in which a topic is strongest.

    Shows each document's name, the share of the topic, the kept columns, and the passage of the text with the most
    words of the topic, which are marked with asterisks. Texts and columns are those kept by `ooc ingest --keep`.

    Example: ooc documents run --topic 7 --where 'year(date) > 2015'
    """
    from samplers.models import open_model
    from samplers.topics.topic_documents import documents_table, listed_documents

    found = listed_documents(open_model(run), topic, number, where=where, width=width, data=data)
    print_json(found) if json else print(documents_table(found))


def compare(
    run: RunPath,
    by: By = None,
    regress: Regress = None,
    where: Where = None,
    topic: Annotated[
        list[int] | None, typer.Option(min=0, metavar="N", help="Show only this topic; can be repeated.")
    ] = None,
    largest: Annotated[int | None, typer.Option(min=1, metavar="N", help="Show only the N largest topics.")] = None,
    level: Annotated[float, typer.Option(metavar="SHARE", help="Confidence level of the intervals.")] = 0.95,
    csv: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write a table of all topics and groups to this CSV file.")
    ] = None,
    data: DataOfRun = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Compare the prevalence of topics between groups of documents, or over time.

    The prevalence of a topic is its mean share in the documents of a group. Intervals account for the variation between
    documents and for the uncertainty of each document's mixture (method of composition). Columns are those kept by `ooc
    ingest --keep`.

    Examples: ooc compare run --by category

    ooc compare run --by 'year(date)' --topic 7 --csv years.csv

    ooc compare run --regress 'category + year(date)'
    """
    from blocks.errors import RequestError
    from blocks.outputs import publish_text, require_free
    from samplers.models import open_model
    from samplers.topics import group_comparison as groups
    from samplers.topics import topic_regression as effects

    if (by is None) == (regress is None):
        raise RequestError("expected either --by or --regress", "For example: --by category")
    if csv:
        require_free(csv, overwrite=overwrite)
    model = open_model(run)
    groups.listed_topics(model, topic)
    found: Any
    if by is not None:
        found = groups.training_comparison(model, by, where, level, data)
        write, describe, table = groups.write_comparison, groups.comparison_as_json, groups.comparison_table
    else:
        found = effects.training_regression(model, regress or "", where, level, data)
        write, describe, table = effects.write_effects, effects.described_effects, effects.effects_table  # type: ignore[assignment]
    if csv:
        with publish_text(csv) as file:
            write(model, found, file)
    told = describe(model, found, topic, largest)
    print_json(told) if json else show(table(told))


def view(
    run: RunPath,
    out: Annotated[Path, typer.Argument(help="Directory of the view; commands use it like a run.")],
    merge: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPICS", help="Merge these topics, separated by commas, into one; can be repeated."),
    ] = None,
    hide: Annotated[
        str | None,
        typer.Option(metavar="TOPICS", help="Merge these topics into a last one with the label 'hidden topics'."),
    ] = None,
    sort: Annotated[
        str, typer.Option(metavar="number|size|label", help="Order in which the topics are numbered.")
    ] = "number",
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write a view of a topic model with topics merged, hidden or sorted; the run does not change.

    The view has the labels of the run; those of merged topics are joined. All commands that read a model accept it.

    Example: ooc view run view --merge 3,17 --merge 4,8,11 --hide 2,30 --sort size
    """
    from samplers.models import open_model
    from samplers.topics.model_view import parse_topics, write_view

    merged = [parse_topics(topics, "--merge") for topics in merge or ()]
    hidden = parse_topics(hide, "--hide") if hide else []
    model = open_model(run)
    made = write_view(model, out, merged=merged, hidden=hidden, sort=sort, overwrite=overwrite)
    if json:
        print_json({"path": str(out), "topics": made.topics})
        return
    print_line(f"{out}: {count_of(made.topics, 'topic')}, made from {model.topics:,} of {run}")
    print_line(f"See the topics with: ooc topics {out}")


def label(
    run: RunPath,
    topic: Annotated[int | None, typer.Argument(metavar="[TOPIC]", help="Topic number.")] = None,
    text: Annotated[
        str | None,
        typer.Argument(metavar="[LABEL]", help='Label of the topic, such as "clinical trials"; "" removes it.'),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="PATH", help="CSV file with a topic number and a label in each row."),
    ] = None,
    automatic: Annotated[
        bool,
        typer.Option(
            "--automatic", help="Label each topic that has no label with its three most characteristic words."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Label topics; without a topic, print all labels.

    Labels appear in `ooc topics`, `documents`, `compare`, `infer`, `export` and the report.

    Examples: ooc label run 7 "clinical trials"

    ooc label run --from labels.csv --automatic
    """
    from blocks.errors import RequestError
    from samplers.models import open_model
    from samplers.topics.labels import automatic_labels, labels_of, read_label_file, set_labels

    if (topic is None) != (text is None) or (topic is not None and source):
        raise RequestError(
            "give a topic and its label, or --from FILE; or neither, to list the labels",
            'Label a topic with, for example: ooc label run 7 "law"',
        )
    model = open_model(run)
    given: dict[int, str] = read_label_file(source) if source else {} if topic is None else {topic: text or ""}
    labels: dict[int, Any] = set_labels(model, given) if given else labels_of(model)
    if automatic:
        labels = set_labels(model, automatic_labels(model))
    if json:
        print_json({str(number): name for number, name in labels.items()})
    elif given or automatic:
        print_line(f"{run}: {len(labels)} of {model.topics} topics have a label")
    else:
        print("\n".join(f"{number:>7}  {name}" for number, name in labels.items()) or "no topic has a label")
