"""The cache of compiled kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from processes import until

SCRIPT = """
import numba
from blocks.compiled import cache_directory
from samplers.lda import aliaslda, gibbs
for kernel in (aliaslda.sample_cell, gibbs.sample_cell):
    assert kernel.stats.cache_path.startswith(str(cache_directory())), kernel.stats.cache_path
"""


def test_kernels_are_kept_under_the_hash_of_all_sources_even_if_numba_was_imported_before():
    """Beside the sources, where Numba keeps them otherwise, a kernel whose callee changed in another file is stale."""
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_kernels_are_loaded_without_scipy():
    """Numba would import it, for 0.25 s, when the first kernel is called."""
    code = "import sys\nfrom blocks.corpus.worker import load\nload()\nassert 'scipy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False).returncode == 0


def test_kernels_that_users_write_may_multiply_matrices(tmp_path):
    """Which Numba does by the BLAS of scipy."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "from blocks.compiled import kernel, prepare\n"
        "@kernel\n"
        "def product(a, b):\n"
        "    return a @ b\n"
        "prepare('product', lambda: product(np.eye(2), np.ones(2)))\n"
        "assert product(2 * np.eye(2), np.ones(2)).tolist() == [2, 2]\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


COMPILING = """
import os, time
from pathlib import Path
from blocks.compiled import prepare
def run():
    with open("told", "a") as file:
        print(os.getpid(), file=file)
    while not Path("go").exists():
        time.sleep(0.01)
prepare("waiting", run)
"""


def test_processes_that_start_together_compile_once(tmp_path):
    """The second begins while the child of the first compiles: each runs the kernels itself, and nobody else does."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "XDG_CACHE_HOME": str(tmp_path)}
    pipes = {"cwd": tmp_path, "env": environment, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", COMPILING]
    told = tmp_path / "told"
    with subprocess.Popen(command, **pipes) as first:  # type: ignore[call-overload]
        until(told.exists)
        with subprocess.Popen(command, **pipes) as second:  # type: ignore[call-overload]
            assert second.stderr.readline().startswith("compiling kernels")
            (tmp_path / "go").touch()
    assert [first.returncode, second.returncode] == [0, 0]
    ran = told.read_text().split()
    assert len(ran) == 3
    assert {str(first.pid), str(second.pid)} < set(ran)


GROWING = """
import os
import numpy as np
from blocks import compiled
from blocks.compiled import kernel, prepare

compiled._MOST_GROWTH = -1  # each child has grown too much as soon as it has compiled something

@kernel
def one(x): return x + 1
@kernel
def two(x): return x * 2
@kernel
def three(x): return x - 3
@kernel
def all_three(x): return three(two(one(x)))

def run():
    with open("told", "a") as file:
        print(os.getpid(), file=file)
    return all_three(5)
prepare("growing", run)
assert run() == 9
for each in (one, two, three, all_three):
    assert not each.stats.cache_misses, each
"""


def test_a_compiling_process_that_grows_leaves_the_rest_to_another(tmp_path):
    (tmp_path / "script.py").write_text(GROWING)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pids = (tmp_path / "told").read_text().split()
    assert len(pids) == 5  # a child for each of three kernels, of which the last compiles what calls them, too; twice
    assert len(set(pids)) == 4  # the process itself


GROWN = """
import sys
import numpy as np
from blocks import compiled
from samplers.regression import cosines, selection
compiled._MOST_GROWTH = -1 << 60  # every process has grown too much
compiled.event.register("numba:compile", compiled._Growth())
(compiled.CACHE / "of-another-process.nbc").touch()
cosines.count(np.zeros(3, np.uint8), np.zeros(1, np.int64))  # nothing was added before: it is compiled
print("added", flush=True)
selection.count_above(0.0, np.ones(3, np.float32))
print("went on")
"""


def test_who_compiles_makes_way_only_after_adding_to_the_cache(tmp_path):
    """Whatever others add meanwhile; else it would begin again and again, and come no further."""
    command, environment = [sys.executable, "-c", GROWN], os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("added\n", 3), done.stderr


AT_ONCE = """
import sys, time
from pathlib import Path
from numba.core.caching import IndexDataCacheFile
from blocks.compiled import kernel

@kernel
def twice(x): return x + x

load, save = IndexDataCacheFile._load_index, IndexDataCacheFile.save

def load_and_wait(index):
    found, end = load(index), time.monotonic() + 1.0
    Path(f"loaded-{sys.argv[1]}").touch()
    while len(list(Path.cwd().glob("loaded-*"))) < 2 and time.monotonic() < end:
        time.sleep(0.01)  # for the other to have loaded it, too, if it may
    return found

def save_slowly(index, key, data):
    IndexDataCacheFile._load_index = load_and_wait
    save(index, key, data)

IndexDataCacheFile.save = save_slowly
twice({"int": int, "float": float}[sys.argv[1]](3))
"""
KEPT = """
from script import twice
print(twice(3), twice(0.25), len(twice.stats.cache_misses))
"""


def test_what_processes_compile_at_once_is_all_kept_each_under_its_types(tmp_path):
    (tmp_path / "script.py").write_text(AT_ONCE)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "script.py"]
    both = [subprocess.Popen([*command, kind], cwd=tmp_path, env=environment) for kind in ("int", "float")]
    assert [one.wait() for one in both] == [0, 0]
    kept = [sys.executable, "-c", KEPT, "int"]
    done = subprocess.run(kept, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "6 0.5 0\n", done.stderr
