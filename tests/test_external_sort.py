"""Rows that are read in another order than that in which they lie."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocks.errors import WorkFailed
from samplers import external_sort
from samplers.external_sort import ReorderedRows


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), max_size=40),
    missing=st.integers(0, 5),
    left_out=st.integers(0, 3),
    run=st.sampled_from([8, 40, 200, 1 << 20]),
    seed=st.integers(0, 99),
)
def test_rows_come_in_the_order_that_is_asked_for(sizes, missing, left_out, run, seed, tmp_path_factory):
    """Also where some do not come at all, and others are asked for that there are not."""
    random = np.random.default_rng(seed)
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    numbers = random.integers(0, 1 << 60, starts[-1]).astype(np.uint64)
    source = random.permutation(len(sizes))[left_out:]
    source = random.permutation(np.concatenate((source, np.full(missing, -1)))).astype(np.int64)
    rows = [numbers[starts[row] : starts[row + 1]] if row >= 0 else numbers[:0] for row in source]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(external_sort, "RUN", run)
        directory = tmp_path_factory.mktemp("spool")
        with ReorderedRows(directory, numbers, starts, source) as ordered:
            for _ in range(2):  # they can be read again
                found = list(ordered.runs())
                ends = [0] + [last for _, last, _ in found]
                assert [first for first, _, _ in found] == ends[:-1]
                assert ends[-1] == source.size
                for first, last, some in found:
                    assert some.tobytes() == np.concatenate([numbers[:0], *rows[first:last]]).tobytes()
        np.testing.assert_array_equal(np.diff(ordered.offsets), [row.size for row in rows])
        assert not list(directory.iterdir())


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    """/dev/full takes nothing."""
    monkeypatch.setattr(external_sort, "RUN", 64)
    full = Path("/dev/full").open("r+b", buffering=0)  # noqa: SIM115, closed by ReorderedRows
    monkeypatch.setattr(external_sort.tempfile, "TemporaryFile", lambda dir: full)
    numbers, starts = np.arange(100, dtype=np.uint64), np.arange(0, 101, 4)
    with pytest.raises(WorkFailed, match="the disk is full"), ReorderedRows(tmp_path, numbers, starts, np.arange(25)):
        pass
