"""Several chains of a topic model on a ring: the bits of rings that train each chain alone, also after a stop."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpora import model_bytes, small_dataset
from rings import on_ring

from blocks import Interrupted, RequestError, WorkFailed
from blocks.shards.splitting import make_shards
from ooc.runs.run import Run
from samplers.lda.training import train_lda
from samplers.model_verification import verify_chains
from samplers.models import open_model
from samplers.resume import resume

OPTIONS = {"topics": 5, "workers": 1, "quiet": True, "evaluate_every": 1}
ITERATIONS, CHAINS, SEED = 8, 2, 4


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("data")
    whole = small_dataset(folder / "whole", documents=120)
    return [shard.path for shard in make_shards(whole.path, str(folder / "shards"), 2, workers=1)]


def train_all(shards: list[Path], folder: Path, **options) -> list[dict]:
    """Train runs of all ranks in `folder`/run-0, ...; returns the last metrics of each."""
    folder.mkdir(exist_ok=True)
    common = {**OPTIONS, "iterations": ITERATIONS, "seed": SEED, **options}
    return on_ring(2, lambda ring: train_lda(shards[ring.rank], folder / f"run-{ring.rank}", ring=ring, **common))


def resume_all(runs: list[Path], **options) -> list[dict]:
    return on_ring(len(runs), lambda ring: resume(runs[ring.rank], ring=ring, workers=1, quiet=True, **options))


@pytest.fixture(scope="module")
def trained(shards, tmp_path_factory) -> tuple[list[Path], list[dict]]:
    """Runs of two ranks with two chains, and what training returned."""
    folder = tmp_path_factory.mktemp("chains")
    return [folder / "run-0", folder / "run-1"], train_all(shards, folder, chains=CHAINS)


def test_chains_have_the_bits_of_rings_that_train_them_alone(shards, trained, tmp_path):
    """With seeds that follow each other; both ranks name the best one, whose model is rank 0's."""
    (first, second), told = trained
    likelihoods = []
    for number in range(CHAINS):
        last = train_all(shards, tmp_path / str(number), seed=SEED + number)[0]
        likelihoods.append(last["log_likelihood_per_token"])
        chain = f"chain-{number + 1}"
        assert model_bytes(first / chain) == model_bytes(tmp_path / str(number) / "run-0")
        assert not (second / chain / "model").exists()
        assert len(Run(second / chain).metrics()) == ITERATIONS
    assert told[0]["best"] == told[1]["best"] == f"chain-{likelihoods.index(max(likelihoods)) + 1}"
    assert told[0]["r_hat"] == told[1]["r_hat"]
    assert open_model(first).path == first / told[0]["best"] / "model"
    assert not verify_chains(first).problems


@pytest.mark.long
def test_stopped_chains_are_resumed_to_the_same_bits(shards, trained, tmp_path):
    """Also if a rank has a chain that another one has not finished."""
    with pytest.raises(Interrupted, match="chain-1"):
        train_all(shards, tmp_path, chains=CHAINS, max_time=1e-6)
    runs = [tmp_path / "run-0", tmp_path / "run-1"]
    with pytest.raises(RequestError, match="on several machines"):
        resume(runs[0])
    on_ring(2, lambda ring: resume(runs[ring.rank] / "chain-1", ring=ring, workers=1, quiet=True))
    (runs[0] / "chain-1" / "model").rename(tmp_path / "lost")  # as if rank 0 had been killed before its last step
    found = resume_all(runs)
    for chain in ("chain-1", "chain-2"):
        assert model_bytes(runs[0] / chain) == model_bytes(trained[0][0] / chain)
    assert [each["best"] for each in found] == [trained[1][0]["best"]] * 2
    assert resume_all(runs, iterations=ITERATIONS + 2)[1]["iteration"] == ITERATIONS + 2


def test_other_numbers_of_chains_are_refused_by_all_ranks(shards, trained, tmp_path):
    train_all(shards, tmp_path, iterations=2)
    unlike = [trained[0][0], tmp_path / "run-1"]
    with pytest.raises((RequestError, WorkFailed), match="have different numbers of chains"):
        resume_all(unlike)
