"""`ooc plan`: estimate the memory, disk space and time of training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blocks.errors import RequestError
from ooc.cli.console import JSON, print_json
from ooc.cli.options import options, parameter, read, takes
from samplers.lda.options import LdaOptions
from samplers.options import INPUT, MODEL, RESOURCES, Option, Options, described, size_of

if TYPE_CHECKING:
    from blocks.design.design import Design


def rate_of(text: str, option: str) -> float:
    """Parse a rate such as 500MB/s; returns bytes per second."""
    from blocks.memory import parse_rate

    return parse_rate(text, option)


@dataclass(frozen=True, kw_only=True)
class PlanOptions(Options):
    """Options of `ooc plan`, including the training options that affect the estimate."""

    group = RESOURCES

    topics: Annotated[int, described(LdaOptions)["topics"].option] = 100
    path: Annotated[int, Option("Number of lambdas on the path, for a design matrix.", group=MODEL)] = 100
    folds: Annotated[
        int,
        Option(
            "Number of cross-validation folds, for a design matrix.", name="cross-validate", metavar="K", group=MODEL
        ),
    ] = 0
    nonzeros: Annotated[
        int | None,
        Option(
            "Number of nonzero coefficients at the end of the path [default: half the number of rows].", group=MODEL
        ),
    ] = None
    sampler: Annotated[str, described(LdaOptions)["sampler"].option] = "auto"
    mh_steps: Annotated[int | None, described(LdaOptions)["mh_steps"].option] = None
    tokens: Annotated[
        float | None, Option("Number of tokens of a hypothetical corpus, such as 200e9.", group=INPUT)
    ] = None
    vocabulary: Annotated[
        float, Option("Number of words in the vocabulary of the hypothetical corpus.", group=INPUT)
    ] = 100_000
    documents: Annotated[
        float | None, Option("Number of documents of the hypothetical corpus [default: tokens / 100].", group=INPUT)
    ] = None
    machines: Annotated[int, Option("Number of machines that share the hypothetical corpus.", least=1, group=INPUT)] = 1
    workers: Annotated[
        int | None,
        Option(
            "Worker processes of each machine [default: cores of this machine].",
            flags=("--workers", "--cores"),
            least=1,
        ),
    ] = None
    memory_bytes: Annotated[
        int | None,
        Option(
            "Memory limit of each machine, such as 64GB [default: four fifths of the free memory here].",
            name="memory",
            metavar="SIZE",
            read=size_of,
        ),
    ] = None
    speed: Annotated[
        float | None,
        Option("Tokens or entries that one worker processes per second, such as 15e6 [default: measured here]."),
    ] = None
    disk: Annotated[
        float | None,
        Option("Disk speed of a machine, such as 500MB/s [default: measured here].", metavar="RATE", read=rate_of),
    ] = None
    network: Annotated[
        float | None,
        Option("Network speed of a machine, such as 1Gbps [default: unlimited].", metavar="RATE", read=rate_of),
    ] = None


@takes(
    parameter(
        "data",
        Annotated[
            Path | None, typer.Argument(help="Corpus or design matrix made by `ooc ingest`; or use --tokens instead.")
        ],
        None,
    ),
    options(PlanOptions),
    JSON,
)
def plan(data: Path | None, *, json: bool, **given: Any) -> None:
    """Estimate the memory, disk space and time of training.

    The time is that of an iteration of a topic model, or of the whole lambda path of a regression.

    Examples: ooc plan corpus --topics 1000 --memory 2GB

    ooc plan genes --path 100 --cross-validate 5

    ooc plan --tokens 200e9 --vocabulary 1e6 --topics 1000000 --machines 8 --cores 20 --memory 256GB --network 1Gbps
    """
    asked = read(PlanOptions, given)
    if (data is None) == (asked.tokens is None):
        raise RequestError(
            "expected either DATA or --tokens", "Specify a dataset, or the size of a hypothetical corpus."
        )
    if data and asked.machines > 1:
        raise RequestError(
            f"--machines {asked.machines} can only be used with --tokens", "Use --tokens instead of a dataset."
        )
    facts, told = _of_design(design, asked) if data and (design := _design(data)) else _of_corpus(data, asked)
    print_json(facts) if json else print("\n".join(told))


def _of_design(design: Design, asked: PlanOptions) -> tuple[dict[str, Any], Iterable[str]]:
    """Return the estimate for a regression, as facts and as lines of text."""
    from samplers.regression.path import forecast as path_forecast

    facts = path_forecast.plan_regression(
        design,
        length=asked.path,
        folds=asked.folds,
        nonzeros=asked.nonzeros,
        workers=asked.workers,
        memory_bytes=asked.memory_bytes,
        speed=asked.speed,
        disk=asked.disk,
    )
    return facts, path_forecast.forecast_lines(facts)


def _of_corpus(data: Path | None, asked: PlanOptions) -> tuple[dict[str, Any], Iterable[str]]:
    """Return the estimate for a topic model on a dataset or a hypothetical corpus, as facts and as lines of text."""
    from blocks.control_groups import core_count
    from blocks.corpus.dataset import Dataset
    from blocks.corpus.hypothetical_corpus import HypotheticalCorpus
    from samplers.training_plan import plan_lda, told

    share = round((asked.tokens or 0) / asked.machines)
    dataset = (
        Dataset(data)
        if data
        else HypotheticalCorpus(
            tokens=share,
            documents=round(asked.documents / asked.machines) if asked.documents else max(share // 100, 1),
            vocabulary=round(asked.vocabulary),
            shards=asked.machines,
        )
    )
    facts = plan_lda(
        dataset,
        topics=asked.topics,
        sampler=asked.sampler,
        mh_steps=asked.mh_steps,
        workers=asked.workers or core_count(),
        memory_bytes=asked.memory_bytes,
        machines=asked.machines,
        speed=asked.speed,
        disk=asked.disk,
        network=asked.network or float("inf"),
        directory=data.parent if data else Path(),
    )
    return facts, told(facts)


def _design(data: Path) -> Design | None:
    """Return the dataset if it is a design matrix, None if it is a corpus.

    Raises RequestError for other kinds.
    """
    from blocks.corpus.dataset import Dataset
    from blocks.design.design import Design
    from blocks.kinds import open_any

    found = open_any(data)
    if isinstance(found, (Dataset, Design)):
        return found if isinstance(found, Design) else None
    raise RequestError(
        f"{data}: ooc plan can only estimate training on a corpus or a design matrix",
        "Train for one iteration instead: `ooc train` prints the time and the memory that it used.",
    )
