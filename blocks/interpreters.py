"""Start new Python interpreters for this project's processes."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path

from blocks.errors import RAISE_LIMIT, RequestError

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # signals that end a command; SIGHUP: its terminal closed
_THREADED = ("OPENBLAS", "OMP", "MKL", "NUMBA", "VECLIB")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in _THREADED}
_LEAST_SPACE = 400 << 20  # bytes: numba with its libraries, and the stacks of a few threads
ours = False  # whether this process belongs to this project, rather than to a user who imported it


def start_interpreter(
    module: str, *, inherit: Collection[int] = (), environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start an interpreter that runs a module with one thread; return the process and a connection to it.

    The module gets the descriptor of its end of the connection as its only argument.

    inherit: additional descriptors to pass on.
    environment: additional environment variables.
    Raises RequestError if the address space of processes is too small.
    """
    _require_address_space()
    near, far = socket.socketpair()
    # Signals to the whole group are the caller's to handle and pass on. Signals blocked here stay blocked in the child.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(far.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__.fileno() if sys.__stderr__ else None,
            pass_fds=(far.fileno(), *inherit),
            env={
                **os.environ,
                **ONE_THREAD,
                "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
                **(environment or {}),
            },
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        far.close()
    return process, Connection(near.detach())


def import_numba() -> None:
    """Import numba; in a process of this project without scipy, which saves 0.25 s.

    Numba imports scipy for its version and for BLAS in `np.correlate`. For users who import this project, scipy remains
    available.
    Raises RequestError if the address space is too small, or the system forbids executable memory.
    """
    _require_address_space()
    try:
        with _hidden("scipy") if ours else nullcontext():
            import numba.np.arraymath  # noqa: F401
    except PermissionError as error:
        if error.filename:
            raise
        raise RequestError(
            "this system denies executable memory, which compiled kernels need",
            "Allow it for Python: with systemd remove MemoryDenyWriteExecute=yes; with SELinux permit execmem.",
        ) from error


def _require_address_space() -> None:
    """Raise RequestError if the address space of a process is too small for the libraries, whose own errors are
    obscure."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST_SPACE:
        there, needed = f"{limit / 1e6:,.0f} MB", f"{_LEAST_SPACE / 1e6:,.0f} MB"
        raise RequestError(
            f"the address space of a process is limited to {there} (ulimit -v), but must be at least {needed}",
            RAISE_LIMIT,
        )


@contextmanager
def _hidden(module: str) -> Iterator[None]:
    """Make the import of a module fail in this context, unless the module is already imported."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]
