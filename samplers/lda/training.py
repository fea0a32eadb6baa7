"""Starting the training of a topic model, from options to a run, a plan and the engine; resuming any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blocks.corpus.dataset import Dataset
from blocks.errors import RequestError
from blocks.kinds import open_rows
from ooc.chains import chain_paths, is_chains
from ooc.plan import Plan
from ooc.program import StaticProgram
from ooc.remembered import entry_of
from ooc.ring.ring import Ring
from ooc.run import Run, create_run
from ooc.state import committed
from ooc.training import Callback, Observer
from samplers.factorization.observer import FactorizationObserver
from samplers.factorization.program import MatrixFactorization
from samplers.factorization.splash import SplashFactorization
from samplers.lda.averaging import check_average, check_more
from samplers.lda.chains import check_chains, create_chains, extend_chains, train_chains
from samplers.lda.convergence import check_convergence
from samplers.lda.held_out import check_held_out
from samplers.lda.observer import LdaObserver, LdaSettings
from samplers.lda.program import Lda, check_options
from samplers.lda.programs import TAKES, auto_sampler, sampler_spec
from samplers.lda.splash import SplashLda
from samplers.preparation import check_dataset, check_lengths, check_limits, plan_training, train_planned
from samplers.regression.softmax.program import Softmax
from samplers.regression.softmax.training import SoftmaxObserver
from samplers.regression.training import is_regression, resume_regression
from samplers.ring_checks import check_same

DEFAULT_BETA = 0.05
DEFAULT_BURN_IN = 20


def default_alpha(topics: int) -> float:
    """The symmetric alpha that is used if none is given: its sum is 5, or less for fewer than 50 topics.

    Chosen by held-out likelihood: docs/sampling.md has the measurements.
    """
    return min(0.1, 5 / topics)


def train_lda(
    data: Path,
    path: Path,
    *,
    topics: int,
    iterations: int,
    sampler: str = "auto",
    mh_steps: int | None = None,
    proposal: str | None = None,
    update: str | None = None,
    start: str | None = None,
    parallelism: int | None = None,
    sync_per_pass: int | None = None,
    alpha: float | Sequence[float] | None = None,
    beta: float | None = None,
    optimize_every: int = 0,
    burn_in: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    memory_bytes: int | None = None,
    evaluate_every: int = 10,
    held_out: Path | None = None,
    stop_when_converged: bool = False,
    average: int | None = None,
    chains: int = 1,
    max_time: float | None = None,
    scratch: Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    callback: Callback | None = None,
) -> dict[str, Any]:
    """Train a topic model of the dataset `data` in the new run directory `path`.

    scratch: a directory on a faster disk for the state. parallelism, sync_per_pass: of splash, see
    `ooc.stochastic.program`.
    average: states that the model is the average of; None for the sampler's running mean if it has one, else the last.
    callback: see `ooc.training.train`; of one chain.
    Returns the last line of its metrics; of several chains that of the best, with what they were found to be. Raises
    RequestError, before anything is written, if an option is wrong.
    """
    if sampler == "splash":
        check_splash(optimize_every, average)
    alpha = default_alpha(max(topics, 1)) if alpha is None else alpha
    beta = DEFAULT_BETA if beta is None else beta
    priors = {"alpha": alpha, "beta": beta} | optimization(optimize_every, burn_in, iterations)
    check_options(topics, **priors)
    check_lengths(iterations, evaluate_every)
    check_chains(chains, iterations, evaluate_every, stop_when_converged=stop_when_converged)
    if stop_when_converged:
        check_convergence(iterations, evaluate_every)
    dataset = Dataset(data)
    if not dataset.tokens:
        raise RequestError(f"{data} has no tokens: there is nothing to train on", "Choose a dataset that has words.")
    given = {"mh_steps": mh_steps, "proposal": proposal, "update": update, "start": start}
    given |= {"parallelism": parallelism, "sync_per_pass": sync_per_pass}
    if sampler == "auto":
        sampler = auto_sampler(topics, dataset.vocabulary_size, given)
    if average is None:
        average = 1
    elif sampler in TAKES["running_mean"]:
        given["running_mean"] = False
    spec = sampler_spec(sampler, {"topics": topics, **priors, "seed": seed}, given)
    check_limits(spec, workers, max_time)
    settings = {
        "held_out": remember_held_out(held_out, dataset) if held_out else None,
        "stop_when_converged": stop_when_converged,
        "average": average,
    }
    check_average(average, iterations, evaluate_every, dataset)
    plan = plan_training(dataset, spec, workers, memory_bytes, evaluators=held_out is not None)
    check_dataset(dataset)
    configured: dict[str, Any] = {"iterations": iterations, "evaluate_every": evaluate_every, "settings": settings}
    configured |= {"scratch": scratch, "overwrite": overwrite}
    if chains > 1:
        create_chains(path, dataset, spec, chains, **configured)
        return resume(path, workers=workers, memory_bytes=memory_bytes, max_time=max_time, quiet=quiet)
    run = create_run(path, dataset, spec, **configured)
    observer = LdaObserver(run, plan.workers)
    return train_planned(run, plan, observer, max_time=max_time, quiet=quiet, callback=callback)


def check_splash(optimize_every: int, average: int | None, staleness: int | None = None) -> None:
    """Raise RequestError for what the sampler splash does not do."""
    unlike = {"optimize-every": optimize_every, "average": average not in (None, 1), "staleness": staleness}
    for option, asked in unlike.items():
        if asked:
            raise RequestError(f"--{option} is not for --sampler splash", "Leave it out.")


def optimization(optimize_every: int, burn_in: int | None, iterations: int) -> dict[str, Any]:
    """The program's options that say when hyper-parameters are estimated; none if they are not."""
    if not optimize_every:
        if burn_in is not None:
            raise RequestError("--burn-in is for --optimize-every N", "Say how often, or leave --burn-in out.")
        return {}
    first = DEFAULT_BURN_IN if burn_in is None else burn_in
    if first >= iterations:
        option = f"--optimize-every {optimize_every}" if burn_in is None else f"--burn-in {burn_in}"
        raise RequestError(
            f"{option}: priors are first estimated after {first} iterations, but --iterations is {iterations}",
            "Give a larger --iterations." if burn_in is None else "Give a larger --iterations or a smaller --burn-in.",
        )
    return {"optimize_every": optimize_every, "burn_in": first}


