"""Models for other programs and of them: read by those programs themselves, and back, with the same counts."""

from __future__ import annotations

import ast
import gzip
import json
import re
import shutil
import subprocess
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Ooc, assert_refused
from pages import ROOT
from scipy import sparse

from blocks import RequestError, write_corpus, write_matrix
from blocks.ratings.matrix_writer import Entries
from samplers.factorization.training import train_mf
from samplers.interchange.formats import export, import_model
from samplers.interchange.gensim_models import from_gensim, to_gensim
from samplers.interchange.mallet import read_state
from samplers.interchange.tomotopy_models import from_tomotopy, to_tomotopy
from samplers.lda.training import train_lda
from samplers.models import open_factors, open_model
from samplers.topics.model import SavedTopicModel, TopicModel, row_numbers
from samplers.topics.token_topics import read_assignments

with warnings.catch_warnings():  # of theirs, which would be errors here
    warnings.simplefilter("ignore")
    import pyarrow.parquet
    import tomotopy

TOPICS, DOCUMENTS = 4, 60
WORDS = [f"wört{number}" for number in range(50)]
NAMES = [f"document {number}" for number in range(DOCUMENTS)]


def peer(name: str) -> Any:
    """Import a package that not every version of Python has; the test is skipped without it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"{name} is absent: nothing is exchanged with it")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several blocks and slices, documents without tokens, words that never occur; counts of the last state."""
    path, random = tmp_path_factory.mktemp("interchange"), np.random.default_rng(4)
    lengths = random.integers(0, 30, DOCUMENTS)
    lengths[[0, 7]] = 0
    words = (random.random(lengths.sum()) ** 2 * 48).astype(np.uint32)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    write_corpus(path / "data", offsets, words, WORDS, names=NAMES, block_tokens=150, slices=3)
    options = {"topics": TOPICS, "alpha": [0.1, 0.2, 0.3, 0.4], "beta": 0.02, "sampler": "two-phase"}
    train_lda(path / "data", path / "run", iterations=3, workers=1, quiet=True, **options)
    return path / "run"


@pytest.fixture(scope="module")
def factors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, random = tmp_path_factory.mktemp("factors"), np.random.default_rng(5)
    places = [random.integers(0, size, 400).astype(np.uint32) for size in (40, 20)]
    names = [[f"user {number}" for number in range(40)], [f"item{number}" for number in range(20)]]
    write_matrix(path / "data", Entries(*places, random.normal(size=400).astype(np.float32)), *names)
    train_mf(path / "data", path / "run", rank=3, iterations=2, method="ccd", workers=1, quiet=True)
    return path / "run"


def counts(model: TopicModel) -> dict[str, np.ndarray]:
    """Dense: words (V, K) and documents (D, K)."""
    dense = {}
    for name, rows in (("words", model.words), ("documents", model.documents)):
        dense[name] = np.zeros((rows.offsets.size - 1, model.topics))
        dense[name][row_numbers(rows), rows.topics] = rows.counts
    return dense


def of_words(model: TopicModel) -> dict[str, list[float]]:
    """The counts of the words that have any, by word."""
    rows = zip(model.vocabulary(), counts(model)["words"].tolist(), strict=True)
    return {word: row for word, row in rows if any(row)}


def assert_same(found: TopicModel, expected: TopicModel) -> None:
    """The same counts of words, by name, and of documents, in order or by name; the same priors."""
    assert of_words(found) == of_words(expected)
    np.testing.assert_allclose(found.alpha, expected.alpha, rtol=1e-6)
    assert found.beta == pytest.approx(expected.beta, rel=1e-6)
    np.testing.assert_array_equal(found.topic_counts, expected.topic_counts)
    documents, wanted = counts(found)["documents"], counts(expected)["documents"]
    np.testing.assert_array_equal(documents[documents.any(axis=1)], wanted[wanted.any(axis=1)])


def test_tokens_have_the_topics_that_are_counted(run: Path) -> None:
    tokens, model = read_assignments(run), counts(open_model(run))
    words, documents = np.zeros_like(model["words"]), np.zeros_like(model["documents"])
    np.add.at(words, (tokens.words, tokens.topics), 1)
    np.add.at(documents, (np.repeat(np.arange(DOCUMENTS), np.diff(tokens.offsets)), tokens.topics), 1)
    np.testing.assert_array_equal(words, model["words"])
    np.testing.assert_array_equal(documents, model["documents"])
    assert tokens.alpha.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert tokens.beta == 0.02


def test_scipy_reads_the_counts(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "out", "scipy")
    for name, dense in counts(open_model(run)).items():
        np.testing.assert_array_equal(sparse.load_npz(tmp_path / "out" / f"{name}.npz").toarray(), dense)
    assert (tmp_path / "out" / "vocabulary.txt").read_text().split() == WORDS
    with np.load(tmp_path / "out" / "priors.npz") as priors:
        assert priors["alpha"].tolist() == [0.1, 0.2, 0.3, 0.4]


