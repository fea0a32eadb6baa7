"""Compile kernels in a separate process, so that the compiler's memory is freed and the caller's threads do not
matter."""

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
from blocks.memory import held_memory

_MOST_GROWTH = 150_000_000  # maximum growth in bytes of a compiling process
_LONG = 2.0  # seconds of compilation after which it is announced
_ANNOUNCED = "announced"  # file beside the kernels: compilation is announced once per machine
_GO_ON = 3  # exit status of a process that has grown too large and leaves the rest to a new one
_GONE = (EOFError, OSError)
_of_thread = threading.local()  # compiler: the current compiler of a thread


class KernelCompileRequest(NamedTuple):
    """A kernel to compile into the cache.

    name: kernel name in its module.
    types: pickled argument types.
    """

    module: str
    name: str
    types: bytes


class KernelCompiler:
    """Compiles kernels into the cache in another process, which is started for the first kernel."""

    is_here = False  # whether this is the compiling process

    def __init__(self) -> None:
        self._started: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._announce_at = time.monotonic() + _LONG

    def compile(self, request: KernelCompileRequest, cache: Path, kernels: Path) -> bool:
        """Compile a kernel, and return whether this succeeded.

        cache: parent of the cache directory.
        kernels: directory of the kernels.
        """
        while True:
            self._started = self._started or interpreters.start_interpreter(
                "blocks.compiler", environment={CHOSEN: str(cache)}
            )
            try:
                self._started[1].send(request)
                if not self._started[1].poll(max(self._announce_at - time.monotonic(), 0)):
                    _announce(kernels / _ANNOUNCED)
                return self._started[1].recv()
            except _GONE:
                if self.close() != _GO_ON:
                    return False

    def close(self) -> int:
        """End the process, if there is one, and return its exit status."""
        if self._started is None:
            return 0
        (process, connection), self._started = self._started, None
        connection.close()
        return process.wait()


def compile_kernels(run: Callable[[], object]) -> None:
    """Run a function that calls kernels, so that all kernels missing from the cache are compiled in one other
    process."""
    with compiler():
        run()


@contextmanager
def compiler() -> Iterator[KernelCompiler]:
    """Yield the compiler of this thread; its process ends with the outermost context."""
    if known := getattr(_of_thread, "compiler", None):
        yield known
        return
    _of_thread.compiler = KernelCompiler()
    try:
        yield _of_thread.compiler
    finally:
        _of_thread.compiler.close()
        del _of_thread.compiler


def _announce(marker: Path) -> None:
    """Report why commands take longer, unless a marker file shows that this machine has reported it before."""
    with suppress(OSError):
        marker.touch(exist_ok=False)
        stderr.print_note(
            "compiling kernels; the first run of each command on this machine takes up to a minute longer"
        )


def _serve(connection: Connection) -> None:
    """Compile the requested kernels until the connection closes."""
    from blocks.kernel_cache import KernelCompiler  # not the class of this module, which here is named `__main__`

    KernelCompiler.is_here = True
    _end_where_grown()
    with suppress(*_GONE):
        while True:
            connection.send(_compiled(connection.recv()))


def _compiled(request: KernelCompileRequest) -> bool:
    try:
        kernel: Any = reduce(getattr, request.name.split("."), importlib.import_module(request.module))
        kernel.compile(pickle.loads(request.types))
    except Exception:  # the requesting process then compiles the kernel itself and reports the error
        return False
    return True


def _end_where_grown() -> None:
    """Exit before compiling the next function if this process has grown too large and has added to the cache.

    A process that has added nothing must go on: its successor would start with the same function and get no further.
    """
    from numba.core import event

    before = held_memory([os.getpid()])

    class Growth(event.Listener):
        added = False

        def on_start(self, event: event.Event) -> None:
            if self.added and held_memory([os.getpid()]) - before > _MOST_GROWTH:
                os._exit(_GO_ON)

        def on_end(self, event: event.Event) -> None:
            self.added |= event.data["dispatcher"]._cache.cache_path is not None

    event.register("numba:compile", Growth())


if __name__ == "__main__":
    interpreters.ours = True
    _serve(Connection(int(sys.argv[1])))