def remember_held_out(path: Path, dataset: Dataset) -> dict[str, str]:
    """What a run remembers of its held-out documents, which must be whole and fit the dataset."""
    held_out = Dataset(path)
    check_held_out(held_out, dataset)
    check_dataset(held_out)
    return entry_of(held_out)


def resume(
    path: Path,
    *,
    iterations: int | None = None,
    workers: int | None = None,
    memory_bytes: int | None = None,
    max_time: float | None = None,
    quiet: bool = False,
    callback: Callback | None = None,
    ring: Ring | None = None,
    program: str | None = None,
    data: Path | None = None,
    held_out: Path | None = None,
) -> dict[str, Any]:
    """Go on with a run of any program, also with other workers, another budget, or more iterations.

    program: "module:Class" of a user's own program, see `Run`. data, held_out: where its datasets are now, if they were
    moved; the run notes that.
    ring: of machines that go on together, each with its own run. Returns the last line of its metrics, as what began it
    does.
    """
    if is_chains(path):
        for chain in chain_paths(path):
            Run(chain).move_datasets(data, held_out)
        check_limits(Run(chain_paths(path)[0]).spec, workers, max_time)
        if iterations is not None:
            for chain in chain_paths(path):
                _check_iterations(Run(chain), iterations)
            extend_chains(path, iterations)
        return train_chains(
            path,
            lambda chain, planned, left: resume(
                chain, iterations=planned, workers=workers, memory_bytes=memory_bytes, max_time=left, quiet=quiet
            ),
            max_time,
        )
    run = Run(path, program)
    run.move_datasets(data, held_out)
    check_ring(run, ring)
    committed(run.scratch / "state")  # of another version, damaged or gone: before anything is changed
    if is_regression(run):
        if iterations is not None:
            raise RequestError("--iterations is not for a path, whose values of lambda are set", "Leave it out.")
        return resume_regression(
            run, workers=workers, memory_bytes=memory_bytes, max_time=max_time, quiet=quiet, ring=ring
        )
    check_limits(run.spec, workers, max_time)
    dataset = run.dataset(open_rows)
    built = run.spec.build(dataset)
    if isinstance(built, Lda | SplashLda):
        run.settings(LdaSettings)
    first = ring is None or ring.rank == 0
    evaluators = first and isinstance(built, Lda | SplashLda) and bool(run.config["settings"].get("held_out"))
    plan = plan_training(dataset, run.spec, workers, memory_bytes, evaluators=evaluators)
    check_dataset(dataset)
    if iterations is not None:
        _check_iterations(run, iterations, first=first)
        run.set_iterations(iterations)
    if ring:
        check_same(ring, run)
    observer = _observer(run, built, plan, first=first)
    return train_planned(run, plan, observer, max_time=max_time, quiet=quiet, callback=callback, ring=ring)


def check_ring(run: Run, ring: Ring | None) -> None:
    """Raise RequestError unless a run that was trained on a ring goes on on one, and others do not."""
    on_ring = "staleness" in run.config["settings"]
    if on_ring and not ring:
        raise RequestError(
            f"{run.path} is one rank's part of a run on several machines",
            "Go on with all of them: ooc launch --hosts FILE -- resume RUN",
        )
    if ring and not on_ring:
        raise RequestError(f"{run.path} is not a run on several machines", "Go on with it on one, with: ooc resume")


def _observer(run: Run, program: StaticProgram, plan: Plan, *, first: bool) -> Observer | None:
    if isinstance(program, Lda | SplashLda):
        return LdaObserver(run, plan.workers, first=first)
    if isinstance(program, Softmax):
        return SoftmaxObserver(run, first=first)
    return FactorizationObserver(run) if isinstance(program, MatrixFactorization | SplashFactorization) else None


def _check_iterations(run: Run, iterations: int, *, first: bool = True) -> None:
    """Raise RequestError unless a run can be trained to so many iterations. first: of several machines, or the only."""
    done = max((line["iteration"] for line in run.metrics()), default=0)
    if iterations < max(done, 1):
        raise RequestError(f"--iterations {iterations}: {done} are done already", "Give that number, or more.")
    if first and run.config["settings"].get("average"):
        check_more(run, iterations, done)
