"""The options of regressions: of one target with an l1 penalty, and of classes by stochastic gradient descent."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from samplers.factorization.options import parallelism_of
from samplers.options import Option, Options, Seed

_PATH = {"estimator": "has one penalty; a path is `ooc train lasso` or `train_regression`"}
_ROUNDS = {"estimator": "solves by working sets"}
_SINGLE = {"estimator": "trains in its own process, with one worker"}


@dataclass(frozen=True, kw_only=True)
class RegressionOptions(Options):
    """Options of `ooc train lasso` and `ooc train logistic`."""

    loss: Annotated[
        str, Option(choices="squared|logistic", without={"command": "is its name", "estimator": "is its name"})
    ] = "squared"
    level: Annotated[
        float | None,
        Option(
            "Solve for this single lambda (scikit-learn's alpha times the number of rows).",
            name="lambda",
            parameter="alpha",  # or C
        ),
    ] = None
    ratio: Annotated[
        float | None,
        Option("Solve for this single lambda, given as a share of lambda_max.", name="lambda-ratio", without=_PATH),
    ] = None
    length: Annotated[
        int | None,
        Option("Number of lambdas on the path, from lambda_max downwards [default: 100].", name="path", without=_PATH),
    ] = None
    least: Annotated[
        float | None,
        Option(
            "Smallest lambda of the path as a share of lambda_max [default: 0.01].",
            name="lambda-min-ratio",
            without=_PATH,
        ),
    ] = None
    tolerance: Annotated[
        float, Option("Duality gap to stop at, as a share of the loss of an empty model.", parameter="tol")
    ] = 1e-6
    share: Annotated[
        float,
        Option("Elastic-net mixing: 1 is the Lasso, towards 0 is ridge.", name="l1-ratio", parameter="l1_ratio"),
    ] = 1.0
    weights: Annotated[
        Path | None,
        Option(
            "Sample weights: .npy, or a text file with a number on each line.",
            without={"estimator": "is sample_weight of fit"},
        ),
    ] = None
    rows: Annotated[
        Path | None,
        Option(
            "The rows to use: .npy, or a text file with a number, from 1, on each line.",
            without={"estimator": "fit has the rows that it is given"},
        ),
    ] = None
    unpenalized: Annotated[
        Sequence[str],
        Option(
            "Column (name or number) without a penalty; can be repeated.",
            metavar="COLUMN",
            without={"estimator": "penalizes all columns"},
        ),
    ] = ()
    intercept: Annotated[bool, Option("Fit an intercept.", parameter="fit_intercept")] = True
    standardize: Annotated[bool, Option("Penalize coefficients of columns scaled to standard deviation 1.")] = True
    folds: Annotated[
        int | None,
        Option(
            "Choose lambda by K folds, within one standard error.", name="cross-validate", metavar="K", without=_PATH
        ),
    ] = None
    schedule: Annotated[
        str | None,
        Option(
            "Solve for one lambda by rounds of updates at once, in place of working sets.",
            choices="priority|random|cyclic",
            called="",
            alone="Leave it out: working sets solve for the same lambda.",
            without=_ROUNDS,
        ),
    ] = None
    parallelism: Annotated[
        int | None, Option("With --schedule: columns that one round updates [default: 64].", without=_ROUNDS)
    ] = None
    rho: Annotated[
        float | None,
        Option(
            "With --schedule: largest correlation of two columns that one round may update [default: 0.2, or any].",
            without=_ROUNDS,
        ),
    ] = None
    seed: Annotated[
        int,
        Option(
            "The same seed gives the same model, bit for bit.", least=0, without={"estimator": "nothing is drawn in it"}
        ),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class SoftmaxOptions(Options):
    """Options of `ooc train softmax`."""

    passes: Annotated[int, Option("Passes over the data.", least=1, parameter="max_iter")] = 10
    loss: Annotated[
        str,
        Option(
            "Loss to minimize; hinge and squared train one class against the rest.", choices="softmax|hinge|squared"
        ),
    ] = "softmax"
    rate: Annotated[float, Option("Initial learning rate of AdaGrad.")] = 0.5
    regularization: Annotated[float, Option("Weight of the squared weights, for each sample.")] = 0.0
    parallelism: Annotated[
        int | str,
        Option(
            "Workers whose results are combined, whatever the processes.",
            metavar="auto|M",
            read=parallelism_of,
            without=_SINGLE,
        ),
    ] = "auto"
    most_parallelism: Annotated[
        int | None, Option("Largest number of workers that auto tries [default: 16].", least=1, without=_SINGLE)
    ] = None
    sync_per_pass: Annotated[int, Option("How often in a pass they are combined.", least=1, without=_SINGLE)] = 1
    evaluate_every: Annotated[
        int,
        Option("Passes between values of the objective.", least=1, without={"estimator": "score evaluates"}),
    ] = 1
    held_out: Annotated[
        Path | None,
        Option(
            "Samples to evaluate on, ingested with --columns-from DATA.",
            without={"estimator": "score takes other samples"},
        ),
    ] = None
    seed: Seed = 0
