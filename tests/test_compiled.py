"""Kernels: compiled once, by a process of their own, into a cache that nobody else can write to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
Script = Callable[..., subprocess.CompletedProcess[str]]

# Whoever asks for the kernels is told whether anything was compiled in this process; each that imports them leaves its
# number, and each that compiles them.
KERNELS = """
import os
from contextlib import suppress
from pathlib import Path
from numba.extending import overload
from blocks.compiled import kernel

def note(file):
    with suppress(OSError), (Path(__file__).parent / file).open("a") as lines:
        print(os.getpid(), file=lines)

note("imported")

def nothing(): pass

@overload(nothing)
def _nothing():
    note("compiled")
    return lambda: None

@kernel
def one(x):
    nothing()
    return x + 1
@kernel
def two(x): return x * 2
@kernel
def three(x): return x - 3
@kernel
def all_three(x): return three(two(one(x)))
"""
ANNOUNCEMENT = "compiling kernels; the first run of each command on this machine takes up to a minute longer\n"
USING = """
import sys
import numba
from numba.core import event
from blocks import compiler
from blocks.compiler import compile_kernels
from kernels import all_three

compiler._LONG = 0.0  # announces it at once

class Told(event.Listener):
    def on_start(self, event): print("compiled here")
    def on_end(self, event): pass

event.register("numba:compile", Told())
compile_kernels(lambda: all_three(5))
print(all_three(5), all_three.stats.cache_path)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Runs a Python script beside the module `kernels`, with the cache below the directory `cache`."""
    monkeypatch.delenv("OOC_CACHE_DIR", raising=False)  # as those may have set it who run the tests
    (tmp_path / "kernels.py").write_text(KERNELS)

    def run(text: str, *before: str, **environment: str) -> subprocess.CompletedProcess[str]:
        usual = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
        usual |= {"PYTHONDONTWRITEBYTECODE": "1"}  # Python takes a file of the same time and size for the same
        chosen = os.environ | usual | environment
        command = [*before, sys.executable, "-W", "error", "-c", text]
        return subprocess.run(command, cwd=tmp_path, env=chosen, capture_output=True, text=True, check=False)

    return run


def numbers(file: Path) -> set[str]:
    return set(file.read_text().split())


def only_kernels(cache: Path) -> Path:
    """The only directory of kernels below one for caches."""
    (found,) = (cache / "ooc").glob("kernels-*")
    return found


@pytest.mark.long
def test_kernels_are_compiled_by_another_process_once(script: Script, tmp_path: Path) -> None:
    first = script(USING)
    assert first.stdout.startswith("9 "), first.stderr
    assert first.stderr == ANNOUNCEMENT
    compiled = numbers(tmp_path / "compiled")
    assert len(numbers(tmp_path / "imported")) == 2
    again = script(USING)
    assert (again.stdout, again.stderr) == (first.stdout, "")
    assert numbers(tmp_path / "compiled") == compiled


@pytest.mark.long
def test_another_processor_has_them_compiled_anew_by_another_process(script: Script, tmp_path: Path) -> None:
    script(USING)
    before = numbers(tmp_path / "compiled")
    other = script(USING, NUMBA_CPU_NAME="generic")
    assert other.stdout.startswith("9 "), other.stderr
    assert len(numbers(tmp_path / "compiled") - before) == 1
    assert script(USING, NUMBA_CPU_NAME="generic").stderr == script(USING).stderr == ""


@pytest.mark.long
def test_a_process_that_grows_leaves_the_rest_to_another(script: Script, tmp_path: Path) -> None:
    with (tmp_path / "kernels.py").open("a") as module:
        module.write("\nimport __main__\n__main__._MOST_GROWTH = -1 << 60  # each has grown too much\n")
    done = script(USING)
    assert done.stdout.startswith("9 "), done.stderr
    assert len(numbers(tmp_path / "imported")) == 4  # the one that asks; the last compiles the caller, too
    assert script(USING).stderr == ""


@pytest.mark.long
def test_processes_that_start_together_compile_once(script: Script, tmp_path: Path) -> None:
    command = [sys.executable, "-c", USING]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    both = [subprocess.Popen(command, cwd=tmp_path, env=environment) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert len(numbers(tmp_path / "compiled")) == 1


@pytest.mark.long
def test_what_processes_compile_at_once_is_all_kept_each_under_its_types(script: Script, tmp_path: Path) -> None:
    """In processes that compile kernels themselves, as those of scripts are, which no other process can import."""
    text = """
