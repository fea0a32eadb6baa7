"""Design matrices: every format to the same columns, their moments, and input that is wrong."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import bed_reader
import numpy as np
import pytest
import scipy.sparse
from designs import WAYS, InlineWorkers, ingested, kind_of, read_back, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from blocks import Design, RequestError
from blocks.design import ingestion as design_ingestion
from blocks.design.formats import SvmlightFormat
from blocks.design.svmlight import read
from blocks.kinds import open_any
from blocks.number_fields import is_number, parse_number
from blocks.progress_bar import no_bar
from blocks.verify import verify_dataset

MANY = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def inline(monkeypatch):
    """Ingestion works in this process."""
    monkeypatch.setattr(design_ingestion, "WorkerPool", InlineWorkers)


@st.composite
def matrices(draw) -> np.ndarray:
    """float64 of float32 numbers, from all zeros to dense, with columns that are constant, of ones or small numbers."""
    shape = draw(st.tuples(st.integers(1, 12), st.integers(1, 9)))
    numbers = draw(st.sampled_from([st.just(1.0), st.integers(-127, 127), st.floats(-1e6, 1e6, width=32)]))
    fill = draw(st.sampled_from([st.just(0.0), numbers]))
    return draw(arrays.arrays(np.float64, shape, elements=st.one_of(fill, numbers), fill=fill))


def problems(design: Design) -> list[str]:
    return verify_dataset(design, bar=no_bar).problems


def check_moments(design: Design, x: np.ndarray) -> None:
    scale = np.abs(x).max(axis=0)
    assert np.allclose(design.means, x.mean(axis=0), rtol=1e-12, atol=1e-12 * scale.max())
    assert np.allclose(design.norms, np.linalg.norm(x, axis=0), rtol=1e-12)
    assert (np.abs(design.deviations - x.std(axis=0)) <= 1e-12 * scale).all()
    assert np.array_equal(design.deviations == 0, (x == x[0]).all(axis=0))


@MANY
@given(x=matrices(), way=st.sampled_from(WAYS), data=st.data())
def test_every_format_is_read_back(tmp_path_factory, inline, x, way, data):
    """With chunks and blocks of any size."""
    folder = tmp_path_factory.mktemp("design")
    y = data.draw(arrays.arrays(np.float64, len(x), elements=st.floats(-1e6, 1e6)))
    path, options = write(way, x, y, folder)
    block_bytes = data.draw(st.sampled_from([1, 60, 200, 1000]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(design_ingestion, "_LARGEST_CHUNK", data.draw(st.integers(1, 200)))
        if way == "svmlight" and not x[:, -1].any():
            x = x[:, : np.flatnonzero(x.any(axis=0)).max(initial=-1) + 1]  # the file does not tell of more
        if x.size == 0:
            with pytest.raises(RequestError, match="0 columns"):
                ingested(kind_of(way), path, folder / "out", **options)
            return
        design = ingested(kind_of(way), path, folder / "out", block_bytes=block_bytes, **options)
    assert np.array_equal(read_back(design), x)
    assert np.allclose(design.y, y, rtol=1e-15)
    assert (design.rows, design.columns, design.entries) == (*x.shape, np.count_nonzero(x))
    check_moments(design, x)
    assert problems(design) == []
    small = (x == np.rint(x)).all() and np.abs(x).max() <= 127
    bytes_of = {"float32": 4 * x.size, "sparse": 8 * design.entries}
    bytes_of |= {"int8": x.size} if small else {}
    bytes_of |= {"ones": 4 * design.entries} if (x[x != 0] == 1).all() else {}
    assert bytes_of[design.form] == min(bytes_of.values())


@MANY
@given(st.data())
def test_missing_genotypes_count_as_the_mean(tmp_path_factory, inline, data):
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 9)))
    x = data.draw(arrays.arrays(np.float32, shape, elements=st.sampled_from([0.0, 1.0, 2.0, np.nan])))
    folder = tmp_path_factory.mktemp("plink")
    y = np.arange(len(x)) / 4
    bed_reader.to_bed(folder / "x.bed", x, properties={"pheno": y, "sid": [f"rs{v}" for v in range(shape[1])]})
    design = ingested("plink", folder / "x.bed", folder / "out", block_bytes=data.draw(st.sampled_from([1, 30, 100])))
    known = np.where(np.isnan(x).all(axis=0), 0, x)
    expected = np.where(np.isnan(known), np.nanmean(known, axis=0, dtype=np.float64), known)
    assert np.allclose(read_back(design), expected, rtol=1e-15)
    check_moments(design, read_back(design))
    assert np.array_equal(design.y, y)
    assert design.column_names() == [f"rs{v}" for v in range(shape[1])]
    assert (design.form, design.missing, problems(design)) == ("int8", np.isnan(x).sum(), [])


@settings(deadline=None)
@given(st.floats(-1e200, 1e200), st.sampled_from(["{!r}", "{:.3f}", "{:+.17e}", "{:.0f}"]))
def test_numbers_are_read_as_python_reads_them(value, form):
    text = form.format(value).encode()
    found, good = parse_number(np.frombuffer(text, np.uint8), 0, len(text), ord("."))
    assert good
    assert np.isclose(found, float(text), rtol=1e-15, atol=1e-250)
    if len(repr(value).strip("-0.").replace(".", "")) <= 15 and 1e-7 < abs(value) < 1e15 and form == "{!r}":
        assert found == value


@pytest.mark.parametrize(
    "text", ["", "-", ".", "1e", "1e+", "nan", "inf", "1e999", "0x1", "1 2", "1_0", "--1", "1.2.3"]
)
def test_what_is_no_number_is_not_read(text):
    assert not is_number(text.encode())


def test_scikit_learn_reads_and_writes_the_same(tmp_path):
    x = scipy.sparse.random_array((200, 70), density=0.1, rng=np.random.default_rng(1), format="csr")
    file = io.BytesIO()
    dump_svmlight_file(x, np.arange(200) % 3, file, zero_based=False, comment="by scikit-learn")
    rows = read(file.getvalue(), "x", 1, SvmlightFormat())
    file.seek(0)
    expected, y = load_svmlight_file(file, zero_based=False)
    assert np.array_equal(rows.y, y)
    assert np.allclose(rows.entries["value"], expected.data, rtol=1e-15)
    assert np.array_equal(rows.entries["column"], expected.indices)
    assert np.array_equal(rows.entries["row"], np.repeat(np.arange(200), np.diff(expected.indptr)))


def test_comments_blank_lines_and_zeros_of_svmlight(tmp_path, inline):
    (tmp_path / "x.svm").write_bytes(b"# made by hand\n\n+1 2:1e0 3:0 # 4:1\r\n \t\n-1\t1:-.5   3:2.\n2")
    design = ingested("svmlight", tmp_path / "x.svm", tmp_path / "out")
    assert read_back(design).tolist() == [[0, 1, 0], [-0.5, 0, 2], [0, 0, 0]]
    assert design.y.tolist() == [1, -1, 2]
    assert design.column_names() is None


def test_quotes_dropped_columns_and_several_files_of_csv(tmp_path, inline):
    header = 'id,"the  price",size,"a\nb"\n'
    (tmp_path / "a.csv").write_text(f'{header}"x, ""y""\n",1.5,"2", 3 \n\nz,2,4,5\n')
    with gzip.open(tmp_path / "b.csv.gz", "wt", newline="") as file:
        file.write(header.replace("\n", "\r\n") + "w,3,6,7\r\n")
    files = [tmp_path / "a.csv", tmp_path / "b.csv.gz"]
    design = ingested("csv", files, tmp_path / "out", target="the price", drop=["id"])
    assert read_back(design).tolist() == [[2, 3], [4, 5], [6, 7]]
    assert (design.y.tolist(), design.column_names()) == ([1.5, 2, 3], ["size", "a b"])
    (tmp_path / "new.csv").write_text("a b;more;size\n1;?;2\n")
    new = ingested("csv", tmp_path / "new.csv", tmp_path / "new", columns_from=str(design.path), delimiter=";")
    assert (read_back(new).tolist(), new.y, new.column_names()) == ([[2, 1]], None, ["size", "a b"])


def test_a_svmlight_file_takes_the_columns_of_another(tmp_path, inline):
    (tmp_path / "a.svm").write_text("1 7:1\n")
    (tmp_path / "b.svm").write_text("1 2:3\n")
    ingested("svmlight", tmp_path / "a.svm", tmp_path / "a")
    design = ingested("svmlight", tmp_path / "b.svm", tmp_path / "b", columns_from=str(tmp_path / "a"))
    assert read_back(design).tolist() == [[0, 3, 0, 0, 0, 0, 0]]
    (tmp_path / "b.svm").write_text("1 8:3\n")
    with pytest.raises(RequestError, match="line 1: index 8 is above 7"):
        ingested("svmlight", tmp_path / "b.svm", tmp_path / "c", columns_from=str(tmp_path / "a"))


def test_workers_memory_and_chunks_do_not_change_the_design(tmp_path, monkeypatch):
    random = np.random.default_rng(3)
    x = scipy.sparse.random_array((3000, 400), density=0.02, rng=random).toarray()
    x[:, 5] = random.random(3000)
    path, _ = write("svmlight", x, random.random(3000), tmp_path)
    identities = set()
    for workers, chunk in ((1, 1 << 24), (2, 1 << 14)):
        monkeypatch.setattr(design_ingestion, "_LARGEST_CHUNK", chunk)
        design = ingested("svmlight", path, tmp_path / f"out-{workers}", workers=workers, block_bytes=1 << 15)
        identities.add(design.identity)
        assert np.array_equal(read_back(design), x.astype(np.float32))
    assert len(identities) == 1
    assert design.block_count > 4


BAD = {
    "1 1:1\n1 3:1 2:1\n": "line 2: index 2 comes after 3",
    "1 1:1\n\n1 2:1 2:1\n": "line 3: index 2 occurs twice",
    "1 1:1\n1 0:1\n": "line 2: index 0",
    "1 1:nan\n": "line 1: '1:nan': the value is not a finite",
    "1 1:1e39\n": "line 1: '1:1e39': the value is not a finite float32 number",
    "1 1:1\nnan 1:1\n": "line 2: the label must be a finite number, got 'nan'",
    "1 1:1\n1 a:1\n": "line 2: expected `index:value`, got 'a:1'",
    "1 1:1\n1 qid:3a 1:1\n": "line 2: expected `index:value`, got 'qid:3a'",
    "1 1:1\n1 1\n": "line 2: expected `index:value`, got '1'",
    "1 1:\n": "line 1: '1:': the value",
    "1 4294967296:1\n": "line 1: index 4294967296 is above 4294967295",
    "1 99999999999999999999:1\n": "line 1: index 99999999999999999999 is above",
    "": "0 rows",
}


@pytest.mark.parametrize("content", BAD)
def test_a_bad_line_of_svmlight_is_named_and_nothing_is_left(tmp_path, inline, content):
    (tmp_path / "x.svm").write_text(content)
    with pytest.raises(RequestError, match=f"x.svm.*{BAD[content]}"):
        ingested("svmlight", tmp_path / "x.svm", tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["x.svm"]


BAD_TABLES = {
    "a,b,y\n1,2,3\n1,,3\n": "line 3: column 'b': the field is empty",
    "a,b,y\n1,2,3\n1,2,NA\n": "line 3: column 'y': expected a finite float32 number, got 'NA'",
    "a,b,y\n1,male,3\n": "line 2: column 'b': expected a finite float32 number, got 'male'",
    "a,b,y\n1,2,3\n\n1,2\n": "line 4: 2 fields, expected 3 as in the header",
    "a,b,y\n1,2,3,4\n": "line 2: 4 fields, expected 3 as in the header",
    'a,b,y\n1,"2,3\n': "line 2: a quoted field begins here and is not closed",
    "a,a,y\n1,2,3\n": "line 1: two columns are named 'a'",
    "a,b\n1,2\n": "has no column 'y'; its columns are 'a', 'b'",
    "a,b,y\n": "0 rows",
    "y\n1\n": "0 columns",
}


@pytest.mark.parametrize("content", BAD_TABLES)
def test_a_bad_row_of_a_table_is_named(tmp_path, inline, content):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(RequestError, match=f"x.csv.*{BAD_TABLES[content]}"):
        ingested("csv", tmp_path / "x.csv", tmp_path / "out", target="y")


COORDINATE = "%%MatrixMarket matrix coordinate real general\n% comment\n3 2 2\n"
BAD_MARKETS = {
    "%%MatrixMarket matrix coordinate complex general\n": "line 1: expected the header of a real MatrixMarket matrix",
    "%%MatrixMarket matrix array real symmetric\n": "line 1: expected the header of a real MatrixMarket matrix",
    "%%MatrixMarket matrix coordinate real general\n3 2\n": "line 2: expected `rows columns entries`, got '3 2'",
    f"{COORDINATE}1 1 1\n": "the header says 2 entries, but 1 follow",
    f"{COORDINATE}1 1 1\n4 1 1\n": "line 5: row '4', column '1' is outside the matrix",
    f"{COORDINATE}1 1 1\n1 0 1\n": "line 5: row '1', column '0' is outside the matrix",
    f"{COORDINATE}1 1 1\n1 1.5 1\n": "line 5: row '1', column '1.5' is outside the matrix",
    f"{COORDINATE}1 1 1\n1 1\n": "line 5: expected `row column value`, got '1 1'",
    f"{COORDINATE}1 1 nan\n1 1 1\n": "line 4: expected `row column value`, got '1 1 nan'",
    f"{COORDINATE}1 1 1\n1 1 2\n": r"two entries for row 1, column 1 \(counted from 1\)",
    "%%MatrixMarket matrix array real general\n2 1\n1\n2\n3\n": "line 5: more than the 2 values that the header says",
    "%%MatrixMarket matrix array real general\n2 1\n1\n": "the header says 2 entries, but 1 follow",
}


@pytest.mark.parametrize("content", BAD_MARKETS)
def test_a_bad_line_of_a_matrix_is_named(tmp_path, inline, content):
    (tmp_path / "x.mtx").write_text(content)
    with pytest.raises(RequestError, match=f"x.mtx.*{BAD_MARKETS[content]}"):
        ingested("mtx", tmp_path / "x.mtx", tmp_path / "out")


def test_an_entry_that_stands_twice_is_named_in_a_dense_design_too(tmp_path, inline):
    entries = "".join(f"{row} {column} {row + column / 7}\n" for row in (1, 2, 3) for column in (1, 2))
    (tmp_path / "x.mtx").write_text(COORDINATE.replace("3 2 2", "3 2 7") + entries + "2 2 8\n")
    with pytest.raises(RequestError, match="two entries for row 2, column 2"):
        ingested("mtx", tmp_path / "x.mtx", tmp_path / "out")


def save(path: Path, **members: object) -> None:
    np.savez(path, **members)  # type: ignore[arg-type]


def test_infinities_of_float16_are_named(tmp_path, inline):
    """Where the largest float32 is infinite, too."""
    save(tmp_path / "x.npz", X=np.array([[1, 2], [3, -np.inf]], np.float16))
    with pytest.raises(RequestError, match=r"row 2, column 2 .*-inf is not a finite"):
        ingested("npz", tmp_path / "x.npz", tmp_path / "out")


BAD_ARRAYS = {
    "neither": ({"data": np.ones(2)}, "neither an array X nor a sparse matrix"),
    "complex": ({"X": np.ones((2, 2), complex)}, "array X has dtype complex128; expected real numbers"),
    "vector": ({"X": np.ones(2)}, r"X must be two-dimensional, got shape \(2,\)"),
    "nan": ({"X": np.array([[1, 2], [3, np.nan]])}, r"row 2, column 2 \(counted from 1\): nan is not a finite"),
    "labels": ({"X": np.ones((2, 2)), "y": np.ones(3)}, "has 3 y values, but .* has 2 rows"),
    "label": ({"X": np.ones((2, 2)), "y": np.array([1, np.inf])}, "label 2: inf is not a finite"),
    "format": ({"format": b"dia", "shape": (2, 2)}, "a sparse matrix in dia format"),
    "outside": (
        {"format": b"coo", "shape": (2, 2), "row": np.array([0, 2]), "col": np.array([0, 1]), "data": np.ones(2)},
        "an entry is in row 2, column 1 .* but the matrix has 2 rows",
    ),
    "indptr": (
        {"format": b"csr", "shape": (2, 2), "indptr": [0, 2, 1], "indices": [0, 1], "data": [1.0, 2.0]},
        "indptr must ascend",
    ),
    "infinite": (
        {"format": b"csr", "shape": (1, 2), "indptr": [0, 2], "indices": [0, 1], "data": [1.0, np.inf]},
        r"row 1, column 2 \(counted from 1\): inf is not a finite",
    ),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays_are_told(tmp_path, inline, case):
    members, told = BAD_ARRAYS[case]
    save(tmp_path / "x.npz", **members)
    with pytest.raises(RequestError, match=f"x.npz.*{told}|{told}"):
        ingested("npz", tmp_path / "x.npz", tmp_path / "out")


def test_an_archive_cut_short_is_told(tmp_path, inline):
    save(tmp_path / "x.npz", X=np.ones((2, 2)))
    (tmp_path / "x.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:100])
    with pytest.raises(RequestError, match=r"x\.npz is truncated or damaged"):
        ingested("npz", tmp_path / "x.npz", tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("1\n2\n", "y.txt has 2 y values, but .* has 3 rows"),
        ("1\n2\nx\n", "y.txt, line 3: .*got 'x'"),
    ],
)
def test_bad_labels_are_told(tmp_path, inline, content, told):
    (tmp_path / "y.txt").write_text(content)
    save(tmp_path / "x.npz", X=np.ones((3, 2)))
    with pytest.raises(RequestError, match=told):
        ingested("npz", tmp_path / "x.npz", tmp_path / "out", target=str(tmp_path / "y.txt"))


PHENOTYPES = {
    "-9 -9": None,
    "0 1": [0.0, 1.0],
    "0 -9": "line 2: the phenotype is missing .coded as -9",
    "1 2": [1.0, 2.0],
    "0 2": "line 1: the phenotype is missing .coded as 0",
    "1.5 NA": "line 2: the phenotype is missing .coded as NA",
    "1.5 NaN": "line 2: the phenotype is missing .coded as NaN",
    "-9.0 1.5": "line 1: the phenotype is missing .coded as -9.0",
    **{f"1.5 {bad}": f"line 2: the phenotype must be a number, got '{bad}'" for bad in ("tall", "inf", "1_0", "1e999")},
}


@pytest.mark.parametrize("phenotypes", PHENOTYPES)
def test_phenotypes(tmp_path, inline, phenotypes):
    bed_reader.to_bed(tmp_path / "x.bed", np.array([[0.0, 1], [2, 1]]))
    fam = zip("ab", phenotypes.split(), strict=True)
    (tmp_path / "x.fam").write_text("".join(f"f {name} 0 0 0 {phenotype}\n" for name, phenotype in fam))
    expected = PHENOTYPES[phenotypes]
    if isinstance(expected, str):
        with pytest.raises(RequestError, match=expected):
            ingested("plink", tmp_path / "x.bed", tmp_path / "out")
        return
    y = ingested("plink", tmp_path / "x", tmp_path / "out").y
    assert (None if y is None else y.tolist()) == expected


def test_a_bed_file_of_another_size_is_told(tmp_path, inline):
    bed_reader.to_bed(tmp_path / "x.bed", np.ones((5, 2)))
    (tmp_path / "x.bed").write_bytes((tmp_path / "x.bed").read_bytes()[:-1])
    with pytest.raises(RequestError, match=r"6 bytes, but 5 individuals and 2 variants take 7"):
        ingested("plink", tmp_path / "x.bed", tmp_path / "out")


def test_damage_is_found(tmp_path, inline):
    path, _ = write("svmlight", np.eye(40), np.ones(40), tmp_path)
    design = ingested("svmlight", path, tmp_path / "out", block_bytes=100)
    block = design.path / design.manifest["blocks"][2]["file"]
    content = block.read_bytes()
    block.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    report = verify_dataset(open_any(design.path), bar=no_bar)
    assert report.damaged == ["blocks/00002.h5"]
    assert report.remedies[-1] == "4 of 5 blocks are undamaged, with 32 of 40 columns."


@pytest.mark.long
def test_20_newsgroups(tmp_path, data_directory: Path):
    file = data_directory / "20news.train.svm.gz"
    design = ingested("svmlight", file, tmp_path / "news", workers=2, block_bytes=1 << 21)
    with gzip.open(file) as opened:
        x, y = load_svmlight_file(opened, zero_based=False)
    assert (design.rows, design.columns) == x.shape
    assert np.array_equal(design.y, y)
    found = scipy.sparse.vstack(
        [
            scipy.sparse.csr_array(
                (block.values, block.rows.astype(np.int64), block.offsets), (len(block.offsets) - 1, design.rows)
            )
            for block in map(design.block, range(design.block_count))
        ]
    )
    assert (found != x.T.astype(np.float32)).nnz == 0
    assert problems(design) == []
