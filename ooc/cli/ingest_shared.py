"""Functions shared by the commands of `ooc ingest`: resources, shards, and the summary of new datasets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blocks.errors import RequestError
from blocks.plurals import count_of, size_text
from ooc.cli import shard
from ooc.cli.console import print_json, print_line, progress_bar
from ooc.cli.options import parameter

if TYPE_CHECKING:
    from blocks.corpus.dataset import Dataset
    from blocks.ratings.matrix import Matrix

INPUTS = parameter(
    "inputs",
    Annotated[
        list[str], typer.Argument(help="Input files, plain or compressed (.gz, .xz, .zst, .zip); - is standard input.")
    ],
)
OUT = parameter("out", Annotated[str, typer.Argument(help="Directory of the new dataset.")])


def resources(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that every kind of dataset takes, from the parameters of a command."""
    from blocks.memory import parse_size

    memory = given.pop("memory_bytes")
    return {
        "workers": given.pop("workers"),
        "memory": parse_size(memory) if memory else None,
        "bar": progress_bar,
    }


def create(
    make: Callable[[str], Dataset | Matrix], out: str, shards: int | None, **options: Any
) -> Sequence[Dataset | Matrix]:
    """Create a dataset, or several shards of it."""
    if shards is None:
        return [make(out)]
    from blocks.shards.splitting import ingest_shards

    return ingest_shards(make, out, shards, **options)


def print_summary(
    made: Sequence[Dataset | Matrix], shards: int | None, started: float, *, as_json: bool, added: int | None = None
) -> None:
    """Print a summary of the datasets that were created.

    added: number of documents appended.
    """
    from blocks.dataset_description import describe, size_summary

    if shards is not None:
        shard.tell(made, started, as_json=as_json)
        return
    (dataset,) = made
    facts, seconds = describe(dataset), round(time.monotonic() - started, 3)
    if as_json:
        print_json(facts | ({} if added is None else {"added": added}) | {"seconds": seconds})
        return
    held = size_summary(dataset)
    if empty := facts.get("empty_documents"):
        held += f" ({count_of(empty, 'document')} empty)"
    held += "" if added is None else f"; {count_of(added, 'new document')}"
    grid = f"{count_of(dataset.block_count, 'block')} x {count_of(dataset.slice_count, 'slice')}"
    print_line(f"{dataset.path}: {held}\n{grid}, {size_text(facts['bytes'])}, in {seconds:.1f} s")


def refuse_shards(several: object) -> None:
    """Raise RequestError if held-out data were to be split into shards."""
    if several:
        raise RequestError(
            "--hold-out cannot be used with --shards or on several machines",
            "Ingest on one machine, then split both datasets with `ooc shard`.",
        )


def print_split_summary(both: Sequence[Dataset | Matrix], started: float, *, as_json: bool) -> None:
    """Print a summary of a dataset and of the held-out data beside it."""
    if as_json:
        from blocks.dataset_description import describe

        seconds = round(time.monotonic() - started, 3)
        print_json(describe(both[0]) | {"held_out": describe(both[1]), "seconds": seconds})
        return
    for dataset in both:
        print_summary([dataset], None, started, as_json=False)
