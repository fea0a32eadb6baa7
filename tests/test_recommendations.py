"""Recommendations and their metrics, compared with slow references: what is recommended to all users, and how good it
is."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from commands import Ooc, assert_refused
from sklearn.metrics import ndcg_score

from blocks import RequestError
from blocks.ratings.matrix import Matrix
from samplers import MatrixFactorization
from samplers.factorization import recommendation, score_tiles
from samplers.factorization.rankings import summed_percentile_ranks
from samplers.factorization.rated_items import RatedItems
from samplers.factorization.score_tiles import ITEMS, USERS
from samplers.factorization.top_items import CandidateItems
from samplers.models import open_factors

Triples = list[tuple[str, str, float]]
RUNS = {"explicit": ("--method", "ccd"), "implicit": ("--implicit", "--penalty", "entry", "--regularization", 0.1)}
PEOPLE, THINGS = 50, 30


def drawn(seed: int, share: float) -> Triples:
    """Ratings from 1 to 5 of things that have two kinds, as people do."""
    random = np.random.default_rng(seed)
    pairs = zip(*np.nonzero(random.random((PEOPLE, THINGS)) < share), strict=True)
    return [(f"u{u}", f"t{t}", float(random.integers(1, 4) + 2 * ((u + t) % 2 == 0))) for u, t in pairs]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, ooc_in: Callable[[Path], Ooc]) -> Path:
    """Ratings, held-out ratings of which some are in both, and a run for each kind of feedback."""
    path = tmp_path_factory.mktemp("recommendations")
    ooc = ooc_in(path)
    for name, triples in (("ratings", drawn(0, 0.3)), ("others", [*drawn(1, 0.15), *drawn(0, 0.3)[:20]])):
        (path / f"{name}.csv").write_text("".join(f"{u},{t},{r}\n" for u, t, r in triples))
    for words in (
        ("ingest", "ratings", "ratings.csv", "ratings"),
        ("ingest", "ratings", "others.csv", "others", "--names-from", "ratings"),
        *(
            ("train", "mf", "ratings", name, "--rank", 5, "--iterations", 3, "--workers", 1, *how)
            for name, how in RUNS.items()
        ),
    ):
        done = ooc(*words)
        assert done.returncode == 0, done.stderr
    return path


def by_user(triples: Triples) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for user, item, rating in triples:
        found.setdefault(user, {})[item] = rating
    return found


def scores_of(run: Path) -> dict[str, dict[str, float]]:
    """The predictions of a run, one by one."""
    model = open_factors(run)
    rows, columns = model.rows, model.columns
    return {
        user: {
            item: float(
                model.mean
                + rows.biases[u]
                + columns.biases[t]
                + rows.factors[u].astype(float) @ columns.factors[t].astype(float)
            )
            for t, item in enumerate(columns.names)
        }
        for u, user in enumerate(rows.names)
    }


def slow_metrics(
    scores: dict[str, dict[str, float]], train: Triples, test: Triples, top: int, threshold: float
) -> tuple[dict[str, float], int]:
    """The definitions, user by user and item by item."""
    seen, held_out = by_user(train), by_user(test)
    lists: dict[str, list[float]] = {"precision": [], "recall": [], "map": [], "ndcg": []}
    covered: set[str] = set()
    for user, ratings in held_out.items():
        wanted = {item for item, r in ratings.items() if r >= threshold and item not in seen.get(user, {})}
        if user not in scores or not wanted:
            continue
        left = {item: score for item, score in scores[user].items() if item not in seen[user]}
        best = sorted(left, key=lambda item: -left[item])[:top]
        covered |= set(best)
        hits = [item in wanted for item in best]
        lists["precision"].append(sum(hits) / top)
        lists["recall"].append(sum(hits) / len(wanted))
        precisions = [sum(hits[: k + 1]) / (k + 1) for k in range(len(hits)) if hits[k]]
        lists["map"].append(sum(precisions) / min(len(wanted), top))
        names = list(scores[user])
        truth = [[float(item in wanted) for item in names]]
        lists["ndcg"].append(ndcg_score(truth, [[left.get(item, -1e9) for item in names]], k=top))
    items = len(next(iter(scores.values())))
    means = {name: float(np.mean(values)) for name, values in lists.items()}
    return means | {"coverage": len(covered) / items}, len(lists["map"])


@pytest.mark.parametrize(("run", "top", "threshold"), [("explicit", 4, 4.0), ("implicit", 7, None)])
def test_metrics_are_those_of_the_definitions(
    place: Path, ooc_in: Callable[[Path], Ooc], run: str, top: int, threshold: float | None
) -> None:
    ooc, train, test = ooc_in(place), drawn(0, 0.3), [*drawn(1, 0.15), *drawn(0, 0.3)[:20]]
    limit = () if threshold is None else ("--threshold", threshold)
    told = json.loads(ooc("evaluate", run, "others", "--ranking", top, *limit, "--json").stdout)
    assert ("rmse" in told) == (run == "explicit")
    expected, users = slow_metrics(scores_of(place / run), train, test, top, threshold or 0.0)
    assert told["ranking"]["users"] == users
    assert told["ranking"]["model"] == pytest.approx(expected)
    counts = {item: sum(other == item for _, other, _ in train) for item in open_factors(place / run).columns.names}
    popular = slow_metrics(dict.fromkeys(by_user(train), counts), train, test, top, threshold or 0.0)[0]
    found = told["ranking"]["popularity"]
    del popular["ndcg"], found["ndcg"]  # scikit-learn takes the mean over all orders of equal counts
    assert found == pytest.approx(popular)
    lines = ooc("evaluate", run, "others", "--ranking", top, *limit).stdout.splitlines()
    assert [f"precision@{top}" in lines[1], lines[2].startswith("model"), len(lines)] == [True, True, 4]

    model = MatrixFactorization.from_run(place / run)
    columns = [tuple(zip(*triples, strict=True)) for triples in (train, test)]
    again = model.ranking_metrics(*columns, top=top, threshold=threshold)
    assert again["users"] == users
    assert again["model"] == pytest.approx(told["ranking"]["model"])


def test_recommendations_for_all_users_are_written_to_a_file(place: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """The best among some items that each has not seen, as CSV and as Parquet."""
    ooc, scores, seen = ooc_in(place), scores_of(place / "explicit"), by_user(drawn(0, 0.3))
    (place / "some.txt").write_text("t4\n\nt7 \nnothing\n" + "".join(f"t{t}\n" for t in range(9, 20)))
    allowed = {"t4", "t7", *(f"t{t}" for t in range(9, 20))}
    options = ("recommend", "explicit", "--top", 4, "--exclude-seen", "--items", "some.txt", "--overwrite")
    done = ooc(*options, "--out", "all.csv")
    assert done.returncode == 0, done.stderr
    assert "ignored 1 item of some.txt not found in the training data" in done.stderr
    assert ooc(*options, "--out", "all.parquet").returncode == 0
    with (place / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(dict.fromkeys(row["user"] for row in rows)) == list(scores)
    for user in scores:
        left = {item: score for item, score in scores[user].items() if item in allowed - seen[user].keys()}
        best = sorted(left, key=lambda item: -left[item])[:4]
        mine = [row for row in rows if row["user"] == user]
        assert [row["item"] for row in mine] == best
        assert [float(row["prediction"]) for row in mine] == pytest.approx([left[item] for item in best], rel=1e-4)
    table = pyarrow.parquet.read_table(place / "all.parquet").to_pylist()
    assert [(row["user"], row["item"]) for row in table] == [(row["user"], row["item"]) for row in rows]
    assert [row["prediction"] for row in table] == pytest.approx([float(row["prediction"]) for row in rows], rel=1e-5)
    lines = ooc("recommend", "explicit", "--user", "u7", "--user", "u3", "--top", 4, "--exclude-seen").stdout
    assert [line.split("\t")[0] for line in lines.splitlines()] == ["u7"] * 4 + ["u3"] * 4


def test_new_users_are_folded_in_from_a_file(place: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """By the normal equations of implicit feedback, and as from an ingested dataset."""
    ooc = ooc_in(place)
    (place / "new.csv").write_text("n2,t3,2\nn1,t8,1\nn1,t8,4\nn1,nothing,1\nn2,t5,1\n")
    done = ooc("recommend", "implicit", "--ratings", "new.csv", "--exclude-seen", "--top", 6, "--json")
    assert done.returncode == 0, done.stderr
    assert "left out 1 rating of items that are not in the training data" in done.stderr
    told = {choice["name"]: choice for choice in json.loads(done.stdout)}
    model = open_factors(place / "implicit")
    factors = model.columns.factors.astype(float)
    for user, counts in {"n2": {"t3": 2.0, "t5": 1.0}, "n1": {"t8": 4.0}}.items():
        mine = [model.columns.places[item] for item in counts]
        weights = np.array(list(counts.values()))  # alpha is 1
        system = factors.T @ factors + (factors[mine].T * weights) @ factors[mine]
        system += 0.1 * len(counts) * np.eye(model.rank)
        scores = factors @ np.linalg.solve(system, factors[mine].T @ (1 + weights))
        scores[mine] = -np.inf
        best = np.argsort(-scores)[:6]
        assert told[user]["items"] == [model.columns.names[item] for item in best]
        assert told[user]["scores"] == pytest.approx(scores[best].tolist(), rel=1e-4)
    assert list(told) == ["n2", "n1"]
    assert ooc("ingest", "ratings", "new.csv", "new", "--items-from", "ratings", "--overwrite").returncode == 0
    done = ooc("recommend", "implicit", "--ratings", "new", "--exclude-seen", "--top", 6, "--json")
    assert {choice["name"]: choice for choice in json.loads(done.stdout)} == told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("evaluate explicit others --threshold 3", "--threshold can only be used with --ranking"),
        (
            "evaluate explicit others --ranking 3 --threshold 6",
            "no user has a held-out rating of at least 6 of an item",
        ),
        ("recommend explicit --out all.txt", "all.txt: unknown file extension '.txt'"),
        (
            "recommend explicit --items strangers.txt",
            "--items strangers.txt: none of its items is in the training data",
        ),
        ("recommend explicit --exclude-seen --data others", "others does not contain all ratings that explicit/model"),
        (
            "recommend implicit --ratings zeros.csv",
            "zeros.csv has the value 0, but with --implicit counts must be above",
        ),
        ("recommend implicit --ratings missing.csv", "missing.csv"),
    ],
)
def test_what_makes_no_sense_is_refused(place: Path, ooc_in: Callable[[Path], Ooc], words: str, said: str) -> None:
    (place / "strangers.txt").write_text("nobody\n")
    (place / "zeros.csv").write_text("n,t3,0\n")
    assert_refused(ooc_in(place)(*words.split()), said)


def test_equal_scores_and_many_tiles() -> None:
    """The best of more users and items than are handled together; of equal scores the first items win."""
    random = np.random.default_rng(0)
    users, items, top = 2 * USERS + 3, 2 * ITEMS + 50, 12
    factors = random.integers(-2, 3, (items, 3)).astype(np.float32)  # whose sums are exact, and often equal
    biases, wanted = random.integers(0, 2, items).astype(np.float32), np.flatnonzero(random.random(items) < 0.9)
    of_users = random.integers(-2, 3, (users, 3))
    offsets = 40 * np.arange(users + 1)
    seen = RatedItems(offsets, random.integers(0, items, offsets[-1]), np.ones(offsets[-1]))
    found = CandidateItems(factors, biases, wanted).best(of_users, top, seen)
    scores = np.full((users, items), -np.inf)
    scores[:, wanted] = (of_users @ factors.T + biases)[:, wanted]
    np.put_along_axis(scores, seen.items.reshape(users, -1), -np.inf, axis=1)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    np.testing.assert_array_equal(found.items, best)
    np.testing.assert_array_equal(found.scores, np.take_along_axis(scores, best, axis=1))
    few = CandidateItems(factors, biases, wanted[:2]).best(of_users, 3)
    assert (few.items[:, 2] == -1).all()
    assert np.sort(few.items[:, :2], axis=1).tolist() == [wanted[:2].tolist()] * users


def test_batches_change_nothing(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of users, who are read in the order of the ratings and told in that of their names."""
    model, ratings, users = open_factors(place / "explicit"), Matrix(place / "ratings"), np.array([7, 2, 40, 41, 9, 3])
    found = []
    for numbers in (1 << 22, 20):
        monkeypatch.setattr(recommendation, "_NUMBERS", numbers)
        batches = recommendation.known_users(model, users, 5, ratings)
        best = recommendation.recommend(model, batches, 5, recommendation.candidates(model), exclude_seen=True)
        found.append(list(recommendation.in_order(best, users.size, 5, tmp_path)))
    assert [len(found[0]), len(found[1])] == [1, 1]
    for one, other in zip(found[0][0][1], found[1][0][1], strict=True):
        np.testing.assert_array_equal(one, other)


