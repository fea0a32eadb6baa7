"""Options of l1-penalized regressions and of multi-class regressions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from samplers.factorization.options import parallelism_of
from samplers.options import ADVANCED, EVALUATION, MODEL, SEED_HELP, TRAINING, Option, Options, Seed

_PATH = {"estimator": "has one penalty; `path` has several, and the estimators whose names end with CV choose"}
_ROUNDS = {"estimator": "solves by working sets"}
_SINGLE = {"estimator": "trains in its own process, with one worker"}


@dataclass(frozen=True, kw_only=True)
class RegressionOptions(Options):
    """Options of `ooc train lasso`, `ooc train logistic` and `ooc train poisson`."""

    group = MODEL

    loss: Annotated[
        str,
        Option(
            choices="squared|logistic|poisson",
            without={"command": "chosen by the name of the command", "estimator": "chosen by the class"},
        ),
    ] = "squared"
    level: Annotated[
        float | None,
        Option(
            "Solve for this single lambda (scikit-learn's alpha times the number of rows; for logistic 1 / C).",
            name="lambda",
            parameter="alpha",  # or C
        ),
    ] = None
    ratio: Annotated[
        float | None,
        Option("Solve for this single lambda, relative to lambda_max.", name="lambda-ratio", without=_PATH),
    ] = None
    length: Annotated[
        int | None,
        Option("Number of lambdas on the path, from lambda_max downwards [default: 100].", name="path", without=_PATH),
    ] = None
    least: Annotated[
        float | None,
        Option(
            "Smallest lambda of the path, relative to lambda_max [default: 0.01].",
            name="lambda-min-ratio",
            without=_PATH,
        ),
    ] = None
    tolerance: Annotated[
        float,
        Option(
            "Duality gap at which to stop, relative to the loss of the null model (scikit-learn's tol).",
            group=TRAINING,
            parameter="tol",
        ),
    ] = 1e-6
    share: Annotated[
        float,
        Option(
            "Elastic-net mixing: 1 is the Lasso; values near 0 approach ridge (glmnet's alpha).",
            name="l1-ratio",
            parameter="l1_ratio",
        ),
    ] = 1.0
    weights: Annotated[
        Path | None,
        Option(
            "Sample weights: a .npy file, or a text file with one number per line (scikit-learn's sample_weight).",
            without={"estimator": "is sample_weight of fit"},
        ),
    ] = None
    rows: Annotated[
        Path | None,
        Option(
            "Rows to train on: a .npy file, or a text file with one row number per line, counted from 1.",
            without={"estimator": "fit uses the rows that it is given"},
        ),
    ] = None
    unpenalized: Annotated[
        Sequence[str],
        Option(
            "Column (name or index) without a penalty; can be repeated (glmnet's penalty.factor 0).",
            metavar="COLUMN",
            without={"estimator": "is a penalty_factor of 0"},
        ),
    ] = ()
    intercept: Annotated[
        bool, Option("Fit an intercept (scikit-learn's fit_intercept).", parameter="fit_intercept")
    ] = True
    standardize: Annotated[
        bool, Option("Penalize coefficients of columns scaled to standard deviation 1 (glmnet's standardize).")
    ] = True
    positive: Annotated[
        bool, Option("Restrict coefficients to at least 0 (scikit-learn's positive, glmnet's lower.limits).")
    ] = False
    folds: Annotated[
        int | None,
        Option(
            "Choose lambda by K-fold cross-validation with the one-standard-error rule (glmnet's lambda.1se).",
            name="cross-validate",
            metavar="K",
            group=EVALUATION,
            without=_PATH,
        ),
    ] = None
    schedule: Annotated[
        str | None,
        Option(
            "Solve for one lambda by rounds of parallel coordinate updates, instead of working sets.",
            group=ADVANCED,
            choices="priority|random|cyclic",
            checked_here=False,
            alone="Omit this option: rounds need all rows on each machine, and working sets solve for the same lambda.",
            without=_ROUNDS,
        ),
    ] = None
    parallelism: Annotated[
        int | None,
        Option(
            "With --schedule: number of columns updated in one round [default: 64].", group=ADVANCED, without=_ROUNDS
        ),
    ] = None
    rho: Annotated[
        float | None,
        Option(
            "With --schedule: maximum correlation of two columns updated in one round "
            "[default: 0.2 for priority, else no limit].",
            group=ADVANCED,
            without=_ROUNDS,
        ),
    ] = None
    seed: Annotated[
        int,
        Option(SEED_HELP, least=0, group=TRAINING, without={"estimator": "its solver uses no random numbers"}),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class SoftmaxOptions(Options):
    """Options of `ooc train softmax`."""

    group = TRAINING

    passes: Annotated[int, Option("Passes over the data (scikit-learn's max_iter).", least=1, parameter="max_iter")] = (
        10
    )
    loss: Annotated[
        str,
        Option(
            "Loss to minimize; hinge and squared are one-vs-rest losses.",
            group=MODEL,
            choices="softmax|hinge|squared",
        ),
    ] = "softmax"
    rate: Annotated[float, Option("Initial learning rate of AdaGrad.")] = 0.5
    regularization: Annotated[
        float, Option("L2 penalty on the weights, per sample (scikit-learn's alpha).", group=MODEL)
    ] = 0.0
    parallelism: Annotated[
        int | str,
        Option(
            "Number of parallel learners whose results are combined; unlike --workers it changes the model.",
            group=ADVANCED,
            metavar="auto|M",
            read=parallelism_of,
            without=_SINGLE,
        ),
    ] = "auto"
    most_parallelism: Annotated[
        int | None,
        Option(
            "Maximum number of parallel learners that auto tries [default: 16].",
            least=1,
            group=ADVANCED,
            without=_SINGLE,
        ),
    ] = None
    sync_per_pass: Annotated[
        int,
        Option(
            "Number of times per pass that parallel learners are combined.", least=1, group=ADVANCED, without=_SINGLE
        ),
    ] = 1
    evaluate_every: Annotated[
        int,
        Option(
            "Compute the objective every N passes.",
            least=1,
            group=EVALUATION,
            without={"estimator": "score evaluates"},
        ),
    ] = 1
    held_out: Annotated[
        Path | None,
        Option(
            "Samples to compute the held-out error on; ingest them with --columns-from DATA.",
            group=EVALUATION,
            without={"estimator": "score takes other samples"},
        ),
    ] = None
    seed: Seed = 0
