"""The programs in examples/: run as a user runs them, and compared with references."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from commands import Ooc
from rings import until

from blocks import Matrix, Samples, ingest_documents, write_samples
from ooc.runs.run import Run
from samplers import LatentDirichletAllocation

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def table(tmp_path: Path, ooc: Ooc) -> np.ndarray:
    """Float64 (90, 30): rows of three kinds, about half of the entries 0; ingested as `matrix`."""
    random = np.random.default_rng(0)
    kinds = random.integers(1, 9, (3, 30)) * (random.random((3, 30)) < 0.5)
    dense = kinds[np.arange(90) % 3] * (1 + random.random((90, 30)) / 10)
    dense[:, 0], dense[0] = 1, dense[0] + 1
    lines = [f"{row}\t{column}\t{float(dense[row, column])!r}\n" for row, column in np.argwhere(dense).tolist()]
    (tmp_path / "matrix.tsv").write_text("".join(lines))
    assert ooc("ingest", "ratings", "matrix.tsv", "matrix").returncode == 0
    return dense


def run_script(tmp_path: Path, name: str, *arguments: object) -> str:
    """What an example prints."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments)]
    return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300).stdout


def in_order(dense: np.ndarray, matrix: Matrix) -> np.ndarray:
    """The rows by place and the columns by rank."""
    rows = np.concatenate([matrix.block(number).rows for number in range(matrix.block_count)])
    return dense[rows][:, matrix.index.column_ids].astype(np.float32).astype(float)


def run_example(name: str, tmp_path: Path, *arguments: object) -> dict[str, np.ndarray]:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "matrix", name, *map(str, arguments)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    with np.load(next((tmp_path / name / "model").glob("*.npz"))) as arrays:
        return dict(arrays)


def test_kmeans_is_what_lloyd_says(tmp_path: Path, table: np.ndarray) -> None:
    """Every row is at its nearest centre, every centre is the mean of its rows, and the distance never grew."""
    found = run_example("kmeans", tmp_path, 3)
    dense, centres, assigned = in_order(table, Matrix(tmp_path / "matrix")), found["centres"].T, found["assigned"]
    assert np.allclose(centres, [dense[assigned == k].mean(axis=0) for k in range(3)])
    distances = ((dense[:, None] - centres) ** 2).sum(axis=2)
    assert np.array_equal(assigned, distances.argmin(axis=1))
    told = [line["distance"] for line in Run(tmp_path / "kmeans").metrics()]
    assert told == sorted(told, reverse=True)
    total = told[-1] * np.count_nonzero(table) + (dense**2).sum()
    assert total == pytest.approx(distances.min(axis=1).sum(), rel=1e-6)


def test_svd_is_that_of_lapack(tmp_path: Path, table: np.ndarray) -> None:
    found = run_example("svd", tmp_path, 3)
    dense = in_order(table, Matrix(tmp_path / "matrix"))
    assert np.allclose(found["values"], np.linalg.svd(dense, compute_uv=False)[:3], rtol=1e-3)
    assert np.allclose(dense.T @ (dense @ found["right"]), found["right"] * found["values"] ** 2, rtol=1e-2, atol=1e-1)


@pytest.mark.long
def test_the_toy_problem_comes_out_as_in_the_paper(tmp_path: Path) -> None:
    """Figure 1: one thread and Splash are best; averages without weights are biased, sums are far away."""
    told = run_script(tmp_path, "toy", "figure1.png").splitlines()
    losses = {line[0]: float(line.split()[-1]) for line in told}
    assert list(losses) == list("abcdefg")
    assert losses["a"] < losses["g"] < losses["d"] < losses["e"]
    assert losses["g"] < 1.01 * losses["b"]
    assert (tmp_path / "figure1.png").stat().st_size > 10_000


