"""Estimate the cost of training a topic model, for an existing dataset or for hypothetical data and machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from blocks import memory
from blocks.corpus.dataset import Dataset
from blocks.errors import RequestError
from blocks.plurals import count_of, rate_text, seconds_text, size_text
from ooc.plan.disk_speed import measure_disk
from ooc.plan.forecast import IterationForecast, MeasuredSpeeds, forecast
from ooc.plan.memory_plan import MemoryPlan, make_plan
from ooc.program import StaticProgram
from ooc.workers.worker import ProgramSpec
from samplers.lda.doc_major import SMALL
from samplers.lda.programs import auto_samplers, initial_topics, sampler_spec
from samplers.lda.speed_trial import tokens_per_s
from samplers.lda.training import DEFAULT_BETA, default_alpha
from samplers.lda.warm_start import LearnedStartLda
from samplers.training_preparation import MEMORY_SHARE

_LATER = 20  # number of an iteration at which topics have become sharper
_ASSUMED = (  # assumed values for several machines
    "documents are split evenly, and all machines have the speeds above",
    "word frequencies follow Zipf's law with exponent 1.1; initial topics are random (learned ones need fewer bytes to"
    " send)",
    "slices are sent and received at full speed during sampling: the slowest of the three sets the time",
)


def plan_lda(
    dataset: Dataset,
    *,
    topics: int,
    sampler: str = "auto",
    mh_steps: int | None = None,
    workers: int,
    memory_bytes: int | None = None,
    machines: int = 1,
    speed: float | None = None,
    disk: float | None = None,
    network: float = float("inf"),
    directory: Path = Path(),
) -> dict[str, Any]:
    """Return the estimates for training on `dataset`, one machine's part of the data, as JSON types.

    speed: tokens per second of one worker; None to measure the sampler.
    disk, network: bytes per second of one machine; the disk of `directory` is measured if its speed matters and is not
        given.
    Raises RequestError if the memory limit is too small.
    """
    on_ring, given = machines > 1, {"mh_steps": mh_steps}
    names = auto_samplers(topics, dataset.vocabulary_size, given) if sampler == "auto" else [sampler]
    if sampler == "splash":
        raise RequestError(
            "ooc plan cannot estimate --sampler splash yet", "Measure one iteration of `ooc train lda` instead."
        )
    available = memory.available_memory()
    specs = {name: _spec(name, topics, given, dataset, on_ring=on_ring) for name in names}
    name, program, plan = _first_that_fits(specs, dataset, workers, memory_bytes or int(MEMORY_SHARE * available))
    cache = max(available - plan.bytes, 0) if dataset.identity else 0
    assumed = MeasuredSpeeds(speed or tokens_per_s(dataset, specs[name]), disk or float("inf"), network)
    found = forecast(dataset, program, plan, assumed, machines=machines, cache=cache)
    if disk is None and found.disk_bytes:
        assumed = assumed._replace(disk=measure_disk(directory).both)
        found = forecast(dataset, program, plan, assumed, machines=machines, cache=cache)
    return {
        "machines": machines,
        "workers": workers,
        "tokens": dataset.tokens * machines,
        "tokens_of_machine": dataset.tokens,
        "documents": dataset.documents * machines,
        "vocabulary": dataset.vocabulary_size,
        "blocks": dataset.block_count,
        "slices": dataset.slice_count,
        "topics": topics,
        "sampler": name,
        "why": "chosen by --sampler" if sampler != "auto" else _why(names, name, topics, dataset),
        "memory_bytes": plan.bytes,
        "state_name": program.state_name,
        "residency": list(plan.reasons),
        "dataset_bytes": dataset.data_bytes,
        **{field: value for field, value in asdict(found).items() if field != "data_bytes"},
        "dataset_read_bytes": found.data_bytes,
        f"sent_bytes_{_LATER}th": program.sent_bytes(machines, _LATER) if machines > 1 else 0,
        **_start(program, found, assumed, workers),
        "iteration_s": found.iteration_s,
        "limit": found.limit,
        **{f"assumed_{field}": value for field, value in assumed._asdict().items() if value != float("inf")},
    }


def _spec(name: str, topics: int, given: dict[str, Any], dataset: Dataset, *, on_ring: bool) -> ProgramSpec:
    options = {"topics": topics, "alpha": default_alpha(max(topics, 1)), "beta": DEFAULT_BETA, "seed": 0}
    begun = initial_topics(name, topics, dataset.vocabulary_size, given, on_ring=on_ring)
    return sampler_spec(name, options, begun, on_ring=on_ring)


def _first_that_fits(
    specs: dict[str, ProgramSpec], dataset: Dataset, workers: int, budget: int
) -> tuple[str, StaticProgram, MemoryPlan]:
    """Return the first sampler that fits within the memory limit.

    Raises RequestError if none does.
    """
    *_, last = specs
    for name, spec in specs.items():
        program = spec.build(dataset)
        try:
            return name, program, make_plan(dataset, program, workers, budget)
        except RequestError:
            if name == last:
                raise
    raise AssertionError("there is a sampler")


def _start(program: StaticProgram, found: IterationForecast, speeds: MeasuredSpeeds, workers: int) -> dict[str, Any]:
    """Return how many times the initialization learns from each token, and the seconds until the first iteration."""
    assert isinstance(program, LearnedStartLda)
    passes = program.start_passes()
    read = found.data_bytes * len(passes) / speeds.disk
    return {"start_learning_passes": max(len(passes) - 1, 0), "start_s": max(program.start_s() / workers, read)}


def _why(names: list[str], sampler: str, topics: int, dataset: Dataset) -> str:
    """Return why `auto` chooses the sampler, one of `names`."""
    size = 4 * topics * dataset.vocabulary_size
    dense = f"topic-word counts take {size_text(size)}"
    if sampler != names[0]:
        return f"{dense}, with which sparse-gibbs does not fit the memory limit"
    if sampler == "two-phase" and size <= SMALL:
        return "the only sampler of auto that takes the given options"
    small = f"the {size_text(SMALL)} up to which sparse-gibbs is faster"
    return f"{dense}, {'within' if sampler == 'sparse-gibbs' else 'more than'} {small}"


def told(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the estimates as lines of text."""
    machines = facts["machines"]
    each = f"; {facts['tokens_of_machine']:,} tokens on each of {machines} machines" if machines > 1 else ""
    corpus = ", ".join(
        count_of(facts[name], noun)
        for name, noun in (("documents", "document"), ("tokens", "token"), ("vocabulary", "word"))
    )
    yield f"corpus     {corpus}{each}"
    yield f"grid       {count_of(facts['blocks'], 'block')} x {count_of(facts['slices'], 'slice')}"
    yield f"sampler    {facts['sampler']}: {facts['why']}"
    yield f"memory     {size_text(facts['memory_bytes'])} with {count_of(facts['workers'], 'worker')}"
    yield from (f"           {reason}" for reason in facts["residency"])
    saved = f"{size_text(facts['saved_bytes'])} for each saved state, of which there are up to three"
    yield f"disk       dataset {size_text(facts['dataset_bytes'])}; {saved}"
    learning = count_of(facts["start_learning_passes"], "pass", "passes")
    about = float(f"{facts['start_s']:.2g}")  # the estimate is not precise enough for more digits
    yield f"start      about {about:,.0f} s: {learning} over the tokens to learn topics, and one to draw them"
    yield from _told_of_time(facts)
    if machines > 1:
        yield f"rate       {rate_text(facts['tokens'] / facts['iteration_s'], 'tokens')} on all machines"
        yield from (f"assumes    {assumption}" for assumption in _ASSUMED)


