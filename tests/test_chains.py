"""Several chains of one model: R-hat against a plain computation, runs that are killed, and which chain is used."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from corpora import kill_while_resuming, model_bytes, small_dataset
from hypothesis import given
from hypothesis import strategies as st

from blocks import Dataset, Interrupted, RequestError
from ooc.runs.run import Run
from samplers.lda import training
from samplers.lda.chains import split_r_hat
from samplers.model_verification import verify_chains
from samplers.models import open_model
from samplers.resume import resume

OPTIONS = {"topics": 5, "workers": 1, "quiet": True, "seed": 4, "evaluate_every": 2}
ITERATIONS, CHAINS = 16, 2


def plain_r_hat(chains: list[list[float]]) -> float:
    """BDA3 (11.3) and (11.4), with the standard library."""
    n = len(chains[0]) // 2
    halves = [half for chain in chains for half in (chain[:n], chain[len(chain) - n :])]
    within = statistics.fmean(statistics.variance(half) for half in halves)
    between = n * statistics.variance([statistics.fmean(half) for half in halves])
    return (((n - 1) / n * within + between / n) / within) ** 0.5


@given(st.integers(0, 1 << 32), st.integers(1, 5), st.integers(4, 31))
def test_r_hat_is_the_plain_computation(seed, chains, size):
    values = np.random.default_rng(seed).normal(-8, 0.1, (chains, size))
    assert split_r_hat(values) == pytest.approx(plain_r_hat(values.tolist()), rel=1e-9)


def test_r_hat_tells_chains_apart():
    rng = np.random.default_rng(1)
    same = rng.normal(size=(4, 4000))
    assert abs(split_r_hat(same) - 1) < 0.01
    assert split_r_hat(same + np.arange(4)[:, None]) > 1.3  # stuck in different places
    assert split_r_hat(same + np.linspace(0, 3, 4000)) > 1.1  # still rising, all alike
    assert split_r_hat(np.ones((2, 8))) == 1
    assert split_r_hat(np.array([[1.0] * 8, [2.0] * 8])) == float("inf")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Dataset:
    return small_dataset(tmp_path_factory.mktemp("data") / "dataset", documents=120)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("chains") / "run"
    return path, training.train_lda(data.path, path, iterations=ITERATIONS, chains=CHAINS, **OPTIONS)


def models(path: Path) -> list[dict[str, bytes]]:
    return [model_bytes(path / f"chain-{number + 1}") for number in range(CHAINS)]


@pytest.mark.long
def test_chains_are_runs_with_seeds_that_follow_each_other(trained, data, tmp_path):
    path, told = trained
    for number in range(CHAINS):
        training.train_lda(data.path, tmp_path / str(number), iterations=16, **OPTIONS | {"seed": 4 + number})
        assert model_bytes(tmp_path / str(number)) == models(path)[number]
    lines = [Run(path / f"chain-{number + 1}").metrics() for number in range(CHAINS)]
    values = [[chain[n - 1]["log_likelihood_per_token"] for n in (10, 12, 14, 16)] for chain in lines]
    assert told["r_hat"] == pytest.approx(plain_r_hat(values))
    best = max(range(CHAINS), key=lambda chain: values[chain][-1])
    assert told["best"] == f"chain-{best + 1}"
    assert told["log_likelihood_per_token"] == values[best][-1]
    config = json.loads((path / "chains.json").read_text())
    assert (config["r_hat"], config["best"], config["chains"]) == (told["r_hat"], told["best"], CHAINS)


def test_results_are_those_of_the_best_chain(trained, capsys):
    path, told = trained
    assert open_model(path).path == path / told["best"] / "model"
    assert told["best"] in capsys.readouterr().err
    assert not verify_chains(path).problems


@pytest.mark.long
def test_killed_chains_are_resumed(trained, data, tmp_path):
    """Stopped in the first chain, killed there and in the second, each time resumed with `RUN` alone."""
    path = tmp_path / "run"
    with pytest.raises(Interrupted, match="chain-1") as told:
        training.train_lda(data.path, path, iterations=ITERATIONS, chains=CHAINS, max_time=1e-6, **OPTIONS)
    assert told.value.remedy == f"Continue with: ooc resume {path}"
    with pytest.raises(RequestError, match="not all of its 2 chains are finished"):
        open_model(path)
    kill_while_resuming(path, "chain-1/metrics.jsonl")
    kill_while_resuming(path, "chain-2/state/manifest.json")
    found = resume(path, workers=2, quiet=True)
    assert models(path) == models(trained[0])
    assert (found["r_hat"], found["best"]) == (trained[1]["r_hat"], trained[1]["best"])


def test_more_iterations_are_for_all_chains(data, tmp_path):
    path = tmp_path / "run"
    training.train_lda(data.path, path, iterations=8, chains=CHAINS, **OPTIONS | {"evaluate_every": 1})
    last = resume(path, iterations=10, quiet=True)
    assert last["iteration"] == 10
    assert [len(Run(path / f"chain-{number + 1}").metrics()) for number in range(CHAINS)] == [10, 10]
    for iterations, said in ((9, "must be at least 10"), (7, "must be at least 10")):
        with pytest.raises(RequestError, match=said):
            resume(path, iterations=iterations, quiet=True)
    assert open_model(path)


@pytest.mark.long
def test_runs_and_chains_replace_each_other_only_if_told_to(data, tmp_path):
    path, short = tmp_path / "run", OPTIONS | {"evaluate_every": 1, "iterations": 8}
    training.train_lda(data.path, path, **short)
    with pytest.raises(RequestError, match=r"the run .* already exists"):
        training.train_lda(data.path, path, chains=CHAINS, **short)
    training.train_lda(data.path, path, chains=CHAINS, overwrite=True, **short)
    with pytest.raises(RequestError, match=r"the run .* already exists"):
        training.train_lda(data.path, path, **short)
    training.train_lda(data.path, path, overwrite=True, **short)
    assert not (path / "chains.json").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"chains": 0}, "--chains must be"),
        ({"chains": 2, "iterations": 6}, "R-hat needs 4"),
        ({"chains": 2, "stop_when_converged": True}, "--stop-when-converged"),
    ],
)
def test_chains_that_cannot_be_compared_are_refused(data, tmp_path, options, said):
    with pytest.raises(RequestError, match=said):
        training.train_lda(data.path, tmp_path / "run", **OPTIONS | {"iterations": ITERATIONS} | options)
    assert not (tmp_path / "run").exists()
