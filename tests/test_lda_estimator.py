"""The topic model's estimator: every form of documents is the same data, and the model that of the command line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from blocks import Dataset, RequestError, ingest_documents
from blocks.corpus.stop_words import read_stop_words
from blocks.corpus.tokenization_rules import TokenizationRules
from samplers import LatentDirichletAllocation
from samplers.estimators.word_counts import read_documents
from samplers.lda.training import train_lda
from samplers.models import open_model
from samplers.topics.inference import evaluate, infer

SUBJECTS = (["goal", "match", "team", "coach", "league"], ["court", "law", "judge", "trial", "jury"])
RANDOM = np.random.default_rng(3)
TOKENS = [RANDOM.choice(SUBJECTS[number % 2], 12).tolist() for number in range(80)]
WORDS = sorted(SUBJECTS[0] + SUBJECTS[1])
COUNTS = np.array([[tokens.count(word) for word in WORDS] for tokens in TOKENS])
TEXTS = [" ".join(tokens).capitalize() + ". The end" for tokens in TOKENS]

ENGLISH = TokenizationRules(stop_words=read_stop_words("english"))

FORMS: dict[str, Callable[[], Any]] = {
    "tokens": lambda: [tuple(tokens) for tokens in TOKENS],
    "a generator of tokens": lambda: (tokens for tokens in TOKENS),
    "a column of tokens (pandas)": lambda: pd.Series(TOKENS),
    "a column of tokens (polars)": lambda: pl.Series(TOKENS),
    "an array of counts": lambda: COUNTS,
    "numbers in lists": COUNTS.tolist,
    "csr": lambda: sparse.csr_array(COUNTS),
    "coo, in two halves": lambda: sparse.coo_array(
        (np.ones(COUNTS.sum()), np.repeat(np.nonzero(COUNTS), COUNTS[COUNTS > 0], axis=1)), COUNTS.shape
    ),
    "a data frame (pandas)": lambda: pd.DataFrame(COUNTS, columns=WORDS),
    "a data frame (polars)": lambda: pl.DataFrame(COUNTS, schema=WORDS),
    "a column of tokens (pyarrow)": lambda: pa.chunked_array([TOKENS[:7], TOKENS[7:]]),
    "a table (pyarrow)": lambda: pa.table(dict(zip(WORDS, COUNTS.T, strict=True))),
}


def bags(documents: Any) -> list[list[int]]:
    found = [sorted(documents.tokens(number, number + 1).tolist()) for number in range(documents.offsets.size - 1)]
    assert [len(bag) for bag in found] == np.diff(documents.offsets).tolist()
    return found


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_documents_is_the_same_data(form: str) -> None:
    found = read_documents(FORMS[form](), ENGLISH)
    assert bags(found) == bags(read_documents(COUNTS, TokenizationRules()))
    assert found.size == len(WORDS)
    if found.names is not None:
        assert list(found.names) == WORDS


@pytest.mark.parametrize(
    "texts", [TEXTS, iter(TEXTS), pd.Series(TEXTS), pl.Series(TEXTS), pa.array(TEXTS), np.array(TEXTS)]
)
def test_texts_are_split_as_an_ingestion_does(texts: Any) -> None:
    """In lower case, without stop words; "end" is a word, "the" is none."""
    found = read_documents(texts, ENGLISH)
    assert found.names == sorted([*WORDS, "end"])
    assert found.words.size == COUNTS.sum() + len(TEXTS)
    assert "the" in read_documents(TEXTS, TokenizationRules()).names  # type: ignore[operator]
    assert "goal" not in read_documents(TEXTS, TokenizationRules(stop_words=("goal",))).names  # type: ignore[operator]
    known = read_documents(["Judge the unheard-of goal"], ENGLISH, vocabulary=WORDS)
    assert [WORDS[word] for word in known.words] == ["judge", "goal"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (COUNTS / 2, r"X must be word counts \(whole numbers\), got [0-9.]+"),
        (-COUNTS, "Negative values"),
        (np.where(COUNTS > 0, np.nan, 0), "NaN"),
        ([["a"], 3], r"document 1 \(counted from 0\) must be a text or a list of tokens, got 3"),
        (["a", None], r"document 1 \(counted from 0\) must be .*, got None"),
        (["the of and"], "no tokens"),
        (COUNTS[0], "Reshape your data"),
        (
            pd.DataFrame({"text": TEXTS}),
            r"texts in the column 'text'; expected a single column\nPass only that column: X\['text'\]",
        ),
        (
            pl.DataFrame({"n": [1] * 80, "text": TEXTS}),
            r"texts in the column 'text'; expected a single column\nPass only that column",
        ),
        (
            pd.DataFrame({"text": TEXTS}).to_numpy(),
            r"X is an array of strings of shape \(80, 1\); expected a one-dimensional array.*\nPass X\[:, 0\]",
        ),
        (
            np.array(TOKENS),
            r"X is an array of strings of shape \(80, 12\); expected a one-dim.*\nIf each row is a list of tokens",
        ),
        ([], r"X must contain documents, got empty\nPass a matrix of word counts, or a list of texts"),
        (iter([]), "X is empty"),
        (np.array([], object), "X is empty"),
        (None, "X must contain documents, got None"),
        (TEXTS[0], r"X is the string 'League.*no dataset exists at this path.*\nPass .* list of texts .*, or the path"),
        (" ".join(TEXTS), "X is the string .*no dataset exists at this path"),  # longer than a file name: OSError
        ("", "X is the string ''"),
        (dict(enumerate(TEXTS)), "X must contain documents, got the dict"),
        (TEXTS[0].encode(), "X must contain documents, got the bytes"),
        ([text.encode() for text in TEXTS], r"document 0 \(counted from 0\) must be .*, got b'"),
        ([float("nan"), *TEXTS], r"document 0 \(counted from 0\) must be .*, got nan"),
        ([[], []], "X has no tokens: no word of its"),
        (np.zeros((3, 3)), "X has no tokens: all counts are 0"),
        (
            [["New\nYork", "goal"]],
            r"document 0 \(counted from 0\) has the token 'New\\nYork', which contains a line break",
        ),
        (pd.DataFrame(COUNTS, columns=["New\nYork", *WORDS[1:]]), r"column named 'New\\nYork'"),
    ],
)
def test_what_is_no_document_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        LatentDirichletAllocation(3).fit(wrong)


def test_what_is_no_document_is_refused_by_all_that_take_documents() -> None:
    model = LatentDirichletAllocation(2, max_iter=2, random_state=0).fit(TOKENS)
    for method in (model.transform, model.score, model.perplexity):
        for wrong, said in (
            ([], "X must contain documents, got empty"),
            (None, "X must contain documents, got None"),
            (TEXTS[0], "X is the string"),
        ):
            with pytest.raises(RequestError, match=said):
                method(wrong)


def test_texts_for_a_model_of_counts_are_refused() -> None:
    """Texts of as many different words as the matrix had columns were taken for its columns."""
    model = LatentDirichletAllocation(2, max_iter=2, random_state=0).fit(COUNTS)
    for documents in (TOKENS, [" ".join(tokens) for tokens in TOKENS]):
        with pytest.raises(
            RequestError, match=r"X contains texts.*counts without word names\nPass counts with the same"
        ):
            model.transform(documents)
    named = LatentDirichletAllocation(2, max_iter=2, random_state=0).fit(pd.DataFrame(COUNTS, columns=WORDS))
    assert named.transform(TOKENS).shape == (80, 2)


def test_counts_of_other_words_for_a_model_of_texts_are_refused() -> None:
    model = LatentDirichletAllocation(2, max_iter=2, random_state=0).fit(TOKENS)
    said = r"X has 9 features.*expecting 10.*\nPass texts.*column for each word of vocabulary_"
    with pytest.raises(RequestError, match=said), pytest.warns(UserWarning, match="valid feature names"):
        model.transform(COUNTS[:, 1:])
    np.testing.assert_array_equal(model.transform([[], ["goal"]])[:1], model.transform([[]]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a dataset of the same documents, by the functions behind the command line."""
    path = tmp_path_factory.mktemp("lda")
    ingest_documents(TOKENS, path / "data")
    train_lda(path / "data", path / "run", topics=2, iterations=20, workers=1, quiet=True)
    return path / "run"


