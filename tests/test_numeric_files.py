"""Forms of svmlight files and of Matrix Market files, at the command line."""

from __future__ import annotations

import numpy as np
import pytest
from designs import read_back as design_back
from sample_sets import read_back as samples_back

from blocks import Design
from blocks.samples.samples import Samples


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_matrices_of_which_a_half_is_given(field, symmetry, tmp_path, ooc):
    random = np.random.default_rng(1)
    half = np.tril(random.integers(1, 9, (12, 12)) * (random.random((12, 12)) < 0.3), -1 if "skew" in symmetry else 0)
    half = (half > 0).astype(int) if field == "pattern" else half
    lines = [f"{i + 1} {j + 1}" + ("" if field == "pattern" else f" {half[i, j]}") for i, j in np.argwhere(half)]
    header = f"%%MatrixMarket matrix coordinate {field} {symmetry}\n% a comment\n12 12 {len(lines)}\n"
    (tmp_path / "in.mtx").write_text(header + "\n".join(lines) + "\n")
    assert ooc("ingest", "mtx", "in.mtx", "out").returncode == 0
    expected = half + np.tril(half, -1).T * (-1 if "skew" in symmetry else 1)
    np.testing.assert_array_equal(design_back(Design(tmp_path / "out")), expected)


@pytest.mark.parametrize("by_rows", [False, True])
def test_svmlight_from_zero_and_with_queries(by_rows, tmp_path, ooc):
    """Against scikit-learn's reader."""
    from sklearn.datasets import load_svmlight_file

    text = "2 qid:1 0:1.5 3:2\n1 qid:1 1:4 # a comment\n0 qid:27\n1 2:7\n"
    (tmp_path / "in.svm").write_text(text)
    options = ["--by-rows"] if by_rows else []
    refused = ooc("ingest", "svmlight", "in.svm", "no", *options)
    assert (refused.returncode, "line 1: index 0" in refused.stderr, "--zero-based" in refused.stderr) == (
        2,
        True,
        True,
    )
    made = ooc("ingest", "svmlight", "in.svm", "out", "--zero-based", *options)
    assert made.returncode == 0, made.stderr
    assert "note: qid, the query id of a row, is ignored" in made.stderr
    assert "qid, the query" in ooc("info", "out").stdout
    (tmp_path / "no.svm").write_text("1 0:1 # qid:3\n")
    assert ooc("ingest", "svmlight", "no.svm", "without", "--zero-based", *options).stderr == ""
    x, y = load_svmlight_file(str(tmp_path / "in.svm"), zero_based=True)
    if by_rows:
        expected = [
            (label, {j: row[j] for j in np.flatnonzero(row)}) for label, row in zip(y, x.toarray(), strict=True)
        ]
        assert samples_back(Samples(tmp_path / "out")) == expected
        return
    design = Design(tmp_path / "out")
    np.testing.assert_array_equal(design_back(design), x.toarray())
    np.testing.assert_array_equal(design.y, y)
    (tmp_path / "in.svm").write_text("1,2 1:1\n")
    refused = ooc("ingest", "svmlight", "in.svm", "no")
    assert (refused.returncode, "line 1: expected one label, got '1,2'" in refused.stderr) == (2, True)
    for line in ("1 qid: 1:1", "1 qid:a 1:1", "1 1:1 qid:3", "1 :1"):
        (tmp_path / "in.svm").write_text(line + "\n")
        assert ooc("ingest", "svmlight", "in.svm", "no").returncode == 2
