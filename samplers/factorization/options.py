"""Options of matrix factorization."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from blocks.errors import RequestError
from samplers.options import ADVANCED, EVALUATION, MODEL, TRAINING, Option, Options, Seed, SyncPerPass

_BY_RATING = ("sgd", "bsp", "ccd", "als")  # methods for ratings, not for counts
_LEAVE = "Omit this option: bsp simulates several machines on one, for comparison with rotation."


def parallelism_of(text: str, option: str) -> int | str:
    """Parse a number of parallel learners, or auto."""
    if text != "auto" and not text.isdigit():
        raise RequestError(f"{option} must be auto or the number of parallel learners, got {text!r}")
    return text if text == "auto" else int(text)


@dataclass(frozen=True, kw_only=True)
class FactorizationOptions(Options):
    """Options of `ooc train mf`.

    takes: names of methods in `samplers.factorization.programs`.
    """

    group = ADVANCED

    rank: Annotated[
        int,
        Option(
            "Number of factors of each user and item (scikit-learn's n_components).",
            group=MODEL,
            parameter="n_components",
        ),
    ]
    iterations: Annotated[
        int,
        Option("Passes over the data (scikit-learn's max_iter).", least=1, group=TRAINING, parameter="max_iter"),
    ] = 20
    method: Annotated[
        str | None,
        Option("Optimization algorithm [default: sgd].", group=TRAINING, choices="sgd|ccd|als|splash"),
    ] = None
    regularization: Annotated[
        float | None,
        Option("L2 penalty on the factors [default: 0.03; with --penalty row: 1].", group=MODEL),
    ] = None
    penalty: Annotated[
        str | None,
        Option(
            "Apply the L2 penalty for each rating (entry), or once for each user and item (row) [default: entry; with "
            "--implicit: row].",
            group=MODEL,
            choices="entry|row",
            takes=(*_BY_RATING, "implicit"),
        ),
    ] = None
    biases: Annotated[
        bool | None,
        Option("Fit user and item biases [default: yes, if the method supports them].", group=MODEL, takes=_BY_RATING),
    ] = None
    center: Annotated[
        bool | None,
        Option("Subtract the mean rating [default: yes].", group=MODEL, takes=(*_BY_RATING, "splash")),
    ] = None
    nonnegative: Annotated[
        bool,
        Option("Keep all factors at 0 or above; only for ccd.", group=MODEL, takes=("ccd",)),
    ] = False
    implicit: Annotated[
        bool,
        Option("Treat values as counts of implicit feedback, not as ratings; only for als.", group=MODEL),
    ] = False
    alpha: Annotated[
        float | None,
        Option("With --implicit: confidence that a count of 1 adds [default: 1].", group=MODEL, takes=("implicit",)),
    ] = None
    rate: Annotated[
        float | None,
        Option(
            "Initial learning rate of sgd and splash [default: 0.15].", group=TRAINING, takes=("sgd", "bsp", "splash")
        ),
    ] = None
    schedule: Annotated[
        str | None,
        Option(
            "Parallel scheme of sgd: rotation (no two workers update the same user or item at once), or bsp "
            "(data-parallel, for comparison) [default: rotation].",
            choices="rotation|bsp",
            alone=_LEAVE,
            harmless=("rotation",),
        ),
    ] = None
    replicas: Annotated[
        int | None,
        Option("With --schedule bsp: number of copies of the item factors [default: 2].", takes=("bsp",), alone=_LEAVE),
    ] = None
    combine: Annotated[
        str | None,
        Option(
            "With --schedule bsp: combine the copies' changes by mean or sum [default: mean].",
            choices="mean|sum",
            takes=("bsp",),
            alone=_LEAVE,
        ),
    ] = None
    steps: Annotated[
        int | None,
        Option(
            "Number of conjugate gradient steps of als for each user and item [default: 3].", takes=("als", "implicit")
        ),
    ] = None
    parallelism: Annotated[
        int | str | None,
        Option(
            "Number of parallel learners that splash combines; unlike --workers it changes the model [default: auto].",
            metavar="auto|M",
            read=parallelism_of,
            takes=("splash",),
        ),
    ] = None
    sync_per_pass: SyncPerPass = None
    evaluate_every: Annotated[
        int,
        Option("Compute the objective every N iterations.", least=1, group=EVALUATION),
    ] = 1
    held_out: Annotated[
        Path | None,
        Option(
            "Ratings to compute the held-out error on; ingest them with --names-from DATA.",
            group=EVALUATION,
            without={"estimator": "score takes other ratings"},
        ),
    ] = None
    seed: Seed = 0
