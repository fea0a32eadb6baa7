"""Examples of each engine, launched over ssh as real processes, one of which is killed, and resumed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import model_bytes
from launches import LaunchProcess, nobody_left, rank_in, serving

from blocks import Design, Matrix, Samples
from blocks.shards.splitting import make_shards
from ooc import fit

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
ENDLESS = 100_000
# Name: program, dataset, options of the program. Those on samples train on shards.
PROGRAMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "nmf": ("nmf:NMF", "ratings", {"rank": 3}),
    "group_lasso": ("group_lasso:GroupLasso", "design", {"penalty": 30.0, "parallelism": 8, "tolerance": 1e-300}),
    "svm": ("svm:Pegasos", "samples", {"parallelism": 2}),
    "fm": ("fm:FactorizationMachine", "samples", {"parallelism": 2}),
    "online_kmeans": ("online_kmeans:OnlineKMeans", "samples", {"parallelism": 2, "clusters": 3}),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Make a dataset and a program of each kind where two ranks are launched."""
    folder, random = tmp_path_factory.mktemp("launch"), np.random.default_rng(0)
    with Matrix.create(folder / "ratings") as ratings:
        places = random.permutation(200 * 80)[:4000]
        ratings.add(places // 80, places % 80, random.random(4000))
    x = random.normal(size=(300, 320)) * (random.random((300, 320)) < 0.1)
    with Design.create(folder / "design", block_bytes=3000) as design:
        design.add(x, x[:, :5].sum(axis=1) + random.normal(size=300))
    with Samples.create(folder / "samples", block_entries=300) as samples:
        samples.add(x[:, :9], np.sign(x[:, 0] + 0.01))
    make_shards(folder / "samples", f"{folder}/shard-{{rank}}", 2)
    for target, *_ in PROGRAMS.values():
        shutil.copy(EXAMPLES / f"{target.partition(':')[0]}.py", folder)
    with serving(folder, 2):
        yield folder


@pytest.mark.ring
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_launched_program_that_is_killed_comes_to_the_bits_of_one_machine(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two ranks is killed during training; the launch that resumes it ends a few iterations later. The one
    machine has two workers and little memory."""
    target, data, options = PROGRAMS[name]
    shards = {"on_ring": "true"} if data == "samples" else {}
    settings = [f"--set={option}={value}" for option, value in (options | shards).items()]
    run, given = f"{name}-{{rank}}", "shard-{rank}" if shards else data
    with nobody_left(place):
        train = ["train", "program", target, given, run, *settings, "--iterations", ENDLESS, "--workers", 1]
        launch = LaunchProcess(place, "--", *train)
        launch.until_trained(place / f"{name}-1")
        rank_in(place).kill()
        done = launch.done()
    assert done.returncode == 1
    assert "(one) was killed by SIGKILL" in done.stderr
    reached = max(_iterations(place / f"{name}-{rank}") for rank in range(2)) + 3
    resume = ["resume", run, "--program", target, "--iterations", reached, "--workers", 1]
    done = LaunchProcess(place, "--", *resume).done()
    assert done.returncode == 0, done.stderr
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("PYTHONPATH", str(place))
    alone = place / f"{name}-alone"
    fit(target, place / data, alone, options=options, iterations=reached, workers=2, memory="300MB", quiet=True)
    assert model_bytes(alone) == model_bytes(place / f"{name}-0")
    assert not (place / f"{name}-1" / "model").exists()


def _iterations(run: Path) -> int:
    return len((run / "metrics.jsonl").read_text().splitlines())
