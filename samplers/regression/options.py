"""The options of regressions: of one target with an l1 penalty, and of classes by stochastic gradient descent."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from samplers.factorization.options import parallelism_of
from samplers.options import Option, Options

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
            "Of lambda one value; scikit-learn's alpha is that over the rows.",
            name="lambda",
            parameter="alpha",  # or C
        ),
    ] = None
    ratio: Annotated[
        float | None, Option("Of lambda one value, as a share of the largest.", name="lambda-ratio", without=_PATH)
    ] = None
    length: Annotated[
        int | None,
        Option("So many values, from the largest down [default: 100].", name="path", without=_PATH),
    ] = None
    least: Annotated[
        float | None,
        Option("The last of a path, by the first [default: 0.01].", name="lambda-min-ratio", without=_PATH),
    ] = None
    tolerance: Annotated[
        float, Option("Duality gap to stop at, as a share of the loss of an empty model.", parameter="tol")
    ] = 1e-6
    share: Annotated[
        float,
        Option("Of |b| in the penalty; the rest is of b^2: elastic net.", name="l1-ratio", parameter="l1_ratio"),
    ] = 1.0
    weights: Annotated[
        Path | None,
        Option(
            "What each row weighs: .npy, or a text file with a number on each line.",
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
            "Has no penalty: a name, or a number; can be repeated.",
            metavar="COLUMN",
            without={"estimator": "penalizes all columns"},
        ),
    ] = ()
    intercept: Annotated[bool, Option("Whether there is one.", parameter="fit_intercept")] = True
    standardize: Annotated[bool, Option("Penalties are for columns of deviation 1, or as they are.")] = True
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
    parallelism: Annotated[int | None, Option("Of --schedule: updates of a round [default: 64].", without=_ROUNDS)] = (
        None
    )
    rho: Annotated[
        float | None,
        Option("Of --schedule: what two columns of a round may correlate [default: 0.2, or any].", without=_ROUNDS),
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

    passes: Annotated[int, Option("Over the data.", least=1, parameter="max_iter")] = 10
    loss: Annotated[str, Option("The latter are one class against the rest.", choices="softmax|hinge|squared")] = (
        "softmax"
    )
    rate: Annotated[float, Option("Of the first steps; they are AdaGrad's.")] = 0.5
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
        int | None, Option("Of the workers that auto tries [default: 16].", least=1, without=_SINGLE)
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
    seed: Annotated[
        int, Option("The same seed gives the same model, bit for bit.", least=0, parameter="random_state")
    ] = 0
