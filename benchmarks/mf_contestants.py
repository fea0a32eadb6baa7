"""Contestants of `benchmarks.mf`, each run in a separate process.

    python -m benchmarks.mf_contestants NAME SPEC RECORD

A record has how many ratings were trained on, the `seconds` of each iteration, without loading and evaluations, and the
`values` that were reached after each: the RMSE of ratings held out, or the objective of implicit feedback.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ratings import RatingArrays

_TIMED = 5  # iterations
_EIGHT_FLOATS = b"Dv8_f"  # the type of an AVX register, in names of functions that take some


@dataclass
class FactorizationSpec:
    """Specification of a run.

    directory: directory with train.npz, test.npz, and the matrices train and test.
    test: name of the part to evaluate on.
    """

    directory: str
    rank: int
    workers: int
    iterations: int
    regularization: float
    alpha: float = 1.0
    test: str = "test"
    options: dict[str, Any] | None = None

    def load(self, part: str) -> RatingArrays:
        with np.load(Path(self.directory) / f"{part}.npz") as arrays:
            return RatingArrays(**arrays)


def ooc(spec: FactorizationSpec) -> dict[str, Any]:
    """Run `ooc train mf` with --held-out; the time before the first iteration is not counted."""
    from ooc.runs.run import Run
    from samplers.factorization.training import train_mf

    with tempfile.TemporaryDirectory(dir=spec.directory) as scratch:
        options: dict[str, Any] = dict(spec.options or {})
        implicit = options.get("implicit", False)
        train_mf(
            Path(spec.directory) / "train",
            Path(scratch) / "run",
            rank=spec.rank,
            iterations=spec.iterations,
            regularization=spec.regularization,
            workers=spec.workers,
            held_out=None if implicit else Path(spec.directory) / spec.test,
            alpha=spec.alpha if implicit else None,
            quiet=True,
            **options,
        )
        lines = Run(Path(scratch) / "run").metrics()
    ratings = spec.load("train").values.size
    seconds = [ratings / line["samples_per_s"] for line in lines]
    return {"seconds": seconds, "values": [line["objective" if implicit else "held_out_rmse"] for line in lines]}


def libmf(spec: FactorizationSpec) -> dict[str, Any]:
    """Run LIBMF's stochastic gradient descent (L2 loss) with one thread per worker, on ratings minus their mean.

    LIBMF prints the RMSE of each iteration but no times. So the time of an iteration is the difference between two runs
    divided by the difference of their iterations, which excludes preparation.
    """
    from libmf import mf

    if _EIGHT_FLOATS not in Path(mf.compiled_src).read_bytes():
        raise SystemExit("LIBMF was built without AVX, and so is much slower than it can be: run `make bench`")
    train, test = spec.load("train"), spec.load(spec.test)
    mean = train.values.mean()
    tables = [
        np.column_stack([part.users, part.items, part.values - mean]).astype(np.float32) for part in (train, test)
    ]
    options = {"k": spec.rank, "nr_threads": spec.workers, "lambda_p2": spec.regularization, "eta": 0.1}
    options |= {"lambda_q2": spec.regularization, "lambda_p1": 0.0, "lambda_q1": 0.0} | (spec.options or {})
    took, more = {}, min(spec.iterations, _TIMED)
    for iterations in (1, 1 + more):
        engine = mf.MF(nr_iters=iterations, quiet=True, **options)
        began = time.perf_counter()
        engine.fit(tables[0])
        took[iterations] = time.perf_counter() - began
    seconds = (took[1 + more] - took[1]) / more
    with _printed() as printed:
        mf.MF(nr_iters=spec.iterations, quiet=False, **options).mf_train_test(*tables)
    values = [float(line.split()[2]) for line in printed() if re.match(r"\s*\d+\s", line)]
    return {"seconds": [seconds] * spec.iterations, "values": values}


class _printed:
    """Collect the standard output of C code."""

    def __enter__(self) -> Any:
        self._file = tempfile.TemporaryFile("w+")
        sys.stdout.flush()
        self._before = os.dup(1)
        os.dup2(self._file.fileno(), 1)
        return self._lines

    def _lines(self) -> list[str]:
        self._file.seek(0)
        return self._file.read().splitlines()

    def __exit__(self, *_: object) -> None:
        import ctypes

        ctypes.CDLL(None).fflush(None)
        os.dup2(self._before, 1)
        os.close(self._before)


def implicit(spec: FactorizationSpec) -> dict[str, Any]:
    """Run implicit's ALS with conjugate gradients; the confidence of a count a is 1 + alpha * a, as in ooc."""
    import scipy.sparse
    import threadpoolctl
    from implicit.als import AlternatingLeastSquares

    train = spec.load("train")
    confidence = scipy.sparse.csr_matrix((1 + spec.alpha * train.values, (train.users, train.items)))
    entries = confidence.tocoo()
    seconds, values = [], []

    def note(_: int, elapsed: float, __: float) -> None:
        seconds.append(elapsed)
        values.append(objective(model.user_factors, model.item_factors, entries, spec.regularization))

    model = AlternatingLeastSquares(
        factors=spec.rank,
        regularization=spec.regularization,
        alpha=1.0,
        iterations=spec.iterations,
        num_threads=spec.workers,
        calculate_training_loss=False,
        random_state=0,
        use_gpu=False,
    )
    with threadpoolctl.threadpool_limits(spec.workers, "blas"):
        model.fit(confidence, show_progress=False, callback=note)
    return {"seconds": seconds, "values": values}


def objective(rows: np.ndarray, columns: np.ndarray, entries: Any, regularization: float) -> float:
    """Return the objective of Hu, Koren and Volinsky.

    entries: sparse matrix of confidences in COO format.
    """
    rows, columns = rows.astype(np.float64), columns.astype(np.float64)
    total = float(((rows.T @ rows) * (columns.T @ columns)).sum())
    for first in range(0, entries.nnz, 1 << 20):
        some = slice(first, first + (1 << 20))
        scores = np.einsum("ij,ij->i", rows[entries.row[some]], columns[entries.col[some]])
        total += float((entries.data[some] * (1 - scores) ** 2 - scores**2).sum())
    return total + regularization * float((rows**2).sum() + (columns**2).sum())


CONTESTANTS = {"ooc": ooc, "libmf": libmf, "implicit": implicit}


def main() -> None:
    name, spec_file, record_file = sys.argv[1:]
    spec = FactorizationSpec(**json.loads(Path(spec_file).read_text(encoding="utf-8")))
    known = {"contestant": name, "ratings": int(spec.load("train").users.size), **asdict(spec)}
    record = known | CONTESTANTS[name](spec)
    Path(record_file).write_text(json.dumps(record), encoding="utf-8")


if __name__ == "__main__":
    main()
