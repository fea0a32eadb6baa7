"""Programs of one's own, trained by `ooc train program` and `ooc.fit`: on one machine, and on a ring of ranks that all
have the whole dataset."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Ooc
from rings import mpiexec, on_ring, until

from blocks import Matrix, Samples
from blocks.errors import OocError
from ooc import ProgramRun, ProgramSpec, fit
from ooc.ring.ring import Ring
from ooc.runs.run import Run

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
ENTRIES = 150_000
LONG_EXAMPLES = [
    pytest.param("kmeans:KMeans", {"clusters": 3}, marks=pytest.mark.long),
    pytest.param("svd:SingularValues", {"rank": 3}, marks=pytest.mark.long),
]

SCRIPT = """
import sys

sys.path.append({examples!r})

import nmf

from ooc import fit

run = fit(nmf.NMF, {matrix!r}, "run", options={{"rank": 4}}, iterations=1, workers=2, memory="200MB")
first = run["left"]
run = run.more(2)
print(run.metrics_frame().loss.to_list(), (first != run["left"]).any())
"""

COUNTS = '''
import numpy as np
from ooc import ArraySpec, Phase, StaticProgram


class Counts(StaticProgram):
    """Sums and numbers of the entries of rows and columns, in every way in which parts can give them."""

    phases = (Phase("rows", "block", writes=False), Phase("columns", "slice", writes=False),
              Phase("blocks", "grid", writes=False))
    reading_phases = (Phase("values", "block", writes=False),)
    declared = True

    def __init__(self, dataset, *, wrong=""):
        super().__init__(dataset)
        self.wrong = wrong
        if wrong == "staged":
            self.phases = (Phase("rows", "block", writes=False, staged=True),)

    def local_state(self):
        return super().local_state()._replace(width=int(self.wrong == "local"))

    def shared_arrays(self):
        rows, columns = self.dataset.rows + (self.wrong == "shape"), self.dataset.columns
        per = {} if self.wrong == "undeclared" else {"per": "row"}
        return {
            "rows": ArraySpec((rows,), "float64", **per),
            "columns": ArraySpec((columns, 2), "float32", per="column"),
            "histogram": ArraySpec((10,), "int64"),
            "first": ArraySpec((), "float64"),
        }

    def delta_arrays(self):
        return {"histogram": ArraySpec((10,), "int32")}

    def update(self, job):
        if job.phase == "blocks":
            return {"part": job.part, "rows": job.shared["rows"][: job.part].sum(), "text": ["block", job.part]}
        offsets, others, values = job.entries()
        sums = np.add.reduceat(np.append(values, 0), offsets[:-1]) * (np.diff(offsets) > 0)
        if job.phase == "rows":
            job.shared["rows"][job.within(self.dataset.block_bounds)] += sums
            job.delta["histogram"][:] += np.bincount(values.astype(int)[offsets[0] : offsets[-1]] % 10, minlength=10)
        if job.phase == "columns":
            mine = job.shared["columns"][job.within(self.dataset.slice_bounds)]
            mine[:, 0], mine[:, 1] = np.diff(offsets), sums
        if self.wrong == "answer":
            return object()
        return float(values[offsets[0] : offsets[-1]].sum()), sums

    def aggregate(self, phase, shared, deltas, answers):
        if phase.name == "blocks":
            assert [answer["part"] for answer in answers] == list(range(self.dataset.block_count))
            assert all(isinstance(answer["rows"], np.float64) for answer in answers)
            return {"blocks": float(len(answers))}
        totals, sums = zip(*answers, strict=True)
        shared["first"][...] = sum(totals)
        shared["histogram"][:] += sum(delta["histogram"] for delta in deltas)
        return {f"sum_of_{phase.name}": sum(map(np.sum, sums))}

    def measure(self, sweep, shared):
        return {"objective": sum(total for total, _ in sweep(self.reading_phases[0]))}

    def export(self, sweep, shared, directory):
        parts = np.array([total for total, _ in sweep(self.reading_phases[0])])
        np.savez(directory / "counts.npz", parts=parts, **shared)
'''


HISTOGRAM = """
import numpy as np
from ooc import Field, Phase, StaticProgram

TYPES = {"int32": "int32", "record": [("a", "int32")]}


