"""Numbers of live topics, wherever a model is described."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import Ooc
from long_mark import long_but


@pytest.mark.parametrize("sampler", long_but(["two-phase"], ["two-phase", "splash"]))
def test_dead_topics_are_told(tmp_path: Path, ooc: Ooc, sampler: str) -> None:
    """Train 40 topics of 12 tokens: topics without tokens are dead, and a token is more than a tenth of the mean."""
    (tmp_path / "few.txt").write_text("apple pear plum fig\nball goal team match\nsun moon star planet\n")
    assert ooc("ingest", "text", "--lines", "few.txt", "few").returncode == 0
    done = ooc("train", "lda", "few", "run", "--topics", 40, "--iterations", 3, "--sampler", sampler)
    assert ooc("export", "run", "model.npz", "--format", "npz").returncode == 0
    live = np.count_nonzero(np.load(tmp_path / "model.npz")["topic_tokens"] >= 0.1 * 12 / 40)
    assert 0 < live < 40
    assert f", {live} live topics, " in done.stdout
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["live_topics"] == live
    described = ooc("topics", "run", "--json")
    assert sum(topic["live"] for topic in json.loads(described.stdout)) == live
    assert f"{live} of 40 topics are live" in described.stderr
    assert ooc("report", "run", "-o", "report.html").returncode == 0
    assert f"<dt>live topics</dt><dd>{live}</dd>" in (tmp_path / "report.html").read_text()
