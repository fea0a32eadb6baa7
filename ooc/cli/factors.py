"""`ooc recommend` and `ooc similar-items`: use a matrix factorization."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blocks import stderr
from ooc.cli.console import Json, print_json

if TYPE_CHECKING:
    from samplers.factorization.recommendation import Recommendations

FactorRun = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a finished run of `ooc train mf`.")]
Top = Annotated[int, typer.Option(min=1, metavar="N", help="Number of items to print for each user or item.")]


def recommend(
    run: FactorRun,
    user: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="User to recommend items to; can be repeated [default: all]."),
    ] = None,
    top: Top = 10,
    exclude_seen: Annotated[
        bool, typer.Option("--exclude-seen", help="Leave out items that the user has rated.")
    ] = False,
    ratings: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Ratings of users who joined after the training, ingested with --items-from.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Recommend items to users: lines of user, item, prediction.

    Example: ooc recommend run --user 42 --user 77 --top 5 --exclude-seen
    """
    from blocks.ratings.matrix import Matrix
    from ooc.runs.run import Run
    from samplers.factorization.recommendation import known_users, later_users
    from samplers.factorization.recommendation import recommend as choose
    from samplers.models import open_factors

    model = open_factors(run)
    if ratings:
        later = Matrix(ratings)
        names = _known(user, later.row_names(), str(ratings))
        users = later_users(model, later, names)
    else:
        names = _known(user, model.rows.names, str(run))
        users = known_users(model, names, Run(run).dataset(Matrix) if exclude_seen else None)
    _tell(choose(model, users, top, exclude_seen=exclude_seen), as_json=json)
    sys.exit(1 if user and len(names) < len(user) else 0)


def similar_items(
    run: FactorRun,
    item: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Item to compare with all others; can be repeated [default: all]."),
    ] = None,
    top: Top = 10,
    json: Json = False,
) -> None:
    """Find similar items: lines of item, similar item, cosine.

    Example: ooc similar-items run --item 'Toy Story' --top 5
    """
    from samplers.factorization.recommendation import similar_items as choose
    from samplers.models import open_factors

    model = open_factors(run)
    names = _known(item, model.columns.names, str(run))
    _tell(choose(model, names, top), as_json=json)
    sys.exit(1 if item and len(names) < len(item) else 0)


def _known(wanted: Sequence[str] | None, names: Sequence[str], where: str) -> list[str]:
    """Return the wanted names that exist; report the others on standard error."""
    if not wanted:
        return list(names)
    there = set(names)
    for name in wanted:
        if name not in there:
            stderr.fail(f"{name!r} is not in {where}")
    return [name for name in wanted if name in there]


def _tell(choices: Iterable[Recommendations], *, as_json: bool) -> None:
    if as_json:
        print_json([choice._asdict() for choice in choices])
        return
    writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    writer.writerows(_lines(choices))


def _lines(choices: Iterable[Recommendations]) -> Iterator[list[str]]:
    for choice in choices:
        for item, score in zip(choice.items, choice.scores, strict=True):
            yield [choice.name, item, f"{score:.5g}"]
