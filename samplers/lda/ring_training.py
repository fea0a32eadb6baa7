"""Training a topic model on a ring of machines: what each of them does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blocks.corpus.dataset import Dataset
from blocks.errors import RequestError
from ooc.batch import node_directory
from ooc.ring.relay import gather_values
from ooc.ring.ring import Ring
from ooc.run import create_run
from ooc.state import GENERATIONS, Layout
from samplers.lda.averaging import check_average
from samplers.lda.convergence import check_convergence
from samplers.lda.observer import LdaObserver
from samplers.lda.program import check_options
from samplers.lda.programs import auto_sampler, sampler_spec
from samplers.lda.training import DEFAULT_BETA, check_splash, default_alpha, optimization, remember_held_out
from samplers.preparation import check_dataset, check_lengths, check_limits, plan_training, train_planned
from samplers.ring_checks import check_apart, check_shards

DEFAULT_STALENESS = 1  # macro-steps
MOST_STALENESS = 8


def train_lda_on_ring(
    data: Path,
    path: Path,
    ring: Ring,
    *,
    topics: int,
    iterations: int,
    sampler: str = "auto",
    mh_steps: int | None = None,
    proposal: str | None = None,
    parallelism: int | None = None,
    sync_per_pass: int | None = None,
    alpha: float | Sequence[float] | None = None,
    beta: float | None = None,
    optimize_every: int = 0,
    burn_in: int | None = None,
    seed: int = 0,
    staleness: int | None = None,
    workers: int | None = None,
    memory_bytes: int | None = None,
    evaluate_every: int = 10,
    held_out: Path | None = None,
    stop_when_converged: bool = False,
    average: int | None = None,
    max_time: float | None = None,
    scratch: Path | None = None,
    on_node: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Train a topic model; every rank calls this with its shard and a run directory of its own.

    staleness: how many macro-steps old the totals of topics may be that ranks hear of each other, None for 1, or for 0
    with splash, of which nothing is stale. on_node: slices, made anew when a run goes on, are on the disk that a batch
    scheduler gives the node. parallelism: of splash, a multiple of the ranks, None for as many. The others are as in
    `samplers.lda.training.train_lda`, and the same at all ranks but for workers, memory, scratch and paths. Rank 0 has
    the held-out documents, and writes the model. Returns the last line of the metrics. Raises RequestError, at all
    ranks, if they do not fit together.
    """
    if sampler == "splash":
        check_splash(optimize_every, average, staleness)
    alpha = default_alpha(max(topics, 1)) if alpha is None else alpha
    beta = DEFAULT_BETA if beta is None else beta
    check_options(topics, alpha, beta, optimize_every, burn_in or 0)
    check_lengths(iterations, evaluate_every)
    if staleness is None:
        staleness = 0 if sampler == "splash" else DEFAULT_STALENESS
    if not 0 <= staleness <= MOST_STALENESS:
        raise RequestError(f"--staleness {staleness}: 0 to {MOST_STALENESS} macro-steps are possible")
    if on_node:
        node_directory()
    priors = {"alpha": alpha, "beta": beta} | optimization(optimize_every, burn_in, iterations)
    given = {"mh_steps": mh_steps, "proposal": proposal, "parallelism": parallelism, "sync_per_pass": sync_per_pass}
    if sampler == "auto":
        sampler = auto_sampler(topics, 0, given, on_ring=True)
    spec = sampler_spec(sampler, {"topics": topics, **priors, "seed": seed}, given, on_ring=True)
    dataset = Dataset(data)
    check_limits(spec, workers, max_time)
    check_shards(ring, dataset)
    check_apart(ring, path)
    average = 1 if average is None else average
    check_average(average, iterations, evaluate_every, dataset)
    if stop_when_converged:
        check_convergence(iterations, evaluate_every)
    first = ring.rank == 0
    plan = plan_training(dataset, spec, workers, memory_bytes, evaluators=first and held_out is not None)
    check_dataset(dataset)
    settings = {
        "staleness": staleness,
        "on_node": on_node,
        "held_out": _told_by_first(ring, remember_held_out(held_out, dataset) if held_out and first else None),
        "stop_when_converged": stop_when_converged,
        "average": average,
    }
    run = create_run(
        path,
        dataset,
        spec,
        iterations=iterations,
        evaluate_every=evaluate_every,
        settings=settings,
        scratch=scratch,
        overwrite=overwrite,
    )
    observer = LdaObserver(run, plan.workers, first=first)
    return train_planned(run, plan, observer, max_time=max_time, quiet=quiet, ring=ring)


def _told_by_first(ring: Ring, value: Any) -> Any:
    """What rank 0 has, of JSON types."""
    return gather_values(ring, value)[0]


def disk_needed(data: Path, topics: int, sampler: str = "auto", mh_steps: int | None = None) -> int:
    """Bytes of the generations of state that a new run keeps at most, of a shard."""
    dataset, options = Dataset(data), {"topics": topics, "alpha": DEFAULT_BETA, "beta": DEFAULT_BETA, "seed": 0}
    check_options(topics, DEFAULT_BETA, DEFAULT_BETA)
    if sampler == "auto":
        sampler = auto_sampler(topics, 0, {}, on_ring=True)
    program = sampler_spec(sampler, options, {"mh_steps": mh_steps}, on_ring=True).build(dataset)
    arrays = program.shared_arrays()
    committed = sum(arrays[name].bytes for name in program.primary_arrays())
    return GENERATIONS * (committed + int(Layout(dataset.index.cells, program.local_state()).tile_positions[-1]))
