"""Rankings of words, correlations and the hierarchy of topics, and views of a model."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.cluster.hierarchy
import scipy.spatial.distance
import scipy.stats
from commands import Ooc

from samplers import LatentDirichletAllocation
from samplers.models import open_model
from samplers.topics import frex
from samplers.topics.hierarchy import average_linkage, dendrogram_layout
from samplers.topics.labels import labels_of, set_labels
from samplers.topics.model import SavedTopicModel, write_topic_model
from samplers.topics.model_view import write_view
from tests.topic_models import dense, random_model


@pytest.mark.parametrize("entries", [1 << 21, 7])
def test_words_are_ranked_by_formulas(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As stm's calcfrex without shrinkage, over the dense probabilities; also a few entries at a time."""
    monkeypatch.setattr(frex, "_ENTRIES", entries)
    model = random_model(topics=6, words=80)
    counts = dense(model.words, model.topics)
    phi = (counts + model.beta) / (counts.sum(axis=0) + model.beta * len(counts))
    share = counts.sum(axis=1) / counts.sum()
    exclusivity = phi / phi.sum(axis=1, keepdims=True)
    ranks = [scipy.stats.rankdata(each, axis=0) / len(counts) for each in (phi, exclusivity)]
    with np.errstate(divide="ignore"):
        expected = {"frex": 1 / (0.5 / ranks[0] + 0.5 / ranks[1]), "lift": phi / share[:, None]}
        tokens = np.maximum(counts.sum(axis=1, keepdims=True), 1)
        expected["c-tf-idf"] = counts / counts.sum(axis=0) * np.log(1 + counts.sum() / model.topics / tokens)
    for ranking, values in expected.items():
        words, found, scores = frex.ranked_words(model, ranking, 12)
        for k in range(model.topics):
            there = np.where(counts[:, k] > 0, values[:, k], -np.inf)
            best = np.sort(there)[::-1][:12]
            size = int(np.isfinite(best).sum())
            np.testing.assert_allclose(scores[k, :size], best[:size], rtol=1e-9)
            np.testing.assert_allclose(there[words[k, :size]], best[:size], rtol=1e-9)
            np.testing.assert_array_equal(found[k, :size], counts[words[k, :size], k])
            assert (words[k, size:] == -1).all()


def test_the_hierarchy_is_that_of_scipy() -> None:
    points = np.random.default_rng(3).normal(size=(23, 4))
    distances = scipy.spatial.distance.pdist(points)
    expected = scipy.cluster.hierarchy.linkage(distances, "average")
    joined = average_linkage(scipy.spatial.distance.squareform(distances))
    np.testing.assert_allclose(joined, expected, rtol=1e-9)
    tree = dendrogram_layout(joined)
    assert sorted(tree.order.tolist()) == list(range(23))
    ends = tree.lines[tree.lines[:, 1] == tree.lines[:, 3]]  # each cluster ends where it is joined
    assert len(ends) == 2 * len(joined)
    np.testing.assert_allclose(np.sort(ends[:, 2]), np.repeat(np.sort(expected[:, 2]), 2))


@pytest.fixture
def model(tmp_path: Path) -> SavedTopicModel:
    """A model of a directory, two topics of which have labels."""
    (tmp_path / "model").mkdir()
    write_topic_model(tmp_path / "model", random_model(topics=6))
    model = SavedTopicModel(tmp_path / "model")
    set_labels(model, {1: "one", 3: "three"})
    return model