def test_percentile_ranks_of_equal_scores_in_many_tiles(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with the definition, where an equal score counts half, and a user without factors as 0.5."""
    monkeypatch.setattr(score_tiles, "ITEMS", 7)
    monkeypatch.setattr(score_tiles, "USERS", 8)
    random, held_out = np.random.default_rng(0), Matrix(place / "others")
    users, items = (random.integers(-1, 2, (size, 3)).astype(np.float32) for size in (PEOPLE, held_out.columns))
    places = np.where(np.arange(PEOPLE) % 9, np.arange(PEOPLE), -1)
    ranks, counts = [], []
    for block in map(held_out.block, range(held_out.block_count)):
        for row, first, last in zip(block.rows, block.offsets, block.offsets[1:], strict=False):
            scores = items @ users[places[row]] * (places[row] >= 0)
            for item in block.columns[first:last]:
                others = np.delete(scores, item)
                ranks.append(np.mean((others > scores[item]) + 0.5 * (others == scores[item])))
            counts.extend(block.values[first:last])
    found = summed_percentile_ranks(held_out, users, places, items, np.arange(held_out.columns))
    assert found == pytest.approx((np.dot(ranks, counts), sum(counts)))


def test_what_the_estimator_refuses(place: Path) -> None:
    estimator, train = MatrixFactorization.from_run(place / "explicit"), tuple(zip(*drawn(0, 0.3), strict=True))
    with pytest.warns(UserWarning, match="1 of 2 values of users or items"):
        assert estimator.ranking_metrics(train, (["u1", "nobody"], ["t1", "t2"]))["users"] == 1
    with pytest.raises(RequestError, match="top must be an integer of at least 1"):
        estimator.ranking_metrics(train, train, top=0)
    with pytest.raises(RequestError, match="X has 3 rows, but the training data had 50"):
        estimator.ranking_metrics(np.ones((3, THINGS)), train)
