"""The kernels as plain Python: what they compute does not depend on the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUBSET = {
    "test_alias_table.py": "",
    "test_rng.py": "splitmix64 or lies_in or key",
    "test_two_phase.py": "equation or cleared or frequent_to_gather_moves or single_token",
    "test_word_topic_rows.py": "",
    "test_word_tables.py": "mass or high_bits or another_place",
    "test_lda.py": "objective or recount_sees",
    "test_update_modes.py": "loop_does",
}

WRAP_AROUND = "ignore:overflow encountered in scalar:RuntimeWarning"


@pytest.mark.long
def test_a_subset_of_the_tests_passes_with_the_compiler_off():
    """NumPy warns of the wrap-around that the random streams live from; every other warning is an error as ever."""
    tests = Path(__file__).parent
    files = [tests / name for name in SUBSET]
    chosen = " or ".join(f"({name} and ({words}))" if words else name for name, words in SUBSET.items())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", WRAP_AROUND, "-p", "no:cacheprovider", "-k", chosen, *map(str, files)],
        cwd=tests.parent,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
