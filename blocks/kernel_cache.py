"""Numba's cache for this project's kernels: own directory, checksums, and compilation in another process.

Numba's own cache does not notice a change in the file of a callee, and its location is a global setting that would also
apply to users' functions.
"""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import xxhash

from blocks import interpreters
from blocks.cache_directory import CHOSEN, open_directory, write_private
from blocks.compiler import KernelCompiler, KernelCompileRequest, compiler

interpreters.import_numba()

import llvmlite  # noqa: E402
import numba  # noqa: E402
from numba.core import caching, serialize  # noqa: E402

_DIGEST = 16  # bytes of the digest at the end of each file
_VERSION = f"{numba.__version__} {llvmlite.__version__}"
CACHE = open_directory(_VERSION)  # None: kernels are not cached


@cache
def added_kernels_directory() -> Path | None:
    """Return the directory for kernels that `CACHE` lacks.

    This is `CACHE` itself, or another directory if `CACHE` is read-only, or None if there is no cache.
    """
    return CACHE if is_writable() else open_directory(_VERSION, writable=True)


def is_writable() -> bool:
    """Return whether `CACHE` exists and is writable."""
    return CACHE is not None and os.access(CACHE, os.W_OK)


def cache_summary() -> dict[str, Any]:
    """Return the cache directory, the directory set by the user, number of kernels, bytes, and whether it is writable.

    The directories are None if there are none.
    """
    files = list(CACHE.rglob("*.nbc")) if CACHE else []
    return {
        "path": CACHE and str(CACHE),
        "chosen": os.environ.get(CHOSEN) or None,
        "kernels": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "writable": is_writable(),
    }


@contextmanager
def compile_lock(lock: Path) -> Iterator[None]:
    """Hold a lock, so that ranks that start together on one machine do not compile the same kernels at the same
    time."""
    with lock.open("w") as file:
        with suppress(OSError):  # not every file system supports locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _DamagedCacheFile(OSError):
    """A cache file has a wrong checksum, or refers to types that no longer exist."""


class _CacheLocator(caching.UserProvidedCacheLocator):
    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file, self._lineno = py_file, py_func.__code__.co_firstlineno
        self._cache_path = self.get_suitable_cache_subpath(py_file)

    def keep_below(self, directory: Path) -> Path:
        """Return the cache directory of a source file, below the common directory."""
        self._cache_path = str(directory / self._cache_path)
        return Path(self._cache_path)

    def ensure_cache_path(self) -> None:
        """Create the directory, writable only by its owner whatever the umask."""
        Path(self._cache_path).mkdir(0o755, exist_ok=True)

    def get_source_stamp(self) -> str:
        """Return a stamp of the source's contents, since container images store file times only in whole seconds."""
        return _digest_of(self._py_file)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _CacheLocator | None:
        return cls(py_func, py_file) if Path(py_file).exists() else None


@cache
def _digest_of(file: str) -> str:
    return xxhash.xxh3_128_hexdigest(Path(file).read_bytes())


class _CacheImplementation(caching.CompileResultCacheImpl):
    _locator_classes = [_CacheLocator]  # noqa: RUF012


class _ChecksummedCacheFiles(caching.IndexDataCacheFile):
    """Cache files with a checksum at the end; a damaged file counts as missing."""

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        with write_private(Path(filepath)) as file:
            yield file

    def _dump(self, obj: Any) -> bytes:
        packed = super()._dump(obj)
        return packed + xxhash.xxh3_128_digest(packed)

    def _load_index(self) -> dict[Any, str]:
        version = pickle.dumps(self._version, protocol=-1)  # expected start of the index file
        with suppress(OSError):
            data = Path(self._index_path).read_bytes()
            if data.startswith(version):
                stamp, names = _unpacked(data[len(version) :])
                return names if stamp == self._source_stamp else {}
        return {}

    def _load_data(self, name: str) -> Any:
        return _unpacked(Path(self._data_path(name)).read_bytes())


def _unpacked(data: bytes) -> Any:
    packed, digest = data[:-_DIGEST], data[-_DIGEST:]
    if xxhash.xxh3_128_digest(packed) != digest:
        raise _DamagedCacheFile("the checksum is wrong")
    try:
        return pickle.loads(packed)
    except Exception as error:
        raise _DamagedCacheFile(repr(error)) from error


class KernelCache(caching.FunctionCache):
    """Cache of one function.

    directory: directory of all kernels.
    form: suffix for the compilation options.
    """

    _impl_class = _CacheImplementation

    def __init__(self, function: Any, directory: Path, form: str = "") -> None:
        super().__init__(function)
        self._directory, self._form = directory, form
        locator, base = self._impl.locator, f"{self._impl.filename_base}{form}"
        place = locator.keep_below(directory)
        self._cache_path = str(place)
        self._cache_file = _ChecksummedCacheFiles(self._cache_path, base, locator.get_source_stamp())
        self._lock = place / f"{base}.lock"
        name = f"{function.__module__}.{function.__qualname__}"
        self._can_be_found = function.__module__ != "__main__" and "<locals>" not in name

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the cached code for a signature; if there is none, another process compiles it first."""
        found = super().load_overload(sig, target_context)
        if found is None and self._elsewhere:
            return self._elsewhere.load_overload(sig, target_context)
        if found is not None or KernelCompiler.is_here or not self._can_be_found:
            return found
        assert CACHE is not None
        with suppress(OSError), self._locked(), compiler() as other:
            found = super().load_overload(sig, target_context)  # another process may have compiled it meanwhile
            if found is None and other.compile(self._request(sig), CACHE.parent, self._directory):
                found = super().load_overload(sig, target_context)
        return found

    @cached_property
    def _elsewhere(self) -> KernelCache | None:
        """Return the cache for missing kernels if this one is read-only."""
        other = added_kernels_directory()
        return KernelCache(self._py_func, other, self._form) if other and self._directory == CACHE != other else None

    def _request(self, sig: Any) -> KernelCompileRequest:
        return KernelCompileRequest(self._py_func.__module__, self._py_func.__qualname__, serialize.dumps(sig))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._impl.locator.ensure_cache_path()
        with compile_lock(self._lock):
            yield

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code, if possible, under a lock.

        Two processes that read the same index would give code for different types the same file name, and one result
        would be lost, or called with the wrong types.
        """
        if self._elsewhere:
            self._elsewhere.save_overload(sig, data)
            return
        with suppress(OSError), compile_lock(self._directory / "index.lock"):
            super().save_overload(sig, data)
