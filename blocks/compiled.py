"""The compiler of the kernels and its cache across runs.

Numba's own cache notices a change of a kernel's file but not of the files its callees are in, so the cache directory
is named by a hash of all kernel sources. It is set here, before numba is imported: import `kernel` from nowhere else.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import xxhash

from blocks.memory import held

_ROOT = Path(__file__).resolve().parent.parent
_MOST_GROWTH = 60_000_000  # bytes, of a process that compiles
_GO_ON = 3  # exit status of one that leaves the rest to another


def _kernel_sources() -> list[Path]:
    packages = (_ROOT / name for name in ("blocks", "ooc", "samplers"))
    files = sorted(file for package in packages for file in package.rglob("*.py"))
    return [file for file in files if b"blocks.compiled import" in file.read_bytes()]


def cache_directory() -> Path:
    """Where compiled kernels are kept: below `$XDG_CACHE_HOME`, or in a temporary directory if that is read-only."""
    digest = xxhash.xxh3_64()
    for source in _kernel_sources():
        digest.update(source.read_bytes())
    name = f"kernels-{digest.hexdigest()}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "ooc" / name
    try:
        home.mkdir(parents=True, exist_ok=True)
        if os.access(home, os.W_OK):
            return home
    except OSError:
        pass
    fallback = Path(tempfile.gettempdir()) / f"ooc-{os.getuid()}" / name
    fallback.mkdir(parents=True, exist_ok=True, mode=0o700)
    return fallback


def prepare(name: str, run: Callable[[], object]) -> None:
    """Have the kernels that `run` calls ready in this process, which must have no threads.

    The first time under a name they are compiled in child processes: the compiler's memory goes with them, and what
    runs here is always what the cache holds.
    """
    if not is_compiled(name):
        print("compiling kernels; this takes up to half a minute, once", file=sys.stderr)
        with alone(_marker(name).with_suffix(".lock")):
            if not is_compiled(name):
                _compile(name, run)
    run()


def is_compiled(name: str) -> bool:
    """Whether `prepare` has run under a name before."""
    return _marker(name).exists()


def _marker(name: str) -> Path:
    return cache_directory() / f"{name}.compiled"


def _compile(name: str, run: Callable[[], object]) -> None:
    """In one child after the other: one that has grown too much ends, and the next loads what it compiled."""
    status = _GO_ON
    while status == _GO_ON:
        child = os.fork()
        if child == 0:
            try:
                event.register("numba:compile", _Growth())
                run()
                _marker(name).touch()
            finally:
                os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Others wait meanwhile who would do the same: ranks on one machine all start at once."""
    with lock.open("w") as file:
        with suppress(OSError):  # not every file system has locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _hidden(module: str) -> Iterator[None]:
    """Importing a module fails meanwhile, if it has not been imported before."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


CACHE = cache_directory()
os.environ["NUMBA_CACHE_DIR"] = str(CACHE)
# Loops around functions of users are written there as modules, see `ooc.stochastic.element_loops`.
sys.path.append(str(CACHE))

with _hidden("scipy"):  # only its version is asked for, and whether it has a BLAS: 0.25 s, for np.correlate
    import numba
    import numba.np.arraymath
    from numba.core import caching, event


class _Cache(caching.FunctionCache):
    """Numba's, to which one process adds at a time. Two at once would read the same index, and give what they have
    compiled for different types the same name: one of them is lost, or called for the types of the other."""

    def save_overload(self, sig: Any, data: Any) -> None:
        CACHE.mkdir(parents=True, exist_ok=True)  # it may have been removed
        with alone(CACHE / "index.lock"):
            super().save_overload(sig, data)


class _Growth(event.Listener):
    """Ends this process before one more function is compiled, if it has grown too much and has added to the cache."""

    def __init__(self) -> None:
        self._held, self._added = held([os.getpid()]), False

    def on_start(self, event: event.Event) -> None:
        if self._added and held([os.getpid()]) - self._held > _MOST_GROWTH:
            os._exit(_GO_ON)

    def on_end(self, event: event.Event) -> None:
        self._added |= event.data["dispatcher"]._cache.cache_path is not None


numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]  # type: ignore[attr-defined]  # for who imported numba before


def _cached(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: `numba.njit` with that cache."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled: Any = numba.njit(**options)(function)
        if not numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
            compiled._cache = _Cache(function)
        return compiled

    return decorate


# An index that may be negative for all that numba knows is tested for that, which keeps loops from vectorising, too: in
# innermost loops indices are unsigned, or count from 0 on in a slice.
kernel = _cached(nogil=True, error_model="numpy")
# For loops over tokens: numba counts no references to arrays, which took half of a sampler's time. Nothing may be
# allocated in them.
_unmanaged: Any = {"nogil": True, "error_model": "numpy", "_nrt": False}
unmanaged_kernel = _cached(**_unmanaged)
# Where sums may be reordered, too (always in the same way by the same build): loops over float32 then vectorise.
reordered_kernel = _cached(fastmath=True, **_unmanaged)
# For the body of a hot loop that the compiler would rather call.
inlined_kernel = _cached(forceinline=True, **_unmanaged)
# Likewise, of which nothing is kept: it is part of what calls it.
uncached_kernel: Any = numba.njit(forceinline=True, **_unmanaged)
# Both: inlined, and reordered.
reordered_inlined_kernel = _cached(forceinline=True, fastmath=True, **_unmanaged)
inlined: Any = numba.njit(inline="always", error_model="numpy")
