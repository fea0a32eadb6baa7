"""The report in a real browser: topics clicked, words searched, keys pressed; read in a wide and a narrow window, light
and dark; with names that are markup."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsers import UNREADABLE, chromium, opened
from commands import Ooc
from corpora import trained_model
from long_mark import long_but

from ooc.runs.run import Run
from samplers.models import open_model
from samplers.regression.model import RegressionModel
from samplers.regression.softmax.model import SoftmaxModel
from samplers.report.page import write_report
from samplers.report.topic_charts import charts
from samplers.report.topics import section

MARKUP = "<img src=x onerror=alert(1)>"
THEMES = [
    ["apple", "pear", "plum", "fruit", MARKUP],
    ["goal", "team", "ball", "match", "score"],
    ["star", "planet", "orbit", "moon", "sun"],
    ["court", "judge", "law", "trial", "score"],
]


@pytest.fixture(scope="session")
def folder(made_once: Callable[[str, Callable[[Path], None]], Path], ooc_in: Callable[[Path], Ooc]) -> Path:
    return made_once("reports", lambda folder: make_reports(folder, ooc_in(folder)))


def make_reports(folder: Path, ooc: Ooc) -> None:
    """Runs and their reports: of topics, of two chains, of a factorization, and of regressions."""
    rng = np.random.default_rng(7)
    names = [f"</script><b>{document}" for document in range(200)]
    texts = [list(rng.choice(THEMES[document % 4], 30)) for document in range(200)]
    lines = [json.dumps({"id": name, "text": text}) for name, text in zip(names, texts, strict=True)]
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n")
    pairs = [(user, item) for user in range(40) for item in range(30) if (user + item) % 3]
    ratings = [f"user{user}\tfilm {item} & co\t{rng.integers(1, 6)}\n" for user, item in pairs]
    (folder / "ratings.tsv").write_text("".join(ratings))
    features = np.round(rng.normal(size=(50, 6)), 3)
    y = features @ [3.0, -2.0, 0.0, 0.5, 0.0, 0.0] + 0.1 * rng.normal(size=50)
    rows = [",".join(map(str, row)) for row in np.column_stack((features, y)).tolist()]
    (folder / "table.csv").write_text("\n".join(["a <b>,b,c,d,e,f,y", *rows]) + "\n")
    labelled = [f"{label} {1 + label}:2 {4 + rng.integers(0, 3)}:1\n" for label in rng.integers(0, 3, 90).tolist()]
    (folder / "classes.svm").write_text("".join(labelled))
    short = ("--iterations", 16, "--evaluate-every", 2, "--workers", 1, "--quiet")
    for command in (
        ("ingest", "jsonl", "texts.jsonl", "corpus"),
        ("ingest", "ratings", "ratings.tsv", "ratings"),
        ("train", "lda", "corpus", "run", "--topics", 4, *short, "--memory", "1GB"),
        ("train", "lda", "corpus", "chains", "--topics", 3, *short, "--chains", 2),
        ("train", "mf", "ratings", "factors", "--rank", 3, *short),
        ("ingest", "csv", "table.csv", "design", "--target", "y"),
        ("train", "lasso", "design", "path", "--path", 12, "--cross-validate", 3, "--workers", 1, "--quiet"),
        ("train", "lasso", "design", "level", "--lambda", 5, "--workers", 1, "--quiet"),
        ("ingest", "svmlight", "classes.svm", "samples", "--by-rows"),
        ("train", "softmax", "samples", "classes", "--passes", 3, "--parallelism", 2, "--workers", 1, "--quiet"),
        *(("report", run) for run in ("run", "chains", "factors", "path", "level", "classes")),
    ):
        done = ooc(*command)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.mark.few(1)
@pytest.mark.parametrize(("width", "scheme"), long_but([(1280, "light")], product((1280, 400), ("light", "dark"))))
@pytest.mark.parametrize("name", ["run", "factors", "path", "classes"])
def test_a_report_can_be_read(folder: Path, browser: Any, name: str, width: int, scheme: str) -> None:
    """Nothing sticks out of the window, every text is large enough and stands out, and nobody complains."""
    page, problems = opened(browser, folder / f"{name}.html", width, scheme)
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(UNREADABLE) == []
    for chart in page.locator(".chart").all():
        assert chart.locator("svg [role=graphics-symbol], svg [role=graphics-object]").count() > 0
        assert chart.locator("svg").bounding_box()["width"] > 200
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) == (scheme == "dark")
    assert problems == []
    page.close()


@pytest.mark.parametrize("topics", [1, 2])
def test_few_topics_have_a_section_too(tmp_path: Path, topics: int) -> None:
    """With nothing to correlate, and a map of a point or two; all of it is JSON."""
    made = section(trained_model(tmp_path, topics=topics))
    json.dumps([made.data, made.charts], allow_nan=False)
    assert len(made.data["topics"]) == topics
    assert set(made.charts) == {"map", "sizes", "largest"}
    assert sum(topic["share"] for topic in made.data["topics"]) == pytest.approx(1)


def test_labels_on_the_map_have_room() -> None:
    """None is on another, those of the largest topics are there, and a map that is a point has one."""
    rng = np.random.default_rng(3)
    topics = [
        {"topic": slot, "label": "", "top": ["a"], "share": 1 / 400, "largest": 1, "x": x, "y": y}
        for slot, (x, y) in enumerate(rng.normal(size=(400, 2)).tolist())
    ]
    rows = charts(topics, np.eye(400), np.ones((400, 400)))["map"]["data"]["values"]
    labelled = np.array([(row["x"], row["y"]) for row in rows if row["labelled"]])
    assert rows[0]["labelled"]
    assert 30 <= len(labelled) <= 60
    extent = np.ptp([(row["x"], row["y"]) for row in rows], axis=0)
    apart = np.abs(labelled[:, None] - labelled) / extent >= [28 / 300, 13 / 380]
    assert (apart.any(axis=2) | np.eye(len(labelled), dtype=bool)).all()
    alike = [topic | {"x": 0.0, "y": 0.0} for topic in topics]
    point = charts(alike, np.eye(400), np.ones((400, 400)))["map"]["data"]["values"]
    assert [row["labelled"] for row in point].count(True) == 1


@pytest.mark.long
def test_a_topic_that_is_too_small_to_be_shown_is_told(
    folder: Path, browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are more topics than are listed."""
    monkeypatch.setattr("samplers.report.topics.MOST_TOPICS", 3)
    write_report(folder / "run", tmp_path / "three.html")
    page, problems = opened(browser, tmp_path / "three.html")
    smallest = int(np.argmin(open_model(folder / "run").topic_counts))
    assert "The 3 largest of 4 topics are shown" in page.inner_text("#topics")
    page.get_by_label("Find a word").fill(str(smallest))
    assert f"Topic {smallest} is not one of the 3 largest topics, which are shown." in page.inner_text("#found")
    assert problems == []
    page.close()


