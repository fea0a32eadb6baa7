"""Matrix factorization at the command line: from ratings to recommendations, killed and resumed; what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Ooc, assert_refused
from corpora import kill_while_resuming, model_bytes

from blocks.ratings.matrix import Matrix
from ooc.runs.new_run import create_run
from ooc.runs.run import Run
from samplers.factorization.programs import factorization_spec
from samplers.factorization.recommendation import fold_in
from samplers.models import open_factors
from samplers.resume import resume

USERS, ITEMS = 120, 40


def ratings(users: range, seed: int = 0, share: float = 0.4) -> str:
    """Lines of users who like even items or odd ones, by their own parity; 1 to 5 with little noise."""
    random = np.random.default_rng(seed)
    lines = []
    for user in users:
        for item in np.flatnonzero(random.random(ITEMS) < share).tolist():
            value = (4.5 if (user + item) % 2 == 0 else 1.5) + random.normal() / 10
            lines.append(f"u{user}\tfilm {item}\t{value:.3f}\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, ooc_in: Callable[[Path], Ooc]) -> Path:
    """Ratings, others of the same users and items, and ratings of users that come later; a run of the first."""
    path = tmp_path_factory.mktemp("factors")
    ooc = ooc_in(path)
    (path / "ratings.tsv").write_text(ratings(range(USERS)))
    (path / "others.tsv").write_text(ratings(range(USERS), seed=1, share=0.1))
    (path / "later.tsv").write_text(ratings(range(USERS, USERS + 10), seed=2))
    for arguments in (
        ("ratings.tsv", "ratings"),
        ("others.tsv", "others", "--names-from", "ratings"),
        ("later.tsv", "later", "--items-from", "ratings"),
    ):
        done = ooc("ingest", "ratings", *arguments, "--workers", 1)
        assert done.returncode == 0, done.stderr
    done = ooc("train", "mf", "ratings", "run", "--rank", 4, "--method", "ccd", "--held-out", "others", "--workers", 1)
    assert done.returncode == 0, done.stderr
    assert "RMSE" in done.stdout
    assert "ooc recommend run" in done.stdout
    return path


@pytest.fixture
def trained(made: Path, tmp_path: Path) -> Path:
    """A copy of all that."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_implicit_feedback_is_evaluated_by_how_high_it_ranks(trained: Path, ooc: Ooc) -> None:
    """As the training says, so `ooc evaluate` does, and numpy: the percentile of each held-out item among all."""
    how = ("--rank", 4, "--implicit", "--iterations", 4, "--held-out", "others", "--workers", 1)
    done = ooc("train", "mf", "ratings", "wishes", *how)
    assert done.returncode == 0, done.stderr
    assert "percentile rank" in done.stdout
    told = json.loads(ooc("evaluate", "wishes", "others", "--json").stdout)
    model, total, weights = open_factors(trained / "wishes"), 0.0, 0.0
    for line in (trained / "others.tsv").read_text().splitlines():
        user, item, value = line.split("\t")
        scores = model.columns.factors @ model.rows.factors[model.rows.places[user]]
        own = scores[model.columns.places[item]]
        before = (scores > own).sum() + ((scores == own).sum() - 1) / 2
        total, weights = total + float(value) * before / (scores.size - 1), weights + float(value)
    assert told["percentile_rank"] == pytest.approx(total / weights, abs=1e-3)
    assert Run(trained / "wishes").metrics()[-1]["held_out_percentile_rank"] == pytest.approx(told["percentile_rank"])
    assert "percentile rank" in ooc("evaluate", "wishes", "others").stdout


def test_pairs_are_read_as_ratings_are(trained: Path, ooc: Ooc) -> None:
    """By the names or numbers of columns; ratings among them are passed over."""
    (trained / "plain.tsv").write_text("u3\tfilm 7\nu3\tfilm 8\nstranger\tfilm 8\n")
    assert ooc("predict", "run", "plain.tsv", "plain.csv").returncode == 0
    expected = (trained / "plain.csv").read_text()
    for text, options in (
        ("when;film;who;stars\n1;film 7;u3;NA\n2;film 8;u3;\n3;film 8;stranger;1\n", ["who", "film", ";", '"']),
        ("1|film 7|'u3'\n2|film 8|u3\n3|film 8|stranger\n", ["3", "2", "|", "'"]),
    ):
        (trained / "other.txt").write_text(text)
        given = zip(("--user-column", "--item-column", "--delimiter", "--quote"), options, strict=True)
        done = ooc(
            "predict", "run", "other.txt", "other.csv", "--overwrite", *(each for pair in given for each in pair)
        )
        assert done.returncode == 0, done.stderr
        assert (trained / "other.csv").read_text() == expected
    (trained / "two.txt").write_text("u3,film 7\nu3,film 8,2,more\nstranger,film 8\n")
    assert ooc("predict", "run", "two.txt", "other.csv", "--overwrite").returncode == 0
    assert (trained / "other.csv").read_text() == expected


