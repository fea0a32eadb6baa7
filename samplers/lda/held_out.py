"""Evaluate a model on held-out documents during training."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blocks.corpus.dataset import Dataset
from blocks.errors import RequestError
from blocks.files import temporary_name
from ooc.engine import StaticEngine
from samplers.topics.inference import check_predictable, evaluate
from samplers.topics.model import SavedTopicModel

FIELD = "held_out_log_likelihood_per_token"


def check_held_out(held_out: Dataset, dataset: Dataset) -> None:
    """Raise RequestError unless a model of `dataset` can be evaluated on `held_out`."""
    checksums = [each.manifest["texts"]["vocabulary"]["checksum"] for each in (held_out, dataset)]
    if checksums[0] != checksums[1]:
        raise RequestError(
            f"--held-out {held_out.path} and {dataset.path} have different vocabularies",
            f"Ingest the held-out documents with --vocab-from {dataset.path}.",
        )
    check_predictable(held_out)


@contextmanager
def present_model(engine: StaticEngine, run: Path) -> Iterator[SavedTopicModel | None]:
    """Yield the model of the engine's current state, in a temporary directory; None on all ranks but rank 0."""
    directory = temporary_name(run / "present")
    directory.mkdir()
    try:
        engine.export(directory)
        yield SavedTopicModel(directory) if engine.is_first else None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def held_out_likelihood(model: SavedTopicModel, held_out: Dataset, workers: int) -> dict[str, float]:
    """Return the predictive log-likelihood per token by document completion, as `samplers.topics.inference.evaluate`
    does."""
    found = evaluate(model, held_out, workers=workers, quiet=True)
    return {FIELD: found["predictive_log_likelihood_per_token"]}