def test_documents_are_counted(tmp_path: Path) -> None:
    ingest_documents([["a", "b", "a"], ["b"], [], *[["b", "c"]] * 9], tmp_path / "corpus")
    told = run_script(tmp_path, "documents", "corpus").splitlines()
    assert told[0] == "12 documents, 22 tokens; the longest has 3"
    assert [line.split()[0] for line in told[1:]] == ["b", "c", "a"]
    assert told[1].split()[1:] == ["in", "91.7%", "of", "them"]


def test_a_support_vector_machine_separates_what_can_be(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, rule = random.normal(size=(400, 5)), random.normal(size=5)
    offsets, columns = np.arange(401) * 5, np.tile(np.arange(5), 400)
    write_samples(tmp_path / "samples", offsets, columns, x.reshape(-1), np.sign(x @ rule))
    run_script(tmp_path, "svm", "samples", "run")
    found = np.load(tmp_path / "run" / "model" / "variables.npz")["w"]
    assert np.mean(np.sign(x @ found) == np.sign(x @ rule)) > 0.95
    objectives = [line["objective"] for line in Run(tmp_path / "run").metrics()]
    assert len(objectives) == 5
    assert objectives[-1] < 0.2


def test_a_factorization_machine_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = (random.random((300, 9)) * (random.random((300, 9)) < 0.5)).astype(np.float32)
    labels, offsets = random.normal(size=300), np.concatenate(([0], np.cumsum((x != 0).sum(axis=1))))
    samples = write_samples(tmp_path / "samples", offsets, np.nonzero(x)[1], x[x != 0], labels)
    run_script(tmp_path, "fm", "samples", "run")
    w0, w, v = 0.0, np.zeros(9), np.random.default_rng([0, *b"v"]).normal(scale=0.01, size=(9, 8))
    order = np.concatenate([samples.block(number).rows for number in range(samples.block_count)])
    for row in [*order] * 20:
        sums, value = x[row] @ v, x[row].astype(float)
        error = w0 + value @ w + ((sums**2).sum() - ((value[:, None] * v) ** 2).sum()) / 2 - labels[row]
        here = value != 0
        w0 -= 0.01 * error
        w -= 0.01 * here * (error * value + 1e-4 * w)
        v -= 0.01 * here[:, None] * (error * value[:, None] * (sums - value[:, None] * v) + 1e-4 * v)
    found = np.load(tmp_path / "run" / "model" / "variables.npz")
    for name, expected in {"w0": w0, "w": w, "v": v}.items():
        assert np.allclose(found[name], expected, rtol=1e-9, atol=1e-12), name


def test_online_kmeans_is_that_of_a_plain_loop(tmp_path: Path, ooc: Ooc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of core, by two workers, killed as soon as something is committed, and gone on with."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    x = random.normal(size=(300, 6)) * (random.random((300, 6)) < 0.6)
    with Samples.create("samples", block_entries=200) as writer:
        writer.add(x, np.zeros(300))
    program = ("program", "online_kmeans:OnlineKMeans", "samples")
    options = ("--set=clusters=3", "--set=parallelism=1", "--workers=2", "--memory=200MB", "--quiet")
    command = [sys.executable, "-m", "ooc", "train", *program, "run", "--iterations=100000", *options]
    with subprocess.Popen(command) as process:
        until(lambda: (path := Path("run/metrics.jsonl")).exists() and path.stat().st_size > 500)
        process.kill()
    passes = Run(Path("run"), program[1]).last_metrics()["iteration"] + 3
    done = ooc("resume", "run", "--program", program[1], "--iterations", passes, "--workers", 2, "--memory", "200MB")
    assert done.returncode == 0, done.stderr
    samples = Samples("samples")
    order = np.concatenate([samples.block(number).rows for number in range(samples.block_count)])
    rows, centres, sizes = x.astype(np.float32).astype(float), np.random.default_rng([0, *b"centres"]), np.zeros(3)
    expected = centres.normal(size=(3, 6))
    for row in [*order] * passes:
        k = int(np.square(rows[row] - expected).sum(axis=1).argmin())
        sizes[k] += 1
        expected[k] += (rows[row] - expected[k]) / sizes[k]
    found = np.load("run/model/variables.npz")
    assert np.array_equal(found["sizes"], sizes)
    assert np.allclose(found["centres"], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("online_kmeans", "mean squared distance 0."),
        pytest.param("svm", "mean hinge loss 0.", marks=pytest.mark.long),
        pytest.param("fm", "mean squared error 0.", marks=pytest.mark.long),
        pytest.param("nmf", "change of the loss, per entry: -0.", marks=pytest.mark.long),
        pytest.param("kmeans", "change of the squared distance, per entry: -0.", marks=pytest.mark.long),
        pytest.param("nnls", "|y - X b|^2 / 2 is 459.", marks=pytest.mark.long),
        pytest.param("group_lasso", "groups that are not 0: 1; duality gap", marks=pytest.mark.long),
        pytest.param("sparse_svm", "objective 4.56", marks=pytest.mark.long),
        pytest.param("svd", "singular values [", marks=pytest.mark.long),
        pytest.param("documents", " documents, ", marks=pytest.mark.long),
        pytest.param("callbacks", "'log_likelihood_per_token': -", marks=pytest.mark.long),
    ],
)
def test_an_example_runs_without_arguments(name: str, says: str, tmp_path: Path) -> None:
    """On data of its own; nothing is left in the directory that it is started in."""
    assert says in run_script(tmp_path, name)
    assert not list(tmp_path.iterdir())


def sent_to_mlflow(directory: Path) -> Iterator[tuple[str, int, float]]:
    for file in directory.glob("mlruns/0/*/metrics/*"):
        for line in file.read_text().splitlines():
            _, value, step = line.split()
            yield file.name, int(step), float(value)


def sent_to_tensorboard(directory: Path) -> Iterator[tuple[str, int, float]]:
    """Records of a TFRecord file: 8 bytes of length, 4 of checksum, the event, 4 of checksum."""
    from tensorboardX.proto.event_pb2 import Event

    (file,) = directory.glob("tensorboard/*")
    data, at = file.read_bytes(), 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        event = Event.FromString(data[at + 12 : at + 12 + size])
        yield from ((value.tag, event.step, value.simple_value) for value in event.summary.value)
        at += size + 16


def sent_to_wandb(directory: Path) -> Iterator[tuple[str, int, float]]:
    """Records of a log as LevelDB's, after 7 bytes: in blocks of 32 KiB, each part with 4 bytes of checksum, 2 of
    length, and one that says whether it is a whole record (1) or its last part (4)."""
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = directory.glob("wandb/offline-*/*.wandb")
    data, at, record = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record, at = record + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):
            history = Record.FromString(record).history
            yield from ((*each.nested_key, history.step.num, float(each.value_json)) for each in history.item)
            record = b""


