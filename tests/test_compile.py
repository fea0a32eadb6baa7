"""`ooc compile`: what was compiled beforehand is all that commands need later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LATER = {
    "lda": [
        "ingest text lines.txt data --lines",
        "train lda data run --topics 3 --iterations 3 --workers 1",
        "train lda data other --topics 3 --iterations 3 --sampler two-phase --memory 300MB",
        "infer run data mixtures.csv",
        "infer other data other.csv",
        "topics run",
        "evaluate run data",
        "report run --output run.html",
        "export run trained.csv --format mixtures",
    ],
    "mf": ["ingest ratings ratings.csv data", "train mf data run --rank 3 --iterations 3", "recommend run --user 3"],
    "softmax": ["ingest svmlight rows.svm data --by-rows", "train softmax data run --passes 3"],
    "lasso": ["ingest svmlight rows.svm data", "train lasso data run", "predict run data predictions.csv"],
    "logistic": ["ingest svmlight rows.svm data", "train logistic data run --cross-validate 3"],
    "poisson": ["ingest svmlight rows.svm data", "train poisson data run --cross-validate 3 --positive"],
}


@pytest.mark.long
@pytest.mark.parametrize("model", LATER)
def test_nothing_is_compiled_any_more(tmp_path: Path, model: str) -> None:
    environment = {**os.environ, "OOC_CACHE_DIR": str(tmp_path / "kernels"), "PYTHONPATH": ":".join(sys.path)}

    def ooc(command: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "ooc", *command.split()]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
        return done

    (tmp_path / "lines.txt").write_text("red green blue red\ncyan red magenta green blue\nblue cyan yellow\n" * 40)
    (tmp_path / "ratings.csv").write_text("".join(f"{n % 17},{n % 11},{n % 5 + 1}\n" for n in range(500)))
    rows = (f"{n % 3 % 2} {n % 7 + 1}:{n % 4 + 1} {n % 7 + 9}:{n % 5 + 0.5}\n" for n in range(90))
    (tmp_path / "rows.svm").write_text("".join(rows))
    told = ooc(f"compile {model}").stdout
    assert f"MB in {tmp_path}/kernels/kernels-" in told
    for command in LATER[model]:
        assert "compiling" not in ooc(command).stderr, command
    assert ooc(f"compile {model}").stdout == told


def test_another_model_is_refused(ooc) -> None:  # type: ignore[no-untyped-def]
    done = ooc("compile", "lda", "svm")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown model 'svm'" in done.stderr
    assert "lda, mf, softmax, lasso, logistic, poisson" in done.stderr
