"""Small data: the process that trains does all the work itself, and comes to the bytes that worker processes do."""

from __future__ import annotations

from pathlib import Path

import psutil
from corpora import model_bytes, small_dataset

from samplers.lda.training import train_lda
from samplers.resume import resume


def test_no_process_is_started_and_the_bytes_are_the_same(tmp_path: Path) -> None:
    data = small_dataset(tmp_path / "data").path
    children: set[int] = set()

    def look(_: object) -> None:
        children.update(child.pid for child in psutil.Process().children(recursive=True))

    def train(name: str, workers: int | None, iterations: int = 4) -> dict[str, bytes]:
        path = tmp_path / name
        options = {"sampler": "gibbs", "evaluate_every": 1, "seed": 3}
        train_lda(data, path, topics=5, iterations=iterations, workers=workers, quiet=True, callback=look, **options)
        return model_bytes(path)

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    small = train("own", None)
    assert children <= before
    assert small == train("two", 2)
    assert not children <= before
    train("begun", 1, iterations=2)
    resume(tmp_path / "begun", iterations=4, quiet=True)
    assert model_bytes(tmp_path / "begun") == small
