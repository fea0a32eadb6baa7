"""Reads past the page cache give what is in the file, wherever they begin and end."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ooc import direct
from ooc.direct import Reader

SIZE = 3 * 4096 + 1000
CONTENT = np.random.default_rng(0).bytes(SIZE)
reads = st.lists(st.tuples(st.integers(0, SIZE + 5000), st.integers(0, 9000), st.booleans()), max_size=20)


@pytest.fixture(scope="module", params=["disk", "memory"])
def file(request, tmp_path_factory):
    """A file on the disk, and one in a file system that may not read directly."""
    folder = tmp_path_factory.mktemp("direct")
    path = folder / "file" if request.param == "disk" else Path(f"/dev/shm/ooc-test-direct-{os.getpid()}")
    if not path.parent.is_dir():
        pytest.skip(f"there is no {path.parent}")
    path.write_bytes(CONTENT)
    yield path
    path.unlink()


@settings(max_examples=60, deadline=None)
@given(reads, st.sampled_from([4096, 8192, 1 << 16]))
def test_any_reads(file, asked, room):
    """Some follow the read before, as the cells of a block do; buffers smaller than a read are filled again."""
    whole, direct._ROOM = direct._ROOM, room
    try:
        reader = Reader(file)
        end = 0
        for at, size, follows in asked:
            begin = end if follows else at
            into = bytearray(size)
            got = reader.read(begin, memoryview(into))
            assert bytes(into[:got]) == CONTENT[begin : begin + size]
            assert got == len(CONTENT[begin : begin + size])
            end = begin + size
        reader.close()
    finally:
        direct._ROOM = whole


def test_what_was_just_written_is_read(tmp_path):
    """Before it is on the disk, and when it was read before."""
    path = tmp_path / "file"
    for content in (b"a" * 5000, b"b" * 5000):
        path.write_bytes(content)
        reader, into = Reader(path), bytearray(4000)
        assert reader.read(1000, memoryview(into)) == 4000
        assert bytes(into) == content[:4000]
        reader.close()