import sys, time
from pathlib import Path
from blocks.kernel_cache import KernelCompiler, _ChecksummedCacheFiles
from kernels import two

KernelCompiler.is_here = True
load, save = _ChecksummedCacheFiles._load_index, _ChecksummedCacheFiles.save

def load_and_wait(index):
    found, end = load(index), time.monotonic() + 1.0
    Path(f"loaded-{sys.argv[1]}").touch()
    while len(list(Path.cwd().glob("loaded-*"))) < 2 and time.monotonic() < end:
        time.sleep(0.01)  # for the other to have loaded it, too, if it may
    return found

def save_slowly(index, key, data):
    _ChecksummedCacheFiles._load_index = load_and_wait
    save(index, key, data)

_ChecksummedCacheFiles.save = save_slowly
two({"int": int, "float": float}[sys.argv[1]](3))
"""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    kinds = [[sys.executable, "-c", text, kind] for kind in ("int", "float")]
    both = [subprocess.Popen(command, cwd=tmp_path, env=environment) for command in kinds]
    assert [one.wait() for one in both] == [0, 0]
    kept = script("from kernels import two\nprint(two(3), two(0.25), len(two.stats.cache_misses))")
    assert (kept.stdout, kept.stderr) == ("6 0.5 0\n", "")


@pytest.mark.long
def test_what_is_damaged_is_compiled_anew(script: Script, tmp_path: Path) -> None:
    script(USING)
    before, files = numbers(tmp_path / "compiled"), sorted(only_kernels(tmp_path / "cache").rglob("*.nb?"))
    assert len(files) == 8
    for number, file in enumerate(files):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes([data[: len(data) // 2], data, b""][number % 3])
    done = script(USING)
    assert done.stdout.startswith("9 "), done.stderr
    assert done.stderr == "", "it was announced before"
    assert len(numbers(tmp_path / "compiled") - before) == 1
    assert script(USING).stderr == ""


def test_nothing_of_a_process_is_changed_by_importing(script: Script, tmp_path: Path) -> None:
    """Its environment, where modules are imported from, and where numba keeps what users compile."""
    text = """
import os, sys
before = dict(os.environ), list(sys.path), list(sys.meta_path)
import ooc, samplers.estimators, samplers.lda.gibbs, ooc.stochastic.element_loops
import numba
assert (dict(os.environ), sys.path, sys.meta_path) == before
assert not numba.config.CACHE_DIR
assert not [name for name, module in sys.modules.items() if module is None]
from mine import twice
twice(2)
print(twice.stats.cache_path)
"""
    (tmp_path / "mine.py").write_text("import numba\n@numba.njit(cache=True)\ndef twice(x): return 2 * x\n")
    done = script(text)
    assert (done.stdout, done.stderr) == (f"{tmp_path / '__pycache__'}\n", "")
    before = script("import numba\n" + text)
    assert (before.stdout, before.stderr) == (done.stdout, "")


@pytest.mark.usefixtures("fresh_interpreters")
def test_workers_load_kernels_without_scipy() -> None:
    """Numba would import it, for 0.25 s, when the first kernel is called."""
    from blocks.workers import WorkerPool

    with WorkerPool("worker_targets:start_with_kernels", None, 1) as workers:
        assert workers.ask(0, "scipy") is False


@pytest.mark.long
def test_kernels_that_users_write_may_multiply_matrices(script: Script, tmp_path: Path) -> None:
    """Which Numba does by the BLAS of scipy, also where that was hidden while it was imported."""
    (tmp_path / "mine.py").write_text("from blocks.compiled import kernel\n@kernel\ndef product(a, b): return a @ b\n")
    text = """
