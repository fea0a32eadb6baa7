"""The options of a matrix factorization."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from blocks.errors import RequestError
from samplers.options import Option, Options, Seed, SyncPerPass

_BY_RATING = ("sgd", "bsp", "ccd", "als")  # methods of ratings, not of counts
_LEAVE = "Leave it out."


def parallelism_of(text: str, option: str) -> int | str:
    """How many workers there are, or auto."""
    if text != "auto" and not text.isdigit():
        raise RequestError(f"{option} {text}: write auto, or how many workers there are")
    return text if text == "auto" else int(text)


@dataclass(frozen=True, kw_only=True)
class FactorizationOptions(Options):
    """Options of `ooc train mf`. takes: methods of `samplers.factorization.programs`."""

    rank: Annotated[int, Option("Factors of each user and item.", parameter="n_components")]
    iterations: Annotated[int, Option("Passes over the data.", least=1, parameter="max_iter")] = 20
    method: Annotated[str | None, Option("How factors are found [default: sgd].", choices="sgd|ccd|als|splash")] = None
    regularization: Annotated[float | None, Option("Weight of the squared factors [default: 0.03; by row 1].")] = None
    penalty: Annotated[
        str | None,
        Option(
            "Whether it counts for each rating, or once for each user and item [default: entry].",
            choices="entry|row",
            takes=_BY_RATING,
        ),
    ] = None
    biases: Annotated[
        bool | None, Option("Users and items have biases [default: yes, where possible].", takes=_BY_RATING)
    ] = None
    center: Annotated[
        bool | None, Option("The mean rating is taken out [default: yes].", takes=(*_BY_RATING, "splash"))
    ] = None
    nonnegative: Annotated[bool, Option("No factor is below 0, for ccd.", takes=("ccd",))] = False
    implicit: Annotated[bool, Option("Values count what users did, rather than rate it, for als.")] = False
    alpha: Annotated[
        float | None,
        Option("Confidence that a count of 1 adds, with --implicit [default: 1].", takes=("implicit",)),
    ] = None
    rate: Annotated[
        float | None, Option("Of the first steps of sgd [default: 0.15].", takes=("sgd", "bsp", "splash"))
    ] = None
    schedule: Annotated[
        str | None,
        Option(
            "Of sgd: no two workers at the same row or column [the default], or data-parallel, to compare with.",
            choices="rotation|bsp",
            alone=_LEAVE,
            harmless=("rotation",),
        ),
    ] = None
    replicas: Annotated[
        int | None,
        Option("Of all columns, with --schedule bsp [default: 2].", takes=("bsp",), alone=_LEAVE),
    ] = None
    combine: Annotated[
        str | None,
        Option(
            "What the replicas changed is taken over as [default: mean].",
            choices="mean|sum",
            takes=("bsp",),
            alone=_LEAVE,
        ),
    ] = None
    steps: Annotated[
        int | None,
        Option("Conjugate gradients of als for each user and item [default: 3].", takes=("als", "implicit")),
    ] = None
    parallelism: Annotated[
        int | str | None,
        Option(
            "Of splash: workers that are combined [default: auto].",
            metavar="auto|M",
            read=parallelism_of,
            takes=("splash",),
        ),
    ] = None
    sync_per_pass: SyncPerPass = None
    evaluate_every: Annotated[int, Option("Iterations between values of the objective.", least=1)] = 1
    held_out: Annotated[
        Path | None,
        Option(
            "Ratings to evaluate on, ingested with --names-from DATA.",
            without={"estimator": "score takes other ratings"},
        ),
    ] = None
    seed: Seed = 0