def test_recommendations_and_predictions(trained: Path, ooc: Ooc) -> None:
    """Every command of it; users like what their parity says, also those who came later."""
    last = Run(trained / "run").metrics()[-1]
    assert last["held_out_rmse"] < 0.2
    told = json.loads(ooc("evaluate", "run", "others", "--json").stdout)
    assert told["rmse"] == pytest.approx(last["held_out_rmse"], rel=1e-4)
    assert told["mae"] <= told["rmse"]
    assert "RMSE" in ooc("evaluate", "run", "others").stdout

    done = ooc("recommend", "run", "--user", "u3", "--user", "nobody", "--top", 5, "--exclude-seen", "--json")
    assert done.returncode == 1
    assert "'nobody'" in done.stderr
    [choice] = json.loads(done.stdout)
    seen = {line.split("\t")[1] for line in ratings(range(USERS)).splitlines() if line.startswith("u3\t")}
    assert choice["name"] == "u3"
    assert len(choice["items"]) == 5
    assert all(int(item.removeprefix("film ")) % 2 == 1 for item in choice["items"])
    assert not seen & set(choice["items"])
    assert choice["scores"] == sorted(choice["scores"], reverse=True)

    done = ooc("recommend", "run", "--ratings", "later", "--top", 3)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == 30
    assert all((int(user[1:]) + int(item.split()[1])) % 2 == 0 for user, item, _ in rows)

    done = ooc("similar-items", "run", "--item", "film 6", "--top", 10)
    assert all(int(line.split("\t")[1].split()[1]) % 2 == 0 for line in done.stdout.splitlines())
    assert "film 6" not in [line.split("\t")[1] for line in done.stdout.splitlines()]

    (trained / "pairs.tsv").write_text("u3\tfilm 7\nu3\tfilm 8\nstranger\tfilm 8\n")
    done = ooc("predict", "run", "pairs.tsv", "predictions.csv")
    assert done.returncode == 0, done.stderr
    assert "1 of 3 pairs" in done.stderr
    values = [float(line.split(",")[2]) for line in (trained / "predictions.csv").read_text().splitlines()[1:]]
    assert values == [pytest.approx(4.5, abs=0.4), pytest.approx(1.5, abs=0.4), pytest.approx(3.0, abs=0.4)]

    (trained / "old.tsv").write_bytes("u3\tfilm 7\nst\u00e5le\tfilm 8\n".encode("latin-1"))
    refused = ooc("predict", "run", "old.tsv", "old.csv")
    assert (refused.returncode, "old.tsv, line 2: byte 0xe5 is not UTF-8" in refused.stderr) == (2, True)
    assert ooc("predict", "run", "old.tsv", "old.csv", "--encoding", "latin-1").returncode == 0
    rows = [line.split(",")[0] for line in (trained / "old.csv").read_text(encoding="utf-8").splitlines()]
    assert rows == ["user", "u3", "st\u00e5le"]

    assert ooc("export", "run", "factors.npz").returncode == 0
    with np.load(trained / "factors.npz") as arrays:
        row, column = arrays["rows"].tolist().index("u3"), arrays["columns"].tolist().index("film 7")
        product = arrays["row_factors"][row] @ arrays["column_factors"][column]
        found = arrays["mean"] + arrays["row_biases"][row] + arrays["column_biases"][column] + product
        assert found == pytest.approx(values[0], abs=1e-4)
    for command in (("verify", "run"), ("verify", "ratings"), ("info", "run"), ("info", "ratings")):
        assert ooc(*command).returncode == 0


def test_a_user_who_comes_later_gets_the_factors_that_training_would_have_found(trained: Path) -> None:
    """Folded in from the ratings of the training a user's prediction is that of the model, where it has converged."""
    matrix, run = Matrix(trained / "ratings"), trained / "long"
    spec = factorization_spec("ccd", {"rank": 4, "regularization": 0.05, "seed": 1}, {"biases": True})
    create_run(run, matrix, spec, iterations=200, evaluate_every=200, settings={"held_out": None})
    resume(run, workers=1, quiet=True)
    model = open_factors(run)
    block = matrix.block(0)
    for row in range(5):
        mine = slice(block.offsets[row], block.offsets[row + 1])
        solved = fold_in(model, matrix.index.column_ids[block.columns[mine]], block.values[mine])
        assert np.allclose(solved[1:], model.rows.factors[block.rows[row]], atol=1e-3)
        assert solved[0] == pytest.approx(model.rows.biases[block.rows[row]], abs=1e-3)


METHODS = {"sgd": {}, "ccd": {"nonnegative": True}, "als": {"biases": True}, "implicit": {"alpha": 2.0}}


