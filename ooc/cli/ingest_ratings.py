"""`ooc ingest ratings`."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Annotated, Any

from blocks.errors import RequestError
from blocks.plurals import count_of
from ooc.cli import ingest_options as groups
from ooc.cli.console import JSON, note
from ooc.cli.ingest_shared import INPUTS, OUT, create, print_split_summary, print_summary, refuse_shards, resources
from ooc.cli.options import options, takes
from samplers.options import LAYOUT, OUTPUT, Option

if TYPE_CHECKING:
    from blocks.ratings.matrix import Matrix
    from blocks.ratings.request import RatingsRequest


class HeldOutRatingsOptions:
    """Options of ratings that are held out."""

    hold_out: Annotated[
        str | None,
        Option(
            "Hold out this fraction of the ratings, such as 10%, or the last ratings of each user, such as last-1, in "
            "a second dataset OUT-held-out with the same users and items; a fraction is chosen by names and --seed.",
            metavar="SHARE|last-N",
            group=OUTPUT,
        ),
    ] = None
    seed: Annotated[
        int, Option("Random seed for the order of users and items in the dataset.", least=0, group=LAYOUT)
    ] = 0


@takes(
    INPUTS,
    OUT,
    options(
        groups.RatingsOptions,
        groups.TextEncodingOptions,
        groups.DatabaseQueryOptions,
        groups.InvalidRecordOptions,
        HeldOutRatingsOptions,
    ),
    options(groups.ShardsOptions, groups.DatasetOptions),
    JSON,
)
def ingest_ratings(**given: Any) -> None:
    """Ingest ratings of items by users.

    Reads MovieLens, Netflix and MatrixMarket files, and lines of user, item and rating. Columns are identified by their
    names in the header, or with --user-column, --item-column and --rating-column.

    If a user rated an item several times, the last rating counts. A line without a rating counts as a rating of 1.

    Examples: ooc ingest ratings ml-20m/ratings.csv ratings

    ooc ingest ratings ml-20m/ratings.csv ratings --hold-out last-1
    """
    from dataclasses import replace

    from blocks.ratings.formats import RatingsFormatOptions
    from blocks.ratings.hold_out import parse_hold_out
    from blocks.ratings.ingestion import ingest_holding_out
    from blocks.ratings.ingestion import ingest_ratings as ingest
    from blocks.ratings.request import RatingsRequest

    started = time.monotonic()
    as_json, shards, common = given.pop("json"), given.pop("shards"), resources(given)
    low, high = given.pop("lowest"), given.pop("highest")
    written = {name: given.pop(name) for name in ("delimiter", "quote")} | {"decimal": given.pop("decimal") or "."}
    written |= {side: given.pop(f"{side}_column") for side in ("user", "item", "rating", "time")}
    hold_out = parse_hold_out(text) if (text := given.pop("hold_out")) is not None else None
    if written["time"] and not (hold_out and hold_out.last):
        raise RequestError("--time-column can only be used with --hold-out last-N", "Omit --time-column.")
    request = RatingsRequest(
        low=-math.inf if low is None else low,
        high=math.inf if high is None else high,
        format_options=RatingsFormatOptions(**written, timed=bool(hold_out and hold_out.last)),
        hold_out=hold_out,
        **given,
    )
    if hold_out:
        refuse_shards(shards)
        both = ingest_holding_out(request, **common)
        _note_ratings_left_out(both[0].manifest["made"], request)
        print_split_summary(both, started, as_json=as_json)
        return

    def make(path: str) -> Matrix:
        return ingest(replace(request, out=path), **common)

    matrices = create(make, request.out, shards, overwrite=request.overwrite, **common)
    _note_ratings_left_out(matrices[0].manifest["made"], request)
    print_summary(matrices, shards, started, as_json=as_json)


def _note_ratings_left_out(made: dict[str, Any], request: RatingsRequest) -> None:
    if made["skipped"]:
        note(f"skipped {count_of(made['skipped'], 'bad record')}, the first: {made['first_skipped']}")
    if made["duplicates"]:
        note(f"left out {count_of(made['duplicates'], 'rating')} with a later rating of the same user and item")
    if made["unknown"]:
        base = request.names_from
        where = f"whose user or item is not in {base}" if base else f"whose item is not in {request.items_from}"
        note(f"left out {count_of(made['unknown'], 'rating')} {where}")