@pytest.mark.parametrize(
    ("library", "sent"),
    [
        ("tensorboard", sent_to_tensorboard),
        pytest.param("mlflow", sent_to_mlflow, marks=pytest.mark.long),
        pytest.param("wandb", sent_to_wandb, marks=pytest.mark.long),
    ],
)
def test_callbacks_send_the_metrics_of_each_iteration(
    library: str, sent: Callable[[Path], Iterator[tuple[str, int, float]]], tmp_path: Path, monkeypatch
) -> None:
    """Into files of the directory that they are started in; read back without the libraries."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run_script(tmp_path, "callbacks", library)
    found = {(name, step): value for name, step, value in sent(tmp_path)}
    assert {step for name, step in found if name == "tokens_per_s"} == set(range(1, 11))
    assert [found["samples_processed", step] for step in (1, 10)] == [300, 3000]
    assert {step for name, step in found if name == "log_likelihood_per_token"} == {5, 10}
    tokens = [["cat", "dog", "cat"], ["stock", "market", "stock"]] * 50
    same = LatentDirichletAllocation(2, max_iter=10, evaluate_every=5, random_state=0).fit(tokens)
    expected = same.history_[-1]["log_likelihood_per_token"]
    assert found["log_likelihood_per_token", 10] == pytest.approx(expected, rel=1e-6)  # float32 in TensorBoard
