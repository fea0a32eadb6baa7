"""`ooc predict`: predict y for the rows of a design matrix, classes of samples, or ratings of user-item pairs."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Annotated

import typer

from blocks import stderr
from blocks.plurals import count_of
from ooc.cli.console import JSON, Overwrite, print_json, print_line
from ooc.cli.ingest_options import RatingsOptions, TextEncodingOptions
from ooc.cli.options import options, parameter, takes


@takes(
    parameter(
        "run",
        Annotated[
            Path, typer.Argument(help="Directory of a finished run of `ooc train lasso|logistic|poisson|softmax|mf`.")
        ],
    ),
    parameter(
        "data",
        Annotated[
            str,
            typer.Argument(
                help="Dataset ingested with --columns-from. For `mf`: a file with a user and an item on each line, or "
                "- for standard input."
            ),
        ],
    ),
    parameter("out", Annotated[Path, typer.Argument(help="CSV file to write.")]),
    parameter(
        "level",
        Annotated[
            str | None,
            typer.Option(
                "--lambda",
                metavar="FLOAT|min|1se",
                help="Use the lambda on the path nearest to this value; after --cross-validate, min is the lambda with "
                "the smallest error, and 1se the lambda by the one-standard-error rule [default: the chosen lambda, or "
                "the last].",
            ),
        ],
        None,
    ),
    options(RatingsOptions, names=("user_column", "item_column", "delimiter", "quote")),
    options(TextEncodingOptions),
    parameter("overwrite", Overwrite, False),
    JSON,
)
def predict(
    run: Path, data: str, out: Path, level: str | None, *, overwrite: bool, json: bool, **of_pairs: str | None
) -> None:
    """Predict y of rows, classes of samples or ratings of pairs.

    Writes a line for each row, sample or user-item pair, in input order. A logistic regression predicts the probability
    of the larger value of y, a Poisson regression the mean. A softmax model predicts the class and, with --loss
    softmax, the probability of each class.

    Pairs are read like the input of `ooc ingest ratings`; their ratings are ignored. If the user or item was not in the
    training data, the prediction is the mean rating, plus the bias of the known one if the model has biases.

    Examples: ooc predict run new-houses prices.csv --lambda min

    ooc predict run new-samples classes.csv

    ooc predict run pairs.tsv ratings.csv
    """
    from blocks.encodings import require_encoding
    from blocks.errors import RequestError
    from blocks.outputs import require_free
    from samplers.models import open_any_model
    from samplers.regression.model import RegressionModel
    from samplers.regression.softmax.model import SoftmaxModel

    require_free(out, overwrite=overwrite)
    require_encoding(of_pairs["encoding"])
    model = open_any_model(run)
    for name, given in of_pairs.items():
        if given and isinstance(model, RegressionModel | SoftmaxModel):
            raise RequestError(
                f"--{name.replace('_', '-')} can only be used for user-item pairs",
                f"Omit --{name.replace('_', '-')}.",
            )
    if isinstance(model, RegressionModel):
        _of_regression(model, Path(data), out, level, as_json=json)
        return
    if level is not None:
        raise RequestError(
            f"--lambda can only be used for runs of `ooc train lasso`, `logistic` and `poisson`, and {run} is not one",
            "Omit --lambda.",
        )
    if isinstance(model, SoftmaxModel):
        _of_classes(model, Path(data), out, as_json=json)
        return
    _of_pairs(run, data, out, of_pairs, as_json=json)


def _of_regression(model: object, data: Path, out: Path, level: str | None, *, as_json: bool) -> None:
    from blocks.design.design import Design
    from blocks.outputs import publish_text
    from samplers.regression.model import RegressionModel
    from samplers.regression.path.cross_validation import RULES
    from samplers.regression.predictions import check_columns, write_predictions

    assert isinstance(model, RegressionModel)
    coefficients = model.coefficients(_lambda(level) if level is not None and level not in RULES else level)
    design = Design(data)
    check_columns(model, design)
    with publish_text(out) as file:
        write_predictions(model, coefficients, design, file)
    if as_json:
        print_json({"path": str(out), "predictions": design.rows, "lambda": coefficients.lam})
    else:
        print_line(f"{out}: {count_of(design.rows, 'prediction')} for lambda {coefficients.lam:g}")


def _lambda(given: str) -> float:
    """Return the value of --lambda.

    Raises RequestError if it is invalid.
    """
    from blocks.errors import RequestError

    with contextlib.suppress(ValueError):
        if 0 < (value := float(given)) < math.inf:
            return value
    raise RequestError(f"--lambda must be a number above 0, min or 1se, got {given!r}")


def _of_classes(model: object, data: Path, out: Path, *, as_json: bool) -> None:
    from blocks.outputs import publish_text, scratch_for
    from blocks.samples.samples import Samples
    from samplers.regression.softmax.model import SoftmaxModel
    from samplers.regression.softmax.predictions import write_classes

    assert isinstance(model, SoftmaxModel)
    samples = Samples(data)
    with scratch_for(out) as scratch, publish_text(out) as file:
        write_classes(model, samples, file, scratch)
    if as_json:
        print_json({"path": str(out), "predictions": samples.rows})
    else:
        print_line(f"{out}: {count_of(samples.rows, 'prediction')}")


def _of_pairs(run: Path, data: str, out: Path, chosen: dict[str, str | None], *, as_json: bool) -> None:
    from blocks.outputs import publish_text
    from blocks.ratings.formats import RatingsFormatOptions
    from samplers.factorization.predictions import predict_file
    from samplers.models import open_factors

    factors = open_factors(run)
    with publish_text(out) as file:
        user, item = chosen["user_column"], chosen["item_column"]
        written = RatingsFormatOptions(chosen["delimiter"], chosen["quote"], user=user, item=item, rating="none")
        pairs = predict_file(factors, data, file, written, chosen["encoding"])
    if pairs.unknown:
        stderr.print_warning(
            f"{pairs.unknown:,} of {count_of(pairs.all, 'pair')} have a user ({pairs.of_unknown_users:,}) or an item "
            f"({pairs.of_unknown_items:,}) that was not in the training data"
        )
    if as_json:
        print_json({"path": str(out), "predictions": pairs.all, "unknown": pairs.unknown})
    else:
        print_line(f"{out}: {count_of(pairs.all, 'prediction')}")
