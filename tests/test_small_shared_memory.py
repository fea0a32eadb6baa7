"""Where /dev/shm is read-only, or as small as in containers, and where memory has no name: the same models come out."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import tree
from long_mark import long_but

MOUNTED = 'mount -t tmpfs -o "$0" tmpfs /dev/shm && exec "$@"'
FIT = """
import hashlib
import numpy as np
from samplers import Lasso, LatentDirichletAllocation, MatrixFactorization, SoftmaxRegression
random = np.random.default_rng(0)
X = random.poisson(0.3, size=(60, 40))
y = X[:, 0] - X[:, 1] + random.normal(size=60)
models = [
    LatentDirichletAllocation(4, max_iter=3, random_state=0).fit(X).components_,
    MatrixFactorization(3, max_iter=3, random_state=0).fit(np.where(X, X, np.nan)).components_,
    Lasso(alpha=0.1).fit(X.astype(float), y).coef_,
    SoftmaxRegression(max_iter=2, random_state=0).fit(X.astype(float), y > 0).coef_,
]
print([hashlib.sha256(np.ascontiguousarray(model).tobytes()).hexdigest() for model in models])
"""


def mounting(options: str) -> list[str]:
    """What has a command run with another /dev/shm."""
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNTED]
    if not shutil.which("unshare") or subprocess.run([*words, "ro", "true"], check=False).returncode:
        pytest.skip("NOTHING IS MOUNTED AT /dev/shm: this user may not mount here")
    return [*words, options]


def fitted(*prefix: str, directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(directory)}
    words = [*prefix, sys.executable, "-c", FIT]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.long
def test_estimators_need_no_room_in_shared_memory(tmp_path: Path) -> None:
    expected = fitted(directory=tmp_path)
    assert expected.returncode == 0, expected.stderr
    for options in ("ro", "size=4k"):
        found = fitted(*mounting(options), directory=tmp_path)
        assert found.returncode == 0, (options, found.stderr)
        assert found.stdout == expected.stdout, options
    assert list(tmp_path.iterdir()) == []


DENY_EXECUTION = """
import ctypes, os, sys
os._exit(77) if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) else os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_denied_executable_memory_is_named(tmp_path: Path) -> None:
    """As by MemoryDenyWriteExecute of systemd: PR_SET_MDWE of Linux 6.3."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", DENY_EXECUTION, "-m", "ooc", "train", "lda", "corpus", "run", "--topics", "2"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("NO MEMORY IS DENIED: this kernel is before 6.3")
    assert done.returncode == 2
    assert done.stderr.startswith("ooc: this system denies executable memory, which compiled kernels need\n")


TRAIN = ["train", "lda", "corpus", "--topics", "3", "--iterations", "2", "--workers", "2"]


@pytest.fixture
def corpus(tmp_path: Path, ooc) -> Path:  # type: ignore[no-untyped-def]
    (tmp_path / "texts.txt").write_text("apple pear plum apple pear plum\nball goal team ball goal team\n" * 20)
    assert ooc("ingest", "text", "texts.txt", "corpus", "--lines").returncode == 0
    return tmp_path / "corpus"


@pytest.mark.long
@pytest.mark.parametrize("error", long_but([errno.EPERM], [errno.EPERM, errno.ENOSYS]))
def test_workers_share_memory_where_memfd_create_is_denied(corpus: Path, ooc, preloaded, error: int) -> None:  # type: ignore[no-untyped-def]
    """In /dev/shm; where that is too small, where temporary files are."""
    library = preloaded("denied_memfd")
    denied = {**os.environ, "LD_PRELOAD": str(library), "DENIED_ERROR": str(error), "PYTHONPATH": ":".join(sys.path)}
    assert ooc(*TRAIN[:3], "expected", *TRAIN[3:]).returncode == 0
    expected = tree(corpus.parent / "expected" / "model")
    for name, prefix in {"usual": [], "small": mounting("size=4k")}.items():
        words = [*prefix, sys.executable, "-m", "ooc", *TRAIN[:3], name, *TRAIN[3:]]
        done = subprocess.run(words, cwd=corpus.parent, env=denied, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert tree(corpus.parent / name / "model") == expected