def chosen(page: Any) -> int:
    """The number of the topic that is shown."""
    return int(re.match(r"Topic (\d+)", page.inner_text("#topic-title"))[1])


def test_a_topic_is_chosen_by_a_click_and_by_keys(folder: Path, browser: Any) -> None:
    """On the map, on a bar, in the table and with arrow keys; the table and the map know."""
    page, problems = opened(browser, folder / "run.html")
    model = open_model(folder / "run")
    order = np.argsort(-model.topic_counts, kind="stable").tolist()
    assert chosen(page) == order[0]
    page.locator("#topics-map svg .mark-symbol path").nth(2).click()
    assert chosen(page) == order[2]
    assert page.locator("#topics-table tr[aria-current=true] button").inner_text() == str(order[2])
    page.locator("#topics-sizes svg .mark-rect path").nth(1).click()
    assert chosen(page) == order[1]
    page.locator("#topics-table button").nth(3).click()
    assert chosen(page) == order[3]
    page.focus("#topics-map")
    page.keyboard.press("ArrowRight")
    assert chosen(page) == order[0]
    page.keyboard.press("ArrowLeft")
    assert chosen(page) == order[3]
    page.get_by_label("Previous topic").press("Enter")
    assert chosen(page) == order[2]
    assert problems == []
    page.close()


