"""What is read and written past the page cache is what is in the file, wherever it begins and ends."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ooc import direct
from ooc.direct import PAGE, Reader, Writer, whole_pages

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


@contextmanager
def room(size):
    """Buffers of so many bytes meanwhile."""
    whole, direct._ROOM = direct._ROOM, size
    try:
        yield
    finally:
        direct._ROOM = whole


rooms = st.sampled_from([4096, 8192, 1 << 16])


@settings(max_examples=60, deadline=None)
@given(reads, rooms)
def test_any_reads(file, asked, size_of_buffers):
    """Some follow the read before, as the cells of a block do; buffers smaller than a read are filled again."""
    with room(size_of_buffers), closing(Reader(file)) as reader:
        end = 0
        for at, size, follows in asked:
            begin = end if follows else at
            into = bytearray(size)
            got = reader.read(begin, memoryview(into))
            assert bytes(into[:got]) == CONTENT[begin : begin + size]
            assert got == len(CONTENT[begin : begin + size])
            end = begin + size


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9000), max_size=12), st.randoms(use_true_random=False), rooms, st.booleans())
def test_any_writes(file, sizes, random, size_of_buffers, in_turn):
    """Pieces that each begin a page, one after the other or not; zeros follow each."""
    content = file.read_bytes()
    begins = np.concatenate(([0], np.cumsum(whole_pages(np.array(sizes, np.int64)))))
    pieces = [(int(begin), random.randbytes(size)) for begin, size in zip(begins, sizes, strict=False)]
    file.write_bytes(bytes([255]) * int(begins[-1]))
    try:
        with room(size_of_buffers), closing(Writer(file)) as writer:
            for begin, piece in pieces if in_turn else random.sample(pieces, len(pieces)):
                writer.write(begin, memoryview(piece))
            writer.flush()
        assert file.read_bytes() == b"".join(piece.ljust(whole_pages(len(piece)), b"\0") for _, piece in pieces)
        assert int(begins[-1]) % PAGE == 0
    finally:
        file.write_bytes(content)


def test_a_file_system_without_direct_writes_keeps_little_in_memory(file, monkeypatch):
    """What waits in the page cache is handed to the disk after so many bytes."""
    synced = []
    fdatasync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(fdatasync(descriptor)))
    monkeypatch.setattr(direct, "_UNWRITTEN", 3 * PAGE)
    content = file.read_bytes()
    with room(PAGE), closing(Writer(file)) as writer:
        writer._direct = False
        for page in range(2):
            writer.write(page * PAGE, memoryview(content)[page * PAGE :][:PAGE])
        assert not synced
        writer.write(2 * PAGE, memoryview(content)[2 * PAGE :][:PAGE])
        writer.write(0, memoryview(content)[:PAGE])
        assert len(synced) == 1
    assert file.read_bytes() == content


def test_what_was_just_written_is_read(tmp_path):
    """Before it is on the disk, and when it was read before."""
    path = tmp_path / "file"
    for content in (b"a" * 5000, b"b" * 5000):
        path.write_bytes(content)
        reader, into = Reader(path), bytearray(4000)
        assert reader.read(1000, memoryview(into)) == 4000
        assert bytes(into) == content[:4000]
        reader.close()
