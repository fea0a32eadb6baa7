"""`ooc evaluate`: measure how well a model predicts held-out data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blocks.errors import RequestError
from blocks.plurals import count_of
from ooc.cli import console
from ooc.cli.console import JSON, Overwrite, Workers, print_json, show
from ooc.cli.factors import training_ratings
from ooc.cli.options import options, parameter, read, takes
from ooc.cli.results import RunPath
from samplers.options import Option, Options

if TYPE_CHECKING:
    from blocks.ratings.matrix import Matrix
    from samplers.factorization.model import FactorModel
    from samplers.factorization.ranking_metrics import RankingMetricsComparison
    from samplers.regression.model import RegressionModel
    from samplers.regression.softmax.model import SoftmaxModel

_ERRORS = {  # output formats, by whether the data are explicit ratings
    True: "{ratings:,} ratings: RMSE {rmse:.4f}, mean absolute error {mae:.4f}",
    False: "{counts:,} counts: expected percentile rank {percentile_rank:.2%}",
}


@dataclass(frozen=True, kw_only=True)
class RankingMetricOptions(Options):
    """Options of `ooc evaluate` for metrics of recommendations."""

    ranking: Annotated[
        int | None,
        Option(
            "Factorization: also compare the N best items for each user with the held-out ratings: precision, recall, "
            "MAP, NDCG and coverage.",
            metavar="N",
            least=1,
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Option(
            "With --ranking: lowest held-out rating of a relevant item [default: all are relevant].", metavar="RATING"
        ),
    ] = None
    data: Annotated[
        Path | None,
        Option(
            "With --ranking: path of the training ratings, if they were moved or the run was trained on their shards.",
            metavar="DATASET",
        ),
    ] = None


@takes(
    parameter("run", RunPath),
    parameter(
        "held_out",
        Annotated[
            Path, typer.Argument(help="Held-out data, ingested with --vocab-from, --names-from or --columns-from.")
        ],
    ),
    parameter(
        "metrics",
        Annotated[
            str,
            typer.Option(
                metavar="LIST",
                help="Metrics of a topic model, separated by commas: completion, left-to-right, npmi, c_v, diversity.",
            ),
        ],
        "completion",
    ),
    parameter(
        "particles",
        Annotated[int, typer.Option(metavar="N", help="Number of particles of the left-to-right estimator.")],
        20,
    ),
    parameter(
        "top",
        Annotated[int, typer.Option(metavar="N", help="Number of words of each topic for npmi, c_v and diversity.")],
        10,
    ),
    parameter(
        "seed",
        Annotated[int, typer.Option(min=0, metavar="N", help="Random seed of completion and left-to-right.")],
        0,
    ),
    parameter(
        "documents",
        Annotated[
            Path | None,
            typer.Option(
                metavar="PATH",
                help="Write completion and left-to-right of each document to this .csv, .jsonl, .parquet or .npz file.",
            ),
        ],
        None,
    ),
    options(RankingMetricOptions),
    parameter("workers", Workers, None),
    parameter("overwrite", Overwrite, False),
    JSON,
)
def evaluate(
    run: Path,
    held_out: Path,
    metrics: str,
    particles: int,
    top: int,
    seed: int,
    documents: Path | None,
    workers: int | None,
    *,
    overwrite: bool,
    json: bool,
    **of_ranking: Any,
) -> None:
    """Evaluate a model on held-out data.

    Topic model: held-out likelihood (completion, left-to-right), coherence (npmi, c_v) and diversity. Factorization:
    RMSE and mean absolute error or, for implicit feedback, the expected percentile rank; with --ranking also metrics of
    the recommended items. Regression and classifier: prediction error of y.

    Examples: ooc evaluate run held-out --metrics completion,npmi

    ooc evaluate run held-out-ratings --ranking 10
    """
    from blocks.control_groups import core_count
    from blocks.corpus.dataset import Dataset
    from blocks.ratings.matrix import Matrix
    from samplers.factorization.model import FactorModel
    from samplers.models import open_any_model
    from samplers.topics.metrics import TopicMetricsRequest, evaluate_documents, evaluate_metrics, lines, parse_metrics
    from samplers.topics.model import SavedTopicModel

    model = open_any_model(run)
    ranking = read(RankingMetricOptions, of_ranking)
    if documents and not isinstance(model, SavedTopicModel):
        raise RequestError("--documents can only be used for topic models", "Omit --documents.")
    if isinstance(model, FactorModel):
        _evaluate_factors(model, run, Matrix(held_out), ranking, as_json=json)
        return
    for option, value in vars(ranking).items():
        if value is not None:
            raise RequestError(
                f"--{option} can only be used for runs of `ooc train mf`, and {run} is not one",
                f"Omit --{option}.",
            )
    if not isinstance(model, SavedTopicModel):
        errors, text = _prediction_errors(model, held_out)
        print_json(errors) if json else print(text)
        return
    request = TopicMetricsRequest(parse_metrics(metrics), seed, particles, top, console.quiet)
    how: dict[str, Any] = {"workers": workers or core_count()}
    if documents:
        found = evaluate_documents(model, Dataset(held_out), request, documents, overwrite=overwrite, **how)
    else:
        found = evaluate_metrics(model, Dataset(held_out), request, **how)
    print_json(found) if json else show("\n".join(lines(found)))


def _evaluate_factors(
    model: FactorModel, run: Path, held_out: Matrix, ranking: RankingMetricOptions, *, as_json: bool
) -> None:
    """Print the errors of predictions and, with `--ranking`, metrics of recommendations."""
    from samplers.factorization.ranking_metrics import rank_held_out
    from samplers.factorization.rating_errors import evaluate_ratings

    top, threshold = ranking.ranking, ranking.threshold
    if top is None and (threshold is not None or ranking.data):
        option = "data" if threshold is None else "threshold"
        raise RequestError(f"--{option} can only be used with --ranking", f"Add --ranking N, or omit --{option}.")
    errors = evaluate_ratings(model, held_out)
    ranked = top and rank_held_out(model, training_ratings(model, run, ranking.data), held_out, top, threshold)
    if as_json:
        print_json(errors | ({"ranking": ranked} if ranked else {}))
        return
    print(_ERRORS["rmse" in errors].format(**errors))
    if ranked:
        print("\n".join(_table(ranked)))


def _table(ranked: RankingMetricsComparison) -> Iterator[str]:
    """Yield the lines of a table of metrics."""
    top = ranked["top"]
    heads = [f"precision@{top}", f"recall@{top}", f"MAP@{top}", f"NDCG@{top}", "coverage"]
    yield f"{count_of(ranked['users'], 'user')}:".ljust(16) + "".join(f"{head:>14}" for head in heads)
    for name, found in (("model", ranked["model"]), ("most rated items", ranked["popularity"])):
        *means, covered = (found[key] for key in ("precision", "recall", "map", "ndcg", "coverage"))
        yield f"{name:<16}" + "".join(f"{mean:>14.4f}" for mean in means) + f"{covered:>14.1%}"


def _prediction_errors(model: RegressionModel | SoftmaxModel, held_out: Path) -> tuple[Any, str]:
    """Return the errors of a regression or classifier on held-out data, as JSON types and as text."""
    from blocks.design.design import Design
    from blocks.samples.samples import Samples
    from samplers.regression.model import RegressionModel
    from samplers.regression.predictions import evaluate_regression
    from samplers.regression.softmax.predictions import evaluate_softmax

    if isinstance(model, RegressionModel):
        found = evaluate_regression(model, model.coefficients(), Design(held_out))
        return found, ", ".join(f"{name} {value:.6g}" for name, value in found.items())
    classes = evaluate_softmax(model, Samples(held_out))
    return classes, "{samples:,} samples: error {error:.4f}, loss {loss:.6g}".format(**classes)
