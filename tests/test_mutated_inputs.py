"""Inputs changed at random: each reader gives what a reader in plain Python gives, or refuses in a line.

The readers here follow the formats' definitions (and Python's `csv` and `json`), not the code of ooc.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from designs import read_back as design_back
from plain_readers import (
    LDAC_WORDS,
    InvalidFile,
    csv_in,
    json_in,
    ldac_in,
    lines_in,
    market_in,
    npz_in,
    parquet_in,
    parts_of,
    plink_in,
    ratings_in,
    svmlight_in,
    table_in,
    uci_in,
)
from rating_files import read_back as ratings_back
from scipy import sparse

from blocks import RequestError
from blocks.corpus.ingestion import ingest
from blocks.corpus.request import CorpusRequest
from blocks.design.ingestion import ingest_design
from blocks.design.request import DesignRequest
from blocks.ratings.formats import RatingsFormatOptions
from blocks.ratings.ingestion import ingest_ratings
from blocks.ratings.request import RatingsRequest

PIECES = [
    *(b'"', b'""', b'"\n', b"'", b"\r", b"\n", b"\r\n", b"\n\n", b",", b";", b"\t", b" ", b":", b"::", b"#", b"%"),
    *(b"\0", b"\xff", b"\xe9", b"\xc3\xa9", b"\xc2\xa0", b"\xef\xbb\xbf", b"\x0b", b"\x0c", b"\x1c", b"\xe2\x80\xa8"),
    *(b"0", b"1", b"-1", b"00", b"1.5", b"1e3", b"1e999", b"nan", b"inf", b"-0", b"+1", b".", b"99999999999999999999"),
    *(b"[", b"{", b"}", b"\\", b"\\n", b"null", b"1_0", "१".encode()),
]
FEW, MANY = 25, 2000
MATRIX = sparse.csr_array([[0, 1.5, 0], [2.0, 0, 0], [0, 0, -3]])
TABLE = pyarrow.table({"a": [1.0, 2.5, -3.0], "b": np.array([4, 5, 6], np.int8), "y": [0.5, 1.0, 2.0]})


def mutated(data: bytes, numbers: random.Random) -> bytes:
    """A few bytes inserted, changed, deleted, doubled or moved; letters for letters, digits for digits; the end cut."""
    for _ in range(numbers.choice([1, 1, 1, 2, 4])):
        at, size = numbers.randint(0, len(data)), numbers.randint(1, 12)
        other = numbers.randint(0, len(data))
        alike = [place for place, byte in enumerate(data) if chr(byte).isalnum()] or [0]
        place = numbers.choice(alike)
        new = b"0123456789" if data[place : place + 1].isdigit() else b"abcxyz"
        data = numbers.choice(
            [
                lambda: data[:at] + numbers.choice(PIECES) + data[at:],  # noqa: B023
                lambda: data[:at] + numbers.choice(PIECES) + data[at + size :],  # noqa: B023
                lambda: data[:at] + bytes([numbers.randint(0, 255)]) + data[at + 1 :],  # noqa: B023
                lambda: data[:at] + data[at + size :],  # noqa: B023
                lambda: data[:at] + data[at : at + size] + data[at:],  # noqa: B023
                lambda: data[:other] + data[at : at + size] + data[other:],  # noqa: B023
                lambda: data[:at],  # noqa: B023
                *(lambda: data[:place] + bytes([numbers.choice(new)]) + data[place + 1 :],) * 4,  # noqa: B023
            ]
        )()
    return data


def saved(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


# What ooc makes of the same files.


def corpus(kind: str, bags: Any, **options: Any) -> Callable[[Path, Path], Any]:
    def made(path: Path, out: Path) -> list[Any]:
        dataset = ingest(CorpusRequest(kind, [str(path)], str(out), stop_words="none", **options), workers=1)
        return list(zip(dataset.document_names() or [""] * dataset.documents, bags(dataset), strict=True))

    return made


def design(kind: str, **options: Any) -> Callable[[Path, Path], Any]:
    def made(path: Path, out: Path) -> Any:
        matrix = ingest_design(DesignRequest(kind, [str(path)], str(out), **options), workers=1)
        x = design_back(matrix) + (0.0 if matrix.offsets is None else matrix.offsets)
        x = x.astype(np.float32).astype(np.float64).tolist()  # where there are offsets, it is known more precisely
        return x if matrix.y is None else (x, matrix.y.tolist())

    return made


def ldac(bags: Any) -> Callable[[Path, Path], Any]:
    def made(path: Path, out: Path) -> Any:
        words = path.with_name("words")
        words.write_text("".join(word + "\n" for word in LDAC_WORDS))
        return corpus("uci", bags, vocab=str(words))(path, out)

    return made


def plink(_: Any) -> Callable[[Path, Path], Any]:
    def made(path: Path, out: Path) -> Any:
        try:
            parts = parts_of(path.read_bytes())
        except InvalidFile:
            raise RequestError("these are not three files") from None
        for suffix, part in zip((".bim", ".fam", ".bed"), parts, strict=True):
            path.with_suffix(suffix).write_bytes(part)
        return design("plink")(path.with_suffix(".bed"), out)

    return made


class MutantReader(NamedTuple):
    """least: share of changed files that are read."""

    example: bytes
    plain: Callable[[bytes], Any]
    made: Callable[[Any], Callable[[Path, Path], Any]]
    least: float = 0.1


READERS = {
    "lines": MutantReader(
        "the fig\nA pear, \"and\" caf\u00e9\n\nplum plum 1.5\n".encode(),
        lines_in,
        lambda bags: corpus("text", bags, lines=True),
    ),
    "csv": MutantReader(
        b'id,text,more\n1,fig pear,a\n"2","a ""quoted"" plum\nover lines, too",b\n3,5" disk,\n',
        csv_in,
        lambda bags: corpus("csv", bags, name_column="id"),
    ),
    "jsonl": MutantReader(
        b'{"id": 1, "text": "fig pear"}\n\n{"text": ["a", "b c"], "id": "x"}\n'
        b'{"id": null, "text": "caf\\u00e9 \\n plum"}\n',
        json_in,
        lambda bags: corpus("jsonl", bags),
    ),
    "uci": MutantReader(b"3\n5\n4\n1 1 2\n1 5 1\n3 2 1\n3 3 10\n", uci_in, lambda bags: corpus("uci", bags)),
    "ratings": MutantReader(
        b'user,item,rating,when\nu1,i1,4,9\n"Smith, ""A""",i1,3.5,9\nu1, i2 ,-1e-1\nu1,i1,5,8\n',
        ratings_in,
        lambda _: lambda path, out: ratings_back(
            ingest_ratings(RatingsRequest([str(path)], str(out), format_options=RatingsFormatOptions(",")), workers=1)
        ),
    ),
    "svmlight": MutantReader(b"1 1:1 3:2.5 # a\n-1 2:1e-3\n\n0.5 1:0 4:7\n", svmlight_in, lambda _: design("svmlight")),
    "mtx": MutantReader(
        b"%%MatrixMarket matrix coordinate real general\n% by hand\n3 4 4\n1 1 1.5\n3 2 -2\n\n2 4 1e2\n1 2 0\n",
        market_in,
        lambda _: design("mtx"),
        0.05,
    ),
    "table": MutantReader(
        b'a,b,y\n1,2.5,3\n"4",-1e-2,"5"\n0,0,1\n', table_in, lambda _: design("csv", target="y")
    ),
    "lda-c": MutantReader(b"2 0:3 2:1\n0\n1 4:2\n3 1:1 0:1 3:2\n", ldac_in, ldac),
    "plink": MutantReader(
        b"1 rs1 0 5 A G\n1 rs2 0 9 C T\n2 rs3 0 7 G A\n--\nf1 i1 0 0 1 1.5\nf1 i2 0 0 2 -2\nf2 i1 0 0 1 3e1\n"
        b"f2 i2 0 0 2 4\nf3 i1 0 0 1 .5\n--\n\x6c\x1b\x01\xb8\x02\x2d\x03\xe4\x00",
        plink_in,
        plink,
    ),
    "npz": MutantReader(saved(lambda file: sparse.save_npz(file, MATRIX)), npz_in, lambda _: design("npz"), 0.01),
    "parquet": MutantReader(
        saved(lambda file: pyarrow.parquet.write_table(TABLE, file, write_page_checksum=True)),
        parquet_in,
        lambda _: design("csv", target="y"),
        0.01,
    ),
}  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("tries", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", READERS)
def test_a_changed_file_is_read_right_or_refused(tmp_path, bags, name, tries):
    reader = READERS[name]
    made, numbers = reader.made(bags), random.Random(f"{name} {tries}")
    ends: Counter[str] = Counter()
    for turn in range(tries):
        data = mutated(reader.example, numbers) if turn else reader.example
        path, out = tmp_path / "in", tmp_path / f"out{turn}"
        path.write_bytes(data)
        try:
            expected = reader.plain(data)
        except InvalidFile:
            expected = None
        try:
            found = made(path, out)
        except RequestError as error:
            assert str(error).count("\n") <= 1
            ends["refused" if expected is None else "refused, though plain Python reads it"] += 1
            continue
        assert found == expected, data
        ends["read"] += 1
    print(f"{name}: {dict(ends)}")
    assert ends["read"] > tries * reader.least