def test_words_are_ranked_by_relevance(folder: Path, browser: Any) -> None:
    """At both ends of the slider, by the formula of Sievert and Shirley."""
    page, problems = opened(browser, folder / "run.html")
    model = open_model(folder / "run")
    counts = np.zeros((model.vocabulary_size, model.topics))
    counts[np.repeat(np.arange(len(counts)), np.diff(model.words.offsets)), model.words.topics] = model.words.counts
    k, vocabulary = chosen(page), np.array(model.vocabulary())
    phi = (counts[:, k] + model.beta) / (model.topic_counts[k] + len(counts) * model.beta)
    own = np.flatnonzero(counts[:, k])
    for level, presses in ((0.0, "Home"), (1.0, "End")):
        page.focus("#lambda")
        page.keyboard.press(presses)
        lifts = np.log(phi) - (1 - level) * np.log(counts.sum(axis=1) / counts.sum())
        expected = own[np.argsort(-lifts[own], kind="stable")]
        shown = page.locator("#topic-words button").all_inner_texts()
        np.testing.assert_allclose(
            lifts[[vocabulary.tolist().index(word) for word in shown]], lifts[expected], atol=1e-6
        )
    assert problems == []
    page.close()


def test_a_word_is_searched(folder: Path, browser: Any) -> None:
    """Found by a part of it, with the topics that have it; a number is a topic; what is not there is said."""
    page, problems = opened(browser, folder / "run.html")
    page.get_by_label("Find a word").focus()
    page.keyboard.type("plan")
    assert page.locator("#found button").all_inner_texts() == ["planet"]
    page.keyboard.press("Enter")
    told = page.inner_text("#found")
    assert "“planet”" in told
    assert "100%" in told
    number = int(re.search(r"in topics\s+(\d+)", told)[1])
    page.locator("#found button").first.click()
    assert chosen(page) == number
    assert {"planet", "star"} <= set(page.locator("#topic-words button").all_inner_texts())
    page.get_by_label("Find a word").fill("2")
    page.keyboard.press("Enter")
    assert chosen(page) == 2
    page.get_by_label("Find a word").fill("zebra")
    assert "“zebra” is not a top word of any topic" in page.inner_text("#found")
    page.get_by_label("Find a word").fill("<img")
    assert page.locator("#found button").all_inner_texts() == [MARKUP]
    assert page.locator("img").count() == 0
    assert problems == []
    page.close()


def test_everything_is_reached_with_the_tab_key(folder: Path, browser: Any) -> None:
    """In the order of the page, and what has the focus shows it."""
    page, _ = opened(browser, folder / "run.html")
    wanted = ["word", "lambda", "topics-map", "previous", "next", "against"]
    reached = []
    for _ in range(300):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or page.evaluate("document.activeElement === document.body")
        if reached[-1] == wanted[-1]:
            break
    assert [name for name in reached if name in wanted] == wanted
    page.close()


def test_items_of_a_factorization(folder: Path, browser: Any) -> None:
    page, problems = opened(browser, folder / "factors.html")
    page.get_by_label("Find an item").fill("FILM 7 ")
    assert page.locator("#items-table tr:visible button").all_inner_texts() == ["film 7 & co"]
    page.keyboard.press("Enter")
    assert page.inner_text("#item-title") == "film 7 & co"
    assert page.locator("#item-alike .bar").count() == 10
    before = page.inner_html("#training-objective-rmse")
    page.get_by_label("Horizontal axis of the curves").select_option("elapsed_s")
    page.wait_for_function(
        "before => document.getElementById('training-objective-rmse').innerHTML !== before", arg=before
    )
    assert problems == []
    page.close()


