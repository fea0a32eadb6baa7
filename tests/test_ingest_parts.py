"""The parts of ingestion, each beside an obvious twin: cutting, decompressing, parsing, tokenising, choosing."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import unicodedata
from collections import Counter

import numpy as np
import pytest
import regex
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blocks import RequestError, text_inputs
from blocks.corpus import record_parsers, uci, uci_bags
from blocks.corpus.stop_words import read_stop_words
from blocks.corpus.tokenization_rules import TOKEN_PATTERN, TokenizationRules
from blocks.corpus.tokenizer import Tokenizer
from blocks.corpus.vocabulary import WordFilters, select_words
from blocks.delimited import DelimitedDialect
from blocks.ingestion.name_merging import MergedNames
from blocks.ingestion.word_counter import WordCounter
from blocks.ingestion.word_table import find_word
from blocks.text_inputs import TextInput

COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.few(4)
@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_are_read_and_truncated_ones_are_named(tmp_path, suffix):
    generator = np.random.default_rng(0)
    content = b"".join(b"line %d\n" % number for number in generator.integers(0, 1 << 40, 60_000))
    path = tmp_path / f"input.txt{suffix}"
    compress = COMPRESS[suffix]
    path.write_bytes(compress(content[:500_000]) + compress(content[500_000:]))  # several members, as `cat` makes
    chunks = list(TextInput(str(path)).chunks(text_inputs.last_line_end, 100_000))
    assert b"".join(data for _, data in chunks) == content
    assert [line for line, _ in chunks] == [1 + content[: content.index(data)].count(b"\n") for _, data in chunks]
    if suffix:
        path.write_bytes(compress(content)[:-20])
        with pytest.raises(RequestError, match=r"input\.txt.* is truncated or damaged"):
            list(TextInput(str(path)).chunks(text_inputs.last_line_end))
        path.write_bytes(content)
        with pytest.raises(RequestError, match=f"is not a {suffix} file, but not compressed"):
            list(TextInput(str(path)).chunks(text_inputs.last_line_end))


@given(st.lists(st.lists(st.text('ab"\n,', max_size=6), min_size=2, max_size=2), max_size=12), st.integers(1, 40))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_csv_chunks_hold_whole_rows(tmp_path, rows, size):
    def quoted(text):
        return '"' + text.replace('"', '""') + '"'

    path = tmp_path / "rows.csv"
    path.write_text("".join(",".join(map(quoted, row)) + "\n" for row in rows), newline="")
    dialect = DelimitedDialect()
    columns = record_parsers.DelimitedTextLayout(dialect, 2, 0, 1)
    found = record_parsers.ParsedDocuments(skip=False)
    for line, data in TextInput(str(path)).chunks(dialect.whole_row, size):
        record_parsers.parse_csv(data, "rows.csv", line, columns, found)
    assert found.texts == [row[0] for row in rows]


bag = st.dictionaries(st.integers(1, 9), st.integers(1, 4), max_size=5)


@given(st.lists(bag, min_size=1, max_size=8), st.integers(1, 60))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("together", [1, 1 << 18])
def test_uci_chunks_hold_whole_documents(tmp_path, monkeypatch, together, documents, size):
    monkeypatch.setattr(uci_bags, "_SIZE", together)
    lines = [f"{d} {w} {c}" for d, counts in enumerate(documents, 1) for w, c in counts.items()]
    path = tmp_path / "docword.txt"
    path.write_text("\n".join([str(len(documents)), "9", str(len(lines)), *lines]))
    source = TextInput(str(path))
    header = uci.read_header(source)
    assert header == uci.UciHeader(len(documents), 9, len(lines))
    found = [Counter() for _ in documents]
    ends = 0
    for line, data in source.chunks(uci.whole_documents, size):
        for bags in uci_bags.parse_documents(data, "docword.txt", line, header):
            assert bags.first_document >= ends
            ends = bags.first_document + bags.lengths.size
            owners = np.repeat(np.arange(bags.lengths.size), bags.lengths) + bags.first_document
            for document, word in zip(owners, bags.words, strict=True):
                found[document][int(word) + 1] += 1
    assert found == [Counter(counts) for counts in documents]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("1 2", "expected `document word count` in whole numbers, got"),
        ("1 2 3 4", "expected `document word count` in whole numbers, got"),
        ("1 x 3", "expected `document word count` in whole numbers, got"),
        ("1 2 3.5", "expected `document word count` in whole numbers, got"),
        ("0 1 1", "the document must be from 1 to 3, as the header says; got 0"),
        ("4 1 1", "the document must be from 1 to 3, as the header says; got 4"),
        ("3 0 1", "the word must be from 1 to 5, as the header says; got 0"),
        ("3 6 1", "the word must be from 1 to 5, as the header says; got 6"),
        ("3 1 0", "the count must be from 1 to"),
        ("3 1 -2", "got -2"),
        ("3 1 99999999999999999999999", "got 99999999999999999999999"),
        ("1 1 1", "document 1 comes after"),
        ("\0\0\0", "expected `document word count` in whole numbers, got"),
    ],
)
def test_a_bad_uci_line_is_named(line, complaint):
    header = uci.UciHeader(3, 5, 4)
    data = f"1 1 1\n2 5 2\n{line}\n3 1 1\n".encode()
    with pytest.raises(RequestError) as caught:
        uci_bags.parse_documents(data, "docword.txt", 104, header)
    assert caught.value.what.startswith("docword.txt, line 106: ")
    assert complaint in caught.value.what


def read_jsonl(lines, *, skip=False, text_field="text", name_field=None):
    found = record_parsers.ParsedDocuments(skip)
    data = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + b"\n"
    record_parsers.parse_json_lines(data, "in.jsonl", 11, record_parsers.JsonFieldNames(text_field, name_field), found)
    return found


BAD_JSON = [
    ('{"text": "a"', "not valid JSON"),
    ("[1]", "not a JSON object"),
    ('{"body": "a", "id": 3}', "no field 'text' (--text-field); the fields are 'body', 'id'"),
    ('{"text": 5}', "is neither a string nor a list of tokens"),
    ('{"text": ["a", 1]}', "is neither a string nor a list of tokens"),
    ('{"text": ["a\\nb"]}', "has a token that is empty or contains a line break or NUL"),
    ('{"text": ["a\\u0000b"]}', "has a token that is empty or contains a line break or NUL"),
    ('{"text": ["\\ud800"]}', "has a token that is not Unicode text"),
    (b'{"text": "\xff"}', "byte 0xff is not UTF-8; as cp1252 it reads"),
    (b'{"text": "\0"}', "binary data (a NUL byte)"),
    ("[" * 100_000, "not valid JSON"),
]


@pytest.mark.parametrize(("line", "complaint"), BAD_JSON)
def test_a_bad_json_line_is_named_or_skipped(line, complaint):
    lines = ['{"text": "one", "id": 1}', "", line, '{"text": ["two"]}']
    with pytest.raises(RequestError) as caught:
        read_jsonl(lines)
    assert caught.value.what.startswith("in.jsonl, line 13: ")
    assert complaint in caught.value.what
    found = read_jsonl(lines, skip=True)
    assert (found.texts, found.names, found.skipped) == (["one", ["two"]], ["1", ""], 1)
    assert complaint in found.first_problem


def test_names_are_kept_to_the_last_digit():
    names = ["7", "12345678901234567890123", "-0.5", "1e400", "true", '"a \\n b"', "null"]
    found = read_jsonl([f'{{"text": "one", "id": {name}}}' for name in names])
    assert found.names == ["7", "12345678901234567890123", "-0.5", "inf", "True", "a b", ""]
    assert read_jsonl(['{"text": "\\ud800 one", "id": NaN}']).names == ["nan"]


def test_bad_csv_rows_are_named_or_skipped(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("id,text\n")
    with pytest.raises(RequestError, match=r"no column 'body'; its columns are 'id', 'text'"):
        record_parsers.find_columns(TextInput(str(path)), DelimitedDialect(), "body", None)
    columns = record_parsers.find_columns(TextInput(str(path)), DelimitedDialect(), "text", "id")
    data = b'1,"a\nb"\n2,b,c\n3,\xff\n4,d\n'
    with pytest.raises(RequestError, match=r"in\.csv, line 4: 3 columns, but the header has 2"):
        record_parsers.parse_csv(
            data.replace(b"\xff", b"e"), "in.csv", 2, columns, record_parsers.ParsedDocuments(skip=False)
        )
    found = record_parsers.ParsedDocuments(skip=True)
    record_parsers.parse_csv(data, "in.csv", 2, columns, found)
    assert (found.texts, found.names, found.skipped) == (["a\nb", "d"], ["1", "4"], 2)


text = st.text(st.characters(codec="utf-8") | st.sampled_from("aB _-'9é\n.!\u0301İ"), max_size=40)


def words_of(tokenizer):
    return tokenizer.table.words().decode().split("\n")


def expected_words(text, pattern, lower, stop_words, ngrams):
    """Runs of matches with neither a stop word nor an end of a sentence between them."""
    text = unicodedata.normalize("NFC", text)
    text = text.lower().replace("i\u0307", "i") if lower else text
    runs, end = [[]], 0
    for match in regex.finditer(pattern, text):
        word, between = match[match.re.groups], text[end : match.start()]
        stops = any(mark not in ".…" for mark in regex.findall(r"\p{Sentence_Terminal}", between))
        if stops or regex.search(r"[.…][\p{Pe}\p{Pf}\"']*\s|\n\s*\n", between) or word in stop_words:
            runs.append([])
        if word not in stop_words:
            runs[-1].append(word)
        end = match.end()
    return ["_".join(run[i : i + n]) for run in runs for n in range(1, ngrams + 1) for i in range(len(run) - n + 1)]


@given(
    st.lists(text, max_size=6), st.booleans(), st.integers(1, 3), st.sampled_from([TOKEN_PATTERN, r"\w+", r"(\w)\w*"])
)
@settings(max_examples=200, deadline=None)
def test_tokens_are_those_of_the_pattern(texts, lower, ngrams, pattern):
    stop_words = ("ab", "a")
    tokenizer = Tokenizer(TokenizationRules(pattern, lower, stop_words, ngrams))
    ids, lengths, *_ = tokenizer(texts)
    terms = words_of(tokenizer)
    ends = np.cumsum(lengths)
    found = [
        Counter(terms[word] for word in ids[end - length : end]) for length, end in zip(lengths, ends, strict=True)
    ]
    expected = [Counter(expected_words(one, pattern, lower, stop_words, ngrams)) for one in texts]
    # A run of several words that happens to read like a stop word is none.
    assert found == expected


def test_lists_of_tokens_are_taken_as_they_are():
    tokenizer = Tokenizer(TokenizationRules(stop_words=("the",)))
    ids, lengths, stopped, _ = tokenizer(["The cat x", ["the", "Cat", "x", "two words"]])
    assert [words_of(tokenizer)[word] for word in ids] == ["cat", "the", "Cat", "x", "two words"]
    assert (lengths.tolist(), stopped) == ([1, 4], 1)


def test_a_fixed_vocabulary_does_not_grow():
    tokenizer = Tokenizer(TokenizationRules(), ["cat", "dog"])
    ids, lengths, _, unknown = tokenizer(["dog bird cat fish dog", ["bird"]])
    assert (ids.tolist(), lengths.tolist(), unknown.tolist()) == ([1, 0, 1], [3, 0], [2, 1])
    assert words_of(tokenizer) == ["cat", "dog"]
    with pytest.raises(RequestError, match="has the word 'cat' twice"):
        Tokenizer(TokenizationRules(), ["cat", "cat"])


def test_stop_words_are_told_from_unknown_words():
    """Those of texts, unless the fixed vocabulary has them; lists of tokens are taken as they are."""
    tokenizer = Tokenizer(TokenizationRules(stop_words=("and", "dog", "the")), ["cat", "dog"])
    ids, lengths, stopped, unknown = tokenizer(["the dog and the bird", ["the", "cat"]])
    assert (ids.tolist(), lengths.tolist(), stopped, unknown.tolist()) == ([1, 0], [1, 1], 3, [1, 1])
    assert words_of(tokenizer) == ["cat", "dog"]


def test_words_of_the_same_hash_are_told_apart_by_their_letters():
    """Words of the same length, and a word that begins another, looked up with the hash of `cat`."""
    letters, ends = np.frombuffer(b"cat", np.uint8), np.array([0, 3], np.int64)
    code = np.uint64(0x123456789ABCDEF0)
    slots = np.zeros(4, np.uint64)
    slots[int(code >> np.uint64(62))] = (code << np.uint64(32)) | np.uint64(1)
    found = [
        find_word(slots, letters, ends, code, np.frombuffer(word, np.uint8))[0] for word in (b"cat", b"car", b"ca")
    ]
    assert found == [0, -1, -1]


def test_a_table_grows_to_any_number_of_words_of_any_length():
    """Ids stay those of the order in which words came; among the words is one longer than all letters before it."""
    words = [f"w{number}" for number in range(20_000)]
    words[5000] = "x" * 200_000
    tokenizer = Tokenizer(TokenizationRules())
    ids, lengths, *_ = tokenizer([" ".join(words), " ".join(reversed(words))])
    assert lengths.tolist() == [20_000, 20_000]
    assert ids.tolist() == [*range(20_000), *reversed(range(20_000))]
    assert words_of(tokenizer) == words


@given(st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=8), st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_counts_of_words_and_documents(lists, cut):
    counts = WordCounter()
    for part in (lists[:cut], lists[cut:]):
        ids = np.array([word for words in part for word in words], np.uint32)
        counts.add(ids, np.array([len(words) for words in part], np.uint32), 10)
    assert counts.tokens.tolist() == [sum(words.count(word) for words in lists) for word in range(10)]
    assert counts.documents.tolist() == [sum(word in words for words in lists) for word in range(10)]


def test_filters_choose_words():
    terms = ["d", "b", "a", "c", "never"]
    merged = MergedNames(terms, np.array([9, 5, 5, 1, 0]), np.array([4, 2, 3, 1, 0]), {})

    def kept(filters=None, **options):
        chosen, dropped = select_words(merged, 4, filters or WordFilters(), **{"in_order": False, **options})
        return [terms[word] for word in chosen], dropped

    assert kept()[0] == ["a", "b", "c", "d"]
    assert kept(in_order=True)[0] == terms
    assert kept(WordFilters(min_df=2)) == (["a", "b", "d"], {"min_df": {"words": 1, "tokens": 1}})
    assert kept(WordFilters(min_df=0.6))[0] == ["a", "d"]
    assert kept(WordFilters(max_df=0.5))[0] == ["b", "c"]
    assert kept(WordFilters(max_df=3), in_order=True)[0] == ["b", "a", "c", "never"]
    assert kept(WordFilters(max_vocab=2)) == (["a", "d"], {"max_vocab": {"words": 2, "tokens": 6}})
    assert kept(in_order=True, stop_words=["d"])[0] == ["b", "a", "c", "never"]
    with pytest.raises(RequestError, match="between 0 and 1"):
        kept(WordFilters(min_df=1.5))


def test_vocabulary_files_and_stop_words(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert uci.read_vocabulary(str(path)) == ["one", "two"]
    path.write_text("one\ntwo\none\n")
    with pytest.raises(RequestError, match=r"line 3: the word 'one' is already on line 1"):
        uci.read_vocabulary(str(path))
    assert {"the", "and", "don"} < set(read_stop_words("english"))
    assert read_stop_words(str(path)) == ("one", "two")
    with pytest.raises(RequestError, match="nowhere is neither a language nor a file"):
        read_stop_words("nowhere")


def test_json_names_hold_no_line_breaks():
    found = read_jsonl([json.dumps({"text": "", "key": "a\nb"})], name_field="key")
    assert found.names == ["a b"]