def _told_of_time(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the time of an iteration, and of each of its phases, as lines of text."""
    named = [name for name in ("sampling", "disk", "network") if name == "sampling" or f"assumed_{name}" in facts]
    slowest = f", set by {facts['limit']}, the slowest of these in parallel:" if len(named) > 1 else ":"
    yield f"iteration  {seconds_text(facts['iteration_s'])}{slowest}"
    speed = f"{rate_text(facts['assumed_tokens_per_s'], 'tokens')} per worker"
    tokens = count_of(facts["tokens_of_machine"], "token")
    yield f"           sampling  {seconds_text(facts['sampling_s'])}: {tokens} at {speed}"
    if "assumed_disk" in facts:
        parts = {
            "dataset read": facts["dataset_read_bytes"],
            f"{facts['state_name']} read": facts["read_bytes"],
            "written": facts["written_bytes"],
            "counts read and written": facts["rows_bytes"],
        }
        moved = ", ".join(f"{part} {size_text(size)}" for part, size in parts.items() if size)
        at = f"at {size_text(facts['assumed_disk'])}/s"
        yield f"           disk      {seconds_text(facts['disk_s'])}: {moved or 'nothing is read or written'}, {at}"
    if "assumed_network" in facts:
        first, later = (size_text(facts[name]) for name in ("sent_bytes", f"sent_bytes_{_LATER}th"))
        sent = f"{first} of word counts sent in the first iteration, {later} in the {_LATER}th"
        at = f"at {size_text(facts['assumed_network'])}/s"
        yield f"           network   {seconds_text(facts['network_s'])}: {sent}, {at}"
