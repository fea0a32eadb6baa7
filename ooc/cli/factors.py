"""`ooc recommend`, `similar-items` and `evaluate`: use a matrix factorization."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blocks import stderr
from blocks.plurals import count_of
from ooc.cli.console import Json, Overwrite, note, print_json, print_line

if TYPE_CHECKING:
    import numpy as np

    from blocks.ratings.matrix import Matrix
    from samplers.factorization.model import FactorModel
    from samplers.factorization.recommendation import UserBatch
    from samplers.factorization.top_items import TopItems

FactorRun = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a finished run of `ooc train mf`.")]
Top = Annotated[int, typer.Option(min=1, metavar="N", help="Number of items to print for each user or item.")]
Items = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Recommend only the items in this file, one name per line [default: all]."),
]
NewRatings = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Recommend to users who joined after training: file of their ratings, or dataset ingested with "
        "--items-from.",
    ),
]
TrainingRatings = Annotated[
    Path | None,
    typer.Option(
        metavar="DATASET",
        help="With --exclude-seen: path of the training ratings, if they were moved or the run was trained on their "
        "shards.",
    ),
]


def recommend(
    run: FactorRun,
    user: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="User to recommend items to; can be repeated [default: all]."),
    ] = None,
    top: Top = 10,
    exclude_seen: Annotated[
        bool, typer.Option("--exclude-seen", help="Exclude items that the user has rated.")
    ] = False,
    items: Items = None,
    ratings: NewRatings = None,
    data: TrainingRatings = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write, .csv or .parquet, instead of lines on standard output."),
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Recommend items to users: lines of user, item, prediction.

    Examples: ooc recommend run --user 42 --user 77 --top 5 --exclude-seen

    ooc recommend run --exclude-seen --out recommendations.parquet
    """
    from blocks.outputs import STANDARD_OUTPUT, require_free, scratch_for
    from samplers.factorization.recommendation import candidates, in_order, known_users
    from samplers.factorization.recommendation import recommend as choose
    from samplers.factorization.recommended_files import format_of
    from samplers.models import open_factors

    if out:
        format_of(out)
        require_free(out, overwrite=overwrite)
    model = open_factors(run)
    chosen = candidates(model, _listed(model, items) if items else None)
    if ratings:
        names, numbers, users = _later(model, ratings, user, top)
    else:
        names, numbers = _known(user, model.rows.names, str(run))
        users = known_users(model, numbers, top, training_ratings(model, run, data) if exclude_seen else None)
    found = choose(model, users, top, chosen, exclude_seen=exclude_seen)
    with scratch_for(out or STANDARD_OUTPUT) as scratch:
        ordered = in_order(found, numbers.size, top, scratch)
        if out:
            _write(out, ordered, names, model.columns.names, as_json=json)
        else:
            _tell(names, (each for _, some in ordered for each in some.lists()), model.columns.names, as_json=json)
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
    names, places = _known(item, model.columns.names, str(run))
    best = (each for _, some in choose(model, places, top) for each in some.lists())
    _tell(names, best, model.columns.names, as_json=json)
    sys.exit(1 if item and len(names) < len(item) else 0)


def training_ratings(model: FactorModel, run: Path, data: Path | None) -> Matrix:
    """Return the ratings that a run was trained on.

    data: `--data`.
    """
    from blocks.ratings.matrix import Matrix
    from ooc.runs.run import Run
    from samplers.factorization.recommendation import require_trained_on

    ratings = Matrix(data) if data else Run(run).dataset(Matrix)
    require_trained_on(model, ratings)
    return ratings


def _later(
    model: FactorModel, ratings: Path, wanted: Sequence[str] | None, top: int
) -> tuple[Sequence[str], np.ndarray, Iterator[UserBatch]]:
    """Return names, numbers and factors of the users of other ratings."""
    from blocks.ratings.matrix import Matrix
    from samplers.factorization.new_ratings import read_new_ratings
    from samplers.factorization.recommendation import later_users, memory_users

    if ratings.is_dir():
        matrix = Matrix(ratings)
        names, numbers = _known(wanted, matrix.row_names(), str(ratings))
        return names, numbers, later_users(model, matrix, numbers, top)
    read = read_new_ratings(model, str(ratings))
    if read.unknown:
        note(f"left out {count_of(read.unknown, 'rating')} of items that are not in the training data")
    names, numbers = _known(wanted, read.names, str(ratings))
    return names, numbers, memory_users(model, read.rated, numbers, top)


def _listed(model: FactorModel, path: Path) -> np.ndarray:
    """Return the indices of the items named in a file."""
    from samplers.factorization.new_ratings import read_items

    listed = read_items(model, str(path))
    if listed.unknown:
        note(f"ignored {count_of(listed.unknown, 'item')} of {path} not found in the training data")
    return listed.items


def _known(wanted: Sequence[str] | None, names: Sequence[str], where: str) -> tuple[Sequence[str], np.ndarray]:
    """Return the wanted names that exist, and their indices; report the others on standard error."""
    import numpy as np

    if not wanted:
        return names, np.arange(len(names))
    places = dict(zip(names, range(len(names)), strict=True))
    for name in wanted:
        if name not in places:
            stderr.print_error(f"{name!r} is not in {where}")
    there = [name for name in wanted if name in places]
    return there, np.array([places[name] for name in there], np.int64)


def _write(
    out: Path, found: Iterator[tuple[int, TopItems]], users: Sequence[str], items: Sequence[str], *, as_json: bool
) -> None:
    from blocks.outputs import publish_output
    from samplers.factorization.recommended_files import format_of, write_recommendations

    with publish_output(out) as beside:
        rows = write_recommendations(beside, format_of(out), found, users, items)
    if as_json:
        print_json({"path": str(out), "users": len(users), "recommendations": rows})
        return
    print_line(f"{out}: {count_of(rows, 'recommendation')} for {count_of(len(users), 'user')}")


def _tell(
    names: Sequence[str], best: Iterable[list[tuple[int, float]]], items: Sequence[str], *, as_json: bool
) -> None:
    if as_json:
        print_json(
            [
                {"name": name, "items": [items[item] for item, _ in pairs], "scores": [score for _, score in pairs]}
                for name, pairs in zip(names, best, strict=True)
            ]
        )
        return
    writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    writer.writerows(
        [name, items[item], f"{score:.5g}"] for name, pairs in zip(names, best, strict=True) for item, score in pairs
    )
