"""`ooc shard`: split a dataset into shards for the machines of a ring."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blocks.plurals import count_of
from ooc.cli.console import JSON, print_json, print_line, progress_bar
from ooc.cli.ingest_options import DatasetOptions
from ooc.cli.options import options, parameter, read, takes

if TYPE_CHECKING:
    from blocks.corpus.dataset import Dataset
    from blocks.design.design import Design
    from blocks.ratings.matrix import Matrix
    from blocks.samples.samples import Samples


@takes(
    parameter(
        "data", Annotated[Path, typer.Argument(help="Dataset to split: corpus, ratings, samples or design matrix.")]
    ),
    parameter(
        "out",
        Annotated[str, typer.Argument(help="Directory for all shards; or the path of each shard, with {rank} in it.")],
    ),
    parameter(
        "shards", Annotated[int, typer.Option(min=1, metavar="N", help="Number of shards, one for each machine.")]
    ),
    options(DatasetOptions),
    JSON,
)
def shard(data: Path, out: str, shards: int, *, json: bool, **given: Any) -> None:
    """Split a dataset into shards for several machines.

    Each shard is a dataset with some of the documents (rows) and all words (columns).

    Example: ooc shard corpus corpus-in-4 --shards 4
    """
    from blocks.shards.splitting import make_shards

    started, how = time.monotonic(), read(DatasetOptions, given)
    made = make_shards(
        data,
        out,
        shards,
        workers=how.workers,
        memory=how.memory_bytes,
        overwrite=how.overwrite,
        bar=progress_bar,
    )
    tell(made, started, as_json=json)


def tell(shards: Sequence[Dataset | Matrix | Samples | Design], started: float, *, as_json: bool) -> None:
    """Print a summary of the shards."""
    from blocks.dataset_description import describe, size_summary

    seconds = round(time.monotonic() - started, 3)
    if as_json:
        print_json({"shards": [describe(one) for one in shards], "seconds": seconds})
        return
    for one in shards:
        slices = f" x {count_of(one.slice_count, 'slice')}" if one.slice_count else ""
        print_line(f"{one.path}: {size_summary(one)}, {count_of(one.block_count, 'block')}{slices}")
    print_line(f"{count_of(len(shards), 'shard')} in {seconds:.1f} s")
