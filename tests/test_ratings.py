"""Ratings to a matrix: every format, duplicates, names, and lines that are wrong."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rating_files import read_back

from blocks import RequestError
from blocks.ingestion.messages import LineChunk
from blocks.kinds import open_any
from blocks.ratings.formats import RatingsFormatOptions, detect_format, last_section
from blocks.ratings.ingestion import grid_size, ingest_ratings
from blocks.ratings.matrix import Matrix
from blocks.ratings.matrix_writer import Entries, column_order, write_column_slice, write_row_block
from blocks.ratings.rating_parser import RatingsParser
from blocks.ratings.request import RatingsRequest
from blocks.text_inputs import TextInput
from blocks.verify import repair_dataset, verify_dataset

RATINGS = [("7", "32", 4.0), ("7", "5", 2.5), ("12", "32", 1.0), ("7", "100", 5.0), ("30", "5", 3.0)]


def ingested(path: Path, content: str | bytes, **options: object) -> Matrix:
    name = path / "ratings.txt"
    name.write_bytes(content.encode() if isinstance(content, str) else content)
    return ingest_ratings(RatingsRequest([str(name)], str(path / "matrix"), **options), workers=2)  # type: ignore[arg-type]


def lines(form: str) -> str:
    """`RATINGS` in one of the formats."""
    if form == "netflix":
        items = {item: [(user, value) for user, other, value in RATINGS if other == item] for _, item, _ in RATINGS}
        sections = (f"{item}:\n" + "".join(f"{u},{v:g},2005-09-06\n" for u, v in of) for item, of in items.items())
        return "".join(sections)
    if form == "mtx":
        entries = "".join(f"{user} {item} {value:g}\n" for user, item, value in RATINGS)
        return f"%%MatrixMarket matrix coordinate real general\n% by hand\n30 100 {len(RATINGS)}\n{entries}"
    if form == "csv":
        return "userId,movieId,rating,timestamp\r\n" + "".join(f'"{u}",{i},{v:g},9\r\n' for u, i, v in RATINGS)
    mark = {"movielens": "::", "tsv": "\t", "blanks": "   ", "semicolons": ";"}[form]
    return "".join(mark.join((user, item, f"{value:.1f}", "978300760")) + "\n" for user, item, value in RATINGS)


@pytest.mark.parametrize("form", ["movielens", "csv", "tsv", "blanks", "semicolons", "netflix", "mtx"])
def test_every_format_is_recognised(tmp_path, form):
    matrix = ingested(tmp_path, lines(form))
    expected = {(user, item): value for user, item, value in RATINGS}
    assert read_back(matrix) == read_back(matrix, by_column=True) == expected
    assert matrix.row_names() == ["7", "12", "30"]
    assert matrix.column_names() == ["5", "32", "100"]
    assert (matrix.rows, matrix.columns, matrix.entries) == (3, 3, 5)
    assert (matrix.low, matrix.high, matrix.mean) == (1.0, 5.0, pytest.approx(3.1))


def test_lines_of_two_fields_are_ratings_of_one(tmp_path):
    matrix = ingested(tmp_path, "anna\tmilk\nben\tbread\nanna\tbread\n")
    assert read_back(matrix) == {("anna", "milk"): 1, ("anna", "bread"): 1, ("ben", "bread"): 1}


def test_the_last_of_several_ratings_counts(tmp_path):
    matrix = ingested(tmp_path, "a x 1\nb x 2\na x 3\na y 4\na x 5\n")
    assert read_back(matrix) == read_back(matrix, by_column=True) == {("a", "x"): 5, ("b", "x"): 2, ("a", "y"): 4}
    assert matrix.manifest["made"]["duplicates"] == 2


names = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"], exclude_characters='":'), min_size=1)
triples = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20), st.floats(-9, 9, width=16)), min_size=1)


@settings(deadline=None, max_examples=50)
@given(triples, st.integers(1, 5), st.integers(0, 3))
def test_a_block_and_its_columns_hold_the_last_entry_of_each_place(tmp_path_factory, triples, slices, seed):
    """Rows in any order, empty slices; entries row by row and column by column are the same."""
    root = tmp_path_factory.mktemp("block")
    (root / "blocks").mkdir()
    (root / "slices").mkdir()
    rows, columns, values = (np.array(side) for side in zip(*triples, strict=True))
    entries = Entries(rows.astype(np.uint32), columns.astype(np.uint32), values.astype(np.float32))
    bounds = np.linspace(0, 21, slices + 1).astype(np.int64)
    entry, block = write_row_block(root, 0, entries, bounds, seed)
    expected = {(row, column): np.float32(value) for row, column, value in triples}
    of_rows = np.repeat(block.rows, np.diff(block.offsets))
    assert dict(zip(zip(of_rows.tolist(), block.columns.tolist(), strict=True), block.values, strict=True)) == expected
    assert all((np.diff(block.columns[a:b].astype(int)) > 0).all() for a, b in pairwise(block.offsets))
    assert (entry["entries"], entry["duplicates"]) == (len(expected), len(triples) - len(expected))
    by_column = column_order(block)
    assert sum(entry["cells"]) == len(expected)
    found = {}
    for number, (first, last) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        mine = slice(*np.searchsorted(by_column.columns, (first, last)))
        assert mine.stop - mine.start == entry["cells"][number]
        part = Entries(by_column.rows[mine], by_column.columns[mine], by_column.values[mine])
        write_column_slice(root, f"slices/{number}.h5", [part], first, last)
        found |= {(int(block.rows[r]), int(c)): v for r, c, v in zip(*part, strict=True)}
    assert found == expected


@settings(deadline=None)
@given(st.lists(st.tuples(names, names, st.floats(-1e6, 1e6)), min_size=1, max_size=20), st.sampled_from("\t;,"))
def test_any_names_and_numbers_are_read_back(found, mark):
    """Numbers in Python's notation, exponents among them, blanks and quotes around fields."""
    found = [(u.replace(mark, ""), i.replace(mark, ""), v) for u, i, v in found]
    plain = str.maketrans("", "", "\t;,")  # the first line has to say which mark it is
    found[0] = found[0][0].translate(plain), found[0][1].translate(plain), found[0][2]
    found = [(u or "u", i or "i", v) for u, i, v in found]
    text = "".join(f' "{u}"{mark}{i} {mark}{v!r}{mark}more\n' for u, i, v in found)
    reader = RatingsParser(-np.inf, np.inf, skip=False)
    with NamedTemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        form = detect_format(TextInput(file.name), RatingsFormatOptions())
    read = reader.read(LineChunk(0, "x", 1, text.encode(), form))
    assert read.users.joined == b"".join(u.encode() + b"\n" for u, _, _ in found) + b"\xff"
    assert read.items.joined == b"".join(i.encode() + b"\n" for _, i, _ in found) + b"\xff"
    assert np.allclose(read.values, [v for *_, v in found], rtol=1e-14, atol=1e-250)


