"""`ooc plan`: what a training would take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blocks.errors import RequestError
from cli.console import Json, print_json

if TYPE_CHECKING:
    from blocks.design.design import Design


def plan(
    data: Annotated[Path | None, typer.Argument(help="A dataset made by `ooc ingest`; none: give --tokens.")] = None,
    topics: Annotated[int, typer.Option(help="Number of topics.")] = 100,
    path: Annotated[int, typer.Option(help="Of a design: values of lambda.")] = 100,
    folds: Annotated[int, typer.Option("--cross-validate", metavar="K", help="Of a design: folds.")] = 0,
    nonzeros: Annotated[
        int | None, typer.Option(help="Of a design: coefficients at the end of the path [default: half of the rows].")
    ] = None,
    sampler: Annotated[str, typer.Option(metavar="auto|two-phase|...", help="As for `ooc train lda`.")] = "auto",
    mh_steps: Annotated[int | None, typer.Option(help="Proposals a token [default: 2].")] = None,
    tokens: Annotated[float | None, typer.Option(help="Tokens of a corpus on paper, as 200e9.")] = None,
    vocabulary: Annotated[float, typer.Option(help="Its words.")] = 100_000,
    documents: Annotated[float | None, typer.Option(help="Its documents [default: a hundredth of the tokens].")] = None,
    machines: Annotated[int, typer.Option(min=1, help="Machines that share the documents of a corpus on paper.")] = 1,
    workers: Annotated[
        int | None, typer.Option("--workers", "--cores", min=1, help="Of each machine [default: the cores of this].")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Of each machine, as 64GB [default: four fifths of what is free here]."),
    ] = None,
    speed: Annotated[
        float | None, typer.Option(help="Tokens, or entries, a second of one worker, as 15e6 [default: tried here].")
    ] = None,
    disk: Annotated[
        str | None, typer.Option(metavar="RATE", help="Speed of a machine's disk, as 500MB/s [default: measured here].")
    ] = None,
    network: Annotated[str | None, typer.Option(metavar="RATE", help="Speed of a machine's network, as 1Gbps.")] = None,
    json: Json = False,
) -> None:
    """Say what a training of topics, or the path of a regression, would take, and why.

    That is memory, disk, and the time of an iteration; nothing is trained.

    Examples: ooc plan corpus --topics 1000 --memory 2GB

    ooc plan genes --path 100 --cross-validate 5

    ooc plan --tokens 200e9 --vocabulary 1e6 --topics 1000000 --machines 8 --cores 20 --memory 256GB --network 1Gbps
    """
    from blocks.corpus.dataset import Dataset
    from blocks.corpus.intended import Intended
    from blocks.memory import parse_rate, parse_size
    from blocks.workers import cores
    from samplers.planning import plan_lda, told

    if (data is None) == (tokens is None):
        raise RequestError("one of DATA and --tokens is needed", "Give a dataset, or the size of a corpus.")
    if data and machines > 1:
        raise RequestError(f"--machines {machines} is for a corpus on paper", "Give --tokens instead of a dataset.")
    if data and (design := _design(data)):
        from samplers.regression.path import forecast as path_forecast

        facts = path_forecast.plan_regression(
            design,
            length=path,
            folds=folds,
            nonzeros=nonzeros,
            workers=workers,
            memory_bytes=parse_size(memory) if memory else None,
            speed=speed,
            disk=parse_rate(disk, "--disk") if disk else None,
        )
        print_json(facts) if json else print("\n".join(path_forecast.told(facts)))
        return
    if data:
        dataset = Dataset(data)
    else:
        share = round((tokens or 0) / machines)
        dataset = Intended(
            tokens=share,
            documents=round(documents / machines) if documents else max(share // 100, 1),
            vocabulary=round(vocabulary),
            shards=machines,
        )
    facts = plan_lda(
        dataset,
        topics=topics,
        sampler=sampler,
        mh_steps=mh_steps,
        workers=workers or cores(),
        memory_bytes=parse_size(memory) if memory else None,
        machines=machines,
        speed=speed,
        disk=parse_rate(disk, "--disk") if disk else None,
        network=parse_rate(network, "--network") if network else float("inf"),
        directory=data.parent if data else Path(),
    )
    print_json(facts) if json else print("\n".join(told(facts)))


def _design(data: Path) -> Design | None:
    """A design matrix, if that is what the dataset is."""
    from blocks.design.design import Design
    from blocks.kinds import open_any

    found = open_any(data)
    return found if isinstance(found, Design) else None