import sys
from blocks import interpreters
interpreters.ours = True
import blocks.compiled
assert "scipy" not in sys.modules
import numpy as np
from mine import product
assert product(2 * np.eye(2), np.ones(2)).tolist() == [2, 2]
"""
    for _ in ("compiled", "loaded"):
        done = script(text)
        assert done.returncode == 0, done.stderr


def test_kernels_of_a_script_are_compiled_where_they_are_called(tmp_path: Path) -> None:
    """No other process can import them."""
    (tmp_path / "script.py").write_text(
        "from blocks.compiled import kernel\n@kernel\ndef f(x): return x + 1\nprint(f(2), len(f.stats.cache_hits))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "script.py"]
    for hits in (0, 1):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == (f"3 {hits}\n", "")


def kept_at(script: Script, **environment: str) -> tuple[Path, str]:
    """Where kernels are kept, and what is said on stderr."""
    text = "from blocks.cache_directory import open_directory\nprint(open_directory('0.60'))"
    done = script(text, **environment)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip()), done.stderr


def spoil(directory: Path, how: str) -> None:
    """Have a directory be one that others could write to."""
    if how == "writable":
        directory.chmod(0o777)
    elif how == "another's":
        os.chown(directory, 54321, 54321)
    else:
        elsewhere = directory.with_name("elsewhere")
        directory.rename(elsewhere)
        directory.symlink_to(elsewhere)
        os.chown(directory, 54321, 54321, follow_symlinks=False)


@pytest.mark.parametrize("how", ["writable", "another's", "another's link"])
def test_no_directory_that_others_can_write_to_is_used(script: Script, tmp_path: Path, how: str) -> None:
    """Neither that of the home nor that below a temporary one: what is there would be run."""
    if how != "writable" and os.getuid() != 0:
        pytest.skip("only root can make a directory somebody else's")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    places = [tmp_path / "cache/ooc", temporary / f"ooc-{os.getuid()}"]
    for place in places:
        found, told = kept_at(script, TMPDIR=str(temporary))
        assert (found.parent, told) == (place, "")
        spoil(place, how)
    found, _ = kept_at(script, TMPDIR=str(temporary))
    assert found.is_absolute()
    assert not any(found.is_relative_to(place.resolve()) for place in places)


# For "sh -c", before a directory and a command.
ONE = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
ALL = """
for place in /tmp /var/tmp /dev/shm; do mount --bind $place $place && mount -o remount,ro,bind $place || exit 1; done
mount -t tmpfs none "$0" && cd "$0" && "$@" && [ -z "$(ls -A)" ]
"""


def mounting(what: str, directory: Path) -> list[str]:
    """What has a command run where directories are mounted."""
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", what, str(directory)]
    if not shutil.which("unshare") or subprocess.run([*words, "true"], check=False).returncode != 0:
        pytest.skip("NOTHING IS MOUNTED READ-ONLY: this user may not mount here")
    return words


def test_where_nothing_can_be_written_nothing_is_kept(script: Script, tmp_path: Path) -> None:
    """In the working directory least of all, which may be anybody's: every process compiles what it needs."""
    (tmp_path / "empty").mkdir()
    done = script(USING, *mounting(ALL, tmp_path / "empty"), XDG_CACHE_HOME="", HOME="/proc/nothing", TMPDIR="")
    assert done.returncode == 0, done.stderr
    assert (
        "kernels are compiled again in every process, because no cache directory is both private and writable\nSet"
        in done.stderr
    )
    assert done.stdout.splitlines()[-1] == "9 None"


@pytest.mark.long
def test_a_directory_that_was_chosen_may_be_read_only(script: Script, tmp_path: Path) -> None:
    """As one that was filled when the image of a container was made."""
    chosen = tmp_path / "filled"
    first = script(USING, OOC_CACHE_DIR=str(chosen))
    assert f" {chosen}/kernels-" in first.stdout
    again = script(USING, *mounting(ONE, chosen), OOC_CACHE_DIR=str(chosen))
    assert (again.stdout, again.stderr) == (first.stdout, "")


