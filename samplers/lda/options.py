"""Command-line options of topic models."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from blocks.errors import RequestError
from samplers.options import ADVANCED, EVALUATION, MODEL, TRAINING, Option, Options, Seed, SyncPerPass

_WORD_PRIORS = ("two-phase", "sparse-gibbs", "gibbs")  # samplers whose words can have a prior of their own
_DOC_MAJOR = ("gibbs", "sparse-gibbs", "sparselda", "aliaslda", "lightlda")  # samplers that sample document by document


def priors_of(text: str, option: str) -> float | list[float]:
    """Parse one number, or several separated by commas."""
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        remedy = "Use one number, or one for each topic separated by commas: 0.1,0.2."
        raise RequestError(f"{option}: {text!r} is not a number", remedy) from None
    return numbers if len(numbers) > 1 else numbers[0]


@dataclass(frozen=True, kw_only=True)
class LdaOptions(Options):
    """Options of `ooc train lda`."""

    group = ADVANCED

    topics: Annotated[
        int,
        Option(
            "Number of topics, 1 to 1,000,000 (gensim's num_topics, scikit-learn's n_components).",
            group=MODEL,
            parameter="n_components",
        ),
    ]
    iterations: Annotated[
        int,
        Option(
            "Number of passes over the data (scikit-learn's max_iter).", least=1, group=TRAINING, parameter="max_iter"
        ),
    ] = 100
    sampler: Annotated[
        str,
        Option(
            "Sampling algorithm; auto chooses one by model size.",
            group=TRAINING,
            choices="auto|two-phase|lightlda|aliaslda|sparselda|sparse-gibbs|gibbs|splash",
        ),
    ] = "auto"
    mh_steps: Annotated[
        int | None,
        Option(
            "Number of Metropolis-Hastings proposals per token, for two-phase, lightlda and aliaslda [default: 2].",
            group=ADVANCED,
            takes=("two-phase", "aliaslda", "lightlda"),
        ),
    ] = None
    proposal: Annotated[
        str | None,
        Option("Proposal distribution of lightlda [default: cycle].", choices="cycle|word|doc", takes=("lightlda",)),
    ] = None
    update: Annotated[
        str | None,
        Option(
            "When newly sampled topics enter the counts; not with two-phase [default: delayed].",
            choices="delayed|immediate|rotation|data-parallel",
            takes=_DOC_MAJOR,
            alone="Omit this option: updates other than delayed need the counts of all words at once, and a"
            " machine has those of a few slices.",
            harmless=("delayed",),
        ),
    ] = None
    start: Annotated[
        str | None,
        Option(
            "Initial topics: learned by stochastic variational inference (scvb0), or random [default: scvb0].",
            choices="scvb0|random",
            takes=("two-phase", *_DOC_MAJOR),
        ),
    ] = None
    start_from: Annotated[
        Path | None,
        Option(
            "Start from the topics of this run or imported model: topics keep their numbers and labels; DATA may"
            " have other documents and words.",
            name="from",
            group=TRAINING,
            metavar="RUN",
            takes=("two-phase", *_DOC_MAJOR),
        ),
    ] = None
    parallelism: Annotated[
        int | None,
        Option(
            "Number of parallel learners that splash combines; unlike --workers it changes the model "
            "[default: 1 on each machine].",
            takes=("splash",),
        ),
    ] = None
    sync_per_pass: SyncPerPass = None
    alpha: Annotated[
        float | Sequence[float] | None,
        Option(
            "Dirichlet prior of topics in a document: one number, or one per topic [default: 5 / topics, at most 0.1].",
            group=MODEL,
            metavar="A[,A...]",
            read=priors_of,
            parameter="doc_topic_prior",
        ),
    ] = None
    beta: Annotated[
        float | None,
        Option(
            "Dirichlet prior of words in a topic (gensim's eta, scikit-learn's topic_word_prior) [default: 0.05].",
            group=MODEL,
            parameter="topic_word_prior",
        ),
    ] = None
    topic_word_prior: Annotated[
        Path | None,
        Option(
            "Word priors of topics that differ from beta: .npz (topics x words), or CSV of topic, word, weight.",
            group=MODEL,
            metavar="FILE",
            takes=_WORD_PRIORS,
            parameter="topic_word_prior",
        ),
    ] = None
    seed_words: Annotated[
        Path | None,
        Option(
            "Seed words of topics: CSV with the name of a topic and its words in each row, or JSON.",
            group=MODEL,
            metavar="FILE",
            takes=_WORD_PRIORS,
        ),
    ] = None
    seed_weight: Annotated[
        float | None,
        Option(
            "Pseudo-count that each token of a seed word adds to its prior in the topic [default: 1].",
            group=MODEL,
            takes=_WORD_PRIORS,
        ),
    ] = None
    optimize_every: Annotated[
        int,
        Option(
            "Estimate alpha and beta every N iterations (MALLET's --optimize-interval); 0 keeps them fixed.",
            group=TRAINING,
            least=0,
        ),
    ] = 0
    burn_in: Annotated[
        int | None,
        Option(
            "Iterations before alpha and beta are first estimated (MALLET's --optimize-burn-in) [default: 20].",
            least=0,
            group=TRAINING,
        ),
    ] = None
    evaluate_every: Annotated[
        int,
        Option("Compute the log-likelihood every N iterations.", least=1, group=EVALUATION),
    ] = 10
    held_out: Annotated[
        Path | None,
        Option(
            "Dataset on which to compute the held-out likelihood; ingest it with --vocab-from DATA.",
            group=EVALUATION,
            without={"estimator": "score and perplexity take other documents"},
        ),
    ] = None
    stop_when_converged: Annotated[
        bool,
        Option(
            "Stop when the log-likelihood gained less than 0.003 nats per token over the last three evaluations.",
            group=TRAINING,
            without={"estimator": "a callback can end training"},
        ),
    ] = False
    average: Annotated[
        int | None,
        Option(
            "Average the model over the states at the last N evaluations "
            "[default: 1, the last state; sparse-gibbs averages over all iterations].",
            without={"estimator": "warm_start continues from the last state"},
        ),
    ] = None
    chains: Annotated[
        int,
        Option(
            "Train N models with consecutive seeds and compare them by R-hat.",
            group=EVALUATION,
            without={"estimator": "fit clones that differ in random_state"},
        ),
    ] = 1
    staleness: Annotated[
        int | None,
        Option(
            "Maximum number of phases by which topic totals may be out of date, on several machines [default: 1].",
            together="Omit this option, or start several machines with: ooc launch",
            without={"estimator": "trains on one machine"},
        ),
    ] = None
    seed: Seed = 0
