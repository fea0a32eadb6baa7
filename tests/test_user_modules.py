"""The modules with loops that are written for programs."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import xxhash
from rings import in_all

from blocks.kernel_cache import CACHE
from ooc.user_modules import write_module

AT_ONCE = 6


def test_a_module_that_many_need_at_once_is_written_once():
    text, ready = f"number = {uuid.uuid4().int}\n", threading.Barrier(AT_ONCE)

    def need() -> tuple[Path, int]:
        ready.wait()
        assert CACHE is not None
        path = CACHE / f"{write_module('test', text, xxhash.xxh3_64(text.encode())).rpartition('.')[2]}.py"
        return path, path.stat().st_ino

    (path, _), *others = found = in_all([need] * AT_ONCE)
    try:
        assert set(others) == set(found[:1])
        assert path.read_text() == text
    finally:
        path.unlink()
