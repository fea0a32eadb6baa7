"""`ooc topics`, `infer`, `evaluate` and `export`: what a trained model says and is used for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ooc.cli import console
from ooc.cli.console import Json, Overwrite, Workers, note, print_json, say

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A finished run.")]

Top = Annotated[int | None, typer.Option(min=1, help="Of mixtures: only the largest topics of each document.")]

_ERRORS = {  # of ratings, or not, as they are told
    True: "{ratings:,} ratings: RMSE {rmse:.4f}, mean absolute error {mae:.4f}",
    False: "{counts:,} counts: expected percentile rank {percentile_rank:.2%}",
}


def topics(
    run: RunPath,
    top: Annotated[int, typer.Option(min=1, help="Words of each topic.")] = 10,
    documents: Annotated[
        int, typer.Option(min=0, help="Documents of each topic, by its share in their trained mixtures.")
    ] = 0,
    largest: Annotated[int | None, typer.Option(min=1, help="Only this many topics, the largest.")] = None,
    json: Json = False,
) -> None:
    """Show the topics, largest first.

    Of each its share of all tokens, top words with their weights, and top documents.

    Example: ooc topics run --top 8 --documents 3 --largest 20
    """
    from samplers.models import open_model
    from samplers.topics.results import describe_topics, topics_table

    described = describe_topics(open_model(run), top=top, documents=documents)[:largest]
    print_json(described) if json else print(topics_table(described))


def infer(
    run: RunPath,
    data: Annotated[Path, typer.Argument(help="Documents, ingested with --vocab-from the training's dataset.")],
    out: Annotated[Path, typer.Argument(help="A file to be made: .npz, .csv, .jsonl or .parquet.")],
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="N|N-|new",
            help="Only documents of batch N of DATA, of N and all later ones, or of those appended since the training.",
        ),
    ] = None,
    top: Top = None,
    workers: Workers = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Find the topic mixtures of new documents under a trained model.

    Each document's is found from its words alone, and written with its name and number of tokens, in the original
    order. A document without a known word has 0 tokens and the prior as its mixture. Documents of the training have
    another, trained mixture, which `ooc export RUN OUT --format mixtures` writes.

    Examples: ooc infer run new mixtures.csv --top 3

    ooc infer run corpus appended.csv --batch new
    """
    from blocks.corpus.batches import all_batches, chosen_batches
    from blocks.corpus.dataset import Dataset
    from blocks.outputs import output, require_free, scratch_for
    from blocks.workers import cores
    from samplers.models import open_model
    from samplers.topics import inference, mixtures

    mixtures.check_format(out)
    require_free(out, overwrite=overwrite)
    dataset, model = Dataset(data), open_model(run)
    batches = chosen_batches(dataset, batch, model.dataset) if batch else all_batches(dataset)
    tokens, names = batches.lengths(dataset), batches.names(dataset)
    with scratch_for(out) as scratch, output(out) as beside:
        result = inference.infer(
            model, dataset, scratch, workers=workers or cores(), batches=batches, top=top, quiet=console.quiet
        )
        mixtures.write_mixtures(beside, mixtures.suffix_of(out), result, tokens, names)
    if model.dataset == dataset.identity and tokens.size:
        note(
            f"{data} is what {run} was trained on: these are folded-in mixtures, not the trained ones\n"
            f"Those are written by: ooc export {run} OUT --format mixtures"
        )
    facts = inference.facts(batches, tokens)
    if json:
        print_json({"path": str(out), **facts})
        return
    left_out = {"tokens of unknown words": facts["unknown_tokens"], "stop words": facts["stop_words"]}
    counted = " and ".join(f"{count:,} {what}" for what, count in left_out.items() if count)
    say(
        f"{out}: topic mixtures of {facts['documents']:,} documents ({facts['empty_documents']:,} empty), "
        f"{facts['tokens']:,} tokens" + (f"; {counted} were left out" if counted else "")
    )


