"""Prevalence of topics by group, documents of a topic, and labels, against computations by numpy alone."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import scipy.stats
from commands import Ooc

from blocks import RequestError
from ooc import LatentDirichletAllocation
from samplers.models import open_model
from samplers.report.page import write_report
from samplers.topics.excerpts import TopicWordMarker, plain_excerpt
from samplers.topics.group_comparison import compare_groups
from samplers.topics.model import TopicCountRows, TopicModel
from samplers.topics.prevalence import benjamini_hochberg
from samplers.topics.student_t import quantile, two_sided

THEMES = [["apple", "pear", "plum", "fruit"], ["goal", "team", "ball", "match"], ["star", "moon", "sun", "orbit"]]
MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(made_once: Callable[[str, Callable[[Path], None]], Path], ooc_in: Callable[[Path], Ooc]) -> Path:
    return made_once("comparison", lambda folder: make_run(folder, ooc_in(folder)))


def make_run(folder: Path, ooc: Ooc) -> None:
    """A run on 300 documents, whose theme moves with the year, and a dataset of the same with other columns."""
    rng = np.random.default_rng(5)
    lines = []
    for number in range(300):
        year = 2010 + number % 4
        words = [rng.choice(THEMES[rng.choice(3, p=themes_of(year))]) for _ in range(rng.integers(3, 15))]
        line = {"id": f"d{number}", "text": " ".join(words) + f" {MARKUP}", "date": f"{year}-06-30"}
        lines.append(line | {"group": None if number % 10 == 9 else ["x", "y", "z"][number % 3], "text2": "t"})
    lines[7]["text"] = "7"  # without a word
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, columns in (("data", "text,date,group"), ("plain", "text2")):
        done = ooc("ingest", "jsonl", "in.jsonl", name, "--keep", columns, "--stop-words", "none", "--max-vocab", 12)
        assert done.returncode == 0, done.stderr
    done = ooc("train", "lda", "data", "run", "--topics", 3, "--iterations", 30, "--optimize-every", 10, "--workers", 1)
    assert done.returncode == 0, done.stderr


def themes_of(year: int) -> list[float]:
    first = 0.1 + 0.2 * (year - 2010)
    return [first, (1 - first) / 2, (1 - first) / 2]


def read_lines(folder: Path) -> list[dict[str, Any]]:
    return list(map(json.loads, (folder / "in.jsonl").read_text().splitlines()))


def mixtures_of(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Trained mixtures (D, K) and tokens (D,), from the arrays of the model."""
    model = open_model(folder / "run")
    counts = np.zeros((300, 3))
    for document in range(300):
        some = slice(model.documents.offsets[document], model.documents.offsets[document + 1])
        counts[document, model.documents.topics[some]] = model.documents.counts[some]
    tokens = counts.sum(axis=1)
    return (counts + model.alpha) / (tokens + model.alpha.sum())[:, None], tokens


