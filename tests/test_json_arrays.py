"""JSON files that are one array, against Python's json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Ooc
from hypothesis import given
from hypothesis import strategies as st

from blocks import Dataset, RequestError
from blocks.corpus.json_arrays import begins_array, elements_as_lines

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def lines_of(text: str | bytes, size: int = 1 << 16) -> list[bytes]:
    data = text.encode() if isinstance(text, str) else text
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return b"".join(elements_as_lines(pieces, "x.json", 1 << 20)).splitlines()


@given(st.lists(VALUES, max_size=6), st.sampled_from([None, 0, 2, "\t"]), st.booleans(), st.integers(1, 9))
def test_elements_are_those_of_the_array(values: list, indent: int | None, escaped: bool, size: int) -> None:
    text = "\n " + json.dumps(values, indent=indent, ensure_ascii=escaped) + " \r\n"
    assert begins_array(text.encode())
    assert [json.loads(line) for line in lines_of(text, size)] == values


def test_an_array_longer_than_what_is_read_at_once() -> None:
    values = [{"text": "word " * (number % 900), "n": number} for number in range(3000)]
    assert [json.loads(line) for line in lines_of(json.dumps(values, indent=1), 5000)] == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"a": 1}', "element 2: the JSON array is not closed"),
        ('[{"a": 1},', "element 2: not valid JSON"),
        ('[{"a": 1} {"a": 2}]', "element 2: expected ']', got '{\"a\": 2}]'"),
        ('[{"a": 1}]\n[{"a": 2}]', "text follows the end of the JSON array"),
        ('[{"a": }]', "element 1: not valid JSON"),
        ("[[" * 100_000, "element 1: not valid JSON"),
        ('["' + "x" * (1 << 21) + '"]', "a record of more than 1.0 MB begins here"),
    ],
)
def test_what_is_no_array_is_refused(text: str, said: str) -> None:
    with pytest.raises(RequestError) as error:
        lines_of(text)
    assert said in str(error.value)


def test_documents_of_an_array(tmp_path: Path, ooc: Ooc) -> None:
    records = [{"id": 1 << 60, "text": "fig\npear é"}, {"id": "b", "text": ["New York", "plum"]}]
    (tmp_path / "in.json").write_text(json.dumps(records, indent=2, ensure_ascii=False), "utf-8")
    done = ooc("ingest", "jsonl", "in.json", "out")
    assert done.returncode == 0, done.stderr
    dataset = Dataset(tmp_path / "out")
    assert dataset.document_names() == [str(1 << 60), "b"]
    assert dataset.vocabulary() == ["New York", "fig", "pear", "plum"]
    (tmp_path / "bad.json").write_text(json.dumps([*records, {"id": "c"}]))
    refused = ooc("ingest", "jsonl", "bad.json", "no")
    assert refused.returncode == 2
    assert "bad.json, elements as lines, line 3: no field 'text'" in refused.stderr
    (tmp_path / "latin.json").write_bytes('[{"text": "fig"}, {"text": "caf\xe9"}]'.encode("latin-1"))
    refused = ooc("ingest", "jsonl", "latin.json", "no")
    assert (refused.returncode, "line 2: byte 0xe9 is not UTF-8" in refused.stderr) == (2, True), refused.stderr
    assert ooc("ingest", "jsonl", "latin.json", "latin", "--encoding", "latin-1").returncode == 0