BAD = {
    "a\tx\t3\nb\ty\n": "line 2: expected `user item rating`, got 'b\\\\ty'",
    "a\tx\t3\n\ty\t2\n": "line 2: expected `user item rating`, got",
    "a,x,3\nb,y,good\n": "line 2: 'good' is not a rating",
    "a,x,3\n\nb,y,nan\n": "line 3: the rating must be a finite number, got 'nan'",
    "a,x,3\nb,y,1e999\n": "line 2: the rating must be a finite number, got '1e999'",
    "user,item,rating\na,x,3\nb,y,7\n": "line 3: the rating 7 is not between 0 and 5",
    "1:\na,3\n2:\nb,-1\n": "line 4: the rating -1 is not between 0 and 5",
    "1:\na,3\nb\n": "line 3: expected `user rating`, got 'b'",
}


@pytest.mark.parametrize("content", BAD)
def test_a_bad_line_is_named_and_nothing_is_left(tmp_path, content):
    with pytest.raises(RequestError, match=f"ratings.txt, {BAD[content]}"):
        ingested(tmp_path, content, low=0.0, high=5.0)
    assert [file.name for file in tmp_path.iterdir()] == ["ratings.txt"]


@pytest.mark.parametrize("content", BAD)
def test_bad_lines_can_be_left_out(tmp_path, content):
    matrix = ingested(tmp_path, content, low=0.0, high=5.0, on_error="skip")
    assert matrix.entries == 1
    assert matrix.manifest["made"]["skipped"] == 1
    assert "ratings.txt, line" in matrix.manifest["made"]["first_skipped"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "expected `user item rating`, got"),
        ("alone\n", "line 1: expected `user item rating`, got 'alone'"),
        ("user,item,rating\n", "no ratings found"),
        ("%%MatrixMarket matrix array real general\n1 1\n3\n", "expected the header of a sparse general matrix"),
        (
            "%%MatrixMarket matrix coordinate real symmetric\n1 1 1\n1 1 1\n",
            "expected the header of a sparse general matrix",
        ),
        (
            "%%MatrixMarket matrix coordinate real general\n% x\n1 1\n1 1 1\n",
            "line 3: expected `rows columns entries`, got '1 1'",
        ),
    ],
)
def test_what_holds_no_ratings_is_refused(tmp_path, content, told):
    with pytest.raises(RequestError, match=told):
        ingested(tmp_path, content)
    assert [file.name for file in tmp_path.iterdir()] == ["ratings.txt"]


