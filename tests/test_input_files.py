"""Files as people have them, through the command line: read right, or refused in a line that names file, line and cure.

What is right is found by Python: its decoders, `csv`, and the pattern of a token.
"""

# ruff: noqa: E501  (tables of cases, one a line)
from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import re
import zipfile
from collections import Counter

import numpy as np
import pytest
from designs import read_back as design_back
from numpy.lib import format as npy
from rating_files import read_back as ratings_back

from blocks import Dataset, Design
from blocks.ratings.matrix import Matrix

ROWS = [["1", "fig pear"], ["2", "café noir"], ["3", 'a 5" disk'], ["4", "two\nlines, here"], ["5", ""], ["6", "plum"]]
REVIEWS = "".join(f"{i}\t{chr(34) if i % 5 == 0 else ''}great fig{i}\n" for i in range(40))
DISKS = "id,text\n" + "".join(f'{i},5" disk of the long kind{i % 7}\n' for i in range(90_000))


def as_csv(rows: list[list[str]] = ROWS, **options: object) -> str:
    text = io.StringIO()
    csv.writer(text, **options).writerows([["id", "text"], *rows])  # type: ignore[arg-type]
    return text.getvalue()


def tokens(text: str) -> Counter[str]:
    return Counter(re.findall(r"(?u)\b\w\w+\b", text.lower()))


ALL = [text for _, text in ROWS]
READ = {  # name, content, arguments, and the texts that are in it
    "line feeds": ("in.csv", as_csv(lineterminator="\n"), ["csv"], ALL),
    "dos line breaks": ("in.csv", as_csv(), ["csv"], ALL),
    "returns alone": ("in.csv", as_csv(lineterminator="\r"), ["csv"], ALL),
    "mixed line breaks": (
        "in.csv",
        "id,text\r1,apple\r\n2,pear\r3,plum\n4,fig\n",
        ["csv"],
        ["apple", "pear", "plum", "fig"],
    ),
    "semicolons": ("in.csv", as_csv(delimiter=";"), ["csv", "--delimiter", ";"], ALL),
    "semicolons by name": ("in.csv", as_csv(delimiter=";"), ["csv", "--delimiter", "semicolon"], ALL),
    "bars": ("in.csv", as_csv(delimiter="|"), ["csv", "--delimiter", "pipe"], ALL),
    "tabs by name": ("in.txt", as_csv(delimiter="\t"), ["csv", "--delimiter", "tab"], ALL),
    "tabs by escape": ("in.txt", as_csv(delimiter="\t"), ["csv", "--delimiter", r"\t"], ALL),
    "tabs by suffix": ("in.tsv", as_csv(delimiter="\t"), ["csv"], ALL),
    "other quotes": ("in.csv", as_csv(quotechar="'"), ["csv", "--quote", "'"], ALL),
    "all fields quoted": ("in.csv", as_csv(quoting=csv.QUOTE_ALL), ["csv", "--name-column", "id"], ALL),
    "quotes that are letters": (
        "in.tsv",
        "id\ttext\n" + REVIEWS,
        ["csv", "--quote", "none"],
        [line.split("\t")[1] for line in REVIEWS.splitlines()],
    ),
    "quotes in fields, over chunks": ("in.csv", DISKS, ["csv"], [row[1] for row in csv.reader(DISKS.splitlines()[1:])]),
    "latin-1": ("in.csv", as_csv().encode("latin-1"), ["csv", "--encoding", "latin-1"], ALL),
    "utf-16": ("in.csv", as_csv().encode("utf-16"), ["csv"], ALL),
    "utf-16 without a mark": ("in.csv", as_csv().encode("utf-16-le"), ["csv", "--encoding", "utf-16-le"], ALL),
    "utf-32": ("in.csv", as_csv().encode("utf-32"), ["csv"], ALL),
    "a mark of utf-8": ("in.csv", codecs.BOM_UTF8 + as_csv().encode(), ["csv", "--name-column", "id"], ALL),
    "lines of utf-16": ("in.txt", "fig pear\r\nplum\r\n".encode("utf-16"), ["text", "--lines"], ["fig pear", "plum"]),
    "lines that end with returns": (
        "in.txt",
        "fig pear\rplum\rlime",
        ["text", "--lines"],
        ["fig pear", "plum", "lime"],
    ),
    "a file with a mark": ("in.txt", codecs.BOM_UTF8 + b"fig pear", ["text"], ["fig pear"]),
    "a file of latin-1": ("in.txt", "café".encode("latin-1"), ["text", "--encoding", "latin-1"], ["café"]),
    "json with a mark": ("in.jsonl", codecs.BOM_UTF8 + b'{"text": "fig"}\n', ["jsonl"], ["fig"]),
    "json of utf-16": ("in.jsonl", '{"text": "fig"}\n'.encode("utf-16"), ["jsonl"], ["fig"]),
    "gzip without its suffix": ("in.txt", gzip.compress(b"fig\nplum\n"), ["text", "--lines"], ["fig", "plum"]),
    "words like first bytes of other formats": (
        "in.txt",
        "BZhang\nPAR1 gene\n",
        ["text", "--lines"],
        ["BZhang", "PAR1 gene"],
    ),
    "the name of a format first": ("in.txt", "PAR1 gene\n", ["text", "--lines"], ["PAR1 gene"]),
    "bzip2": ("in.txt.bz2", bz2.compress(b"fig\n") + bz2.compress(b"plum\n"), ["text", "--lines"], ["fig", "plum"]),
}


