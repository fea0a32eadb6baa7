"""`ooc train lasso` and `ooc train logistic`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from blocks.errors import RequestError
from cli.console import Json, Overwrite, Workers
from cli.session import Transport, session
from cli.train import MaxTime, Memory, Quiet, RunPath, Scratch, Seed, bytes_of, one_of, tell

Data = Annotated[Path, typer.Argument(help="A design matrix made by `ooc ingest svmlight|mtx|csv|npz|plink`.")]
Level = Annotated[
    float | None, typer.Option("--lambda", help="Of lambda one value; scikit-learn's alpha is that over the rows.")
]
Ratio = Annotated[float | None, typer.Option("--lambda-ratio", help="Of lambda one value, as a share of the largest.")]
Length = Annotated[int | None, typer.Option("--path", help="So many values, from the largest down [default: 100].")]
Least = Annotated[
    float | None,
    typer.Option("--lambda-min-ratio", help="The last of a path, by the first [default: 0.01]."),
]
Tolerance = Annotated[float, typer.Option(help="Duality gap to stop at, as a share of the loss of an empty model.")]
Share = Annotated[float, typer.Option("--l1-ratio", help="Of |b| in the penalty; the rest is of b^2: elastic net.")]
Weights = Annotated[
    Path | None, typer.Option(help="What each row weighs: .npy, or a text file with a number on each line.")
]
Rows = Annotated[
    Path | None, typer.Option(help="The rows to use: .npy, or a text file with a number, from 1, on each line.")
]
Unpenalized = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="Has no penalty: a name, or a number; can be repeated.")
]
Intercept = Annotated[bool, typer.Option("--intercept/--no-intercept", help="Whether there is one.")]
Standardize = Annotated[
    bool,
    typer.Option("--standardize/--no-standardize", help="Penalties are for columns of deviation 1, or as they are."),
]
Folds = Annotated[
    int | None,
    typer.Option("--cross-validate", metavar="K", help="Choose lambda by K folds, within one standard error."),
]

Schedule = Annotated[
    str | None,
    one_of("priority|random|cyclic", "Solve for one lambda by rounds of updates at once, in place of working sets."),
]
Parallelism = Annotated[int | None, typer.Option(help="Of --schedule: updates of a round [default: 64].")]
Rho = Annotated[
    float | None,
    typer.Option(help="Of --schedule: what two columns of a round may correlate [default: 0.2, or any]."),
]


def train_lasso(
    data: Data,
    run: RunPath,
    level: Level = None,
    ratio: Ratio = None,
    length: Length = None,
    least: Least = None,
    tolerance: Tolerance = 1e-6,
    share: Share = 1.0,
    weights: Weights = None,
    rows: Rows = None,
    unpenalized: Unpenalized = None,
    intercept: Intercept = True,
    standardize: Standardize = True,
    folds: Folds = None,
    schedule: Schedule = None,
    parallelism: Parallelism = None,
    rho: Rho = None,
    transport: Transport = None,
    workers: Workers = None,
    memory: Memory = None,
    seed: Seed = 0,
    max_time: MaxTime = None,
    scratch: Scratch = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Least squares with an l1 penalty, or an elastic net.

    Few columns explain y. Minimises 1/2 |y - a - X b|^2 + lambda |b|_1. Coefficients are those of the columns as they
    are.

    Example: ooc train lasso genes run --path 100 --cross-validate 5
    """
    _train("squared", locals())


def train_logistic(
    data: Data,
    run: RunPath,
    level: Level = None,
    ratio: Ratio = None,
    length: Length = None,
    least: Least = None,
    tolerance: Tolerance = 1e-6,
    share: Share = 1.0,
    weights: Weights = None,
    rows: Rows = None,
    unpenalized: Unpenalized = None,
    intercept: Intercept = True,
    standardize: Standardize = True,
    folds: Folds = None,
    schedule: Schedule = None,
    parallelism: Parallelism = None,
    rho: Rho = None,
    transport: Transport = None,
    workers: Workers = None,
    memory: Memory = None,
    seed: Seed = 0,
    max_time: MaxTime = None,
    scratch: Scratch = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Logistic regression with an l1 penalty.

    Few columns tell which of two values y has. Minimises sum_i (log(1 + exp(z_i)) - y_i z_i) + lambda |b|_1 with z = a
    + X b, y being 1 for the larger value.

    Example: ooc train logistic clicks run --path 100 --lambda-min-ratio 0.001
    """
    _train("logistic", locals())


def _train(loss: str, given: dict[str, Any]) -> None:
    from samplers.regression.training import train_regression

    data, run, json = given.pop("data"), given.pop("run"), given.pop("json")
    with session(given.pop("transport")) as here:
        if here.ring and given["scratch"] == Path("node"):
            raise RequestError("--scratch node is for slices of a model, and regressions have none", "Leave it out.")
        for name in ("weights", "rows", "scratch"):
            given[name] = given[name] and here.place(given[name])
        budget = bytes_of(given.pop("memory"))
        given |= {
            "unpenalized": given["unpenalized"] or (),
            "workers": here.workers or given["workers"],
            "memory_bytes": here.memory or budget,
            "max_time": here.limit(given["max_time"]),
            "quiet": given["quiet"] or here.quiet,
        }
        last = train_regression(here.place(data), here.place(run), loss, ring=here.ring, **given)
    if here.is_first:
        tell(here.place(run), last, as_json=json)
