"""Compile kernels in a separate process, so that the memory of the compiler is freed, and threads do not matter."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from blocks import interpreters, stderr
from blocks.cache_directory import CHOSEN
from blocks.memory import held

_MOST_GROWTH = 150_000_000  # bytes, of a process that compiles
_LONG = 2.0  # seconds of compiling after which it is announced
_ANNOUNCED = "announced"  # a file beside the kernels: once on a machine is enough
_GO_ON = 3  # exit status of one that has grown so much, and leaves the rest to another
_GONE = (EOFError, OSError)
_of_thread = threading.local()  # compiler: the one that a thread has at the moment


class CompileRequest(NamedTuple):
    """A kernel to compile into the cache. name: in its module. types: of its arguments, pickled."""

    module: str
    name: str
    types: bytes


class Compiler:
    """Compiles kernels into the cache in another process, which is started for the first one."""

    is_here = False  # whether this process is that other

    def __init__(self) -> None:
        self._started: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._announce_at = time.monotonic() + _LONG

    def compile(self, request: CompileRequest, cache: Path, kernels: Path) -> bool:
        """Return whether a kernel could be compiled. cache: parent of the cache directory. kernels: in the cache."""
        while True:
            self._started = self._started or interpreters.start("blocks.compiler", environment={CHOSEN: str(cache)})
            try:
                self._started[1].send(request)
                if not self._started[1].poll(max(self._announce_at - time.monotonic(), 0)):
                    _announce(kernels / _ANNOUNCED)
                return self._started[1].recv()
            except _GONE:
                if self.close() != _GO_ON:
                    return False

    def close(self) -> int:
        """End the process, if there is one; returns its exit status."""
        if self._started is None:
            return 0
        (process, connection), self._started = self._started, None
        connection.close()
        return process.wait()


def prepare(run: Callable[[], object]) -> None:
    """Run a function that calls kernels, to compile all that the cache lacks in one other process."""
    with compiler():
        run()


@contextmanager
def compiler() -> Iterator[Compiler]:
    """Yield the compiler of this thread; its process ends with the outermost context."""
    if known := getattr(_of_thread, "compiler", None):
        yield known
        return
    _of_thread.compiler = Compiler()
    try:
        yield _of_thread.compiler
    finally:
        _of_thread.compiler.close()
        del _of_thread.compiler


def _announce(marker: Path) -> None:
    """Tell why commands take longer, unless the marker file shows that it was told on this machine before."""
    with suppress(OSError):
        marker.touch(exist_ok=False)
        stderr.note("compiling kernels; the first run of each command on this machine takes up to a minute longer")


def _serve(connection: Connection) -> None:
    """Compile requested kernels until the connection closes."""
    from blocks.kernel_cache import Compiler  # which is not that of this module: this one is named `__main__`

    Compiler.is_here = True
    _end_where_grown()
    with suppress(*_GONE):
        while True:
            connection.send(_compiled(connection.recv()))


def _compiled(request: CompileRequest) -> bool:
    try:
        kernel: Any = reduce(getattr, request.name.split("."), importlib.import_module(request.module))
        kernel.compile(pickle.loads(request.types))
    except Exception:  # the requesting process compiles it then, and reports the error
        return False
    return True


def _end_where_grown() -> None:
    """Exit before the next function if this process has grown too large and has added to the cache.

    Otherwise the next process would start with the same function and get no further.
    """
    from numba.core import event

    before = held([os.getpid()])

    class Growth(event.Listener):
        added = False

        def on_start(self, event: event.Event) -> None:
            if self.added and held([os.getpid()]) - before > _MOST_GROWTH:
                os._exit(_GO_ON)

        def on_end(self, event: event.Event) -> None:
            self.added |= event.data["dispatcher"]._cache.cache_path is not None

    event.register("numba:compile", Growth())


if __name__ == "__main__":
    interpreters.ours = True
    _serve(Connection(int(sys.argv[1])))
