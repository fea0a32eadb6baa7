"""Ingestion as a whole, with real worker processes: what comes out, whatever the workers; what bad input leaves."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import xxhash
from corpora import tree
from processes import children
from text_files import WORDS, random_texts, write_jsonl, write_uci

from blocks import Dataset, RequestError
from blocks.append import append_to
from blocks.corpus.ingestion import ingest
from blocks.corpus.request import CorpusRequest
from blocks.corpus.stop_words import read_stop_words
from blocks.corpus.vocabulary import WordFilters


def test_the_same_bytes_for_any_workers_and_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("blocks.text_inputs.TextInput.chunks.__defaults__", (2000,))
    source = write_jsonl(tmp_path / "in.jsonl", random_texts(0, 700))
    trees = []
    for run, (workers, memory) in enumerate([(1, None), (3, 1 << 30)]):
        request = CorpusRequest("jsonl", [source], str(tmp_path / f"out{run}"), block_tokens=1500, seed=5)
        ingest(request, workers=workers, memory=memory)
        trees.append(tree(tmp_path / f"out{run}"))
    assert trees[0] == trees[1]
    assert sum(name.startswith("blocks/") for name in trees[0]) > 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out0", "out1"]
    assert children() == []


def test_kinds_agree_with_each_other(tmp_path, bags):
    texts = ["", *random_texts(1, 60), "", ""]
    expected = [Counter(text.split()) for text in texts]
    vocabulary = sorted(set(WORDS) | {"never"})
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    folder = tmp_path / "folder"
    for number, text in enumerate(texts):
        (folder / f"{number // 30}").mkdir(parents=True, exist_ok=True)
        (folder / f"{number // 30}" / f"{number:03}.txt").write_text(text)
    (tmp_path / "rows.tsv").write_text("name\ttext\n" + "".join(f"n{n}\t{text}\n" for n, text in enumerate(texts)))
    requests = [
        CorpusRequest(
            "uci", [write_uci(tmp_path / "docword.txt.gz", texts, vocabulary)], "", vocab=str(tmp_path / "vocab.txt")
        ),
        CorpusRequest("text", [str(tmp_path / "lines.txt")], "", lines=True),
        CorpusRequest("text", [str(folder)], "", glob="*.txt"),
        CorpusRequest("jsonl", [write_jsonl(tmp_path / "in.jsonl", texts)], ""),
        CorpusRequest("csv", [str(tmp_path / "rows.tsv")], "", name_column="name"),
    ]
    names = {}
    for number, request in enumerate(requests):
        made = CorpusRequest(**{**request.__dict__, "out": str(tmp_path / f"out{number}"), "block_tokens": 200})
        dataset = ingest(made, workers=2)
        assert bags(dataset) == expected
        assert dataset.vocabulary() == (vocabulary if request.kind == "uci" else sorted(set(" ".join(texts).split())))
        names[number] = dataset.document_names()
    assert names[0] is None
    assert names[1] is None
    assert names[2][:2] == ["0/000.txt", "0/001.txt"]
    assert names[3][-1] == f"doc{len(texts) - 1}"
    assert names[4][0] == "n0"


def test_filters_and_how_it_was_made(tmp_path, bags):
    texts = ["The cat sat", "the cat ran", "a cat slept and the dog slept"]
    source = write_jsonl(tmp_path / "in.jsonl", texts)
    dataset = ingest(CorpusRequest("jsonl", [source], str(tmp_path / "a"), filters=WordFilters(max_df=0.9)), workers=1)
    assert dataset.vocabulary() == ["dog", "ran", "sat", "slept"]
    made = dataset.manifest["made"]
    assert made["dropped"] == {"stop_words": {"tokens": 4}, "max_df": {"words": 1, "tokens": 3}}  # `a` is no token
    assert made["options"]["stop_words"] == "english"
    content = Path(source).read_bytes()
    assert made["inputs"] == [{"name": source, "bytes": len(content), "hash": xxhash.xxh3_128_hexdigest(content)}]
    assert "the" in read_stop_words("english")
    bigrams = ingest(CorpusRequest("jsonl", [source], str(tmp_path / "b"), ngrams=2, stop_words="none"), workers=1)
    assert bags(bigrams)[0] == Counter(["the", "cat", "sat", "the_cat", "cat_sat"])


def test_a_fixed_vocabulary_keeps_order_ranks_and_empty_documents(tmp_path, bags):
    base = ingest(
        CorpusRequest("jsonl", [write_jsonl(tmp_path / "a.jsonl", random_texts(2, 80))], str(tmp_path / "a")), workers=1
    )
    texts = ["unknown words only", "", "word0 WORD1 unknown word0"]
    new = ingest(
        CorpusRequest(
            "jsonl", [write_jsonl(tmp_path / "b.jsonl", texts)], str(tmp_path / "b"), vocab_from=str(base.path)
        ),
        workers=2,
    )
    vocabulary = [*reversed(WORDS[:3]), "strange", "the"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    source = write_uci(tmp_path / "docword.txt.gz", ["strange the", "word0 word1 word0"], vocabulary)
    request = CorpusRequest(
        "uci", [source], str(tmp_path / "c"), vocab=str(tmp_path / "vocab.txt"), vocab_from=str(base.path)
    )
    counted = ingest(request, workers=2)
    for dataset in (new, counted):
        assert dataset.vocabulary() == base.vocabulary()
        assert np.array_equal(dataset.index.word_ids, base.index.word_ids)
        assert np.array_equal(dataset.index.slice_bounds, base.index.slice_bounds)
        assert bags(dataset)[-1] == {"word0": 2, "word1": 1}
    assert (new.documents, counted.documents) == (3, 2)
    assert new.manifest["made"]["dropped"] == {"stop_words": {"tokens": 1}, "unknown": {"tokens": 3}}  # "only"
    one = {"words": 1, "tokens": 1}
    assert counted.manifest["made"]["dropped"] == {"stop_words": one, "unknown": one}


def test_appending_adds_documents_and_a_crash_before_leaves_the_old(tmp_path, bags):
    texts, more = random_texts(3, 100), [*random_texts(4, 40), "word0 unheard"]
    out = tmp_path / "out"
    ingest(CorpusRequest("jsonl", [write_jsonl(tmp_path / "a.jsonl", texts)], str(out), block_tokens=300), workers=1)
    before = tree(out)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "word0"}\n{"text": 1}\n')
    with pytest.raises(RequestError, match=r"bad\.jsonl, line 2"):
        ingest(CorpusRequest("jsonl", [str(bad)], str(out), append=True), workers=1)
    assert tree(out) == before

    (out / "blocks" / "00099.h5").write_bytes(b"left behind by a process that was killed")
    (out / "slices-1").mkdir()
    source = write_jsonl(tmp_path / "b.jsonl", more, first=100)
    dataset = ingest(CorpusRequest("jsonl", [source], str(out), append=True, block_tokens=300), workers=2)
    vocabulary = set(" ".join(texts).split())
    expected = [Counter(word for word in text.split() if word in vocabulary) for text in texts + more]
    assert bags(dataset) == expected
    assert dataset.document_names() == [f"doc{number}" for number in range(len(texts) + len(more))]
    assert dataset.vocabulary() == sorted(vocabulary)
    totals = sum(expected, Counter())
    words = [dataset.vocabulary()[word] for word in dataset.index.word_ids]
    assert dict(zip(words, dataset.index.frequencies.tolist(), strict=True)) == totals
    assert set(tree(out)) == {str(path.relative_to(out)) for path, _ in dataset.files()} | {"manifest.json"}
    assert all(tree(out)[name] == content for name, content in before.items() if name.startswith("blocks/"))
    with append_to(str(out)), pytest.raises(RequestError, match="another process is appending"):
        ingest(CorpusRequest("jsonl", [source], str(out), append=True), workers=1)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("2\n3\n2\n1 1 1\n", "says 2 lines, but 1 follow"),
        ("2\n3\n1\n1 1 1\n2 1 1\n", "says 1 lines, but 2 follow"),
        ("2\nx\n1\n1 1 1\n", "line 2: expected the number of words, got 'x'"),
        ("2\n3\n", "line 2: expected the number of non-zero counts, got ''"),
        ("", "line 1: expected the number of documents, got ''"),
        ("2\n4\n1\n1 1 1\n", "line 2: the header says 4 words, the vocabulary has 3"),
        ("2\n3\n3\n1 1 1\n2 1 1\n1 2 1\n", r"line 6: document 1 comes after"),
        ("2\n3\n0\n", "no tokens are left in 2 documents: all documents are empty"),
        ("0\n3\n0\n", "no documents found"),
    ],
)
def test_a_bad_uci_file_is_named_and_leaves_nothing(tmp_path, content, complaint):
    (tmp_path / "docword.txt").write_text(content)
    (tmp_path / "vocab.txt").write_text("a\nb\nc\n")
    request = CorpusRequest(
        "uci", [str(tmp_path / "docword.txt")], str(tmp_path / "out"), vocab=str(tmp_path / "vocab.txt")
    )
    with pytest.raises(RequestError, match=complaint):
        ingest(request, workers=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docword.txt", "vocab.txt"]


def test_documents_without_lines_are_kept(tmp_path, bags):
    (tmp_path / "docword.txt").write_text("6\n3\n2\n2 1 2\n5 3 1\n")
    dataset = ingest(CorpusRequest("uci", [str(tmp_path / "docword.txt")] * 2, str(tmp_path / "out")), workers=1)
    once = [{}, {"1": 2}, {}, {}, {"3": 1}, {}]
    assert bags(dataset) == once + once
    assert dataset.vocabulary() == ["1", "2", "3"]


def test_nothing_left_says_which_filter(tmp_path):
    source = write_jsonl(tmp_path / "in.jsonl", ["the dog", "the cat"])
    request = CorpusRequest("jsonl", [source], str(tmp_path / "out"), filters=WordFilters(min_df=2))
    with pytest.raises(RequestError, match="stop-words dropped 2 tokens, min-df dropped 2 tokens"):
        ingest(request, workers=1)


def test_bad_bytes_are_named_or_skipped(tmp_path, bags):
    path = tmp_path / "in.txt"
    path.write_bytes(b"good line\nbad \xff line\nnul \0 line\nlast line\n")
    request = {"kind": "text", "inputs": [str(path)], "out": str(tmp_path / "out"), "lines": True}
    with pytest.raises(RequestError, match=r"in\.txt, line 2: byte 0xff is not UTF-8"):
        ingest(CorpusRequest(**request), workers=1)
    dataset = ingest(CorpusRequest(**request, on_error="skip"), workers=1)
    assert bags(dataset) == [{"good": 1, "line": 1}, {"line": 1}]
    assert dataset.manifest["made"]["skipped"] == 2
    assert "line 2" in dataset.manifest["made"]["first_skipped"]


def test_counts_are_expanded_a_few_documents_at_a_time(tmp_path, bags):
    """A chunk of lines was one piece of memory, whatever its counts; the dataset is that of other budgets."""
    lines = [f"{document} {word} {9_000 * word}" for document in (1, 2, 5, 6, 9) for word in range(1, 6)]
    (tmp_path / "docword.txt").write_text("\n".join(["9", "5", "25", *lines, ""]))
    made = [
        ingest(CorpusRequest("uci", [str(tmp_path / "docword.txt")], str(tmp_path / name)), workers=1, memory=memory)
        for name, memory in (("small", 250 << 20), ("large", 1 << 30))
    ]
    assert made[0].identity == made[1].identity
    expected = {str(word): 9_000 * word for word in range(1, 6)}
    assert bags(made[0]) == [expected if number in (1, 2, 5, 6, 9) else {} for number in range(1, 10)]


@pytest.mark.parametrize("count", [10**8, 3 * 10**9])
def test_a_document_beyond_memory_is_refused(tmp_path, count):
    """3e9 tokens were refused as one sum of many lines, and 1e8 held 2.1 GB of 400 MB."""
    (tmp_path / "docword.txt").write_text(f"3\n2\n3\n1 1 1\n2 1 {count}\n3 1 2\n")
    request = CorpusRequest("uci", [str(tmp_path / "docword.txt")], str(tmp_path / "out"))
    said = (
        rf"docword\.txt: document 2 has {count:,} tokens.* take {count // 50_000:,} MB, but --memory leaves .* 199 MB"
    )
    with pytest.raises(RequestError, match=said):
        ingest(request, workers=1, memory=400_000_000)
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_beyond_memory_is_refused(tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("".join(f"w{number:x} " + ("\n" if number % 100 == 99 else "") for number in range(700_000)))
    request = CorpusRequest("text", [str(source)], str(tmp_path / "out"), lines=True)
    with pytest.raises(RequestError, match="is too small for 1 worker"):
        ingest(request, workers=1, memory=100 << 20)
    with pytest.raises(RequestError, match="the vocabulary does not fit in memory"):
        ingest(request, workers=1, memory=232 << 20)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"kind": "svg"}, "unknown input kind"),
        ({"inputs": ["nowhere.jsonl"]}, "there is no such file"),
        ({"inputs": ["."]}, "is a directory"),
        ({"on_error": "ignore"}, "--on-error must be fail or skip"),
        ({"token_pattern": "("}, "is not a regular expression"),
        ({"token_pattern": "x*"}, "--token-pattern matches the empty string"),
        (
            {"append": True, "overwrite": True},
            "--append and --overwrite are mutually exclusive: one adds to a dataset, the other replaces it",
        ),
        (
            {"vocab_from": "x", "filters": WordFilters(min_df=2)},
            "--min-df, --max-df, --max-vocab and --min-npmi cannot be used when the vocabulary is given",
        ),
        ({"vocab_from": "nowhere"}, "nowhere: there is no such file or directory"),
        ({"out": ".", "overwrite": True}, "is not a dataset, so it is not replaced"),
    ],
)
def test_requests_that_make_no_sense_are_refused(tmp_path, monkeypatch, options, complaint):
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "in.jsonl", ["text"])
    with pytest.raises(RequestError, match=complaint):
        ingest(CorpusRequest(**{"kind": "jsonl", "inputs": ["in.jsonl"], "out": "out", **options}))
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_real_bags_of_words(tmp_path, data_directory):
    request = CorpusRequest(
        "uci",
        [str(data_directory / "docword.ap.txt.gz")],
        str(tmp_path / "ap"),
        vocab=str(data_directory / "vocab.ap.txt"),
    )
    dataset = ingest(request)
    assert (dataset.documents, dataset.tokens, dataset.vocabulary_size) == (2246, 435_838, 10_473)
    frequencies = np.zeros(10_473, np.int64)
    with gzip.open(data_directory / "docword.ap.txt.gz") as file:
        rows = np.loadtxt(file, np.int64, skiprows=3)
    np.add.at(frequencies, rows[:, 1] - 1, rows[:, 2])
    assert np.array_equal(dataset.index.frequencies, frequencies[dataset.index.word_ids])
    assert isinstance(dataset, Dataset)
