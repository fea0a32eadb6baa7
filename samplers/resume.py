"""Resume the run of any model.

The modules of a model are imported only for its own runs: importing all models would take a quarter of a second.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from blocks.design.design import Design
from blocks.errors import RequestError
from blocks.kinds import open_rows
from blocks.plurals import count_of
from ooc.plan.memory_plan import MemoryPlan
from ooc.ring.ring import Ring
from ooc.runs.chains import chain_paths, is_chains, read_chains
from ooc.runs.run import Run
from ooc.state.generations import committed
from ooc.training import Callback, TrainingObserver
from ooc.user_programs import is_dynamic
from samplers.column_training import plan_columns, train_columns
from samplers.options import ResumeOptions, TrainingResources, by_keywords, of_several
from samplers.programs import model_of
from samplers.ring_checks import check_alike, check_processors, check_same
from samplers.training_preparation import check_dataset, check_limits, plan_training, train_planned


def resume_run(
    path: Path,
    options: ResumeOptions,
    resources: TrainingResources,
    ring: Ring | None = None,
    callback: Callback | None = None,
) -> dict[str, Any]:
    """Resume a run of any program, possibly with other workers, another memory limit, or more iterations.

    options.program: "module:Class" of a user's program, see `Run`. options.data, options.held_out: new paths of moved
    datasets, which the run records.

    ring: machines that resume together, each with its own run.
    Returns the last line of the metrics.
    """
    if several := of_several(ring):
        check_alike(several, {"numbers of chains": read_chains(path)["chains"] if is_chains(path) else 1})
    if is_chains(path):
        return _go_on_with_chains(path, options, resources, ring)
    run = Run(path, options.program)
    run.move_datasets(options.data, options.held_out)
    ring = ring_of(run, ring)
    # raises if the state is of another version, damaged or missing, before anything is changed
    committed(run.scratch / "state")
    model = model_of(run.spec.target)
    if model == "regression":
        return _go_on_with_regression(run, options, resources, ring)
    check_limits(run.spec, resources)
    if not model and is_dynamic(run.spec.target):
        return _go_on_with_columns(run, options, resources, ring, callback)
    dataset = run.dataset(open_rows)
    if model == "lda":
        from samplers.lda.observer import LdaSettings

        run.settings(LdaSettings)
    first = ring is None or ring.rank == 0
    evaluators = first and model == "lda" and bool(run.config["settings"].get("held_out"))
    plan = plan_training(dataset, run.spec, resources, evaluators=evaluators)
    check_dataset(dataset)
    if options.iterations is not None:
        _check_iterations(run, options.iterations, first=first)
        run.set_iterations(options.iterations)
    if ring:
        check_same(ring, run)
        check_processors(ring, run.spec)
    return train_planned(run, plan, _observer(run, model, plan, first=first), resources, ring, callback)


resume = by_keywords(resume_run, ResumeOptions)


def _go_on_with_regression(
    run: Run, options: ResumeOptions, resources: TrainingResources, ring: Ring | None
) -> dict[str, Any]:
    from samplers.regression.training import resume_regression

    if options.iterations is not None:
        raise RequestError("--iterations cannot be used for a regression: its lambdas are fixed", "Omit --iterations.")
    return resume_regression(run, resources, ring)


def _go_on_with_columns(
    run: Run, options: ResumeOptions, resources: TrainingResources, ring: Ring | None, callback: Callback | None
) -> dict[str, Any]:
    design = run.dataset(Design)
    plan = plan_columns(design, run.spec, resources)
    check_dataset(design)
    if options.iterations is not None:
        _check_iterations(run, options.iterations)
        run.set_iterations(options.iterations)
    if ring:
        check_same(ring, run)
        check_processors(ring, run.spec)
    return train_columns(run, plan, resources, ring, callback)


def _go_on_with_chains(
    path: Path, options: ResumeOptions, resources: TrainingResources, ring: Ring | None
) -> dict[str, Any]:
    """Resume the unfinished chains one after the other."""
    from samplers.lda.chains import extend_chains, train_chains

    chains = [Run(chain) for chain in chain_paths(path)]
    for chain in chains:
        chain.move_datasets(options.data, options.held_out)
    ring = ring_of(chains[0], ring)
    check_limits(chains[0].spec, resources)
    if options.iterations is not None:
        for chain in chains:
            _check_iterations(chain, options.iterations, first=ring is None or ring.rank == 0)
        extend_chains(path, options.iterations)
    return train_chains(
        path,
        lambda chain, planned, left: resume_run(
            chain, ResumeOptions(iterations=planned), replace(resources, max_time=left), ring
        ),
        resources.max_time,
        ring,
    )


def ring_of(run: Run, ring: Ring | None) -> Ring | None:
    """Return the ring that a run needs, or None.

    Raises RequestError if the ring is missing or does not match.

    A run started on several machines resumes on a ring, even if the ring has only one machine.
    """
    on_ring = "staleness" in run.config["settings"]
    if on_ring and not ring:
        raise RequestError(
            f"{run.path} belongs to one rank of a run on several machines",
            "Resume the run on all machines with: ooc launch --hosts FILE -- resume RUN",
        )
    if of_several(ring) and not on_ring:
        raise RequestError(
            f"{run.path} is not a run on several machines", f"Resume it on one machine with: ooc resume {run.path}"
        )
    return ring if on_ring else None


def _observer(run: Run, model: str, plan: MemoryPlan, *, first: bool) -> TrainingObserver | None:
    if model == "lda":
        from samplers.lda.observer import LdaObserver

        return LdaObserver(run, plan.workers, first=first)
    if model == "softmax":
        from samplers.regression.softmax.training import SoftmaxObserver

        return SoftmaxObserver(run, first=first)
    if model == "mf":
        from samplers.factorization.observer import FactorizationObserver

        return FactorizationObserver(run)
    return None


def _check_iterations(run: Run, iterations: int, *, first: bool = True) -> None:
    """Raise RequestError unless a run can be trained to `iterations` iterations.

    first: whether this is rank 0.
    """
    done = max((line["iteration"] for line in run.metrics()), default=0)
    if iterations < max(done, 1):
        raise RequestError(
            f"--iterations must be at least {max(done, 1)}: {count_of(done, 'iteration')} done, got {iterations}"
        )
    if first and run.config["settings"].get("average"):
        from samplers.lda.averaging import check_more

        check_more(run, iterations, done)