def test_coefficients_of_a_regression(folder: Path, browser: Any) -> None:
    """Those of the lambda on the slider, the largest first; a run of one lambda has no slider."""
    model = RegressionModel(folder / "path" / "model")
    page, problems = opened(browser, folder / "path.html")
    page.locator("#level").press("End")
    found = model.coefficients(float(model.arrays["lambdas"][-1]))
    names = np.array(model.column_names())[found.columns][np.argsort(-np.abs(found.values))].tolist()
    assert page.locator("#coefficients li > span:first-child").all_inner_texts() == names
    assert names[:2] == ["a <b>", "b"]
    assert page.locator("#coefficients .below").count() == (found.values < 0).sum()
    page.locator("#level").press("Home")
    assert page.inner_text("#level-size").startswith("0 nonzero coefficients")
    assert problems == []
    page.close()
    page, problems = opened(browser, folder / "level.html")
    assert page.locator("input").count() == 0
    assert page.inner_text("#coefficients").splitlines()[0] == "a <b>"
    assert problems == []
    page.close()


def test_weights_of_classes(folder: Path, browser: Any) -> None:
    """Those of the class on the slider, the largest first; the column that tells a class speaks for it."""
    page, problems = opened(browser, folder / "classes.html")
    weights = SoftmaxModel(folder / "classes" / "model").arrays["weights"]
    assert page.inner_text("#label-told") == "0"
    for label in range(3):
        listed = page.locator("#weights li > span:first-child").all_inner_texts()
        assert listed[0] == f"column {1 + label}"
        assert len(listed) == np.count_nonzero((weights - weights.mean(axis=0))[label])
        page.locator("#label").press("ArrowRight")
    assert page.inner_text("#label-title") == "Weights of class 2"
    assert problems == []
    page.close()


@pytest.mark.long
def test_chains_are_drawn_together(folder: Path, browser: Any) -> None:
    page, problems = opened(browser, folder / "chains.html")
    legend = page.locator("#training-objective-log_likelihood_per_token .role-legend").text_content()
    assert "chain-1" in legend
    assert "chain-2" in legend
    assert problems == []
    page.close()


@pytest.mark.long
def test_a_run_without_a_model_has_its_curves(folder: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """As it was killed, with a torn line, and one of a training that diverged; without any line it is refused, and
    nothing is written."""
    unfinished = folder / "unfinished"
    unfinished.mkdir()
    run = Run(folder / "run")
    (unfinished / "config.json").write_text(json.dumps(run.config))
    refused = ooc_in(folder)("report", "unfinished")
    assert refused.returncode == 2
    assert "no finished iteration yet" in refused.stderr
    assert not (folder / "unfinished.html").exists()
    text = (run.path / "metrics.jsonl").read_text()
    cut = text[: len(text) * 2 // 3].replace('"changed_fraction": 0.', '"changed_fraction": NaN, "x": 0.', 1)
    assert "NaN" in cut
    (unfinished / "metrics.jsonl").write_text(cut)
    done = ooc_in(folder)("report", "unfinished", "-o", "part.html", "--json")
    assert done.returncode == 0, done.stderr
    page = (folder / "part.html").read_text()
    assert json.loads(done.stdout) == {"path": "part.html", "bytes": (folder / "part.html").stat().st_size}
    assert 'id="training"' in page
    assert 'id="topics"' not in page
    again = ooc_in(folder)("report", "unfinished", "-o", "part.html")
    assert again.returncode == 2
    assert "already exists" in again.stderr


@pytest.mark.long
@pytest.mark.parametrize("missing", long_but(["vl_convert"], ["jinja2", "vl_convert"]))
def test_a_missing_library_is_named(folder: Path, missing: str) -> None:
    script = f"""
import sys
sys.modules[{missing!r}] = None
from ooc.cli.app import run
sys.argv[1:] = ["report", "run", "-o", "x.html"]
run()
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'ooc[report]'" in done.stderr
    assert not (folder / "x.html").exists()
