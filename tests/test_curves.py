"""The curves of trainings: which value is drawn, and what is refused."""

from __future__ import annotations

import pytest
from corpora import new_run, plan, program_spec, small_dataset

from blocks.errors import RequestError
from ooc.runs.curves import objectives, plot_runs
from ooc.training import train


def test_the_objective_is_found_among_the_metrics():
    measured = {
        "iteration": 1,
        "elapsed_s": 1.0,
        "tokens_per_s": 3,
        "memory_bytes": 5,
        "bytes_read": 0,
        "sampling_s": 1,
    }
    assert objectives([measured | {"rmse": 1.0}, measured | {"objective": 2.0}]) == ["objective", "rmse"]
    assert objectives([measured | {"changed_fraction": 0.5}, {"distance": 3.0}]) == ["distance"]
    assert objectives([measured]) == []


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_two_runs_are_drawn(tmp_path, ending):
    dataset = small_dataset(tmp_path / "data")
    runs = [new_run(tmp_path / name, dataset, program_spec(seed=seed), 4, 2) for seed, name in enumerate(("a", "b"))]
    out = tmp_path / f"curves.{ending}"
    with pytest.raises(RequestError, match="a has not recorded"):
        plot_runs(runs, out)
    for run in runs:
        train(run, plan(), quiet=True)
    untrained = new_run(tmp_path / "other" / "a", dataset, program_spec(), 4, 2)
    with pytest.raises(RequestError, match="other/a has not recorded"):
        plot_runs([untrained, *runs], out)
    assert plot_runs(runs, out) == "log_likelihood_per_token"
    assert out.stat().st_size > 5000
    assert plot_runs(runs, out, "changed_fraction") == "changed_fraction"
    with pytest.raises(RequestError, match="a has not recorded the metric 'nothing'"):
        plot_runs(runs, out, "nothing")
    with pytest.raises(RequestError, match="unknown file extension"):
        plot_runs(runs, tmp_path / "curves.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", f"curves.{ending}", "data", "other"]
