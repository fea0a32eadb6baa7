"""Train a multi-class linear model: from options to a run, a plan and the engine; evaluate it on other samples."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from blocks.errors import RequestError
from blocks.samples.samples import Samples
from ooc.engine import StaticEngine
from ooc.ring.message_relay import gather_values
from ooc.ring.ring import Ring
from ooc.runs.dataset_entries import dataset_entry
from ooc.runs.new_run import create_run
from ooc.runs.run import Run
from ooc.runs.schemas import HeldOutObserverSettings
from ooc.state.generations import GENERATIONS
from ooc.stochastic.program import AUTO
from ooc.training import Callback, publish_model
from ooc.workers.worker import ProgramSpec
from samplers.options import TrainingResources, by_keywords, of_several
from samplers.programs import target
from samplers.regression.options import SoftmaxOptions
from samplers.regression.softmax.program import SoftmaxProgram
from samplers.ring_checks import check_paths_differ, check_processors, check_shards
from samplers.training_preparation import check_dataset, check_limits, plan_training, train_planned


def train(
    data: Path,
    path: Path,
    options: SoftmaxOptions,
    resources: TrainingResources,
    ring: Ring | None = None,
    callback: Callback | None = None,
) -> dict[str, Any]:
    """Train a multi-class linear model on the samples `data` in the new run directory `path`.

    ring: machines that all call this function with their own shard and run directory and the same options; rank 0 has
        the held-out samples and writes the model.
    callback: see `ooc.training.train`.
    Returns the last line of the metrics.
    Raises RequestError, before anything is written, if an option is invalid.
    """
    if resources.on_node:
        raise RequestError(
            "--scratch node cannot be used for regressions", "Omit --scratch, or set it to the path of a directory."
        )
    ring, samples = of_several(ring), Samples(data)
    given = {name: getattr(options, name) for name in ("loss", "rate", "regularization", "seed")}
    given |= {"parallelism": options.parallelism, "sync_per_pass": options.sync_per_pass}
    if options.most_parallelism is not None:
        if options.parallelism != AUTO:
            raise RequestError(
                "--most-parallelism can only be used with --parallelism auto", "Omit one of the options."
            )
        given["most_parallelism"] = options.most_parallelism
    if ring:
        given["on_ring"] = True
    spec = ProgramSpec(target("softmax"), given)
    if ring:
        check_shards(ring, samples)
        check_processors(ring, spec)
        check_paths_differ(ring, path)
    check_limits(spec, resources)
    first = ring is None or ring.rank == 0
    held_out = _held_out(options.held_out, samples) if options.held_out and first else None
    settings: dict[str, Any] = {"held_out": gather_values(ring, held_out)[0] if ring else held_out}
    if ring:
        settings["staleness"] = 0  # no value is stale
    plan = plan_training(samples, spec, resources)
    check_dataset(samples)
    run = create_run(
        path,
        samples,
        spec,
        iterations=options.passes,
        evaluate_every=options.evaluate_every,
        settings=settings,
        scratch=resources.scratch,
        overwrite=resources.overwrite,
    )
    return train_planned(run, plan, SoftmaxObserver(run, first=first), resources, ring, callback)


train_softmax = by_keywords(train, SoftmaxOptions)


def _held_out(path: Path, samples: Samples) -> dict[str, str]:
    """Check the held-out samples, and return the run's settings for them."""
    held_out = Samples(path)
    if held_out.columns != samples.columns:
        raise RequestError(
            f"--held-out {path} has {held_out.columns:,} columns, but {samples.path} has {samples.columns:,}",
            f"Ingest the held-out samples with --columns-from {samples.path}.",
        )
    if not np.isin(held_out.index.labels, samples.index.labels).all():
        unknown = np.setdiff1d(held_out.index.labels, samples.index.labels)[0]
        raise RequestError(f"--held-out {path} has the label {unknown:g}, which {samples.path} does not have")
    check_dataset(held_out)
    return dataset_entry(held_out)


def disk_needed(data: Path) -> int:
    """Return the maximum size in bytes of the generations that a new run keeps."""
    samples = Samples(data)
    return GENERATIONS * 8 * max(len(samples.index.labels), 1) * (samples.columns + 1)


class SoftmaxObserver:
    """Evaluates the model on held-out samples.

    first: whether this is rank 0, which has the held-out samples.
    """

    def __init__(self, run: Run, *, first: bool = True) -> None:
        self._run = run
        self._evaluates = bool(run.settings(HeldOutObserverSettings)["held_out"])
        self._held_out = run.held_out(Samples) if first else None

    def observe(self, engine: StaticEngine, line: dict[str, Any]) -> dict[str, Any]:
        return engine.gather(self._evaluated(engine))[0] if self._evaluates else {}

    def _evaluated(self, engine: StaticEngine) -> dict[str, float]:
        """Return the losses on the held-out samples, from rank 0."""
        if not self._held_out:
            return {}
        program = engine.program
        assert isinstance(program, SoftmaxProgram)
        found = {}
        for name, told in (("loss", "held_out_loss"), ("wrong", "held_out_error")):
            values = program.jobs.elsewhere(name, self._held_out, engine.arrays)
            found[told] = math.fsum(map(math.fsum, values)) / self._held_out.rows
        return found

    def finish(self, engine: StaticEngine) -> None:
        publish_model(self._run, engine)
