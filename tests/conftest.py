"""Fixtures shared by all tests: reference data, the command line as a process, and readers of datasets."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import INGEST, Ooc, run_all
from fork_server import SELDOM, nursery, started, will_do
from hypothesis import settings
from make_old_files import write_inputs
from tqdm import tqdm

from blocks import Dataset, workers

settings.register_profile("compiled", deadline=None)  # the first example of a test may compile a kernel
settings.load_profile("compiled")
tqdm.monitor_interval = 0  # its thread, which the first bar starts, would be taken for one that a test left
# A script has SIGINT ignored in what it runs in the background, and all that such a process starts inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as SIGINT, where `nohup` was used


LONG_TIMEOUT = 1800  # seconds; of the others see pyproject.toml


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give long tests a timeout of minutes, and mark some parameters of `few` tests as long.

    Of the sets of parameters of a test with the mark few(n), n evenly spread ones stay; the others are marked as long.
    """
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("long"):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for sets in functions.values():
        mark = sets[0].get_closest_marker("few")
        assert mark is not None
        chosen = {int(place) for place in np.linspace(0, len(sets) - 1, mark.args[0])}
        for item in (each for place, each in enumerate(sets) if place not in chosen):
            item.add_marker(pytest.mark.long)
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT))


def pytest_collection_finish() -> None:
    """Freeze the objects that exist after collection, so that the garbage collector does not visit them."""
    gc.freeze()
    gc.set_threshold(*SELDOM)


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """Return the directory of reference data next to the repository; skips the test if it does not exist."""
    path = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"there is no reference data in {path}")
    return path


@pytest.fixture(scope="session")
def preloaded(tmp_path_factory) -> Callable[[str], Path]:
    """Return a library, compiled from a C file of the tests, for LD_PRELOAD."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("there is no C compiler, or no Linux, to stand between a program and its C library")
    folder = tmp_path_factory.mktemp("preloaded")

    def compile_(name: str) -> Path:
        source, library = Path(__file__).with_name(f"{name}.c"), folder / f"{name}.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", library, source, "-ldl"], check=True)
        return library

    return compile_


start_interpreter = workers._start_interpreter


def fork_interpreter(inherit: Collection[int] = ()) -> Any:
    return (nursery().interpreter if will_do() else start_interpreter)(inherit)


@pytest.fixture(scope="session", autouse=True)
def forked_interpreters() -> Iterator[None]:
    """Start workers from a forked interpreter, unless the test needs fresh ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "_start_interpreter", fork_interpreter)
        yield
    if started.cache_info().currsize:
        started().close()


@pytest.fixture(scope="module")
def fresh_interpreters() -> Iterator[None]:
    """Start workers from fresh interpreters, as outside of tests, in modules that use this fixture."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "_start_interpreter", start_interpreter)
        yield


@pytest.fixture(scope="session")
def ooc_in() -> Callable[[Path], Ooc]:
    """Return the command line in a directory: `ooc_in(directory)("info", path)` returns the finished process.

    Its output lacks the message about compiling kernels, which appears once per machine.
    """

    def bind(directory: Path) -> Ooc:
        def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
            done = ended(*arguments, **options)
            if isinstance(done.stderr, str):
                done.stderr = re.sub(r"^compiling kernels;.*\n", "", done.stderr, flags=re.MULTILINE)
            return done

        def ended(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
            words = list(map(str, arguments))
            if will_do() and options.keys() <= {"input", "text"}:
                return nursery().run(words, directory, LONG_TIMEOUT / 2, **options)
            settings = {"capture_output": True, "text": True, "cwd": directory, "timeout": LONG_TIMEOUT / 2}
            return subprocess.run([sys.executable, "-m", "ooc", *words], check=False, **{**settings, **options})

        return run

    return bind


@pytest.fixture(scope="session")
def made_once(tmp_path_factory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Return a directory shared by all pytest processes, filled by the first one that requests its name."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], None]) -> Path:
        directory, done = shared / name, shared / f"{name}.made"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(directory, ignore_errors=True)  # left by a process whose attempt failed
                directory.mkdir()
                make(directory)
                done.touch()
        return directory

    return made


@pytest.fixture(scope="session")
def datasets(made_once: Callable[[str, Callable[[Path], None]], Path], ooc_in: Callable[[Path], Ooc]) -> Path:
    """Return a directory with a tiny dataset of each kind; tests do not change it."""

    def make(directory: Path) -> None:
        write_inputs(directory)
        run_all(ooc_in(directory), INGEST)

    return made_once("datasets", make)


@pytest.fixture
def ooc(ooc_in: Callable[[Path], Ooc], tmp_path: Path) -> Ooc:
    """Return the command line in `tmp_path`."""
    return ooc_in(tmp_path)


@pytest.fixture(scope="session")
def bags() -> Callable[[Dataset], list[Counter[str]]]:
    """Read the words of each document of a dataset, in the original order."""

    def read(dataset: Dataset) -> list[Counter[str]]:
        words = np.array(dataset.vocabulary(), object)[np.asarray(dataset.index.word_ids)]
        found: list[Counter[str] | None] = [None] * dataset.documents
        for number in range(dataset.block_count):
            block = dataset.block(number)
            ranks = np.repeat(block.words, np.diff(block.word_offsets))[block.positions]
            for row, document in enumerate(block.documents):
                assert found[document] is None, f"document {document} stands twice"
                found[document] = Counter(words[ranks[block.offsets[row] : block.offsets[row + 1]]])
        return [bag for bag in found if bag is not None]

    return read
