"""Train a topic model: create the run, plan it and start the engine, on one machine or several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from blocks.corpus.dataset import Dataset
from blocks.errors import RequestError
from ooc.plan.forecast import generation_bytes
from ooc.ring.message_relay import gather_values
from ooc.ring.ring import Ring
from ooc.runs.dataset_entries import dataset_entry
from ooc.runs.new_run import create_run
from ooc.slurm import node_directory
from ooc.state.generations import GENERATIONS
from ooc.training import Callback
from ooc.workers.worker import ProgramSpec
from samplers.lda.averaging import check_average
from samplers.lda.chains import check_chains, create_chains
from samplers.lda.convergence import check_convergence
from samplers.lda.earlier_model import EarlierModel, choose_earlier
from samplers.lda.held_out import check_held_out
from samplers.lda.observer import LdaObserver
from samplers.lda.options import LdaOptions
from samplers.lda.prior_sources import choose_prior
from samplers.lda.program import check_options
from samplers.lda.programs import TAKES, auto_samplers, initial_topics, sampler_spec
from samplers.options import ResumeOptions, TrainingResources, by_keywords, check_machines, of_several, takers
from samplers.resume import resume_run
from samplers.ring_checks import check_paths_differ, check_processors, check_shards
from samplers.topics.labels import label_files
from samplers.training_preparation import check_dataset, check_limits, fits, plan_training, train_planned

DEFAULT_BETA = 0.05
DEFAULT_BURN_IN = 20
DEFAULT_STALENESS = 1  # macro-steps
MOST_STALENESS = 8


def default_alpha(topics: int) -> float:
    """Return the default symmetric alpha, which sums to 5 over topics, or to less for fewer than 50 topics.

    Chosen by held-out likelihood; docs/benchmarks.md has the measurements.
    """
    return min(0.1, 5 / topics)


def train(
    data: Path,
    path: Path,
    options: LdaOptions,
    resources: TrainingResources,
    ring: Ring | None = None,
    callback: Callback | None = None,
) -> dict[str, Any]:
    """Train a topic model of the dataset `data` in the new run directory `path`.

    ring: machines that all call this function with the same options, but each with its own shard and run directory;
        rank 0 has the held-out documents and writes the model.
    callback: see `ooc.training.train`; only for a single chain.
    Returns the last line of the metrics; with several chains, the last line of the best chain and the comparison of all
    chains.
    Raises RequestError, on all ranks and before anything is written, if an option is invalid.
    """
    ring = of_several(ring)
    check_machines(LdaOptions, vars(options), several=ring is not None)
    staleness = _staleness(options)
    earlier = choose_earlier(options, ring)
    priors = _priors(options, earlier)
    _check_evaluations(options)
    if resources.on_node:
        node_directory()
    dataset = Dataset(data)
    if not ring and not dataset.tokens:
        raise RequestError(f"{data} has no tokens to train on", "Choose a dataset with documents that have words.")
    prior = choose_prior(options, priors["beta"], dataset, ring)
    priors |= {"beta": prior.beta} | ({} if prior.pairs is None else {"word_prior": prior.pairs})
    if earlier:
        priors |= {"earlier": earlier.entry}
    spec = _spec(options, priors, dataset, resources, ring)
    check_limits(spec, resources)
    if ring:
        check_shards(ring, dataset)
        check_processors(ring, spec)
        check_paths_differ(ring, path)
    average = 1 if options.average is None else options.average
    check_average(average, options.iterations, options.evaluate_every, dataset)
    first = ring is None or ring.rank == 0
    settings: dict[str, Any] = {"staleness": staleness, "on_node": resources.on_node} if ring else {}
    held_out = _remember(options.held_out, dataset) if options.held_out and first else None
    settings |= {
        "held_out": gather_values(ring, held_out)[0] if ring else held_out,
        "stop_when_converged": options.stop_when_converged,
        "average": average,
    }
    plan = plan_training(dataset, spec, resources, evaluators=held_out is not None)
    check_dataset(dataset)
    configured: dict[str, Any] = {"iterations": options.iterations, "evaluate_every": options.evaluate_every}
    configured |= {"settings": settings, "scratch": resources.scratch, "overwrite": resources.overwrite}
    labels = (earlier.labels if earlier else {}) | prior.labels
    configured["files"] = label_files(labels) if labels and first else {}
    if options.chains > 1:
        create_chains(path, dataset, spec, options.chains, **configured)
        return resume_run(path, ResumeOptions(), resources, ring)
    run = create_run(path, dataset, spec, **configured)
    observer = LdaObserver(run, plan.workers, first=first)
    return train_planned(run, plan, observer, resources, ring, callback)


train_lda = by_keywords(train, LdaOptions)


def _check_evaluations(options: LdaOptions) -> None:
    """Raise RequestError if several chains, or the test for convergence, need evaluations that are not made."""
    check_chains(
        options.chains, options.iterations, options.evaluate_every, stop_when_converged=options.stop_when_converged
    )
    if options.stop_when_converged:
        check_convergence(options.iterations, options.evaluate_every)


def _priors(options: LdaOptions, earlier: EarlierModel | None) -> dict[str, Any]:
    """Return the program's priors and, if they are estimated, the settings of the estimation. The priors of an earlier
    model are the defaults."""
    alpha, beta = (earlier.alpha, earlier.beta) if earlier else (default_alpha(max(options.topics, 1)), DEFAULT_BETA)
    priors: dict[str, Any] = {
        "alpha": alpha if options.alpha is None else options.alpha,
        "beta": beta if options.beta is None else options.beta,
    }
    burn_in = options.burn_in
    if options.optimize_every:
        first = DEFAULT_BURN_IN if burn_in is None else burn_in
        if first >= options.iterations:
            option = f"--optimize-every {options.optimize_every}" if burn_in is None else f"--burn-in {burn_in}"
            raise RequestError(
                f"{option}: priors are first estimated after iteration {first}, but --iterations is"
                f" {options.iterations}",
                f"Increase --iterations{'' if burn_in is None else ' or reduce --burn-in'}.",
            )
        priors |= {"optimize_every": options.optimize_every, "burn_in": first}
    elif burn_in is not None:
        raise RequestError(
            "--burn-in can only be used with --optimize-every", "Add --optimize-every N, or omit --burn-in."
        )
    check_options(options.topics, **priors)
    return priors


def _staleness(options: LdaOptions) -> int:
    """Return the staleness of topic totals in macro-steps.

    Raises RequestError for such options with splash.
    """
    if options.sampler == "splash":
        unlike = {"optimize-every": options.optimize_every, "average": options.average not in (None, 1)}
        for option, asked in (unlike | {"staleness": options.staleness}).items():
            if asked:
                raise RequestError(f"--{option} cannot be used with --sampler splash", f"Omit --{option}.")
        return 0
    staleness = DEFAULT_STALENESS if options.staleness is None else options.staleness
    if not 0 <= staleness <= MOST_STALENESS:
        raise RequestError(f"--staleness must be from 0 to {MOST_STALENESS} phases, got {staleness}")
    return staleness


def _spec(
    options: LdaOptions, priors: dict[str, Any], dataset: Dataset, resources: TrainingResources, ring: Ring | None
) -> ProgramSpec:
    """Return the program of the sampler.

    `auto` means the first sampler that fits in the memory limit of every machine, or the last one if none fits.
    """
    of_all = {"topics": options.topics, **priors, "seed": options.seed}
    given = {name: getattr(options, name) for name in takers(LdaOptions)}
    samplers = [options.sampler]
    if options.sampler == "auto":
        samplers = auto_samplers(options.topics, dataset.vocabulary_size, given)
    if ring:  # rows have only one order of updates on a ring, which an option may name
        given |= {"update": None}
    specs = [_spec_of(sampler, options, of_all, given, dataset, on_ring=ring is not None) for sampler in samplers]
    evaluators = options.held_out is not None
    fitting = [fits(dataset, spec, resources, evaluators=evaluators) for spec in specs[:-1]]
    if ring:
        fitting = [all(each) for each in zip(*gather_values(ring, fitting), strict=False)]
    return next((spec for spec, fit in zip(specs, fitting, strict=False) if fit), specs[-1])


def _spec_of(
    sampler: str, options: LdaOptions, of_all: dict[str, Any], given: dict[str, Any], dataset: Dataset, *, on_ring: bool
) -> ProgramSpec:
    """Return the program of a sampler.

    of_all: options common to all samplers;
    given: options of some samplers.
    """
    if options.average is not None and sampler in TAKES["running_mean"]:
        given = given | {"running_mean": False}
    given = initial_topics(sampler, options.topics, dataset.vocabulary_size, given, on_ring=on_ring)
    return sampler_spec(sampler, of_all, given, on_ring=on_ring)


def _remember(path: Path, dataset: Dataset) -> dict[str, str]:
    """Check the held-out documents, and return the run's settings for them."""
    held_out = Dataset(path)
    check_held_out(held_out, dataset)
    check_dataset(held_out)
    return dataset_entry(held_out)


def disk_needed(data: Path, topics: int, sampler: str = "auto", mh_steps: int | None = None) -> int:
    """Return the maximum number of bytes that a new run on a shard takes on the disk of one of several machines.

    This is the size of all generations or, if larger, of the first generation and the arrays of the initial phases that
    are in files.
    """
    dataset, options = Dataset(data), {"topics": topics, "alpha": DEFAULT_BETA, "beta": DEFAULT_BETA, "seed": 0}
    check_options(topics, DEFAULT_BETA, DEFAULT_BETA)
    if sampler == "auto":
        candidates = auto_samplers(topics, dataset.vocabulary_size, {"mh_steps": mh_steps})
        return max(disk_needed(data, topics, candidate, mh_steps) for candidate in candidates)
    given = initial_topics(sampler, topics, dataset.vocabulary_size, {"mh_steps": mh_steps}, on_ring=True)
    program = sampler_spec(sampler, options, given, on_ring=True).build(dataset)
    arrays = program.shared_arrays()
    generation = generation_bytes(dataset.index.cells, program)
    return max(GENERATIONS * generation, generation + sum(arrays[name].bytes for name in program.filed_arrays()))