@pytest.mark.few(1)
@pytest.mark.parametrize("method", ["sgd", "ccd", "als", pytest.param("implicit", marks=pytest.mark.long)])
def test_workers_and_kills_change_nothing(trained: Path, method: str) -> None:
    """One worker, three, and one that was killed at its second checkpoint: the same bytes."""
    matrix = Matrix(trained / "ratings")
    spec = factorization_spec(method, {"rank": 5, "regularization": 0.1, "seed": 3}, METHODS[method])
    found = []
    for name, workers in (("one", 1), ("three", 3), ("killed", 1)):
        run = trained / name
        create_run(run, matrix, spec, iterations=6, evaluate_every=2, settings={"held_out": None})
        if name == "killed":
            kill_while_resuming(run, "state/000002*")
        resume(run, workers=workers, quiet=True)
        found.append(model_bytes(run))
        lines = [line["objective"] for line in Run(run).metrics() if "objective" in line]
        assert len(lines) == 3
        assert lines == sorted(lines, reverse=True)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rank", 0), "--rank must be"),
        (("--rank", 4, "--method", "magic"), "--method: unknown method 'magic'"),
        (("--rank", 4, "--method", "implicit"), "--method: unknown method 'implicit'"),
        (("--rank", 4, "--schedule", "magic"), "--schedule: unknown schedule 'magic'"),
        (("--rank", 4, "--schedule", "bsp", "--method", "ccd"), "--schedule cannot be used with --method ccd"),
        (("--rank", 4, "--replicas", 2), "--replicas cannot be used with --method sgd"),
        (("--rank", 4, "--schedule", "bsp", "--replicas", 0), "--replicas must be"),
        (("--rank", 4, "--schedule", "bsp", "--combine", "magic"), "--combine: unknown combine 'magic'"),
        (("--rank", 4, "--regularization", -1), "--regularization must be"),
        (("--rank", 4, "--penalty", "none"), "--penalty: unknown penalty 'none'"),
        (("--rank", 4, "--penalty", "row"), "--penalty row"),
        (("--rank", 4, "--nonnegative"), "--nonnegative cannot be used with --method sgd"),
        (("--rank", 4, "--method", "ccd", "--nonnegative", "--biases"), "--nonnegative"),
        (("--rank", 4, "--method", "ccd", "--rate", 0.1), "--rate cannot be used with --method ccd"),
        (("--rank", 4, "--rate", 0), "--rate must be"),
        (("--rank", 4, "--method", "als", "--steps", 0), "--steps must be"),
        (("--rank", 4, "--implicit", "--biases"), "--biases cannot be used with --implicit"),
        (("--rank", 4, "--implicit", "--method", "ccd"), "--implicit cannot be used with --method ccd"),
        (("--rank", 4, "--implicit", "--alpha", 0), "--alpha must be"),
        (("--rank", 4, "--alpha", 2), "--alpha cannot be used with --method sgd"),
        (("--rank", 4, "--held-out", "later"), "--names-from ratings"),
        (("--rank", 60000, "--memory", "200MB"), "--memory 200 MB is too small"),
        (("--rank", 4, "--iterations", 0), "--iterations"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    trained: Path, ooc: Ooc, arguments: tuple[object, ...], said: str
) -> None:
    done = ooc("train", "mf", "ratings", "refused", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (trained / "refused").exists()


def test_what_is_of_another_kind_is_refused(trained: Path, ooc: Ooc) -> None:
    """Topics of ratings, factors of documents."""
    (trained / "texts.txt").write_text("apple pear plum\ngoal team ball\n")
    assert ooc("ingest", "text", "texts.txt", "corpus", "--lines").returncode == 0
    assert_refused(
        ooc("train", "mf", "corpus", "new", "--rank", 2), "corpus is a corpus; expected a dataset of ratings"
    )
    assert_refused(ooc("train", "lda", "ratings", "new", "--topics", 2), "expected a corpus")
    assert_refused(ooc("topics", "run"), "expected a topic model")
    assert ooc("train", "lda", "corpus", "topics", "--topics", 2, "--iterations", 2).returncode == 0
    assert_refused(ooc("recommend", "topics"), "expected a matrix factorization")
    assert_refused(ooc("predict", "topics", "ratings.tsv", "out.csv"), "expected a matrix factorization")
    assert not (trained / "out.csv").exists()
    assert_refused(ooc("recommend", "run", "--ratings", "ratings2"), "ratings2")


def test_a_single_user_and_a_single_item(tmp_path: Path, ooc: Ooc) -> None:
    (tmp_path / "one.tsv").write_text("a\tb\t3.5\n")
    assert ooc("ingest", "ratings", "one.tsv", "one").returncode == 0
    for method in ("sgd", "ccd", "als"):
        done = ooc("train", "mf", "one", method, "--rank", 3, "--method", method, "--iterations", 3)
        assert done.returncode == 0, done.stderr
    done = ooc("recommend", "ccd", "--user", "a")
    assert done.stdout.startswith("a\tb\t3.")
    assert ooc("similar-items", "ccd").stdout == ""
