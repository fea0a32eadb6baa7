"""What is read and written past the page cache is what is in the file."""

from __future__ import annotations

import mmap
import os
from contextlib import closing
from pathlib import Path

import pytest

from ooc.state import direct_io
from ooc.state.direct_io import PAGE, DirectIoFile

SIZE = 3 * PAGE + 1000


@pytest.fixture(params=["disk", "memory"])
def path(request, tmp_path):
    """A file on the disk, and one in a file system that may not read directly."""
    path = tmp_path / "file" if request.param == "disk" else Path(f"/dev/shm/ooc-test-direct-{os.getpid()}")
    if not path.parent.is_dir():
        pytest.skip(f"there is no {path.parent}")
    path.write_bytes(os.urandom(SIZE))
    yield path
    path.unlink()


@pytest.fixture
def pages() -> mmap.mmap:
    """Memory that begins a page."""
    return mmap.mmap(-1, 8 * PAGE)


@pytest.mark.parametrize("at", [0, PAGE, 3 * PAGE, 4 * PAGE])
@pytest.mark.parametrize("size", [0, PAGE, 2 * PAGE, 8 * PAGE])
def test_pages_are_read_up_to_the_end_of_the_file(path, pages, at, size):
    expected = path.read_bytes()[at : at + size]
    with closing(DirectIoFile(path)) as file:
        assert file.read(at, memoryview(pages)[:size]) == len(expected)
    assert pages[: len(expected)] == expected


def test_what_was_just_written_is_read(path, pages):
    """Before it is on the disk; whichever way it was written and is read, and when it was read before."""
    with closing(DirectIoFile(path, os.O_RDWR)) as file:
        for number in range(3):
            path.write_bytes(bytes([number]) * SIZE)
            assert file.read(PAGE, memoryview(pages)[:PAGE]) == PAGE
            assert pages[:PAGE] == bytes([number]) * PAGE
            pages[:PAGE] = os.urandom(PAGE)
            file.write(2 * PAGE, memoryview(pages)[:PAGE])
            assert path.read_bytes()[2 * PAGE : 3 * PAGE] == pages[:PAGE]
            assert file.read(2 * PAGE, memoryview(pages)[PAGE : 2 * PAGE]) == PAGE
            assert pages[PAGE : 2 * PAGE] == pages[:PAGE]
    assert path.stat().st_size == SIZE


def test_a_file_system_without_direct_writes_keeps_little_in_memory(path, pages, monkeypatch):
    """What waits in the page cache is handed to the disk after so many bytes."""
    synced = []
    fdatasync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(fdatasync(descriptor)))
    monkeypatch.setattr(direct_io, "_UNWRITTEN", 2 * PAGE)
    with closing(DirectIoFile(path, os.O_WRONLY)) as file:
        file._direct = False
        for number in range(5):
            file.write(0, memoryview(pages)[:PAGE])
            assert len(synced) == (number + 1) // 3
        file.write(0, memoryview(pages)[:PAGE])
        assert len(synced) == 2
    assert path.read_bytes()[:PAGE] == bytes(PAGE)
