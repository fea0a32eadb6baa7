"""Benchmarks that start no other programs: that they run, and that what they simulate is right."""

from __future__ import annotations

import json

import numpy as np
import pytest
from corpora import InProcessProgram, small_dataset

from benchmarks.corpus import load_any
from benchmarks.simulated_workers import mode_spec, write_for_workers
from ooc.state.unit_passes import RESIDENT
from ooc.workers.worker import StageMessage, all_phases


@pytest.fixture
def corpus(tmp_path):
    return load_any(small_dataset(tmp_path / "small").path, None)


def test_a_simulated_data_parallel_worker_sees_its_own_changes_only(tmp_path, corpus):
    """Its shard ends alike whether others sample before it, after it or not at all; shared rows stay as they are."""
    dataset = write_for_workers(tmp_path / "dataset", *corpus, workers=3, seed=0)
    options = {"topics": 5, "alpha": 0.1, "beta": 0.05, "seed": 1}
    offsets = dataset.block(0).offsets
    ends = []
    for order in ([0, 1, 2], [2, 1, 0], [1]):
        with InProcessProgram(dataset, mode_spec("data-parallel", options)) as chain:
            rows = chain.shared["dense_rows"].copy()
            number = all_phases(chain.program).index(chain.program.documents)
            jobs = [(0, part) for part in range(3)] + [(1, part) for part in order]
            for stage, part in jobs:
                chain._handler.do(StageMessage(number, 0, 0, stage, [part], 1, RESIDENT), part)
            assert np.array_equal(chain.shared["dense_rows"], rows)
            bounds = chain._handler.unit("block", 0)[1]
            mine = slice(offsets[bounds[1]], offsets[bounds[2]])
            ends.append(chain.shared["token_topics"][mine].copy())
    assert np.array_equal(ends[0], ends[1])
    assert np.array_equal(ends[0], ends[2])


@pytest.mark.long
def test_the_benchmark_of_samplers_draws_and_tells_what_it_found(tmp_path, corpus, capsys):
    pytest.importorskip("matplotlib")
    from benchmarks import samplers

    few = ["--samplers", "two-phase", "--topics", "4", "--iterations", "2"]
    simulated = ["--simulated-workers", "3", "--simulated-topics", "4", "--simulated-iterations", "2"]
    samplers.main([str(tmp_path / "small"), "--output", str(tmp_path / "out"), *few, *simulated])
    found = json.loads((tmp_path / "out" / "samplers.json").read_text())
    assert [len(result["lines"]) for result in found["samplers"]] == [2]
    modes = [(result["mode"], result["workers"]) for result in found["modes"]]
    assert modes == [("rotation", 3), ("data-parallel", 3), ("frozen", 3)]
    figures = ["cost", "likelihood-by-iteration", "likelihood-by-seconds", "workers"]
    assert sorted(path.stem for path in (tmp_path / "out").glob("*.png")) == figures
    assert "simulated workers, SparseLDA, K = 4" in capsys.readouterr().out
