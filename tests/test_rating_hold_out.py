"""Ratings that are held out: a fraction of all, or the last ones of each user, in every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from commands import Ooc, assert_refused

from blocks.progress_bar import no_bar
from blocks.ratings.hold_out import HoldOutRule
from blocks.ratings.ingestion import ingest_holding_out
from blocks.ratings.matrix import Matrix
from blocks.ratings.request import RatingsRequest
from blocks.verify import verify_dataset

Row = tuple[int, int, float, int]


def drawn() -> list[Row]:
    """User, item, rating, and seconds, some of them equal; some ratings are given again."""
    random = np.random.default_rng(0)
    rows = [
        (user, int(item), float(random.integers(1, 6)), int(random.integers(8) * 86400 + 1_400_000_000))
        for user in range(60)
        for item in random.integers(0, 25, random.integers(1, 12))
    ]
    return [rows[at] for at in random.permutation(len(rows))]


def last_ones(rows: list[Row], last: int) -> set[tuple[str, str, float]]:
    """The last ratings of each user but for one; slowly."""
    found = set()
    latest = {(user, item): (time, at, rating) for at, (user, item, rating, time) in enumerate(rows)}
    for user in {user for user, *_ in rows}:
        mine = sorted((when[0], when[1], item, when[2]) for (u, item), when in latest.items() if u == user)
        found |= {(str(user), str(item), rating) for _, _, item, rating in mine[1:][-last:]}
    return found


def entries(matrix: Matrix) -> set[tuple[str, str, float]]:
    rows, columns = matrix.row_names(), matrix.column_names()
    found = set()
    for number in range(matrix.block_count):
        block = matrix.block(number)
        for row, first, last in zip(block.rows, block.offsets[:-1], block.offsets[1:], strict=True):
            for column, value in zip(block.columns[first:last], block.values[first:last], strict=True):
                found.add((rows[row], columns[matrix.index.column_ids[column]], float(value)))
    assert len(found) == matrix.entries
    return found


def stamp(time: int) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(sep=" ").removesuffix("+00:00")


def write_csv(path: Path, rows: list[Row]) -> list[str]:
    path.write_text("time,item,user,rating\n" + "".join(f"{stamp(t)},{i},{u},{r}\n" for u, i, r, t in rows))
    return []


def write_lines(path: Path, rows: list[Row]) -> list[str]:
    path.write_text("".join(f"{u}::{i}::{r}::{t}\n" for u, i, r, t in rows))
    return []


def write_columns(path: Path, rows: list[Row]) -> list[str]:
    path.write_text("".join(f"{t}\t{u}\t{i}\t{r}\n" for u, i, r, t in rows))
    options = {"time": 1, "user": 2, "item": 3, "rating": 4}
    return [word for side, number in options.items() for word in (f"--{side}-column", str(number))]


def write_netflix(path: Path, rows: list[Row]) -> list[str]:
    path.write_text("".join(f"{i}:\n{u},{r},{stamp(t)[:10]}\n" for u, i, r, t in rows))
    return []


def write_parquet(path: Path, rows: list[Row]) -> list[str]:
    users, items, ratings, times = zip(*rows, strict=True)
    when = pa.array([time * 1000 for time in times], pa.timestamp("ms"))
    pyarrow.parquet.write_table(pa.table({"user": users, "item": items, "rating": ratings, "rated": when}), path)
    return ["--time-column", "rated"]


@pytest.mark.parametrize("written", [write_csv, write_lines, write_columns, write_netflix, write_parquet])
def test_the_last_ratings_of_each_user_are_held_out(
    tmp_path: Path, ooc: Ooc, written: Callable[[Path, list[Row]], list[str]]
) -> None:
    rows = drawn()
    options = written(tmp_path / "ratings.parquet", rows)
    last = 1 if written is write_lines else 3
    done = ooc("ingest", "ratings", "ratings.parquet", "out", "--hold-out", f"last-{last}", *options, "--workers", 1)
    assert done.returncode == 0, done.stderr
    train, held = Matrix(tmp_path / "out"), Matrix(tmp_path / "out-held-out")
    assert entries(held) == last_ones(rows, last)
    latest = {(str(user), str(item)): rating for user, item, rating, _ in rows}
    assert entries(train) | entries(held) == {(*pair, rating) for pair, rating in latest.items()}
    assert train.entries + held.entries == len(latest)
    assert f"left out {len(rows) - len(latest)} ratings with a later rating" in done.stderr
    if written is write_lines:
        how = ("--rank", 2, "--iterations", 2, "--held-out", "out-held-out", "--workers", 1)
        assert ooc("train", "mf", "out", "run", *how).returncode == 0
        ranking = json.loads(ooc("evaluate", "run", "out-held-out", "--ranking", 25, "--json").stdout)["ranking"]
        assert ranking["users"] == len(last_ones(rows, 1))
        assert ranking["model"]["recall"] == 1.0  # all that is left are recommended


def test_a_fraction_is_chosen_by_names_alone(tmp_path: Path, ooc: Ooc) -> None:
    """In whatever order, with whatever other ratings; each user keeps one."""
    random = np.random.default_rng(1)
    pairs = np.argwhere(random.random((300, 40)) < 0.3)
    lines = [f"u{user},t{item},{user % 5 + 1}\n" for user, item in pairs] + [f"lone{n},t1,1\n" for n in range(30)]
    (tmp_path / "all.csv").write_text("".join(lines))
    (tmp_path / "some.csv").write_text("".join(lines[n] for n in random.permutation(len(lines))[: len(lines) // 2]))
    held = {}
    for name, *options in (("all", "--workers", 1), ("some", "--workers", 2), ("all", "--seed", 5)):
        done = ooc("ingest", "ratings", f"{name}.csv", "out", "--hold-out", "20%", "--overwrite", *options, "--json")
        assert done.returncode == 0, done.stderr
        train, apart = (Matrix(tmp_path / f"out{side}") for side in ("", "-held-out"))
        told = json.loads(done.stdout)
        assert (told["entries"], told["held_out"]["entries"]) == (train.entries, apart.entries)
        assert train.row_names() == apart.row_names()
        assert not entries(train) & entries(apart)
        assert {user for user, _, _ in entries(train)} == set(train.row_names())
        held[name, options[0]] = entries(apart)
    everything = held["all", "--workers"]
    assert everything != held["all", "--seed"]
    expected = 0.2 * len(pairs)
    assert abs(len(everything) - expected) < 5 * np.sqrt(0.8 * expected)
    some = [line.split(",") for line in (tmp_path / "some.csv").read_text().splitlines()]
    others = everything & {(user, item, float(rating)) for user, item, rating in some} - held["some", "--workers"]
    for user, _, _ in others:  # one stays for each user of whom all would have been held out
        mine = {(user, item, float(rating)) for name, item, rating in some if name == user}
        assert mine <= everything
        assert len(mine - held["some", "--workers"]) == 1
    assert held["some", "--workers"] <= everything
    assert len(others) < 10


def test_blocks_and_workers_change_nothing(tmp_path: Path) -> None:
    """Also blocks of which nothing is held out; what a crash between the two datasets left is replaced."""
    rows = drawn()[:80]
    write_lines(tmp_path / "ratings", rows)
    request = RatingsRequest([str(tmp_path / "ratings")], str(tmp_path / "out"), hold_out=HoldOutRule(0.04, 0), grid=9)
    train, held = ingest_holding_out(request, workers=2)
    assert held.block_count < train.block_count
    for matrix in (train, held):
        assert not verify_dataset(matrix, no_bar).problems
    before = entries(train), entries(held)
    train.path.rename(tmp_path / "gone")
    assert tuple(map(entries, ingest_holding_out(request, workers=1))) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--hold-out", "0"), "--hold-out must be a fraction of the ratings or last-N, got '0'"),
        (("--hold-out", "last-0"), "--hold-out must be a fraction of the ratings or last-N, got 'last-0'"),
        (("--hold-out", "last-1"), "ratings, line 1: no column is known to be the time, and --hold-out last-N needs"),
        (
            ("--hold-out", "last-1", "--time-column", "4"),
            "ratings, line 1: expected `user item rating time`, got '1,2,3'",
        ),
        (("--hold-out", "last-1", "--time-column", "0"), "column 0 does not exist: columns are counted from 1"),
        (
            ("--hold-out", "last-1", "--time-column", "2"),
            "line 2: 'soon' is not a time: expected a number, or a date such",
        ),
        (("--time-column", "2"), "--time-column can only be used with --hold-out last-N"),
        (("--hold-out", "1%"), "--hold-out: no rating was selected to be held out"),
        (("--hold-out", "5%", "--shards", "2"), "--hold-out cannot be used with --shards or on several machines"),
        (("--hold-out", "5%", "--items-from", "x"), "--hold-out cannot be used with --items-from x"),
    ],
)
def test_what_cannot_be_held_out_is_refused(tmp_path: Path, ooc: Ooc, options: tuple[str, ...], said: str) -> None:
    (tmp_path / "ratings").write_text("1,2,3\n1,soon,3\n")
    assert_refused(ooc("ingest", "ratings", "ratings", "out", *options), said)
    assert [path.name for path in tmp_path.iterdir()] == ["ratings"]


def test_ratings_without_a_time_can_be_skipped(tmp_path: Path, ooc: Ooc) -> None:
    lines = ["1,2,3,2014-09-30", "1,3,3,soon", "1,4,3,", "1,5,3,2015-09-29", "1,6,3,2015-09-30T10:00:00Z"]
    (tmp_path / "ratings").write_text("\n".join(lines))
    done = ooc("ingest", "ratings", "ratings", "out", "--hold-out", "last-1", "--on-error", "skip")
    assert done.returncode == 0, done.stderr
    assert "skipped 2 bad records, the first: ratings, line 2: 'soon' is not a time" in done.stderr
    assert entries(Matrix(tmp_path / "out-held-out")) == {("1", "6", 3.0)}


@pytest.mark.parametrize("options", [(), ("--on-error", "skip")])
def test_numbers_and_dates_are_not_compared(tmp_path: Path, ooc: Ooc, options: tuple[str, ...]) -> None:
    """As a number, the year 2016 would be half an hour after 1970-01-01."""
    (tmp_path / "first.csv").write_text("user,item,rating,time\n1,2,3,2015-09-30\n1,3,3,2014\n")
    (tmp_path / "second.csv").write_text("user,item,rating,time\n1,4,3,2016\n")
    when = pa.array([0], pa.timestamp("ms"))
    third = pa.table({"user": ["2"], "item": ["4"], "rating": [3], "time": when})
    pyarrow.parquet.write_table(third, tmp_path / "third")
    hold_out = ("--hold-out", "last-1", *options)
    for inputs, date, number in (
        (["first.csv"], "first.csv, line 2", "first.csv, line 3"),
        (["second.csv", "third"], "third, row 1", "second.csv, line 2"),
    ):
        done = ooc("ingest", "ratings", *inputs, "out", *hold_out)
        assert_refused(done, f"{date}: the time is a date, but {number} has a number")
        assert not (tmp_path / "out").exists()
