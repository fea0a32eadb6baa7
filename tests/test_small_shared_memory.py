"""Estimators where /dev/shm is read-only, or as small as in containers: they fit the same models."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def fitted(*prefix: str, directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(directory)}
    words = [*prefix, sys.executable, "-c", FIT]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


def test_estimators_need_no_room_in_shared_memory(tmp_path: Path) -> None:
    mounting = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNTED]
    if not shutil.which("unshare") or subprocess.run([*mounting, "ro", "true"], check=False).returncode:
        pytest.skip("NOTHING IS MOUNTED AT /dev/shm: this user may not mount here")
    expected = fitted(directory=tmp_path)
    assert expected.returncode == 0, expected.stderr
    for options in ("ro", "size=4k"):
        found = fitted(*mounting, options, directory=tmp_path)
        assert found.returncode == 0, (options, found.stderr)
        assert found.stdout == expected.stdout, options
    assert list(tmp_path.iterdir()) == []