@pytest.fixture(scope="module")
def fitted() -> LatentDirichletAllocation:
    return LatentDirichletAllocation(2, max_iter=20, random_state=0).fit(TOKENS)


def test_the_model_is_that_of_the_command_line(run: Path, fitted: LatentDirichletAllocation) -> None:
    """From memory, from a dataset, or of a run that is opened: the same counts, whatever the workers."""
    model = open_model(run)
    for estimator in (
        fitted,
        LatentDirichletAllocation(2, max_iter=20, random_state=0, n_jobs=1).fit(run.parent / "data"),
        LatentDirichletAllocation.from_run(run),
    ):
        for name in ("offsets", "topics", "counts"):
            np.testing.assert_array_equal(getattr(estimator.model_.words, name), getattr(model.words, name))
            np.testing.assert_array_equal(getattr(estimator.model_.documents, name), getattr(model.documents, name))
        assert estimator.vocabulary_.tolist() == estimator.feature_names_in_.tolist() == WORDS
        assert estimator.n_features_in_ == len(WORDS)


def test_what_is_learnt_is_what_the_counts_say(fitted: LatentDirichletAllocation) -> None:
    phi, theta = fitted.topic_word_, fitted.doc_topic_
    np.testing.assert_allclose(phi.sum(axis=1), 1)
    np.testing.assert_allclose(theta.sum(axis=1), 1)
    np.testing.assert_allclose(fitted.components_ / fitted.components_.sum(axis=1, keepdims=True), phi)
    np.testing.assert_allclose(fitted.components_.sum(), COUNTS.sum() + 2 * len(WORDS) * 0.05, rtol=1e-6)
    sport = int(phi[:, WORDS.index("goal")].argmax())
    assert set(np.argsort(-phi[sport])[:5]) == {WORDS.index(word) for word in SUBJECTS[0]}
    assert (theta[::2, sport] > 0.9).all()
    assert (theta[1::2, sport] < 0.1).all()


