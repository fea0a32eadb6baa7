"""`ooc topics`, `infer`, `evaluate` and `export`: what a trained model says and is used for."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from cli import console
from cli.console import Json, Overwrite, Workers, print_json

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A finished run.")]

_ERRORS = {  # of ratings, or not, as they are told
    True: "{ratings:,} ratings: RMSE {rmse:.4f}, mean absolute error {mae:.4f}",
    False: "{counts:,} counts: expected percentile rank {percentile_rank:.2%}",
}


def topics(
    run: RunPath,
    top: Annotated[int, typer.Option(min=1, help="Words of each topic.")] = 10,
    documents: Annotated[int, typer.Option(min=0, help="Documents of each topic.")] = 0,
    largest: Annotated[int | None, typer.Option(min=1, help="Only this many topics, the largest.")] = None,
    json: Json = False,
) -> None:
    """Show the topics, largest first: share of all tokens, top words with their weights, top documents.

    Example: ooc topics run --top 8 --documents 3 --largest 20
    """
    from samplers.models import open_model
    from samplers.results import describe_topics, topics_table

    described = describe_topics(open_model(run), top=top, documents=documents)[:largest]
    print_json(described) if json else print(topics_table(described))


def infer(
    run: RunPath,
    data: Annotated[Path, typer.Argument(help="Documents, ingested with --vocab-from the training's dataset.")],
    out: Annotated[Path, typer.Argument(help="A file to be made: .npz, .csv or .jsonl.")],
    top: Annotated[int | None, typer.Option(help="Only the largest topics of each document.")] = None,
    workers: Workers = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Topic mixtures of documents under a trained model, in the documents' original order.

    Example: ooc infer run new mixtures.csv --top 3
    """
    from blocks.dataset import Dataset
    from blocks.files import disk_errors, require_new
    from blocks.workers import cores
    from samplers import inference
    from samplers.mixtures import check_format, write_mixtures
    from samplers.models import open_model

    check_format(out)
    require_new(out, overwrite=overwrite)
    dataset = Dataset(data)
    with disk_errors(out), tempfile.TemporaryDirectory(prefix=".infer-", dir=out.absolute().parent) as scratch:
        result = inference.infer(
            open_model(run), dataset, Path(scratch), workers=workers or cores(), top=top, quiet=console.quiet
        )
        write_mixtures(out, result, dataset.document_names())
    if json:
        print_json({"path": str(out), "documents": dataset.documents})
    else:
        print(f"{out}: topic mixtures of {dataset.documents:,} documents")


def evaluate(
    run: RunPath,
    held_out: Annotated[Path, typer.Argument(help="Documents, ingested with --vocab-from the training's dataset.")],
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
    """How good a model is: held-out likelihood (completion, left-to-right), coherence and diversity of its topics; of a
    factorization the errors of its predictions, or, with implicit feedback, how high it ranks what users did; of a
    regression how well it predicts y of another design.

    Example: ooc evaluate run held-out --metrics completion,npmi
    """
    from blocks.dataset import Dataset
    from blocks.design import Design
    from blocks.matrix import Matrix
    from blocks.workers import cores
    from samplers.factor_model import FactorModel
    from samplers.metrics import Request, evaluate_metrics, lines, parse_metrics
    from samplers.models import open_any_model
    from samplers.rating_errors import evaluate_ratings
    from samplers.regression_model import RegressionModel
    from samplers.regression_predictions import evaluate_regression

    model = open_any_model(run)
    if isinstance(model, RegressionModel):
        found = evaluate_regression(model, model.coefficients(), Design(held_out))
        print_json(found) if json else print(", ".join(f"{name} {value:.6g}" for name, value in found.items()))
        return
    if isinstance(model, FactorModel):
        errors = evaluate_ratings(model, Matrix(held_out))
        print_json(errors) if json else print(_ERRORS["rmse" in errors].format(**errors))
        return
    request = Request(parse_metrics(metrics), seed, particles, top, console.quiet)
    found = evaluate_metrics(model, Dataset(held_out), request, workers=workers or cores())
    print_json(found) if json else print("\n".join(lines(found)))


def export(
    run: RunPath,
    out: Annotated[Path, typer.Argument(help="A file to be made.")],
    format: Annotated[str, typer.Option(metavar="npz", help="npz: all that is in the model, as arrays.")] = "npz",
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write the model for other programs, in the original order of words and documents.

    Example: ooc export run model.npz
    """
    from blocks.errors import RequestError
    from blocks.files import require_new
    from samplers.models import open_any_model
    from samplers.results import EXPORTS

    if format not in EXPORTS:
        raise RequestError(f"--format {format!r} is not known", f"Choose one of: {', '.join(EXPORTS)}.")
    require_new(out, overwrite=overwrite)
    EXPORTS[format](open_any_model(run), out)
    size = out.stat().st_size
    print_json({"path": str(out), "bytes": size}) if json else print(f"{out}: {size / 1e6:,.1f} MB")