class Histogram(StaticProgram):
    dtype: str = "int32"

    counts = Field(shape=10, dtype="int32", summed=True, initial=100)
    rows = Field("row", dtype="int64")

    phases = (Phase("count", "block"),)

    def delta_arrays(self):
        return {name: spec._replace(dtype=TYPES[self.dtype]) for name, spec in super().delta_arrays().items()}

    def update(self, job):
        offsets, _, values = job.entries()
        job.own("rows")[:] += np.diff(offsets)
        job.delta["counts"][:] += np.bincount(values[offsets[0] : offsets[-1]].astype(int) % 10, minlength=10)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, ooc_in: Callable[[Path], Ooc]) -> Path:
    """A directory with the module `counts` and the matrix of 150,000 ratings, in parts of several blocks and slices."""
    path, random = tmp_path_factory.mktemp("made"), np.random.default_rng(0)
    places, values = random.permutation(500 * 600)[:ENTRIES].tolist(), (random.integers(1, 50, ENTRIES) / 3).tolist()
    lines = [f"{place // 600}\t{place % 600}\t{value!r}\n" for place, value in zip(places, values, strict=True)]
    (path / "matrix.tsv").write_text("".join(lines))
    (path / "counts.py").write_text(COUNTS)
    (path / "histogram.py").write_text(HISTOGRAM)
    done = ooc_in(path)("ingest", "ratings", "matrix.tsv", "matrix")
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def matrix(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Matrix:
    """`counts` can be imported, and the test has a directory of its own to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(made))
    monkeypatch.setenv("PYTHONPATH", str(made))
    return Matrix(made / "matrix")


def model_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(next((path / "model").glob("*.npz"))) as arrays:
        return dict(arrays)


def dense_of(matrix: Matrix) -> np.ndarray:
    """float64 (rows by place, columns by rank)."""
    dense, at = np.zeros((matrix.rows, matrix.columns)), 0
    for block in map(matrix.block, range(matrix.block_count)):
        rows = np.repeat(np.arange(block.rows.size), np.diff(block.offsets))
        dense[at + rows, block.columns] = block.values
        at += block.rows.size
    return dense


def told(path: Path) -> list[dict[str, float]]:
    """The lines of the metrics without what clocks and memory say."""
    clocks = ("_s", "_bytes", "time", "checksum", "bytes_")
    return [
        {
            name: value
            for name, value in line.items()
            if not name.endswith(clocks[:2]) and not name.startswith(clocks[2:])
        }
        for line in Run(path).metrics()
    ]


def test_ranks_that_have_the_whole_dataset_get_the_bits_of_one_machine(matrix: Matrix) -> None:
    """Rows, columns, deltas, answers of several kinds and metrics; more ranks than some units have parts."""
    fit("counts:Counts", matrix, "alone", iterations=3, workers=1, quiet=True)
    on_ring(
        3,
        lambda ring: fit("counts:Counts", matrix, f"run-{ring.rank}", iterations=3, workers=1, quiet=True, ring=ring),
    )
    alone, together = model_of(Path("alone")), model_of(Path("run-0"))
    assert alone.keys() == together.keys()
    for name, array in alone.items():
        assert array.tobytes() == together[name].tobytes(), name
    assert told(Path("alone")) == told(Path("run-0"))
    dense = dense_of(matrix)
    assert np.allclose(alone["rows"], 3 * dense.sum(axis=1))
    assert np.allclose(alone["columns"].T, [(dense > 0).sum(axis=0), dense.sum(axis=0)])
    assert alone["histogram"].sum() == 3 * ENTRIES
    assert not (Path("run-1") / "model").exists()


def test_summed_fields_are_added_up_over_workers_ranks_and_iterations(matrix: Matrix) -> None:
    """From their first value on; `more` adds to what the run plans, on an object from before another `more`, too."""
    values = np.concatenate([matrix.block(number).values for number in range(matrix.block_count)])
    expected = 100 + 4 * np.bincount(values.astype(int) % 10, minlength=10)
    first = fit("histogram:Histogram", matrix, "alone", iterations=1, workers=2, quiet=True)
    first.more(1, quiet=True)
    assert np.array_equal(first.more(2, quiet=True)["counts"], expected)

    def train(ring: Ring) -> None:
        fit("histogram:Histogram", matrix, f"sum-{ring.rank}", iterations=4, workers=2, quiet=True, ring=ring)

    on_ring(2, train)
    assert np.array_equal(model_of(Path("sum-0"))["counts"], expected)
    assert np.array_equal(model_of(Path("sum-0"))["rows"], first["rows"])


def test_deltas_that_ranks_cannot_add_up_are_refused(matrix: Matrix) -> None:
    def train(ring: Ring) -> str:
        options = {"options": {"dtype": "record"}, "iterations": 1, "quiet": True, "ring": ring}
        with pytest.raises(OocError) as error:
            fit("histogram:Histogram", matrix, f"record-{ring.rank}", **options)
        ring.fail(error.value.what)
        return error.value.what

    assert any("which ranks cannot sum" in what for what in on_ring(2, train))
    assert not list(Path().glob("record-*/model"))


@pytest.mark.long
@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
@pytest.mark.parametrize(
    ("name", "options"),
    [("nmf:NMF", {"rank": 3}), *LONG_EXAMPLES],
)
def test_examples_run_under_mpi_and_are_resumed(name: str, options: dict[str, int], matrix: Matrix, ooc: Ooc) -> None:
    """By the command, begun with one iteration and gone on with: the model of one machine."""
    shutil.copy(EXAMPLES / f"{name.partition(':')[0]}.py", ".")  # where the command is run
    settings = [f"--set={option}={value}" for option, value in (options | {"seed": 0}).items()]
    train = ["train", "program", name, str(matrix.path)]
    made = ooc(*train, "alone", *settings, "--iterations", "4", "--workers", "2")
    assert made.returncode == 0, made.stderr
    ranks = [str(mpiexec()), "-n", "2", sys.executable, "-m", "ooc"]
    subprocess.run(
        [*ranks, *train, "r-{rank}", *settings, "--iterations=1", "--transport=mpi"], check=True, timeout=300
    )
    more = ["resume", "r-{rank}", "--program", name, "--iterations=4", "--transport=mpi"]
    subprocess.run([*ranks, *more], check=True, timeout=300)
    alone, together = model_of(Path("alone")), model_of(Path("r-0"))
    assert all(alone[array].tobytes() == together[array].tobytes() for array in alone)


@pytest.mark.long
@pytest.mark.skipif(mpiexec() is None, reason="there is no mpiexec")
def test_a_stochastic_program_trains_on_shards(matrix: Matrix, ooc: Ooc, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command, with a worker on each of two ranks: the bits of two workers of one machine."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 5))
    with Samples.create("samples", block_entries=300) as writer:
        writer.add(x, np.sign(x @ random.normal(size=5)))
    assert ooc("shard", "samples", "shard-{rank}", "--shards", "2").returncode == 0
    options = ["--iterations=3", "--set=parallelism=2"]
    made = ooc("train", "program", "svm:Pegasos", "samples", "alone", *options)
    assert made.returncode == 0, made.stderr
    ranks = [str(mpiexec()), "-n", "2", sys.executable, "-m", "ooc", "train", "program", "svm:Pegasos"]
    command = [*ranks, "shard-{rank}", "r-{rank}", *options, "--set=on_ring=true", "--transport=mpi"]
    subprocess.run(command, check=True, timeout=300)
    alone, together = model_of(Path("alone")), model_of(Path("r-0"))
    assert np.abs(alone["w"]).min() > 0
    assert all(alone[array].tobytes() == together[array].tobytes() for array in alone)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("staged", "the phase 'rows' of the program Counts has stages, which cannot be divided among ranks"),
        ("local", "the program Counts has local state for each of the entries, which cannot be divided among ranks"),
        ("shape", "the array 'rows' of the program Counts is declared per row, but its shape is (501,)"),
        ("undeclared", "after the phase 'rows' the array 'rows' of rank 1 differs from that of rank 0"),
        ("answer", "`update` of a program on a ring returned a value of type object, which ranks cannot exchange"),
    ],
)
def test_what_cannot_run_on_a_ring_is_refused(wrong: str, says: str, matrix: Matrix) -> None:
    """And never runs to a wrong model."""

    def train(ring: Ring) -> str:
        options = {"options": {"wrong": wrong}, "iterations": 1, "workers": 1, "quiet": True, "ring": ring}
        try:
            fit("counts:Counts", matrix, f"run-{ring.rank}", **options)
        except OocError as error:
            ring.fail(error.what)
            return str(error.what)
        return "trained"

    found = on_ring(2, train)
    assert any(says in what for what in found), found
    assert "trained" not in found
    assert not list(Path().glob("run-*/model"))


def test_a_shard_is_refused_by_a_program_that_needs_the_whole(matrix: Matrix, ooc: Ooc) -> None:
    assert ooc("shard", matrix.path, "shard-{rank}", "--shards", "2").returncode == 0

    def train(ring: Ring) -> str:
        with pytest.raises(OocError) as error:
            fit("counts:Counts", f"shard-{ring.rank}", f"run-{ring.rank}", workers=1, quiet=True, ring=ring)
        return error.value.what

    for rank, what in enumerate(on_ring(2, train)):
        assert f"shard-{rank} is a shard, and the program Counts does not train on shards" in what
    assert not list(Path().glob("run-*"))


def test_nmf_is_that_of_scikit_learn(matrix: Matrix) -> None:
    """Begun alike, coordinate descent takes the same steps; out of core, in a script, for longer and again."""
    sklearn = pytest.importorskip("sklearn.decomposition")
    dense = dense_of(matrix)
    Path("script.py").write_text(SCRIPT.format(examples=str(EXAMPLES), matrix=str(matrix.path)))
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=True)
    left, right = (
        np.random.default_rng([0, *name.encode()]).random((size, 4)) for name, size in (("left", 500), ("right", 600))
    )
    model = sklearn.NMF(4, solver="cd", init="custom", max_iter=3, tol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model.fit_transform(dense, W=left.copy(), H=right.T.copy())
    found = ProgramRun(Path("run"), "nmf:NMF")
    assert np.allclose(found["left"], expected)
    assert np.allclose(found["right"].T, model.components_)
    losses, changed = done.stdout.rsplit(" ", 1)
    assert changed == "True\n"
    expected = np.square(dense - found["left"] @ found["right"].T).sum() - np.square(dense).sum()
    assert json.loads(losses)[-1] == pytest.approx(expected / ENTRIES)


@pytest.mark.long
def test_a_killed_program_ends_with_the_same_bytes(matrix: Matrix, ooc: Ooc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed as soon as something is committed."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    train = ["train", "program", "nmf:NMF", str(matrix.path)]
    process = subprocess.Popen([sys.executable, "-m", "ooc", *train, "run", "--iterations", "100000", "--quiet"])
    until(
        lambda: (
            len((Path("run") / "metrics.jsonl").read_bytes() if (Path("run") / "metrics.jsonl").exists() else b"") > 500
        )
    )
    process.kill()
    process.wait()
    for path in ("run", "copy"):
        if path == "run":
            done = max(line["iteration"] for line in Run(Path(path), "nmf:NMF").metrics()) + 10
            assert ooc("resume", path, "--program", "nmf:NMF", "--iterations", done).returncode == 0
        else:
            assert ooc(*train, path, "--iterations", done).returncode == 0
    assert (Path("run") / "model" / "arrays.npz").read_bytes() == (Path("copy") / "model" / "arrays.npz").read_bytes()
    done = ooc("report", "run", "--output", "report.html")
    assert done.returncode == 0, done.stderr
    assert "NMF trained on" in Path("report.html").read_text()
    done = ooc("predict", "run", "pairs.csv", "out.csv")
    assert done.returncode == 2
    assert "run was trained by a program of your own, nmf:NMF: this command cannot read its model" in done.stderr


def test_wrong_options_of_a_program_are_told(matrix: Matrix, ooc: Ooc) -> None:
    for settings, says in (
        (
            ["--set", "wrnog=1"],
            r"unexpected keyword argument 'wrnog'(\. Did you mean 'wrong'\?)?\nIts options are: wrong\.",
        ),
        (["--set", "wrong"], "--set 'wrong' is not NAME=VALUE"),
    ):
        done = ooc("train", "program", "counts:Counts", matrix.path, "run", *settings)
        assert done.returncode == 2
        assert re.search(says, done.stderr)
        assert not Path("run").exists()
    with pytest.raises(OocError, match="is not at the top level"):
        fit(type("Local", (ProgramSpec,), {"__qualname__": "f.Local", "__module__": "counts"}), matrix, "run")  # type: ignore[arg-type]
