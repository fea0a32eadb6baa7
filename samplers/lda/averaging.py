"""Average over several states of a chain: the states are kept as models during training and pooled at the end.

Each state that is to be averaged is exported to `sample-000090/` in the run directory, and stays there until the model
is published. Pooling sums counts and priors (see `samplers.topics.model`): with n^s, alpha^s and beta^s of state s

    phi_kw   = sum_s (n^s_kw + beta^s)  / sum_s (n^s_k + V*beta^s)
    theta_dk = sum_s (n^s_kd + alpha^s_k) / sum_s (N_d + abar^s)

Topic k is the same topic in all states of a chain; topics that drift along the chain are blurred by the average.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.errors import RequestError, WorkFailed
from blocks.files import publish_directory, temporary_name
from ooc.engine import StaticEngine
from ooc.runs.run import Run
from ooc.training import publish_export
from samplers.lda.hyperparameters import COUNT, ValueHistogram, add_histograms
from samplers.topics.model import SavedTopicModel, TopicCountRows, write_model

_CHUNK = 1 << 20  # entries, of all states together, that are pooled at a time


def check_average(states: int, iterations: int, every: int, dataset: Dataset) -> None:
    """Raise RequestError unless `states` states are kept, one every `every` iterations, and their counts can be
    summed."""
    if states < 1:
        raise RequestError(f"--average must be at least 1, got {states}")
    if states == 1:
        return
    if iterations % every:
        raise RequestError(
            f"--average: --iterations {iterations} must be a multiple of --evaluate-every {every}",
            "Change --iterations or --evaluate-every.",
        )
    if states * every > iterations:
        raise RequestError(
            f"--average {states}: {iterations} iterations, evaluated every {every}, give only {iterations // every}"
            " states",
            "Increase --iterations or reduce --evaluate-every.",
        )
    if states * int(dataset.whole.frequencies.max(initial=0)) > int(COUNT):
        raise RequestError(
            f"--average {states}: the summed counts of the most frequent word would exceed 32 bits",
            "Reduce --average.",
        )


def state_path(run: Path, iteration: int) -> Path:
    """Return the path of the state kept after an iteration."""
    return run / f"sample-{iteration:06}"


def states_until(iteration: int, states: int, every: int) -> list[int]:
    """Return the iterations whose states are averaged if training ends after `iteration`."""
    return [iteration - every * back for back in reversed(range(states))]


def check_more(run: Run, iterations: int, done: int) -> None:
    """Raise RequestError if a run cannot end after `iterations` because a state needed for its average is gone."""
    states, every = run.config["settings"]["average"], run.config["evaluate_every"]
    check_average(states, iterations, every, run.dataset(Dataset))
    passed = [iteration for iteration in states_until(iterations, states, every) if iteration <= done]
    if states > 1 and iterations > done and not all(state_path(run.path, iteration).exists() for iteration in passed):
        least = (done // every + states) * every
        raise RequestError(
            f"--iterations {iterations}: the run, at iteration {done}, did not keep all {states} states to average",
            f"Use --iterations {least} or more.",
        )


def keep_state(engine: StaticEngine, run: Path, iteration: int, states: int, every: int) -> None:
    """Export the engine's current state, and keep at most `states` states in total."""
    path = state_path(run, iteration)
    if not engine.gather(path.exists())[0]:
        publish_export(engine, path)
    for old in run.glob("sample-*"):
        if int(old.name.removeprefix("sample-")) <= iteration - states * every:
            _remove(old)


def publish_average(run: Run, dataset: Dataset, iteration: int) -> None:
    """Publish the average of the kept states as the model of a finished run, then remove the states.

    If the states are gone, the existing model must be their average; otherwise WorkFailed is raised.
    """
    wanted = states_until(iteration, run.config["settings"]["average"], run.config["evaluate_every"])
    if all(state_path(run.path, each).exists() for each in wanted):
        with publish_directory(run.path / "model", overwrite=True) as directory:
            pool_models([SavedTopicModel(state_path(run.path, each)) for each in wanted], wanted, dataset, directory)
    elif not _is_average(run.path / "model", wanted):
        raise WorkFailed(
            f"{run.path}: the model is damaged or missing, and the states that it averages were removed",
            f"Continue training and average new states with: ooc resume {run.path} --iterations "
            f"{iteration + len(wanted) * run.config['evaluate_every']}",
        )
    for path in run.path.glob("sample-*"):
        _remove(path)


def _is_average(path: Path, wanted: list[int]) -> bool:
    if not path.exists():
        return False
    model = SavedTopicModel(path)
    return model.averaged == wanted and not list(model.problems())


def _remove(path: Path) -> None:
    """Remove a directory atomically, so that a partly removed directory is never taken for a complete one."""
    gone = temporary_name(path)
    path.rename(gone)
    shutil.rmtree(gone)


def pool_models(models: Sequence[SavedTopicModel], averaged: Sequence[int], dataset: Dataset, directory: Path) -> None:
    """Write the average of models of one dataset (a whole dataset or a shard of it) to an empty directory."""
    of_whole: dict[str, Any] = {}
    beta, prior = float(sum(model.beta for model in models)), models[0].prior
    if prior is not None:  # the same in all models
        of_whole["prior"] = prior._replace(counts=(len(models) * prior.counts.astype(np.float64)).astype(np.float32))
    if "shard" in dataset.manifest:
        names = models[0].path / "documents.txt"
        of_whole["document_order"] = np.arange(dataset.whole.documents)
        of_whole["document_names"] = _lines(names) if names.exists() else None
    write_model(
        directory,
        dataset,
        alpha=np.sum([model.alpha for model in models], axis=0),
        beta=beta if prior is None else float(np.float32(beta)),
        topic_counts=np.sum([model.topic_counts for model in models], axis=0),
        topic_type=str(models[0].words.topics.dtype),
        word_rows=pool_rows([model.words for model in models]),
        document_rows=pool_rows([model.documents for model in models]),
        averaged=averaged,
        **of_whole,
    )


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def pool_rows(rows: Sequence[TopicCountRows], chunk: int = _CHUNK) -> Iterator[Any]:
    """Sum sparse rows of integer or of float32 counts, about `chunk` entries at a time; yields (sizes, rows) for
    `write_model`."""
    ends = np.sum([each.offsets for each in rows], axis=0)
    cuts = np.searchsorted(ends, np.arange(chunk, ends[-1] + chunk, chunk))
    bounds = np.unique(np.concatenate(([0], cuts, [ends.size - 1])).clip(0, ends.size - 1))
    for first, last in pairwise(bounds.tolist()):
        pooled = add_histograms([_entries(each, first, last) for each in rows])
        sizes = np.bincount(pooled.values >> np.uint64(32), minlength=last - first)
        counts = pooled.times.astype(rows[0].counts.dtype).view(np.uint32)
        packed = (pooled.values & COUNT) << np.uint64(32) | counts.astype(np.uint64)
        yield sizes.astype(np.uint32), packed


def _entries(rows: TopicCountRows, first: int, last: int) -> ValueHistogram:
    """Return the entries of a range of rows: row << 32 | topic, with rows counted from 0, and their counts."""
    offsets = rows.offsets[first : last + 1]
    places = np.repeat(np.arange(last - first, dtype=np.uint64), np.diff(offsets))
    found = slice(offsets[0], offsets[-1])
    return ValueHistogram(
        places << np.uint64(32) | rows.topics[found].astype(np.uint64),
        rows.counts[found].astype(np.int64 if rows.counts.dtype.kind == "u" else np.float64),
    )