def test_mixtures_and_scores_are_those_of_the_command_line(run: Path, tmp_path: Path) -> None:
    model, dataset = open_model(run), Dataset(run.parent / "data")
    estimator = LatentDirichletAllocation.from_run(run)
    expected = infer(model, dataset, tmp_path, workers=1)["mixtures"]
    for documents in (TOKENS, COUNTS.tolist(), pd.DataFrame(COUNTS, columns=WORDS), dataset.path):
        if not isinstance(documents, list) or documents is TOKENS:
            np.testing.assert_allclose(estimator.transform(documents), expected, rtol=1e-5)
    told = evaluate(model, dataset, workers=1, quiet=True)
    assert estimator.score(dataset.path) == told["predictive_log_likelihood_per_token"]
    assert estimator.perplexity(dataset.path) == told["perplexity"]
    assert estimator.score(TOKENS) == pytest.approx(estimator.score(dataset.path), abs=0.1)  # other words are hidden


def test_new_documents_may_have_unknown_words_but_no_other_columns(
    fitted: LatentDirichletAllocation, tmp_path: Path
) -> None:
    mixtures = fitted.transform(["Goal! A goal for the unheard-of", "nothing known", "judge and jury"])
    assert mixtures[0].argmax() != mixtures[2].argmax()
    np.testing.assert_allclose(mixtures[1], 0.5)
    narrower = pytest.raises(RequestError, match="X has 9 features, but LatentDirichletAllocation is expecting 10")
    with narrower, pytest.warns(UserWarning, match="does not have valid feature names"):
        fitted.transform(COUNTS[:, :9])
    with pytest.raises(RequestError, match="unseen at fit time:\n- verdict"):
        fitted.transform(pd.DataFrame(COUNTS, columns=[*WORDS[:-1], "verdict"]))
    ingest_documents([["other", "words"]], tmp_path / "other")
    with pytest.raises(RequestError, match="different vocabularies"):
        fitted.transform(tmp_path / "other")
    with pytest.raises(RequestError, match="nothing to predict"):
        fitted.score([["goal"]])


LIMITED = """
import resource
import numpy as np
from scipy.sparse import csr_matrix
from samplers import LatentDirichletAllocation

resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
model = LatentDirichletAllocation(2, max_iter=1, n_jobs=1, random_state=0).fit(np.array([[3, 1], [1, 2]]))
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
one_document = csr_matrix(np.array([[{count}, 1], [1, 2]]))
many = csr_matrix((np.full(80_000, 500), np.tile([0, 1], 40_000), np.arange(0, 80_001, 2)), shape=(40_000, 2))
model.set_params(memory={memory!r})
for method in {methods}:
    try:
        print(np.shape(getattr(model, method)({data})))
    except ValueError as error:
        print(error)
assert peak() < before + 100, peak() - before
"""


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.skipif(sys.platform != "linux", reason="resident sets are in kilobytes")
@pytest.mark.parametrize(("count", "memory", "said"), [(3_000_000_000, "8GB", "8,000"), (100_000_000, "400MB", "400")])
def test_counts_become_tokens_only_if_these_fit(count: int, memory: str, said: str) -> None:
    """A cell of 3e9 was killed for memory, and one of 1e8 held 2.1 GB of a budget of 400 MB."""
    methods = ["transform", "score", "perplexity", "fit", "fit_transform"]
    script = LIMITED.format(count=count, memory=memory, methods=methods, data="one_document")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    what = [rf"a document of X has {count + 1:,} tokens"] * 3 + [rf"X has {count + 4:,} tokens"] * 2
    pattern = "".join(rf"memory {said} MB is too small: {it}.* takes? [0-9,]+ MB\nIncrease memory.*\n" for it in what)
    assert re.fullmatch(pattern, done.stdout), done.stdout


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="resident sets are in kilobytes")
def test_documents_become_tokens_a_few_at_a_time() -> None:
    """40M tokens of documents of 1,000: all at once they were 160 MB."""
    script = LIMITED.format(count=1, memory="400MB", methods=["transform"], data="many")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "(40000, 2)\n"


def test_counts_that_are_ingested_are_told_of_where_that_helps() -> None:
    counts = sparse.csr_matrix(np.full((40, 2), 500_000))
    with pytest.raises(
        RequestError,
        match=r"400 MB is too small: X has 40,000,000 tokens.*\n.*ingest that \(`ooc ingest uci`\) and fit the pa",
    ):
        LatentDirichletAllocation(2, memory="400MB").fit(counts)
    with pytest.raises(RequestError, match=r"document 0 \(counted from 0\) has 4,500,000,000 tokens"):
        LatentDirichletAllocation(2).fit(np.array([[4_000_000_000, 500_000_000]]))


def test_texts_are_read_only_as_far_as_they_fit() -> None:
    """An endless generator ends with a message."""
    with pytest.raises(
        RequestError, match=r"memory 200 MB is too small: X has .* tokens, and fitting them in memory takes"
    ):
        LatentDirichletAllocation(2, memory="200MB").fit("goal match " * 500 for _ in iter(int, 1))