def test_topics_are_written_as_a_table_that_labels_are_read_from(
    model: SavedTopicModel, ooc_in: Callable[[Path], Ooc], tmp_path: Path
) -> None:
    ooc = ooc_in(tmp_path)
    shown = ooc("topics", "model", "--rank-words-by", "frex", "--correlated", 2, "--top", 3, "--json")
    assert shown.returncode == 0, shown.stderr
    shares = dense(model.documents, 6)
    shares = shares[shares.sum(axis=1) > 0]
    correlations = np.corrcoef(shares / shares.sum(axis=1, keepdims=True), rowvar=False)
    np.fill_diagonal(correlations, 0.0)
    for topic in json.loads(shown.stdout):
        row = correlations[topic["topic"]]
        best = [k for k in np.argsort(-row)[:2] if row[k] > 0]
        assert [each["topic"] for each in topic["correlated"]] == best
        assert [each["correlation"] for each in topic["correlated"]] == pytest.approx(row[best].tolist())
    done = ooc("topics", "model", "--rank-words-by", "frex", "--top", 3, "--csv", "topics.csv")
    assert (done.returncode, done.stdout) == (0, "topics.csv: 6 topics\n"), done.stderr
    piped = ooc("topics", "model", "--rank-words-by", "frex", "--top", 3, "--csv", "-")
    assert piped.stdout == (tmp_path / "topics.csv").read_text()
    with (tmp_path / "topics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["words"].split(", ") for row in rows] == [
        [word["word"] for word in topic["words"]] for topic in json.loads(shown.stdout)
    ]
    with (tmp_path / "topics.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(row | {"label": f"label {row['topic']}"} for row in rows)
    assert ooc("label", "model", "--from", "topics.csv").returncode == 0
    assert labels_of(model) == {k: f"label {k}" for k in range(6)}


def test_automatic_labels_are_the_most_characteristic_words(tmp_path: Path, ooc: Ooc) -> None:
    """An n-gram and its parts are not repeated, and labels that a user gave stay."""
    cities = ["new york harbour bridge taxi", "new york taxi harbour bridge"] * 20
    farms = ["barley tractor meadow cattle", "cattle meadow barley tractor"] * 20
    (tmp_path / "texts.txt").write_text("\n".join([*cities, *farms]))
    assert ooc("ingest", "text", "--lines", "texts.txt", "corpus", "--ngrams", 2, "--min-df", 30).returncode == 0
    assert ooc("train", "lda", "corpus", "run", "--topics", 2, "--iterations", 30, "--workers", 1).returncode == 0
    done = ooc("label", "run", "--automatic")
    assert (done.returncode, done.stdout) == (0, "run: 2 of 2 topics have a label\n"), done.stderr
    labels = [set(re.findall(r"\w+", label)) for label in labels_of(open_model(tmp_path / "run")).values()]
    assert sorted(labels, key=len)[0] <= {"barley", "tractor", "meadow", "cattle"}
    assert sorted(labels, key=len)[1] <= {"new", "york", "harbour", "bridge", "taxi"}
    assert ooc("label", "run", 0, "mine").returncode == 0
    assert ooc("label", "run", "--automatic").returncode == 0
    assert labels_of(open_model(tmp_path / "run"))[0] == "mine"


def test_a_view_has_the_sums_of_its_topics(model: SavedTopicModel, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in model.path.iterdir()}
    view = write_view(model, tmp_path / "view", merged=[[5, 1], [0, 3]], hidden=[2], sort="size")
    assert {path.name: path.read_bytes() for path in model.path.iterdir()} == before
    groups = [[1, 5], [0, 3], [4]]
    groups.sort(key=lambda group: -model.topic_counts[group].sum())
    groups.append([2])
    for old, new in ((model.words, view.words), (model.documents, view.documents)):
        expected = np.stack([dense(old, 6)[:, group].sum(axis=1) for group in groups], axis=1)
        np.testing.assert_array_equal(dense(new, 4), expected)
    np.testing.assert_allclose(view.alpha, [model.alpha[group].sum() for group in groups])
    shares = model.document_shares()
    np.testing.assert_allclose(
        view.document_shares(), np.stack([shares[:, group].sum(axis=1) for group in groups], axis=1)
    )
    labels = labels_of(view)
    assert [labels.get(k) for k in range(4)] == [
        {(1, 5): "one", (0, 3): "three", (4,): None, (2,): "hidden topics"}[tuple(group)] for group in groups
    ]
    assert view.dataset == model.dataset


def test_views_of_unknown_topics_are_refused(
    model: SavedTopicModel, ooc_in: Callable[[Path], Ooc], tmp_path: Path
) -> None:
    ooc = ooc_in(tmp_path)
    for options, said in (
        (["--merge", "1,9"], "ooc: there is no topic 9\nTopics have numbers from 0 to 5.\n"),
        (
            ["--merge", "1,2", "--hide", "2"],
            "ooc: topic 2 would appear twice\nName each topic once in --merge and --hide.\n",
        ),
        (["--merge", "1;2"], "ooc: --merge: '1;2' is not a list of topics\nFor example: --merge 3,7\n"),
    ):
        done = ooc("view", "model", "out", *options)
        assert (done.returncode, done.stderr) == (2, said)
        assert not (tmp_path / "out").exists()
    done = ooc("view", "model", "out", "--merge", "0,1", "--hide", "2,3")
    assert (done.returncode, done.stdout) == (
        0,
        "out: 4 topics, made from 6 of model\nSee the topics with: ooc topics out\n",
    ), done.stderr
    done = ooc("topics", "out", "--top", 1)
    assert "hidden topics: " in done.stdout


def test_an_estimator_shows_and_writes_its_topics(tmp_path: Path) -> None:
    texts = ["court judge trial"] * 30 + ["nest wing song"] * 30
    model = LatentDirichletAllocation(2, max_iter=20, random_state=0)
    assert model._repr_html_() == "<pre>LatentDirichletAllocation(max_iter=20, n_components=2, random_state=0)</pre>"
    model.fit(texts)
    table = model.topics(3, ranking="frex")
    assert list(table.columns) == ["topic", "tokens", "share", "live", "words"]
    assert {frozenset(words.split(", ")) for words in table["words"]} == {
        frozenset(("court", "judge", "trial")),
        frozenset(("nest", "wing", "song")),
    }
    assert "<td>50.00%</td>" in model._repr_html_()
    model.report(tmp_path / "report.html", ["A"] * 30 + ["B"] * 30)
    page = (tmp_path / "report.html").read_text()
    assert all(f'<section id="{name}"' in page for name in ("topics", "comparison", "training", "made"))
    model.export(tmp_path / "model.npz")
    assert np.load(tmp_path / "model.npz")["topic_tokens"].sum() == 180
    model.save(tmp_path / "saved")
    again = LatentDirichletAllocation.from_run(tmp_path / "saved")
    np.testing.assert_array_equal(again.components_, model.components_)
    np.testing.assert_array_equal(again.doc_topic_, model.doc_topic_)
    effects = model.regress({"group": ["A"] * 30 + ["B"] * 30})
    assert effects.terms == ["(intercept)", "group: B"]
