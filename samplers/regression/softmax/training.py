"""Starting a multi-class regression: from options to a run, a plan and the engine; evaluating it on other samples."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from blocks.errors import RequestError
from blocks.samples.samples import Samples
from ooc.engine import StaticEngine
from ooc.remembered import entry_of
from ooc.ring.ring import Ring
from ooc.run import HeldOut, Run, create_run
from ooc.state import GENERATIONS
from ooc.stochastic.program import AUTO
from ooc.training import Callback, publish_model
from ooc.worker import ProgramSpec
from samplers.preparation import check_dataset, check_lengths, check_limits, plan_training, train_planned
from samplers.programs import target
from samplers.regression.softmax.program import Softmax
from samplers.ring_checks import check_apart, check_shards


def train_softmax(
    data: Path,
    path: Path,
    *,
    passes: int,
    loss: str = "softmax",
    rate: float = 0.5,
    regularization: float = 0.0,
    parallelism: int | str = AUTO,
    most_parallelism: int | None = None,
    sync_per_pass: int = 1,
    seed: int = 0,
    workers: int | None = None,
    memory_bytes: int | None = None,
    evaluate_every: int = 1,
    held_out: Path | None = None,
    max_time: float | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    callback: Callback | None = None,
    ring: Ring | None = None,
) -> dict[str, Any]:
    """Train a multi-class regression of the samples `data` in the new run directory `path`.

    parallelism, most_parallelism, sync_per_pass: see `ooc.stochastic.program`. loss, rate, regularization: see
    `samplers.regression.softmax.program`. held_out: samples with the same columns, to evaluate on; on a ring the first
    machine has them. ring: of machines that train together, each with its shard and a run of its own. The others are as
    in `samplers.lda.training.train_lda`. Returns the last line of the metrics. Raises RequestError, before anything is
    written, if an option is wrong.
    """
    check_lengths(passes, evaluate_every)
    samples = Samples(data)
    options = {"loss": loss, "rate": rate, "regularization": regularization, "seed": seed}
    options |= {"parallelism": parallelism, "sync_per_pass": sync_per_pass}
    if most_parallelism is not None:
        if parallelism != AUTO:
            raise RequestError("--most-parallelism is for --parallelism auto", "Leave one of them out.")
        options["most_parallelism"] = most_parallelism
    if ring:
        options["on_ring"] = True
        check_shards(ring, samples)
        check_apart(ring, path)
    spec = ProgramSpec(target("softmax"), options)
    check_limits(spec, workers, max_time)
    first = ring is None or ring.rank == 0
    settings: dict[str, Any] = {"held_out": _held_out(held_out, samples) if held_out and first else None}
    if ring:
        known = json.loads(ring.all_gather(json.dumps(settings["held_out"]).encode())[0])
        settings = {"held_out": known, "staleness": 0}  # nothing is stale
    plan = plan_training(samples, spec, workers, memory_bytes)
    check_dataset(samples)
    length: dict[str, Any] = {"iterations": passes, "evaluate_every": evaluate_every}
    run = create_run(path, samples, spec, **length, settings=settings, overwrite=overwrite)
    observer = SoftmaxObserver(run, first=first)
    return train_planned(run, plan, observer, max_time=max_time, quiet=quiet, callback=callback, ring=ring)


def _held_out(path: Path, samples: Samples) -> dict[str, str]:
    """What a run remembers of its held-out samples, which must be whole and fit."""
    held_out = Samples(path)
    if held_out.columns != samples.columns:
        raise RequestError(
            f"--held-out {path} has {held_out.columns:,} columns, and {samples.path} {samples.columns:,}",
            f"Ingest the held-out samples with --columns-from {samples.path}.",
        )
    if not np.isin(held_out.index.labels, samples.index.labels).all():
        unknown = np.setdiff1d(held_out.index.labels, samples.index.labels)[0]
        raise RequestError(f"--held-out {path} has the label {unknown:g}, which {samples.path} does not have")
    check_dataset(held_out)
    return entry_of(held_out)


def disk_needed(data: Path) -> int:
    """Bytes of the generations of state that a new run keeps at most."""
    samples = Samples(data)
    return GENERATIONS * 8 * max(len(samples.index.labels), 1) * (samples.columns + 1)


class SoftmaxObserver:
    """Evaluates on held-out samples. first: of several machines, or the only one, that has them."""

    def __init__(self, run: Run, *, first: bool = True) -> None:
        self._run = run
        self._evaluates = bool(run.settings(HeldOut)["held_out"])
        self._held_out = run.held_out(Samples) if first else None

    def observe(self, engine: StaticEngine, line: dict[str, Any]) -> dict[str, Any]:
        return engine.gather(self._evaluated(engine))[0] if self._evaluates else {}

    def _evaluated(self, engine: StaticEngine) -> dict[str, float]:
        """Losses of the held-out samples, by the machine that has them."""
        if not self._held_out:
            return {}
        program = engine.program
        assert isinstance(program, Softmax)
        found = {}
        for name, told in (("loss", "held_out_loss"), ("wrong", "held_out_error")):
            values = program.jobs.elsewhere(name, self._held_out, engine.arrays)
            found[told] = math.fsum(map(math.fsum, values)) / self._held_out.rows
        return found

    def finish(self, engine: StaticEngine) -> None:
        publish_model(self._run, engine)