def compared(folder: Path, ooc: Ooc, *options: object) -> dict[tuple[int, Any], dict[str, Any]]:
    done = ooc("compare", "run", *options, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return {(topic["topic"], group["group"]): group for topic in told["topics"] for group in topic["groups"]}


def test_prevalence_is_the_mean_share_of_each_group(folder: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """By a column and by the year of a date, and among the documents that a condition leaves."""
    theta, tokens = mixtures_of(folder)
    lines, ooc = read_lines(folder), ooc_in(folder)
    years = np.array([int(line["date"][:4]) for line in lines])
    groups = np.array([str(line["group"]) for line in lines])
    for options, labels, chosen in (
        (("--by", "group"), groups, (groups != "None")),
        (("--by", "year(date)"), years, np.full(300, True)),
        (("--by", "year(date)", "--where", "group != 'x'"), years, (groups != "x") & (groups != "None")),
    ):
        found = compared(folder, ooc, *options)
        used = chosen & (tokens > 0)
        assert {group for _, group in found} == set(labels[used].tolist())
        for (topic, group), told in found.items():
            inside, outside = theta[used & (labels == group), topic], theta[used & (labels != group), topic]
            assert told["documents"] == inside.size
            assert told["prevalence"] == pytest.approx(inside.mean(), rel=1e-9)
            assert told["difference"] == pytest.approx(inside.mean() - outside.mean(), abs=1e-9)
    done = ooc("compare", "run", "--by", "group", "--csv", "out.csv", "--overwrite", "--largest", 1)
    assert f"Left out: {(groups == 'None').sum()} documents without a value." in done.stdout
    assert "Left out: 1 document without tokens." in done.stdout
    with (folder / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    assert float(rows[0]["q"]) >= float(rows[0]["p"])


def test_intervals_are_those_of_the_method_of_composition(folder: Path) -> None:
    """Simulated as estimateEffect does: draw mixtures, estimate the mean and its variance, draw an estimate."""
    rng = np.random.default_rng(1)
    model = open_model(folder / "run")
    theta, tokens = mixtures_of(folder)
    mass = model.alpha.sum()
    groups = np.array([None if total == 0 else number % 2 for number, total in enumerate(tokens)], object)
    found = compare_groups(model, groups.tolist(), level=0.9)
    for place, group in enumerate(found.groups):
        of_group = groups == group
        parameters = theta[of_group] * (tokens[of_group] + mass)[:, None]
        draws = rng.standard_gamma(parameters, (4000, *parameters.shape))
        draws /= draws.sum(axis=2, keepdims=True)
        size = parameters.shape[0]
        spread = draws.std(axis=1, ddof=1) / np.sqrt(size)
        estimates = draws.mean(axis=1) + spread * rng.standard_normal(spread.shape)
        error = estimates.std(axis=0)
        margin = scipy.stats.t.ppf(0.95, size - 1) * error
        np.testing.assert_allclose(found.high[place] - found.prevalence[place], margin, rtol=0.06)
        np.testing.assert_allclose(found.prevalence[place] - found.low[place], margin, rtol=0.06)


def test_a_model_of_summed_states_has_the_intervals_of_one(folder: Path) -> None:
    """Three equal states: the sums are three times those of one, the mixtures and intervals the same."""
    one = open_model(folder / "run").in_memory()
    rows = one.documents._replace(counts=one.documents.counts * np.uint32(3))
    three = TopicModel(
        alpha=3 * one.alpha, beta=3 * one.beta, topic_counts=3 * one.topic_counts, words=one.words, documents=rows,
        vocabulary=one.vocabulary(), states=3,
    )  # fmt: skip
    groups = [number % 3 for number in range(300)]
    first, second = compare_groups(one, groups), compare_groups(three, groups)
    for name in ("prevalence", "low", "high", "difference", "difference_low", "p", "q"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-9)


def test_differences_have_the_p_values_of_welch(folder: Path) -> None:
    """Where mixtures are certain, as of long documents: those of scipy's test."""
    rng = np.random.default_rng(2)
    counts = rng.multinomial(10**6, [0.2, 0.3, 0.5], 60) + rng.integers(0, 10**5, (60, 3))
    rows = TopicCountRows(
        np.arange(0, 181, 3), np.tile(np.arange(3, dtype=np.uint8), 60), counts.ravel().astype(np.uint32)
    )
    model = TopicModel(
        alpha=np.full(3, 0.1),
        beta=0.1,
        topic_counts=counts.sum(axis=0),
        words=rows,
        documents=rows,
        vocabulary=[""] * 60,
    )
    groups = ["a"] * 7 + ["b"] * 53
    found = LatentDirichletAllocation(3)._take(model, None).compare(groups)
    theta = counts / counts.sum(axis=1, keepdims=True)
    for topic in range(3):
        expected = scipy.stats.ttest_ind(theta[:7, topic], theta[7:, topic], equal_var=False)
        assert found.p[0, topic] == pytest.approx(expected.pvalue, rel=5e-3)
        interval = expected.confidence_interval(0.95)
        assert (found.difference_low[0, topic], found.difference_high[0, topic]) == pytest.approx(
            tuple(interval), rel=5e-3
        )
    np.testing.assert_allclose(found.q.ravel(), scipy.stats.false_discovery_control(found.p.ravel()), rtol=1e-9)
    with pytest.raises(RequestError, match="a value for each of the 60 training documents"):
        compare_groups(model, groups[1:])


def test_topics_are_regressed_on_several_columns(folder: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """Against the least squares of numpy, and with another condition on the documents."""
    ooc, (theta, tokens), lines = ooc_in(folder), mixtures_of(folder), read_lines(folder)
    years = np.array([int(line["date"][:4]) for line in lines])
    groups = np.array([str(line["group"]) for line in lines])
    used = (tokens > 0) & (groups != "None") & (years > 2010)
    terms = ["--regress", "group + factor(year(date))", "--where", "year(date) > 2010"]
    done = ooc("compare", "run", *terms, "--csv", "effects.csv", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    names = ["(intercept)", "group: y", "group: z", "year(date): 2012", "year(date): 2013"]
    x = np.column_stack((groups == "y", groups == "z", years == 2012, years == 2013))[used]
    expected = np.linalg.lstsq(np.column_stack((np.ones(used.sum()), x)), theta[used], rcond=None)[0]
    assert told["documents"] == used.sum()
    for topic in told["topics"]:
        assert [term["term"] for term in topic["terms"]] == names
        found = [term["estimate"] for term in topic["terms"]]
        np.testing.assert_allclose(found, expected[:, topic["topic"]], rtol=1e-6, atol=1e-9)
    with (folder / "effects.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 15
    for wrong, said in (
        ("group * date", "ooc: --regress 'group * date': group * date is not a term; terms are joined by + only"),
        ("date", "ooc: --regress: date has the type date"),
        ("group + group", "ooc: --regress 'group + group': the term group appears twice"),
        ("year(date) + (", "ooc: --regress 'year(date) + (' is not a formula"),
    ):
        done = ooc("compare", "run", "--regress", wrong)
        assert (done.returncode, done.stderr.splitlines()[0]) == (2, said)


def test_the_t_distribution_is_that_of_scipy() -> None:
    freedom = np.array([1, 1.5, 2, 3.7, 10, 29, 100, 1e4, 1e7])
    for t in (0.0, 1e-3, 0.5, 2.0, 5.0, 12.0):
        np.testing.assert_allclose(
            two_sided(np.full_like(freedom, t), freedom), 2 * scipy.stats.t.sf(t, freedom), rtol=1e-6
        )
    for level in (0.5, 0.95, 0.999):
        np.testing.assert_allclose(quantile(level, freedom), scipy.stats.t.ppf(0.5 + level / 2, freedom), rtol=1e-8)
    assert np.isnan(benjamini_hochberg(np.array([0.1, np.nan]))).tolist() == [False, True]


def test_documents_are_those_with_the_largest_shares(folder: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    theta, tokens = mixtures_of(folder)
    lines, ooc = read_lines(folder), ooc_in(folder)
    of_year = np.array([line["date"].startswith("2011") for line in lines]) & (tokens > 0)
    done = ooc("documents", "run", "--topic", 1, "--where", "year(date) == 2011", "--number", 5, "--json")
    found = json.loads(done.stdout)["documents"]
    best = [row for row in np.argsort(-theta[:, 1], kind="stable").tolist() if of_year[row]][:5]
    assert [each["document"] for each in found] == best
    assert [each["weight"] for each in found] == pytest.approx(theta[best, 1].tolist())
    for each in found:
        line = lines[each["document"]]
        assert each["columns"] == {"date": line["date"], "group": line["group"]}
        assert each["text"].replace("*", "") == line["text"]
    assert "*" in found[0]["text"]
    assert (
        json.loads(ooc("documents", "run", "--topic", 1, "--width", 0, "--json").stdout)["documents"][0]
        .keys()
        .isdisjoint({"text"})
    )
    for command, said in (
        ("documents run --topic 3", "there is no topic 3"),
        ("documents run --topic 1 --where x>1", "there is no column 'x'"),
        ("compare run --by text2", "there is no column 'text2'"),
        ("compare run --by text2 --data nowhere", "nowhere, the dataset of run/model, does not exist"),
        ("compare run --by date --level 2", "--level must be above 0"),
    ):
        done = ooc(*command.split())
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert ooc("compare", "run", "--by", "text2", "--data", "plain").returncode == 0  # the same documents


def test_labels_and_texts_are_shown(folder: Path, tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """By every command that names topics; names, texts and labels are escaped in the page."""
    ooc = ooc_in(folder)
    (folder / "labels.csv").write_text("topic,label\n1,<b>law</b>\n2,skies\n")
    assert "2 of 3 topics" in ooc("label", "run", "--from", "labels.csv").stdout
    assert ooc("label", "run", 2, "").returncode == 0
    assert json.loads(ooc("label", "run", "--json").stdout) == {"1": "<b>law</b>"}
    assert ooc("label", "run", 3, "x").returncode == 2
    assert "<b>law</b>: " in ooc("topics", "run").stdout
    assert "topic 1: <b>law</b>" in ooc("compare", "run", "--by", "group").stdout
    assert "topic 1: <b>law</b>" in ooc("documents", "run", "--topic", 1).stdout
    shown = json.loads(ooc("topics", "run", "--documents", 2, "--json").stdout)[0]["documents"][0]
    assert shown["text"].replace("*", "") == read_lines(folder)[shown["document"]]["text"]
    assert ooc("infer", "run", "data", "out.csv", "--overwrite").returncode == 0
    for suffix in ("jsonl", "npz", "parquet"):
        assert ooc("export", "run", f"out.{suffix}", "--format", "mixtures", "--overwrite").returncode == 0
    lines = read_lines(folder)
    columns = [(line["date"], line["group"]) for line in lines]
    with (folder / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["name", "tokens", "date", "group", "topic_0", "topic_1 (<b>law</b>)", "topic_2"]
    assert [(row["date"], row["group"] or None) for row in rows] == columns
    objects = list(map(json.loads, (folder / "out.jsonl").read_text().splitlines()))
    assert [(row["date"], row["group"]) for row in objects] == columns
    table = pyarrow.parquet.read_table(folder / "out.parquet").to_pydict()
    assert list(zip(map(str, table["date"]), table["group"], strict=True)) == columns
    arrays = np.load(folder / "out.npz")
    assert arrays["date"].tolist() == [line["date"] for line in lines]
    assert arrays["labels"].tolist() == ["", "<b>law</b>", ""]
    write_report(folder / "run", tmp_path / "report.html", by="year(date)")
    page = (tmp_path / "report.html").read_text()
    assert MARKUP not in page
    assert "<b>law" not in page
    assert '"title":"Topics by year' not in page
    assert "Topics by year(date)" in page


def test_columns_are_written_with_their_values(tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """All digits of numbers, and names that are those of other columns; told if the dataset is gone."""
    ooc = ooc_in(tmp_path)
    values = {"tokens": 1.0001234567, "column_tokens": 7, "bad": "a line\n  99.9%  another"}
    rows = [{"text": "plum pear"} | values | {"many": f"v{number}"} for number in range(1100)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert ooc("ingest", "jsonl", "in.jsonl", "data", "--keep", "all").returncode == 0
    train = ("train", "lda", "data", "run", "--topics", 2, "--iterations", 2, "--workers", 1)
    assert ooc(*train).returncode == 0
    for suffix in ("csv", "jsonl"):
        assert ooc("export", "run", f"out.{suffix}", "--format", "mixtures").returncode == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
    assert (first["column_column_tokens"], first["column_tokens"]) == ("1.0001234567", "7")
    line = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert (line["column_column_tokens"], line["column_tokens"]) == (1.0001234567, 7)
    assert "\n  99.9%  another" not in ooc("documents", "run", "--topic", 0).stdout
    chosen = ooc("compare", "run", "--by", "many", "--where", "many in ('v1', 'v1099')", "--json")
    assert [each["group"] for each in json.loads(chosen.stdout)["groups"]] == ["v1", "v1099"]
    assert "more than 1,000 different values" in ooc("compare", "run", "--by", "many").stderr
    (tmp_path / "data").rename(tmp_path / "moved")
    done = ooc("export", "run", "out.csv", "--format", "mixtures", "--overwrite")
    assert (done.returncode, "columns of documents are left out" in done.stderr) == (0, True)
    done = ooc("export", "run", "out.csv", "--format", "mixtures", "--overwrite", "--data", "moved")
    assert (done.returncode, done.stderr) == (0, "")
    with (tmp_path / "out.csv").open(newline="") as file:
        assert next(csv.DictReader(file)) == first


def test_words_are_marked_where_they_stand() -> None:
    marker = TopicWordMarker(["machine_learning", "c++", "law"], {"lower": True})
    assert (
        plain_excerpt(marker.excerpt("Machine\nLearning law-like Lawless C++ code", 99))
        == "*Machine Learning* *law*-like Lawless *C++* code"
    )
    long = "word " * 100 + "the law of law " + "word " * 100
    cut = plain_excerpt(marker.excerpt(long, 60))
    assert cut.startswith("… ")
    assert cut.endswith(" …")
    assert cut.count("*law*") == 2
    assert len(cut) < 75
    assert plain_excerpt(TopicWordMarker(["法律"], {"segment": "chinese"}).excerpt("新法律案", 9)) == "新*法律*案"
    assert plain_excerpt(TopicWordMarker([], {}).excerpt("a text", 9)) == "a text"