@pytest.mark.parametrize("name", READ)
def test_text_is_read(tmp_path, ooc, bags, name):
    file, content, (kind, *options), texts = READ[name]
    (tmp_path / file).write_bytes(content.encode() if isinstance(content, str) else content)
    made = ooc("ingest", kind, file, "out", "--stop-words", "none", *options)
    assert (made.returncode, made.stderr) == (0, "")
    assert bags(Dataset(tmp_path / "out")) == [tokens(text) for text in texts]


def npz(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def header_alone(shape: tuple[int, ...]) -> bytes:
    """An .npz file with an array X that is said to have this shape."""
    header, archive = io.BytesIO(), io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("X.npy", header.getvalue() + bytes(1000))
    return archive.getvalue()


def csr(**arrays: object) -> bytes:
    parts = {"indptr": np.array([0, 1]), "indices": np.array([0]), "data": np.ones(1), "shape": np.array([1, 3])}
    return npz(**{**parts, "format": b"csr", **arrays})


MARKET = "%%MatrixMarket matrix {} real general\n"
UNCLOSED = "id,text\n" + "".join(f"{i},{chr(34) if i == 3000 else ''}fig\n" for i in range(1, 5001))
REFUSED = {  # file name, content, arguments, part of the message, part of the remedy
    "a quote that is not closed": (
        "in.csv", UNCLOSED, ["csv"], "in.csv, line 3001: a quoted field begins here and is not closed", "--quote none"
    ),
    "the same, skipping": (
        "in.csv", UNCLOSED, ["csv", "--on-error", "skip"], "line 3001: a quoted field begins here", "--quote none"
    ),
    "text after a quote": (
        "in.tsv", "id\ttext\n" + REVIEWS, ["csv"], "line 2: text follows the closing quote of a field", "--quote none"
    ),
    "latin-1": (
        "in.csv", b'id,text\n0,fig\n1,5" disk\n2,caf\xe9\n', ["csv"],
        "in.csv, line 4: byte 0xe9 is not UTF-8; as cp1252 it reads '2,café'", "--encoding cp1252",
    ),
    "a header of latin-1": ("in.csv", b"id,caf\xe9\n", ["csv"], "in.csv, line 1: byte 0xe9 is not UTF-8", "cp1252"),
    "utf-16 without a mark": ("in.csv", as_csv().encode("utf-16-le"), ["csv"], "line 1: a NUL byte", "utf-16-le"),
    "another encoding than said": (
        "in.txt", b"fig\nplum\x81\n", ["text", "--encoding", "cp1252"], "in.txt, line 2: byte 0x81 is not cp1252", "iconv"
    ),
    "an unknown encoding": ("in.txt", b"fig", ["text", "--encoding", "utf-9"], "--encoding: unknown encoding 'utf-9'", "utf-8"),
    "no encoding of text": ("in.txt", b"fig", ["text", "--encoding", "rot13"], "--encoding: unknown encoding 'rot13'", "utf-8"),
    "one column": ("in.csv", "id;text\n1;fig\n", ["csv"], "no column 'text'; its columns are 'id;text'", "--delimiter semicolon"),
    "two characters": ("in.csv", "a\n", ["csv", "--delimiter", "||"], "--delimiter must be one ASCII character, or one of", ""),
    "a return": ("in.csv", "a\n", ["csv", "--delimiter", "\r"], "--delimiter must be one ASCII character, or one of", ""),
    "the same twice": ("in.csv", "a\n", ["csv", "--quote", ","], "--quote and --delimiter must differ, got ',' for both", "--quote none"),
    "one known name": ("in.csv", "user,thing\nu1,t1\n", ["ratings"], "'user' looks like a name of the user column", "--item-column"),
    "a zip archive": ("in.txt", npz(a=1, b=2), ["jsonl"], "in.txt is a zip archive of 2 files", "Unpack it"),
    "a PDF document": ("in.pdf", b"%PDF-1.7\n", ["text"], "in.pdf is a PDF document, not text", "pdftotext"),
    "a Parquet file": ("in.parquet", b"PAR1\x15", ["jsonl"], "in.parquet is a Parquet file, not text", "ooc ingest csv"),
    "not compressed": ("in.txt.gz", b"fig", ["text"], "in.txt.gz is not a .gz file, but not compressed", "Rename"),
    "otherwise compressed": ("in.gz", bz2.compress(b"fig"), ["text"], "in.gz is not a .gz file, but a .bz2 file", "Rename"),
    "an empty .gz": ("in.gz", b"", ["text"], "in.gz is truncated or damaged", "again"),
    "words without end": (
        "in.uci", "3\n2147483648\n1\n1 1 1\n", ["uci"], "in.uci, line 2: the header says 2,147,483,648 words", "--memory"
    ),
    "documents without end": ("in.uci", "900000000\n5\n1\n1 1 1\n", ["uci"], "--memory 953MiB is too small", ""),
    "columns without end": (
        "in.mtx", MARKET.format("coordinate") + "2 4000000000 1\n1 1 1\n", ["mtx"],
        "the header of in.mtx says 4,000,000,000 columns, but only", "--memory",
    ),
    "a row without end": ("in.npz", header_alone((1, 1_880_000_000)), ["npz"], "1,880,000,000 columns", "--memory"),
    "no columns": ("in.npz", npz(X=np.zeros((5, 0))), ["npz"], "in.npz: X has 5 rows and 0 columns", ""),
    "no rows": ("in.npz", csr(indptr=np.zeros(0, int), shape=np.array([0, 3])), ["npz"], "0 rows and 3 columns", ""),
    "no offsets": ("in.npz", csr(indptr=np.zeros(0, int)), ["npz"], "in.npz: indptr must ascend from 0 to", ""),
    "a shape of floats": ("in.npz", csr(shape=np.array([1.0, 3.0])), ["npz"], "array shape has dtype float64", ""),
    "indices of floats": ("in.npz", csr(indices=np.array([0.5])), ["npz"], "array indices has dtype float64", ""),
    "fewer indices": ("in.npz", csr(data=np.ones(2)), ["npz"], "the arrays have different shapes", ""),
    "objects": ("in.npz", npz(X=np.array([[None]])), ["npz"], "array X has dtype object", ""),
    "a long name of a format": ("in.npz", csr(format=b"csr" * 999), ["npz"], "array format takes", ""),
    "not a number": (
        "in.npz", npz(X=np.array([[1, np.nan]])), ["npz"], "in.npz, row 1, column 2 (counted from 1): nan is not", "missing"
    ),
    "a vertical tab": ("in.svm", b"\x0b\n1 1:1\n", ["svmlight"], "in.svm, line 1: the label must be a finite number, got ''", "label"),
    "another .bed": ("in.bed", b"abcd", ["plink"], "in.bed is not a PLINK 1 .bed file", "plink"),
    "an empty .bed": ("in.bed", b"", ["plink"], "in.bed is not a PLINK 1 .bed file", "plink"),
    "by individual": ("in.bed", b"\x6c\x1b\x00\x00", ["plink"], "individual-major order", "--make-bed"),
    "a decimal comma": ("in.csv", "u1;i1;4,5\n", ["ratings"], "line 1: cannot tell whether the comma in '4,5' is a decimal comma", "--decimal ,"),
    "a decimal comma after blanks": ("in.txt", "1 2 3,5\n", ["ratings"], "line 1: cannot tell whether the comma in '3,5' is a decimal comma", "--decimal ,"),
    "no rating": ("in.csv", "u1,i1,NA\nu2,i1,3\n", ["ratings"], "in.csv, line 1: 'NA' is not a rating", "--user-column"),
    "a header that is not known": ("in.csv", "a,b,c\nu2,i1,3\n", ["ratings"], "line 1: 'c' is not a rating", "--user-column"),
    "an unclear rating": (
        "in.csv", "user,item,when\nu,i,3\n", ["ratings"], "which of 'user', 'item', 'when' is the rating", "--rating-column"
    ),
    "a column that is not there": (
        "in.csv", "a,b\nu,i\n", ["ratings", "--user-column", "x"], "line 1: no column 'x'; the columns are 'a', 'b'", "--user-column"
    ),
    "no column 0": (
        "in.csv", "u,i,3\n", ["ratings", "--user-column", 0, "--item-column", 2], "columns are counted from 1", ""
    ),
    "one column twice": (
        "in.csv", "u,i,3\n", ["ratings", "--user-column", 2, "--item-column", 2], "--user-column and --item-column", ""
    ),
    "few entries": (
        "in.mtx", MARKET.format("coordinate") + "3 3 4\n1 1 1\n2 2 3\n", ["ratings"],
        "in.mtx: the header says 4 entries, but 2 follow", "truncated",
    ),
    "a negative index": (
        "in.mtx", MARKET.format("coordinate") + "3 3 2\n-1 1 1\n2 2 3\n", ["ratings"],
        "in.mtx, line 3: the user must be from 1 to 3, as the header says; got '-1'", "",
    ),
    "an index above the size": (
        "in.mtx", MARKET.format("coordinate") + "3 3 1\n1 4 1\n", ["ratings"], "line 3: the item must be from 1 to 3, as the header says; got '4'", ""
    ),
    "users of latin-1": (
        "in.csv", b"caf\xe9,i1,3\ncaf\xe8,i1,4\n", ["ratings"], "line 1: byte 0xe9 is not UTF-8", "--encoding cp1252"
    ),
    "a user with a NUL": ("in.csv", b"a\0b,i1,3\n", ["ratings"], "line 1: binary data (a NUL byte)", "skip"),
    "a header and a quote": ("in.csv", 'user,"item,rating\nu,i,3\n', ["ratings"], "line 1: 'user,\"item,rating' has a quote", "none"),
    "a rating and a quote": ("in.csv", '"a"b,i1,3\n', ["ratings"], "line 1: '\"a\"b,i1,3' has a quote", "--quote none"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_told(tmp_path, ooc, name):
    file, content, (kind, *options), told, remedy = REFUSED[name]
    (tmp_path / file).write_bytes(content.encode() if isinstance(content, str) else content)
    if kind == "plink":
        (tmp_path / "in.bim").write_text("1 rs1 0 1 A G\n")
        (tmp_path / "in.fam").write_text("f i 0 0 1 1.5\n")
    given = sorted(tmp_path.iterdir())
    failed = ooc("ingest", kind, file, "out", "--memory", "1GB", *options)
    assert (failed.returncode, failed.stdout) == (2, "")
    first, *rest = failed.stderr.splitlines()
    assert first.startswith("ooc: ")
    assert told in first
    assert len(rest) <= 1
    assert remedy in "".join(rest)
    assert sorted(tmp_path.iterdir()) == given


def test_bad_rows_can_be_left_out(tmp_path, ooc, bags):
    """Rows with bad bytes, with text after a quote, with too few columns: each is counted, and none beside it is lost."""
    (tmp_path / "in.csv").write_bytes(b'id,text\n1,fig\n2,caf\xe9\n3,"a\nb" c\n4\n5,"two\nlines"\n6,5" disk\n')
    made = ooc("ingest", "csv", "in.csv", "out", "--on-error", "skip", "--stop-words", "none")
    assert "skipped 3 bad records, the first: in.csv, line 3: byte 0xe9 is not UTF-8" in made.stderr
    assert bags(Dataset(tmp_path / "out")) == [tokens("fig"), tokens("two lines"), tokens("disk")]


MORE_RATINGS = {
    "decimal commas": ("u1;i1;4,5\nu2;i1;3\n", ["--decimal", ","], {("u1", "i1"): 4.5, ("u2", "i1"): 3}),
    "decimal commas after blanks": ("1 2 3,5\n", ["--decimal", ","], {("1", "2"): 3.5}),
    "two columns with a header": ("user,item\nu1,i1\nu2,i1\n", [], {("u1", "i1"): 1, ("u2", "i1"): 1}),
    "columns by their names": (
        "movieId,title,userId,timestamp,rating\n7,x,u1,99,3\n", [], {("u1", "7"): 3}
    ),
    "columns that are named": (
        "when,who,what,how\n1,u1,i1,3\n",
        ["--user-column", "who", "--item-column", "what", "--rating-column", "how"],
        {("u1", "i1"): 3},
    ),
    "columns that are numbered": (
        "9,i1,3,u1\n", ["--user-column", 4, "--item-column", 2, "--rating-column", 3], {("u1", "i1"): 3}
    ),
    "no rating": ("u1,i1,2024\n", ["--rating-column", "none"], {("u1", "i1"): 1}),
    "delimiters in quotes": (
        '"Smith, Ann",Film,5\n"say ""hi""",Film,4\n', [], {("Smith, Ann", "Film"): 5, ('say "hi"', "Film"): 4}
    ),
    "quotes that are letters": ('"a,i1,3\n', ["--quote", "none"], {('"a', "i1"): 3}),
    "bars": ("u1|i1|3\n", [], {("u1", "i1"): 3}),
    "two colons in quotes": ('u1::"a""b"::3\n', [], {("u1", 'a"b'): 3}),
    "two colons in a name": ('u1::"a::b"::3\nu\x1f2::i1::4\n', [], {("u1", "a::b"): 3, ("u\x1f2", "i1"): 4}),
    "colons": ("u1:i1:3\n", ["--delimiter", "colon"], {("u1", "i1"): 3}),
    "latin-1": ("café,i1,3\ncafè,i1,4\n".encode("latin-1"), ["--encoding", "latin-1"], {("café", "i1"): 3, ("cafè", "i1"): 4}),
    "utf-16": ("user,item,rating\r\nu1,i1,3\r\n".encode("utf-16"), [], {("u1", "i1"): 3}),
    "returns alone": ("item,user,rating\ri1,u1,3\ri2,u1,4\r", [], {("u1", "i1"): 3, ("u1", "i2"): 4}),
}  # fmt: skip


@pytest.mark.few(8)
@pytest.mark.parametrize("name", MORE_RATINGS)
def test_ratings_are_read(tmp_path, ooc, name):
    content, options, expected = MORE_RATINGS[name]
    (tmp_path / "in").write_bytes(content.encode() if isinstance(content, str) else content)
    made = ooc("ingest", "ratings", "in", "out", *options)
    assert (made.returncode, made.stderr) == (0, "")
    assert ratings_back(Matrix(tmp_path / "out")) == expected


MORE_TABLES = {
    "decimal commas": ("a;y\n1,5;2\n2;3,25\n", ["--delimiter", ";", "--decimal", ","], [[1.5], [2]], [2, 3.25]),
    "returns alone": ("a,y\r1,2\r2,3\r", [], [[1], [2]], [2, 3]),
    "quotes in a column that is left out": ('n,a,y\n5" disk,1,2\n"a\nb",2,3\n', ["--drop", "n"], [[1], [2]], [2, 3]),
    "other quotes": ("a,y\n'1','2'\n", ["--quote", "'"], [[1]], [2]),
    "utf-16": ("a,y\n1,2\n".encode("utf-16"), [], [[1]], [2]),
}


@pytest.mark.parametrize("name", MORE_TABLES)
def test_tables_are_read(tmp_path, ooc, name):
    content, options, x, y = MORE_TABLES[name]
    (tmp_path / "in.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    made = ooc("ingest", "csv", "in.csv", "out", "--target", "y", *options)
    assert (made.returncode, made.stderr) == (0, "")
    design = Design(tmp_path / "out")
    assert design_back(design).tolist() == x
    assert design.y is not None
    assert design.y.tolist() == y


@pytest.mark.parametrize("memory", ["320MB", "4GB"])
def test_blank_lines_of_a_dense_matrix_do_not_count(tmp_path, ooc, memory):
    """Also where the memory is so small that chunks end between them."""
    x = np.random.default_rng(0).integers(0, 100, (600, 300))
    lines = [f"{value}\n" + "\n" * (place % 3 == 0) for place, value in enumerate(x.T.ravel().tolist())]
    (tmp_path / "in.mtx").write_text(MARKET.format("array") + "600 300\n" + "".join(lines))
    made = ooc("ingest", "mtx", "in.mtx", "out", "--memory", memory, "--workers", 1)
    assert (made.returncode, made.stderr) == (0, "")
    assert (design_back(Design(tmp_path / "out")) == x).all()


def test_a_record_may_be_as_long_as_the_memory_allows(tmp_path, ooc, bags):
    """A file of one document, a line, a row of a table; all are refused, with the line, before they are held."""
    (tmp_path / "in.txt").write_text("fig pear " * 1_000_000)
    with gzip.open(tmp_path / "in.csv.gz", "wt") as file:
        file.write("id,text\n1,fig\n2," + "fig " * 5_000_000 + "\n")
    for kind, name in (("text", "in.txt"), ("csv", "in.csv.gz")):
        failed = ooc("ingest", kind, name, "out", "--memory", "320MB")
        line = 3 if kind == "csv" else 1
        assert f"{name}, line {line}: a record of more than 4.2 MB begins here" in failed.stderr
        assert "--memory" in failed.stderr
    assert ooc("ingest", "text", "in.txt", "out", "--memory", "4GB").returncode == 0
    assert bags(Dataset(tmp_path / "out")) == [Counter(fig=1_000_000, pear=1_000_000)]


def test_directories_hold_documents_and_other_things(tmp_path, ooc, bags):
    """Hidden files, datasets and runs are left out and counted; links are followed, each directory is read once."""
    texts = tmp_path / "texts"
    (texts / "a" / ".git").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    for name, text in (("a/one.txt", "fig pear"), ("a/.hidden", "no"), ("a/.git/two.txt", "no"), ("b.txt", "plum")):
        (texts / name).write_text(text)
    (tmp_path / "elsewhere" / "three.txt").write_text("lime")
    (texts / "c").symlink_to(tmp_path / "elsewhere")
    (texts / "c" / "up").symlink_to(texts)
    assert ooc("ingest", "text", "texts/b.txt", "texts/old", "--stop-words", "none").returncode == 0
    made = ooc("ingest", "text", "texts", "out", "--stop-words", "none")
    assert made.returncode == 0
    assert made.stderr.splitlines() == [
        "left out 2 hidden files in the input directories",
        "left out 1 datasets or runs in the input directories",
    ]
    assert bags(Dataset(tmp_path / "out")) == [Counter(fig=1, pear=1), Counter(plum=1), Counter(lime=1)]
    assert (tmp_path / "out" / "documents.txt").read_text().split() == ["a/one.txt", "b.txt", "c/three.txt"]
    inside = ooc("ingest", "text", "texts", "texts/new")
    assert (inside.returncode, inside.stderr.splitlines()[0]) == (
        2,
        "ooc: the output texts/new is inside the input directory texts",
    )


MALLET = 'd1\tsport\tThe coach, the goal\nd2\tlaw\t"objection" he said\nd3\tlaw\ta judge\n'


def test_tables_without_a_header_have_numbers_for_columns(tmp_path, ooc):
    """The lines that MALLET imports, and numbers."""
    (tmp_path / "in.txt").write_text(MALLET)
    how = ["--no-header", "--delimiter", "tab", "--quote", "none", "--name-column", "1"]
    assert ooc("ingest", "csv", "in.txt", "out", *how, "--text-column", "3").returncode == 0
    dataset = Dataset(tmp_path / "out")
    assert (dataset.documents, dataset.document_names()) == (3, ["d1", "d2", "d3"])
    assert dataset.vocabulary() == ["coach", "goal", "judge", "objection"]
    refused = ooc("ingest", "csv", "in.txt", "no", *how)
    assert (refused.returncode, "no column 'text'; its columns are '1', '2', '3'" in refused.stderr) == (2, True)
    (tmp_path / "in.csv").write_text("1,2.5,0\n3,4.5,1\n")
    assert ooc("ingest", "csv", "in.csv", "design", "--no-header", "--target", "3", "--drop", "1").returncode == 0
    design = Design(tmp_path / "design")
    assert (design_back(design).tolist(), design.y.tolist()) == ([[2.5], [4.5]], [0, 1])
    assert design.column_names() == ["2"]