def test_arrow_reads_the_tables(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samplers.interchange.parquet._RUN", 50)
    export(run, tmp_path / "out", "parquet")
    model = open_model(run)
    dense, phi, theta = counts(model), model.word_shares(), model.document_shares()
    words = pyarrow.parquet.read_table(tmp_path / "out" / "words.parquet").to_pandas()
    assert len(words) == np.count_nonzero(dense["words"])
    for word, topic, count, probability in words.itertuples(index=False):
        assert count == dense["words"][WORDS.index(word), topic]
        assert probability == pytest.approx(phi[topic, WORDS.index(word)])
    documents = pyarrow.parquet.read_table(tmp_path / "out" / "documents.parquet").to_pandas()
    listed = documents[documents["topic"] >= 0]
    assert len(listed) == np.count_nonzero(dense["documents"])
    for name, tokens, topic, count, share in listed.itertuples(index=False):
        assert count == dense["documents"][NAMES.index(name), topic]
        assert tokens == dense["documents"][NAMES.index(name)].sum()
        assert share == pytest.approx(theta[NAMES.index(name), topic])
    np.testing.assert_allclose(documents.groupby("document", sort=False)["share"].sum(), np.ones(DOCUMENTS))
    assert documents["document"].drop_duplicates().tolist() == NAMES
    topics = pyarrow.parquet.read_table(tmp_path / "out" / "topics.parquet").to_pandas()
    assert topics["tokens"].tolist() == model.topic_counts.tolist()
    never = dense["words"].argmin(axis=0)
    assert topics["unlisted"].tolist() == pytest.approx(phi[range(TOPICS), never])


def keywords_of_the_recipe() -> dict[str, object]:
    """What docs/interchange.md passes to pyLDAvis besides the file and `mds`."""
    (recipe,) = re.findall(
        r"pyLDAvis\.prepare\(\*\*json\.load\(.*?\)\), (.*?)\), \"", (ROOT / "docs/interchange.md").read_text()
    )
    keywords = dict(each.split("=") for each in recipe.split(", "))
    del keywords["mds"]
    return {name: ast.literal_eval(value) for name, value in keywords.items()}


def test_pyldavis_draws_the_topics(run: Path, tmp_path: Path) -> None:
    """It checks shapes and that shares sum to 1; of words and documents that it could not draw none are there."""
    export(run, tmp_path / "out.json", "pyldavis")
    arguments = json.loads((tmp_path / "out.json").read_text())
    dense = counts(open_model(run))
    assert arguments["doc_lengths"] == [length for length in dense["documents"].sum(axis=1) if length]
    assert arguments["term_frequency"] == [count for count in dense["words"].sum(axis=1) if count]
    # On a plane of the test's own, as its default way there fails with NumPy 2.5.
    plane = lambda shares: np.linalg.svd(shares - shares.mean(axis=0))[0][:, :2]  # noqa: E731
    pyLDAvis = peer("pyLDAvis")
    drawn = pyLDAvis.prepare(**arguments, **keywords_of_the_recipe(), n_jobs=1, mds=plane)
    sizes = dense["words"].sum(axis=0)
    assert drawn.topic_coordinates.index.tolist() == drawn.topic_coordinates["topics"].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(drawn.topic_coordinates["Freq"], 100 * sizes / sizes.sum(), atol=3)
    assert "wört" in pyLDAvis.prepared_data_to_html(drawn) or "w\\u00f6rt" in pyLDAvis.prepared_data_to_html(drawn)


def test_gensim_has_the_same_topics_and_gives_them_back(run: Path, tmp_path: Path) -> None:
    gensim = peer("gensim")
    export(run, tmp_path / "out", "gensim")
    model, found = open_model(run), gensim.models.LdaModel.load(str(tmp_path / "out" / "lda.model"))
    np.testing.assert_allclose(found.get_topics(), model.word_shares(), rtol=1e-6)
    bag = found.id2word.doc2bow(["wört1", "wört1", "wört2", "unheard-of"])
    assert bag == [(1, 2), (2, 1)]
    assert sum(share for _, share in found.get_document_topics(bag, minimum_probability=0)) == pytest.approx(1)
    with pytest.raises(RequestError, match="is a pickle, and reading a pickle can execute arbitrary code"):
        import_model("gensim", tmp_path / "out", tmp_path / "again")
    again = import_model("gensim", tmp_path / "out", tmp_path / "again", trust_pickle=True)
    assert again.alpha.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert again.beta == pytest.approx(0.02)
    np.testing.assert_allclose(counts(again)["words"], counts(model)["words"], atol=1e-4)
    np.testing.assert_allclose(SavedTopicModel(tmp_path / "again").word_shares(), model.word_shares(), rtol=1e-5)


def test_a_model_that_gensim_trained_is_read(tmp_path: Path) -> None:
    gensim = peer("gensim")
    texts = [["a", "b", "a"], ["c", "d", "c"], ["a", "b"], ["d", "c"]] * 5
    dictionary = gensim.corpora.Dictionary(texts)
    trained = gensim.models.LdaModel(
        [dictionary.doc2bow(text) for text in texts], num_topics=3, id2word=dictionary, alpha="asymmetric", eta="auto"
    )
    found = from_gensim(trained)
    np.testing.assert_allclose(found.word_shares(), trained.get_topics(), rtol=1e-5)
    np.testing.assert_allclose(to_gensim(found).get_topics(), trained.get_topics(), rtol=1e-5)
    assert found.documents.offsets.tolist() == [0]


def test_tomotopy_goes_on_from_the_state_and_gives_it_back(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "out.bin", "tomotopy")
    model, found = open_model(run), tomotopy.LDAModel.load(str(tmp_path / "out.bin"))
    assert found.get_count_by_topics().tolist() == model.topic_counts.tolist()
    assert found.docs[0].uid == NAMES[1]
    order = [WORDS.index(word) for word in found.used_vocabs]
    for topic in range(TOPICS):
        weights = counts(model)["words"][order, topic] + 0.02
        np.testing.assert_allclose(found.get_topic_word_dist(topic), weights / weights.sum(), rtol=1e-4)
    assert_same(import_model("tomotopy", tmp_path / "out.bin", tmp_path / "again"), model)
    assert_same(SavedTopicModel(tmp_path / "again"), model)
    found.train(3, workers=1)
    assert found.get_count_by_topics().sum() == model.topic_counts.sum()


def test_a_model_that_tomotopy_trained_is_read() -> None:
    trained = tomotopy.LDAModel(k=3, alpha=0.2, eta=0.05, min_cf=2, rm_top=1, seed=1)
    for number in range(12):
        trained.add_doc(["every", f"word{number % 4}", f"word{number % 3}", f"rare{number}"])
    trained.train(10, workers=1)
    found = from_tomotopy(trained)
    assert found.vocabulary() == list(trained.used_vocabs)
    assert found.topic_counts.tolist() == trained.get_count_by_topics().tolist()
    assert "every" not in found.vocabulary()
    for topic in range(3):
        np.testing.assert_allclose(found.word_shares()[topic], trained.get_topic_word_dist(topic), rtol=1e-4)


def test_a_state_of_mallet_says_all_and_comes_back(run: Path, tmp_path: Path) -> None:
    """Each line is what MALLET writes; words are numbered as they come in corpus.txt."""
    export(run, tmp_path / "out", "mallet")
    model = open_model(run)
    with gzip.open(tmp_path / "out" / "state.gz", "rt") as file:
        header, alpha, beta, *lines = file.read().splitlines()
    assert header == "#doc source pos typeindex type topic"
    assert alpha == "#alpha : 0.1 0.2 0.3 0.4 "
    assert beta == "#beta : 0.02"
    corpus = [line.split("\t") for line in (tmp_path / "out" / "corpus.txt").read_text().splitlines()]
    flat = [
        (str(d), name, str(p), word) for d, (name, _, text) in enumerate(corpus) for p, word in enumerate(text.split())
    ]
    fields = [line.split(" ") for line in lines]
    assert [(d, name, p, word) for d, name, p, _, word, _ in fields] == flat
    first_seen = list(dict.fromkeys(word for *_, word, _ in fields))
    assert [int(number) for _, _, _, number, _, _ in fields] == [first_seen.index(word) for *_, word, _ in fields]
    topics = Counter((word, int(topic)) for *_, word, topic in fields)
    assert topics == {
        (WORDS[word], topic): count for (word, topic), count in np.ndenumerate(counts(model)["words"]) if count
    }
    assert_same(import_model("mallet", tmp_path / "out" / "state.gz", tmp_path / "again"), model)


def test_mallet_itself_goes_on_from_the_state(run: Path, tmp_path: Path) -> None:
    """It compares each token with its own copy of the corpus, and writes the same state; then it samples."""
    mallet = shutil.which("mallet")
    if mallet is None:
        pytest.skip("MALLET is not installed, and no package brings it: put `mallet` in the PATH")
    export(run, tmp_path / "out", "mallet")

    def do(command: str, *options: object) -> None:
        subprocess.run([mallet, command, *map(str, options)], cwd=tmp_path / "out", check=True, capture_output=True)

    as_they_are = ("--keep-sequence", "--preserve-case", "--token-regex", r"\S+")
    do("import-file", "--input", "corpus.txt", "--output", "corpus.mallet", *as_they_are)
    begun = ("--input", "corpus.mallet", "--input-state", "state.gz", "--num-topics", TOPICS, "--output-state")
    do("train-topics", *begun, "same.gz", "--num-iterations", 0)
    do("train-topics", *begun, "further.gz", "--num-iterations", 5)
    same, further = (read_state(tmp_path / "out" / f"{name}.gz") for name in ("same", "further"))
    model = open_model(run)
    assert of_words(same) == of_words(model)
    assert of_words(further) != of_words(model)
    assert further.topic_counts.sum() == model.topic_counts.sum()


def test_keys_and_topics_of_documents_for_mallet(run: Path, tmp_path: Path) -> None:
    """Also of a model without the topics of its tokens."""
    export(run / "model", tmp_path / "out", "mallet")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["doc-topics.txt", "topic-keys.txt"]
    model = open_model(run)
    for topic, line in enumerate((tmp_path / "out" / "topic-keys.txt").read_text().splitlines()):
        number, alpha, words = line.split("\t")
        assert (int(number), float(alpha)) == (topic, model.alpha[topic])
        best = counts(model)["words"][:, topic]
        assert [best[WORDS.index(word)] for word in words.split()] == sorted(best[best > 0], reverse=True)[:20]
    rows = [line.split("\t") for line in (tmp_path / "out" / "doc-topics.txt").read_text().splitlines()]
    assert [row[1] for row in rows] == [name.replace(" ", "_") for name in NAMES]
    shares = np.array([row[2:] for row in rows], float)
    np.testing.assert_allclose(shares, model.document_shares(), rtol=1e-5)


def test_factors_are_vectors_for_gensim_and_tables_for_arrow(factors: Path, tmp_path: Path) -> None:
    gensim = peer("gensim")
    model = open_factors(factors)
    export(factors, tmp_path / "out", "word2vec")
    for name, side in (("rows", model.rows), ("columns", model.columns)):
        vectors = gensim.models.KeyedVectors.load_word2vec_format(str(tmp_path / "out" / f"{name}.txt"))
        assert vectors.index_to_key == [each.replace(" ", "_") for each in side.names]
        np.testing.assert_array_equal(vectors.vectors, side.factors)
    export(factors, tmp_path / "tables", "parquet")
    table = pyarrow.parquet.read_table(tmp_path / "tables" / "columns.parquet").to_pandas()
    assert table["name"].tolist() == model.columns.names
    np.testing.assert_array_equal(np.stack(table["factors"]), model.columns.factors)
    np.testing.assert_array_equal(table["bias"], model.columns.biases)


def test_at_the_command_line(run: Path, factors: Path, tmp_path: Path, ooc: Ooc) -> None:
    """An imported model is one; what cannot be is refused, and nothing is left."""
    assert ooc("export", run, "mallet", "--format", "mallet").returncode == 0
    done = ooc("import", "mallet", "mallet/state.gz", "model")
    assert done.returncode == 0, done.stderr
    assert "4 topics" in done.stdout
    told = json.loads(ooc("topics", "model", "--json").stdout)
    again = json.loads(ooc("topics", run, "--json").stdout)
    assert [topic["tokens"] for topic in told] == [topic["tokens"] for topic in again]
    assert_refused(ooc("import", "mallet", "mallet/state.gz", "model"), "model already exists")
    assert_refused(ooc("import", "mallet", "mallet/corpus.txt", "other"), "is not a state file of MALLET")
    assert_refused(ooc("export", run, "mallet", "--format", "mallet", "--overwrite"), "mallet already exists")
    assert_refused(ooc("export", run, "other", "--format", "word2vec"), "cannot be used for the model")
    assert_refused(ooc("export", factors, "other", "--format", "gensim"), "cannot be used for the model")
    assert_refused(ooc("export", run, "other", "--format", "latex"), "unknown format 'latex'")
    assert not (tmp_path / "other").exists()
    assert ooc("import", "mallet", "mallet/state.gz", "model", "--overwrite").returncode == 0


def test_what_a_format_cannot_hold_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="Export a run whose state has not been removed"):
        export(run / "model", tmp_path / "out.bin", "tomotopy")
    data = write_corpus(tmp_path / "data", np.array([0, 2]), np.array([0, 1], np.uint32), ["New York", "city"])
    train_lda(data.path, tmp_path / "run", topics=2, iterations=1, workers=1, quiet=True, sampler="two-phase")
    with pytest.raises(RequestError, match="'New York' contains a blank"):
        export(tmp_path / "run", tmp_path / "out", "mallet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "run"]
    tokens = read_assignments(tmp_path / "run")
    many = open_model(tmp_path / "run").in_memory()
    many.alpha = np.ones(1 << 15)
    with pytest.raises(RequestError, match="at most 32,767 topics"):
        to_tomotopy(many, tokens)