@pytest.mark.long
def test_what_a_directory_lacks_that_is_read_only_is_compiled_once_elsewhere(script: Script, tmp_path: Path) -> None:
    chosen = tmp_path / "filled"
    script("from kernels import one\none(5)", OOC_CACHE_DIR=str(chosen))
    before = {path: path.read_bytes() for path in chosen.rglob("*") if path.is_file()}
    words = mounting(ONE, chosen)
    first = script(USING, *words, OOC_CACHE_DIR=str(chosen))
    assert first.stdout.startswith("9 "), first.stderr
    assert "compiled here" not in first.stdout
    assert first.stderr == ANNOUNCEMENT
    assert list(only_kernels(tmp_path / "cache").rglob("*.nbc"))
    again = script(USING, *words, OOC_CACHE_DIR=str(chosen))
    assert (again.stdout, again.stderr) == (first.stdout, "")
    assert {path: path.read_bytes() for path in chosen.rglob("*") if path.is_file()} == before


@pytest.mark.long
def test_a_kernel_is_known_by_the_content_of_its_file(script: Script, tmp_path: Path) -> None:
    """Not by its time, of which the images of containers keep the seconds; nor is a file of the same time the same."""
    script(USING)
    module = tmp_path / "kernels.py"
    os.utime(module, (1e9, 1e9))
    assert script(USING).stderr == ""
    module.write_text(KERNELS.replace("x - 3", "x - 4"))
    os.utime(module, (1e9, 1e9))
    assert script(USING).stdout.startswith("8 ")


@pytest.mark.long
def test_others_can_read_a_directory_that_was_chosen_and_not_write_to_it(script: Script, tmp_path: Path) -> None:
    """Whatever the umask; a directory that was not chosen is closed to them."""
    for mask, chosen in (("002", "chosen"), ("000", "open"), ("077", "closed")):
        umask = ["sh", "-c", f'umask {mask} && exec "$@"', "sh"]
        done = script(USING, *umask, OOC_CACHE_DIR=str(tmp_path / chosen))
        assert done.returncode == 0, done.stderr
        kept = [path for path in (tmp_path / chosen).rglob("*") if path.is_dir() or path.suffix in (".nbi", ".nbc")]
        assert len(kept) > 4
        for path in (tmp_path / chosen, *kept):
            expected = 0o755 if path.is_dir() else 0o644
            assert path.stat().st_mode & 0o777 == (expected if mask != "077" else expected & 0o700), path
    script(USING)
    assert only_kernels(tmp_path / "cache").parent.stat().st_mode & 0o777 == 0o700


def test_kernels_of_earlier_sources_are_removed(script: Script, tmp_path: Path) -> None:
    """Kernels of other installations stay while these exist; a directory without the name of an installation stays."""
    used, _ = kept_at(script)
    places = {"of-before": ROOT, "of-another": tmp_path, "of-none": tmp_path / "gone", "without": None}
    for name, place in places.items():
        other = used.with_name(f"kernels-{name}")
        other.mkdir()
        if place:
            (other / "installation").write_text(str(place))
    assert kept_at(script)[0] == used
    assert len(list(used.parent.iterdir())) == 5
    shutil.rmtree(used)
    assert kept_at(script)[0] == used
    assert {path.name for path in used.parent.iterdir()} == {used.name, "kernels-of-another", "kernels-without"}


@pytest.mark.parametrize("file", ["blocks/compiled.py", "blocks/alias_table.py"])
def test_other_kernels_or_options_have_another_directory(script: Script, tmp_path: Path, file: str) -> None:
    """In a copy of the sources, as an installation that is upgraded."""
    shutil.copytree(ROOT / "blocks", tmp_path / "copy/blocks", ignore=shutil.ignore_patterns("__pycache__"))
    paths = []
    for text in ("", "# another version\n"):
        with (tmp_path / "copy" / file).open("a") as source:
            source.write(text)
        paths.append(kept_at(script, PYTHONPATH=str(tmp_path / "copy"))[0])
    assert paths[0] != paths[1]
    assert list(paths[0].parent.iterdir()) == paths[1:]
