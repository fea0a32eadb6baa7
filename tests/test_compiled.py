"""The cache of compiled kernels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import numba
from blocks.compiled import cache_directory
from samplers import aliaslda, gibbs
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
    code = "import sys\nfrom blocks.ingest_worker import load\nload()\nassert 'scipy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False).returncode == 0