def many(seed: int, size: int) -> str:
    random = np.random.default_rng(seed)
    users, items = random.zipf(1.3, size) % 5000, random.zipf(1.2, size) % 800
    return "".join(
        f"u{user}::{item}::{value}\n"
        for user, item, value in zip(users, items, random.integers(1, 11, size) / 2, strict=True)
    )


def test_workers_and_chunks_do_not_change_the_matrix(tmp_path, monkeypatch):
    """Also the sections of Netflix files reach over chunks."""
    monkeypatch.setattr("blocks.text_inputs.CHUNK", 1 << 12)
    matrices = []
    for workers in (1, 3):
        path = tmp_path / str(workers)
        path.mkdir()
        (path / "a.txt").write_text(many(1, 3000))
        with gzip.open(path / "b.txt.gz", "wt") as file:
            file.write("".join(f"{item}:\n" + "".join(f"u{u},3,x\n" for u in range(item)) for item in range(1, 60)))
        request = RatingsRequest([str(path / "a.txt"), str(path / "b.txt.gz")], str(path / "m"), grid=4)
        matrices.append(ingest_ratings(request, workers=workers))
    assert matrices[0].identity == matrices[1].identity
    found = read_back(matrices[0])
    assert found == read_back(matrices[0], by_column=True)
    expected = {
        (user, item): float(value) for user, item, value in (line.split("::") for line in many(1, 3000).splitlines())
    } | {(f"u{u}", str(item)): 3.0 for item in range(1, 60) for u in range(item)}
    assert found == expected
    assert (matrices[0].block_count, matrices[0].slice_count) == (4, 4)
    assert (matrices[0].index.cells > 0).all()


def test_the_names_of_another_matrix_are_kept(tmp_path):
    base = ingested(tmp_path, lines("tsv"))
    (tmp_path / "more.txt").write_text("7\t32\t1\nnew\t32\t2\n12\tnever\t3\n30\t100\t4\n")
    request = RatingsRequest([str(tmp_path / "more.txt")], str(tmp_path / "more"), names_from=str(base.path))
    more = ingest_ratings(request, workers=1)
    assert read_back(more) == read_back(more, by_column=True) == {("7", "32"): 1, ("30", "100"): 4}
    assert more.row_names() == base.row_names()
    assert np.array_equal(more.index.column_ids, base.index.column_ids)
    assert more.manifest["made"]["unknown"] == 2


def test_a_damaged_slice_is_found_and_written_anew(tmp_path):
    matrix = ingested(tmp_path, many(2, 2000), grid=3)
    assert verify_dataset(matrix, bar=_bar).problems == []
    path = matrix.path / matrix.manifest["slices"][1]["file"]
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    report = verify_dataset(matrix, bar=_bar)
    assert report.damaged == [matrix.manifest["slices"][1]["file"]]
    assert "ooc verify --repair" in report.remedies[-1]
    assert repair_dataset(matrix.path, report)
    assert path.read_bytes() == content
    assert verify_dataset(open_any(matrix.path), bar=_bar).problems == []


def _bar(*_: object) -> object:
    from blocks.progress_bar import no_bar

    return no_bar()


@pytest.mark.parametrize(("entries", "grid"), [(5, 1), (1 << 15, 2), (1 << 20, 16), (1 << 24, 16), (10**9, 954)])
def test_the_grid_grows_with_the_entries(entries, grid):
    assert grid_size(entries) == grid


def test_the_last_section_of_a_chunk_is_found():
    assert last_section(b"1:\n3,4\n2:\n5,1\n") == b"2:\n"
    assert last_section(b"3,4\n5,6\n") == b""


@pytest.mark.long
def test_the_jokes_of_jester(tmp_path, data_directory: Path):
    jokes = str(data_directory / "jester.txt.gz")
    matrix = ingest_ratings(RatingsRequest([jokes], str(tmp_path / "jester")), workers=2)
    assert (matrix.rows, matrix.columns, matrix.entries) == (24_983, 100, 1_810_455)
    assert (matrix.low, matrix.high) == (pytest.approx(-9.95), 10.0)
    assert verify_dataset(matrix, bar=_bar).problems == []
