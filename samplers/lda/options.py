"""The options of the training of a topic model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from blocks.errors import RequestError
from samplers.options import Option, Options, Seed, SyncPerPass

_DOC_MAJOR = ("gibbs", "sparse-gibbs", "sparselda", "aliaslda", "lightlda")  # go through the words of each document


def priors_of(text: str, option: str) -> float | list[float]:
    """One number, or a list of those between commas."""
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        raise RequestError(f"{option}: {text!r} is no number", "Write one number, or several as 0.1,0.2.") from None
    return numbers if len(numbers) > 1 else numbers[0]


@dataclass(frozen=True, kw_only=True)
class LdaOptions(Options):
    """Options of `ooc train lda`."""

    topics: Annotated[int, Option("Number of topics, 1 to 1,000,000.", parameter="n_components")]
    iterations: Annotated[int, Option("Passes over the data.", least=1, parameter="max_iter")] = 100
    sampler: Annotated[
        str,
        Option(
            "How topics are sampled.",
            choices="auto|two-phase|lightlda|aliaslda|sparselda|sparse-gibbs|gibbs|splash",
            called="a sampler",
        ),
    ] = "auto"
    mh_steps: Annotated[
        int | None,
        Option(
            "Proposals a token, for two-phase, lightlda and aliaslda [default: 2].",
            takes=("two-phase", "aliaslda", "lightlda"),
        ),
    ] = None
    proposal: Annotated[
        str | None, Option("Proposals of lightlda [default: cycle].", choices="cycle|word|doc", takes=("lightlda",))
    ] = None
    update: Annotated[
        str | None,
        Option(
            "When samplers other than two-phase count what they sampled [default: delayed].",
            choices="delayed|immediate|rotation|data-parallel",
            takes=_DOC_MAJOR,
            alone="Rows take in what was sampled cell by cell, as with delayed; leave it out.",
            harmless=("delayed",),
        ),
    ] = None
    start: Annotated[
        str | None,
        Option(
            "Topics that sparse-gibbs starts with [default: scvb0 unless the model is large].",
            choices="scvb0|random",
            takes=("sparse-gibbs",),
            alone="Topics are random at first; leave it out.",
            harmless=("random",),
        ),
    ] = None
    parallelism: Annotated[
        int | None,
        Option(
            "Of splash: workers that are combined, whatever the processes [default: 1 of each machine].",
            takes=("splash",),
        ),
    ] = None
    sync_per_pass: SyncPerPass = None
    alpha: Annotated[
        float | Sequence[float] | None,
        Option(
            "Prior of a topic in a document, or of each topic [default: by --topics].",
            metavar="A[,A...]",
            read=priors_of,
            parameter="doc_topic_prior",
        ),
    ] = None
    beta: Annotated[
        float | None, Option("Prior of a word in a topic [default: 0.05].", parameter="topic_word_prior")
    ] = None
    optimize_every: Annotated[
        int,
        Option(
            "Iterations between estimations of alpha (from 0.01/K to 100 for each topic) and beta (up to 1); "
            "0: they stay as they are.",
            least=0,
        ),
    ] = 0
    burn_in: Annotated[
        int | None, Option("Iterations before the first estimation of the priors [default: 20].", least=0)
    ] = None
    evaluate_every: Annotated[int, Option("Iterations between values of the likelihood.", least=1)] = 10
    held_out: Annotated[
        Path | None,
        Option(
            "Documents to evaluate on, ingested with --vocab-from DATA.",
            without={"estimator": "score and perplexity take other documents"},
        ),
    ] = None
    stop_when_converged: Annotated[
        bool,
        Option(
            "Stop when three evaluations gained less than 0.003 in all.",
            without={"estimator": "a callback can end the training"},
        ),
    ] = False
    average: Annotated[
        int | None,
        Option(
            "The model is the average over so many states, one at each of the last evaluations "
            "[default: sparse-gibbs has a running mean over all iterations; else 1, the last].",
            without={"estimator": "warm_start goes on from the last state"},
        ),
    ] = None
    chains: Annotated[
        int,
        Option(
            "Train so many models, from seeds that follow each other, and compare them by R-hat.",
            alone="Train them one after the other, each with a --seed of its own.",
            without={"estimator": "fit clones that differ in random_state"},
        ),
    ] = 1
    staleness: Annotated[
        int | None,
        Option(
            "Of the totals of topics on several machines: phases that they may be behind [default: 1].",
            together="Leave it out, or start them with: ooc launch",
            without={"estimator": "is on one machine"},
        ),
    ] = None
    seed: Seed = 0