def evaluate(
    run: RunPath,
    held_out: Annotated[
        Path, typer.Argument(help="Data ingested with --vocab-from, --names-from or --columns-from the training's.")
    ],
    metrics: Annotated[
        str,
        typer.Option(metavar="LIST", help="Of completion, left-to-right, npmi, c_v, diversity; separated by commas."),
    ] = "completion",
    particles: Annotated[int, typer.Option(help="Particles of left-to-right.")] = 20,
    top: Annotated[int, typer.Option(help="Words of each topic for npmi, c_v and diversity.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of completion and left-to-right.")] = 0,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Measure how good a model is on data that it has not seen.

    Of topics: held-out likelihood (completion, left-to-right), coherence and diversity; of a factorization the errors
    of its predictions, or, with implicit feedback, how high it ranks what users did; of a regression how well it
    predicts y of another design, or labels of other samples.

    Example: ooc evaluate run held-out --metrics completion,npmi
    """
    from blocks.corpus.dataset import Dataset
    from blocks.design.design import Design
    from blocks.ratings.matrix import Matrix
    from blocks.samples.samples import Samples
    from blocks.workers import cores
    from samplers.factorization.model import FactorModel
    from samplers.factorization.rating_errors import evaluate_ratings
    from samplers.models import open_any_model
    from samplers.regression.model import RegressionModel
    from samplers.regression.predictions import evaluate_regression
    from samplers.regression.softmax.model import SoftmaxModel
    from samplers.regression.softmax.predictions import evaluate_softmax
    from samplers.topics.metrics import Request, evaluate_metrics, lines, parse_metrics

    model = open_any_model(run)
    if isinstance(model, RegressionModel):
        found = evaluate_regression(model, model.coefficients(), Design(held_out))
        print_json(found) if json else print(", ".join(f"{name} {value:.6g}" for name, value in found.items()))
        return
    if isinstance(model, FactorModel):
        errors = evaluate_ratings(model, Matrix(held_out))
        print_json(errors) if json else print(_ERRORS["rmse" in errors].format(**errors))
        return
    if isinstance(model, SoftmaxModel):
        classes = evaluate_softmax(model, Samples(held_out))
        print_json(classes) if json else print(
            "{samples:,} samples: error {error:.4f}, loss {loss:.6g}".format(**classes)
        )
        return
    request = Request(parse_metrics(metrics), seed, particles, top, console.quiet)
    found = evaluate_metrics(model, Dataset(held_out), request, workers=workers or cores())
    print_json(found) if json else print("\n".join(lines(found)))


def export(
    run: RunPath,
    out: Annotated[Path, typer.Argument(help="What is to be made: a file, or a directory if the format is several.")],
    format: Annotated[
        str,
        typer.Option(
            metavar="npz|mixtures|scipy|parquet|pyldavis|gensim|mallet|tomotopy|word2vec",
            help="For whom. word2vec is for factors; mixtures, scipy, pyldavis, gensim, mallet and tomotopy are for "
            "topics.",
        ),
    ] = "npz",
    top: Top = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write a model for other programs.

    Words and documents are in their original order. With --format mixtures, OUT is a table (.npz, .csv, .jsonl or
    .parquet) of the documents that the model was trained on: names, numbers of tokens and trained topic mixtures. `ooc
    infer` finds the mixtures of new documents.

    Examples: ooc export run model --format gensim

    ooc export run mixtures.csv --format mixtures
    """
    from samplers.interchange import formats as interchange

    size = interchange.export(run, out, format, top=top, overwrite=overwrite)
    print_json({"path": str(out), "bytes": size}) if json else say(f"{out}: {size / 1e6:,.1f} MB")


def import_(
    format: Annotated[str, typer.Argument(metavar="mallet|gensim|tomotopy", help="Whose model it is.")],
    source: Annotated[
        Path,
        typer.Argument(help="The file of MALLET's --output-state, or of the `save` of gensim's or tomotopy's model."),
    ],
    out: Annotated[Path, typer.Argument(help="The model: a directory to be made, to be used as a run is.")],
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Read a pickle, as gensim's models are: it can run any code.")
    ] = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Read a topic model of another program.

    Example: ooc import mallet state.gz model
    """
    from samplers.interchange.formats import import_model

    model = import_model(format, source, out, overwrite=overwrite, trust_pickle=trust_pickle)
    facts = {"topics": model.topics, "words": model.vocabulary_size, "documents": model.documents.offsets.size - 1}
    if json:
        print_json({"path": str(out), **facts})
        return
    say(f"{out}: {', '.join(f'{number:,} {what}' for what, number in facts.items())}")
    say(f"Look at the topics with: ooc topics {out}")
