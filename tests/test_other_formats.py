"""Formats of other programs through the command line, beside the same data in a format that others test."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import bed_reader
import numpy as np
import pandas as pd
import pytest
from conftest import Ooc
from designs import read_back
from long_mark import long_but
from sklearn.linear_model import Lasso

from blocks import Dataset, Design, RequestError
from blocks.archives import archive_members
from blocks.text_inputs import InputOpenOptions


def test_bags_of_words_of_lda_c_are_those_of_uci(tmp_path: Path, ooc: Ooc) -> None:
    """Beside the UCI file of the same documents, empty ones and files of both kinds among them."""
    random = np.random.default_rng(11)
    counts = random.poisson(0.15, (3000, 50))
    counts[[0, 17, 2999]] = 0
    counts[1, 3] = 4
    vocabulary = [f"w{word:02}" for word in random.permutation(50)]
    (tmp_path / "vocab.txt").write_text("".join(word + "\n" for word in vocabulary))

    def write_ldac(path: Path, rows: np.ndarray) -> None:
        with path.open("w") as file:
            for row in rows:
                terms = random.permutation(np.flatnonzero(row))  # they need no order
                file.write(" ".join([str(terms.size), *(f"{term}:{row[term]}" for term in terms)]) + "\n")

    def write_uci(path: Path, rows: np.ndarray) -> None:
        entries = [(row + 1, word + 1, rows[row, word]) for row, word in zip(*np.nonzero(rows), strict=True)]
        lines = [f"{number}\n" for number in (*rows.shape, len(entries))]
        path.write_text("".join(lines + [" ".join(map(str, entry)) + "\n" for entry in entries]))

    write_uci(tmp_path / "all.txt", counts)
    write_ldac(tmp_path / "one.dat", counts[1:1200])
    write_uci(tmp_path / "two.txt", counts[1200:2000])
    write_ldac(tmp_path / "three.dat", counts[2000:])
    write_uci(tmp_path / "zero.txt", counts[:1])
    expected = ooc("ingest", "uci", "all.txt", "expected", "--vocab", "vocab.txt")
    found = ooc("ingest", "uci", "zero.txt", "one.dat", "two.txt", "three.dat", "found", "--vocab", "vocab.txt")
    assert (expected.returncode, found.returncode) == (0, 0), found.stderr
    for file in ("vocabulary.txt", "index.h5", "blocks/00000.h5"):
        assert (tmp_path / "found" / file).read_bytes() == (tmp_path / "expected" / file).read_bytes()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 0:1\n2 0:1 3:1\n", "in.dat, line 2: the term must be from 0 to 2, as in the vocabulary; got 3"),
        ("1 0:1\n3 0:1 2:1\n", "in.dat, line 2: the first number says 3 terms, but 2 follow"),
        ("1 0:1\n\n1 0:0\n", "in.dat, line 3: the count must be at least 1, got 0"),
        ("1 0:1\n1 0:-1\n", "in.dat, line 2: expected `terms term:count ...` in whole numbers, got '1 0:-1'"),
        ("1 0:999999999999\n", "in.dat: document 1 has 999,999,999,999 tokens"),
    ],
)
def test_bad_lines_of_lda_c_are_named(text: str, said: str, tmp_path: Path, ooc: Ooc) -> None:
    (tmp_path / "in.dat").write_text(text)
    (tmp_path / "vocab.txt").write_text("a\nb\nc\n")
    refused = ooc("ingest", "uci", "in.dat", "out", "--vocab", "vocab.txt")
    assert (refused.returncode, said in refused.stderr, "Traceback" in refused.stderr) == (2, True, False), (
        refused.stderr
    )
    without = ooc("ingest", "uci", "in.dat", "out")
    assert (without.returncode, "Set --vocab to the vocabulary file: line 1 is term 0." in without.stderr) == (
        2,
        True,
    )


TEXTS = {f"{group}/{number}.txt": f"{group} word{number} été\r\nmore" for group in ("a", "b") for number in range(700)}


def write_tar(path: Path, texts: dict[str, str], mode: str) -> None:
    """With a directory, a link, a device, hidden files and a long name, as tar programs write them."""
    with tarfile.open(path, mode) as archive:
        for kind, name in ((tarfile.DIRTYPE, "a"), (tarfile.SYMTYPE, "a/link"), (tarfile.CHRTYPE, "a/device")):
            special = tarfile.TarInfo(name)
            special.type, special.linkname = kind, "/etc/passwd"
            archive.addfile(special)
        for name, text in {"a/.git/0.txt": "no", "__MACOSX/a/0.txt": "no", **texts}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


def write_zip(path: Path, texts: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/", "")
        for name, text in {"a/.hidden": "no", "__MACOSX/a/0.txt": "no", **texts}.items():
            archive.writestr(name, text)


ARCHIVES = ["in.tar", "in.tar.gz", "in.tgz", "in.tar.bz2", "in.tar.xz", "in.zip"]


@pytest.mark.parametrize("name", long_but(["in.tar.gz", "in.zip"], ARCHIVES))
def test_files_in_an_archive_are_documents(name: str, tmp_path: Path, ooc: Ooc) -> None:
    texts = {**TEXTS, "a" * 90 + "/" + "b" * 90 + ".txt": "long name"}
    for path, text in texts.items():
        (tmp_path / "files" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / path).write_bytes(text.encode())
    in_order = dict(sorted(texts.items(), key=lambda item: Path(item[0])))
    if name.endswith("zip"):
        write_zip(tmp_path / name, in_order)
    else:
        kind = {"gz": "gz", "tgz": "gz", "bz2": "bz2", "xz": "xz"}.get(name.rpartition(".")[2], "")
        write_tar(tmp_path / name, in_order, f"w:{kind}")
    for source, out in (("files", "expected"), (name, "found")):
        done = ooc("ingest", "text", source, out, "--glob", "*.txt", "--workers", 2, "--memory", "320MB")
        assert done.returncode == 0, done.stderr
    assert Dataset(tmp_path / "found").document_names() == list(in_order)
    for file in ("vocabulary.txt", "documents.txt", "index.h5", "blocks/00000.h5"):
        assert (tmp_path / "found" / file).read_bytes() == (tmp_path / "expected" / file).read_bytes()


def test_archives_that_are_not_whole_are_refused(tmp_path: Path, ooc: Ooc) -> None:
    write_tar(tmp_path / "whole.tar", dict(list(TEXTS.items())[:20]), "w:")
    whole = (tmp_path / "whole.tar").read_bytes()
    header = whole.index(b"a/11.txt")
    wrong_size = bytearray(whole)
    wrong_size[header + 124 : header + 135] = b"77777777777"
    damaged = bytearray(whole)
    damaged[header + 2] ^= 1  # of the name: the checksum of the header says so
    with zipfile.ZipFile(tmp_path / "letter.docx", "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", "<w/>")
    for name, data, said in (
        ("cut.tar", whole[:header], "is truncated or damaged"),  # between two files
        ("middle.tar", whole[: header + 530], "is truncated or damaged"),
        ("cut.tar.gz", gzip.compress(whole)[:-200], "is truncated or damaged"),
        ("size.tar", bytes(wrong_size), "is truncated or damaged"),
        ("header.tar", bytes(damaged), "is truncated or damaged"),
        ("sum.tar.gz", gzip.compress(whole)[:-8] + bytes(8), "is truncated or damaged"),
        ("letter.docx", None, "is an office document"),
    ):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        refused = ooc("ingest", "text", name, "out")
        assert (refused.returncode, "Traceback" in refused.stderr) == (2, False), (name, refused)
        assert said in refused.stderr, (name, refused.stderr)
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["in.tar", "in.tar.gz", "in.zip"])
def test_damaged_archives_are_refused_or_read(name: str, tmp_path: Path) -> None:
    """Whatever bytes are others: in a line, or as files of which some are others; in no other way."""
    random, refused = np.random.default_rng(8), 0
    texts = dict(list(TEXTS.items())[:12]) | {"é" * 90 + "/long.txt": "a name in a header of its own"}
    if name.endswith("zip"):
        write_zip(tmp_path / name, texts)
    else:
        write_tar(tmp_path / name, texts, "w:gz" if name.endswith("gz") else "w:")
    whole = np.frombuffer((tmp_path / name).read_bytes(), np.uint8)
    for number in range(400):
        changed = whole.copy()
        if number % 2:
            changed = changed[: random.integers(1, changed.size)]
        else:
            changed[random.integers(0, changed.size, 3)] = random.integers(0, 256, 3)
        path = tmp_path / f"changed.{name.partition('.')[2]}"
        path.write_bytes(changed.tobytes())
        try:
            found = [
                member.name
                for member in archive_members(str(path), "*.txt", InputOpenOptions(longest=1 << 20), lambda size: None)
            ]
        except RequestError as error:
            assert "changed" in str(error)
            refused += 1
        else:
            assert number % 2 == 0 or name == "in.tar", "what is cut short is not read"
            assert len(found) <= len(texts) + 3
    assert refused > 200


@pytest.mark.long
def test_a_large_file_in_an_archive_does_not_fill_the_memory(tmp_path: Path, ooc: Ooc) -> None:
    (tmp_path / "zeros").write_bytes(b"word " * (50 << 20))
    with tarfile.open(tmp_path / "in.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(tmp_path / "zeros", "zeros")
    refused = ooc("ingest", "text", "in.tar.gz", "out", "--memory", "320MB")
    assert refused.returncode == 2
    assert "in.tar.gz/zeros, line 1: a record of more than" in refused.stderr


def test_what_export_writes_for_mallet_is_read(tmp_path: Path, ooc: Ooc) -> None:
    lines = ["Red fig fig", "", "plum O'Neill plum", "fig's 17 red"]
    (tmp_path / "in.tsv").write_text("id\ttext\n" + "".join(f"d{n}\t{line}\n" for n, line in enumerate(lines)))
    words = ["--token-pattern", r"\S+", "--no-lower", "--stop-words", "none", "--quote", "none"]
    assert ooc("ingest", "csv", "in.tsv", "first", "--name-column", "id", *words).returncode == 0
    assert ooc("train", "lda", "first", "run", "--topics", 2, "--iterations", 1).returncode == 0
    assert ooc("export", "run", "out", "--format", "mallet").returncode == 0
    columns = ["--no-header", "--delimiter", "tab", "--name-column", 1, "--text-column", 3]
    done = ooc("ingest", "csv", "out/corpus.txt", "again", *columns, *words)
    assert done.returncode == 0, done.stderr
    for file in ("vocabulary.txt", "documents.txt", "index.h5", "blocks/00000.h5"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "first" / file).read_bytes()


@pytest.mark.parametrize("where", ["fam", "npy"])
def test_individuals_without_a_phenotype_are_left_out(where: str, tmp_path: Path, ooc: Ooc) -> None:
    random = np.random.default_rng(6)
    x, y = random.choice([0.0, 1, 2, np.nan], (40, 9)), random.normal(size=40).round(3)
    missing = np.array([0, 7, 8, 39])
    told = np.array(y.astype(str), object)
    told[missing] = ["-9", "NA", "nan", "-9"]
    bed_reader.to_bed(tmp_path / "x.bed", x, properties={"pheno": told if where == "fam" else np.full(40, "-9")})
    target = [] if where == "fam" else ["--target", "y.npy"]
    np.save(tmp_path / "y.npy", np.where(np.isin(np.arange(40), missing), np.nan, y))
    refused = ooc("ingest", "plink", "x.bed", "out", *target)
    assert refused.returncode == 2
    done = ooc("ingest", "plink", "x.bed", "out", *target, "--skip-missing", "--block-size", "100B")
    assert done.returncode == 0, done.stderr
    assert "36 rows" in done.stdout
    assert "(4 rows without y left out)" in done.stdout
    kept = np.delete(np.arange(40), missing)
    design = Design(tmp_path / "out")
    np.testing.assert_array_equal(design.y, y[kept])
    np.testing.assert_allclose(
        read_back(design), np.where(np.isnan(x[kept]), np.nanmean(x[kept], axis=0), x[kept]), rtol=1e-15
    )
    assert "4 rows without y left out" in ooc("info", "out").stdout


PEOPLE = [(f"f{number // 3}", f"p{number}") for number in range(60)]


@pytest.fixture
def genotyped(tmp_path: Path) -> tuple[np.ndarray, np.ndarray]:
    """x.bed and what belongs to it: genotypes (60, 25), some missing, and phenotypes (60,), the seventh missing."""
    random = np.random.default_rng(8)
    x, y = random.choice([0.0, 1, 2, np.nan], (60, 25), p=[0.4, 0.3, 0.25, 0.05]), random.normal(size=60).round(3)
    told = np.array(y.astype(str), object)
    told[6] = "-9"
    names = dict(zip(("fid", "iid"), map(list, zip(*PEOPLE, strict=True)), strict=True))
    bed_reader.to_bed(tmp_path / "x.bed", x, properties={"pheno": told, **names})
    return x, y


@pytest.mark.few(1)
@pytest.mark.parametrize("header", long_but(["#FID IID", ""], ["FID IID", "#FID IID", "#IID", ""]))
def test_covariates_are_joined_by_name_and_count_in_a_regression(
    header: str, genotyped: tuple[np.ndarray, np.ndarray], tmp_path: Path, ooc: Ooc
) -> None:
    """Beside the table that pandas joins, and the Lasso of scikit-learn on it."""
    x, y = genotyped
    random = np.random.default_rng(9)
    covariates = np.column_stack(
        [random.normal(1960, 9, 60).round(1), random.integers(0, 2, 60), random.normal(size=60)]
    )
    names = ["birth", "sex", "score"] if header else ["COV1", "COV2", "COV3"]
    values = pd.DataFrame(covariates, columns=names, index=pd.MultiIndex.from_tuples(PEOPLE))
    values.loc[("f4", "p13"), names[2]] = np.nan
    told = values.drop(("f7", "p22"))
    told = pd.concat([told, pd.DataFrame([[1.0, 0, 0]], columns=names, index=[("f99", "p99")])]).sample(
        frac=1, random_state=1
    )
    lines = [f"{header}\t{' '.join(names)}\n"] if header else []
    for person, row in zip(told.index, told.to_numpy(), strict=True):
        fields = [*person[header == "#IID" :], *("NA" if np.isnan(value) else repr(float(value)) for value in row)]
        lines.append("  ".join(fields) + "\n")
    with gzip.open(tmp_path / "x.cov.gz", "wt") as file:
        file.writelines(lines)
    np.save(tmp_path / "y.npy", y)
    refused = ooc("ingest", "plink", "x.bed", "out", "--covariates", "x.cov.gz", "--target", "y.npy")
    assert (refused.returncode, "2 of 60 individuals have no covariates; the first is f4 p13" in refused.stderr) == (
        2,
        True,
    )
    done = ooc("ingest", "plink", "x.bed", "out", "--covariates", "x.cov.gz", "--skip-missing", "--block-size", "100B")
    assert done.returncode == 0, done.stderr
    assert "57 rows, 28 columns" in done.stdout
    assert (
        "(3 rows without y or covariates left out) (covariates of 1 individual without genotypes not used)"
        in done.stdout
    )
    kept = np.delete(np.arange(60), [6, 13, 22])
    filled = np.where(np.isnan(x[kept]), np.nanmean(x[kept], axis=0), x[kept])
    whole = np.column_stack([filled, values.to_numpy()[kept]])
    design = Design(tmp_path / "out")
    offsets = np.zeros(28) if design.offsets is None else design.offsets
    np.testing.assert_allclose(read_back(design) + offsets, whole, rtol=1e-6)
    assert design.column_names() == [*(f"sid{place}" for place in range(1, 26)), *names]
    assert "1 individual with covariates, but no genotypes" in ooc("info", "out").stdout
    assert ooc("verify", "out").returncode == 0
    trained = ooc("train", "lasso", "out", "run", "--lambda", 0.05 * 57, "--tolerance", 1e-9, "--no-standardize")
    assert trained.returncode == 0, trained.stderr
    assert ooc("predict", "run", "out", "y.csv").returncode == 0
    expected = Lasso(alpha=0.05, tol=1e-12, max_iter=10**6).fit(whole, y[kept])
    assert np.count_nonzero(expected.coef_[:25])
    assert np.count_nonzero(expected.coef_[25:])
    np.testing.assert_allclose(
        pd.read_csv(tmp_path / "y.csv").iloc[:, 1], expected.predict(whole), rtol=1e-4, atol=1e-5
    )
    assert ooc("shard", "out", "shards", "--shards", 2).returncode == 0
    parts = [read_back(Design(part)) for part in sorted((tmp_path / "shards").iterdir()) if part.is_dir()]
    given = np.column_stack([~np.isnan(x[kept]), np.ones((57, 3), bool)])
    np.testing.assert_allclose((np.concatenate(parts) + offsets)[given], whole[given], rtol=1e-6)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "x.cov, line 1: no covariates; expected FID IID name name ..."),
        ("FID IID\nf0 p0\n", "x.cov, line 1: no covariates; expected FID IID name name ..."),
        ("FID IID a b a\n", "x.cov, line 1: two covariates are named 'a'"),
        ("FID IID a b\n\nf0 p0 1\n", "x.cov, line 3: 3 fields, expected 4 as in the first line"),
        ("f0 p0 1\nf0 p1 many\n", "x.cov, line 2: COV1 must be a number, got 'many'"),
        ("FID IID age\nf0 p0 inf\n", "x.cov, line 2: age must be a number, got 'inf'"),
        ("FID IID age\nf0 p0 1e99\n", "x.cov, line 2, age: 1e99 is not a finite float32 number"),
        ("IID age\np0 1\np1 2\np0 1\n", "x.cov, line 4: the individual p0 appears on two lines"),
        ("IID age\np7 1\n", "x.cov: 59 of 60 individuals have no covariates; the first is f0 p0"),
        (b"IID age\np\xff 1\n", "x.cov, line 2: byte 0xff is not UTF-8"),
    ],
)
def test_covariates_that_cannot_be_joined_are_named(
    text: str | bytes, said: str, genotyped: object, tmp_path: Path, ooc: Ooc
) -> None:
    (tmp_path / "x.cov").write_bytes(text if isinstance(text, bytes) else text.encode())
    np.save(tmp_path / "y.npy", np.zeros(60))
    refused = ooc("ingest", "plink", "x.bed", "out", "--covariates", "x.cov", "--target", "y.npy")
    assert (refused.returncode, said in refused.stderr, "Traceback" in refused.stderr) == (2, True, False), (
        refused.stderr
    )
    assert not (tmp_path / "out").exists()
