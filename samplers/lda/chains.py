"""Several chains of one model with different seeds: convergence (R-hat) and the best chain.

    RUN/chains.json    number and length of the chains; once all are finished, the R-hat of their likelihood, and the
                       best chain
    RUN/chain-1 ...    the run directories

R-hat is the potential scale reduction of split chains (Gelman et al., Bayesian Data Analysis, 3rd edition, section
11.4; Vehtari, Gelman, Simpson, Carpenter and Buerkner 2021, eq. 1 to 4; not rank-normalised) of the evaluated
likelihood over the second half of training. A value close to 1 means that the chains agree.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from blocks.corpus.dataset import Dataset
from blocks.errors import Interrupted, OocError, RequestError, WorkFailed
from blocks.files import publish_directory
from blocks.json_files import write_json
from ooc.ring.message_relay import from_rank_0, gather_values
from ooc.ring.ring import Ring
from ooc.runs.chains import CHAINS, chain_paths, read_chains, write_chains
from ooc.runs.new_run import replacing, run_config
from ooc.runs.replaced_run import drop_previous, keep_model
from ooc.runs.resumption import require_same
from ooc.runs.run import CONFIG, METRICS, Run, run_lock
from ooc.runs.scratch import new_scratch
from ooc.runs.start_command import may_resume, write_start_command
from ooc.workers.worker import ProgramSpec
from samplers.lda.convergence import convergence_metric, evaluations

LEAST = 4  # minimum number of evaluations of each chain in the second half of training


def check_chains(chains: int, iterations: int, every: int, *, stop_when_converged: bool) -> None:
    """Raise RequestError unless chains with these numbers of iterations can be compared."""
    if chains < 1:
        raise RequestError(f"--chains must be at least 1, got {chains}")
    if chains == 1:
        return
    if stop_when_converged:
        raise RequestError(
            "--chains cannot be used with --stop-when-converged: chains are compared over the same iterations",
            "Use only one of them.",
        )
    if (found := iterations // every - iterations // 2 // every) < LEAST:
        raise RequestError(
            f"--chains {chains}: R-hat needs {LEAST} evaluations in the second half; {iterations} iterations, evaluated"
            f" every {every}, give {found}",
            "Increase --iterations or reduce --evaluate-every.",
        )


def split_r_hat(values: np.ndarray) -> float:
    """Return the R-hat of chains, float64 (C, n), each split in halves (without the middle value if n is odd)."""
    half = values.shape[1] // 2
    halves = np.concatenate((values[:, :half], values[:, -half:]))
    within = halves.var(axis=1, ddof=1).mean()
    between = half * halves.mean(axis=1).var(ddof=1)
    if within == 0:
        return math.inf if between else 1.0
    return float(np.sqrt((half - 1) / half + between / (half * within)))


def create_chains(
    path: Path,
    dataset: Dataset,
    spec: ProgramSpec,
    chains: int,
    *,
    scratch: Path | None,
    overwrite: bool,
    files: Mapping[str, dict[str, Any]],
    **configured: Any,
) -> None:
    """Create a run directory for each chain, with consecutive seeds.

    scratch, files, configured: see `create_run`.
    """
    ids = [uuid.uuid4().hex for _ in range(chains)]
    names = [path / f"chain-{number + 1}" for number in range(chains)]
    if may_resume() and (path / CHAINS).exists():
        _require_same_chains(path, dataset, spec, chains, configured)
        return
    with ExitStack() as stack:
        stack.enter_context(replacing(path, overwrite=overwrite))
        places = [stack.enter_context(new_scratch(scratch, *each)) for each in zip(names, ids, strict=True)]
        directory = stack.enter_context(publish_directory(path, overwrite=overwrite))
        for number in range(chains):
            seeded = ProgramSpec(spec.target, {**spec.options, "seed": spec.options["seed"] + number})
            chain = directory / f"chain-{number + 1}"
            chain.mkdir()
            config = run_config(names[number], dataset, seeded, ids[number], scratch=places[number], **configured)
            write_json(chain / CONFIG, config)
            for name, content in files.items():
                write_json(chain / name, content)
        write_chains(directory, chains, configured["iterations"])
        write_start_command(directory)
        keep_model(path, directory)


def _require_same_chains(
    path: Path, dataset: Dataset, spec: ProgramSpec, chains: int, configured: dict[str, Any]
) -> None:
    """Raise RequestError unless the existing chains were started with the requested options."""
    paths = chain_paths(path)
    if len(paths) != chains:
        raise RequestError(
            f"--chains {chains}: {path} has {len(paths)} chains", f"Use --chains {len(paths)}, or choose another name."
        )
    config = run_config(path, dataset, spec, "", scratch=None, **configured)
    runs = [Run(chain) for chain in paths]
    unfinished = [run for run in runs if not run.config["finished"]]
    require_same(path, [*unfinished, *runs][0].config, config, dataset)
    for run in runs:
        run.move_datasets(dataset.path, None)


def extend_chains(path: Path, iterations: int) -> None:
    """Set the number of iterations of all chains."""
    run = Run(path / "chain-1")
    chains = read_chains(path)["chains"]
    check_chains(chains, iterations, run.config["evaluate_every"], stop_when_converged=False)
    write_chains(path, chains, iterations)


def train_chains(
    path: Path, train: Callable[[Path, int, float | None], object], max_time: float | None, ring: Ring | None = None
) -> dict[str, Any]:
    """Train the unfinished chains one after another; returns the result of `compare` and the best chain's last metrics.

    train: function that trains one chain, given its run directory, number of iterations and remaining seconds. ring:
    machines that train each chain together; rank 0 has the models and compares the chains.
    """
    first = ring is None or ring.rank == 0
    deadline = time.monotonic() + max_time if max_time else None
    with run_lock(path):
        config = read_chains(path)
        for chain in chain_paths(path):
            done = is_done(chain, config["iterations"], first=first)
            if all(gather_values(ring, done)) if ring else done:
                continue
            try:
                train(chain, config["iterations"], max(deadline - time.monotonic(), 1e-6) if deadline else None)
            except Interrupted as error:
                facts = {**(error.facts or {}), "run": str(path), "chain": chain.name}
                raise type(error)(f"{chain.name}: {error.what}", f"Continue with: ooc resume {path}", facts) from error
            except OocError as error:
                error.remedy = error.remedy.replace(f"ooc resume {chain}", f"ooc resume {path}")
                raise
        found = from_rank_0(ring, lambda: compare(path))
        write_chains(path, config["chains"], config["iterations"], **found)
        drop_previous(path)
    return {**Run(path / found["best"]).last_metrics(), "chains": config["chains"], **found}


def is_done(chain: Path, iterations: int, *, first: bool = True) -> bool:
    """Return whether a chain has the model after `iterations` iterations and no leftover files to remove.

    first: whether this is rank 0, which alone has the model.
    """
    lines = Run(chain).metrics()
    done = lines[-1]["iteration"] if lines else 0
    return done >= iterations and ((chain / "model").exists() or not first) and not any(chain.glob("sample-*"))


def compare(path: Path) -> dict[str, Any]:
    """Return the R-hat of finished chains (None if infinite) and the chain with the highest final likelihood."""
    runs = [Run(chain) for chain in chain_paths(path)]
    metrics = [run.metrics() for run in runs]
    if not all(metrics):
        lost = runs[[bool(lines) for lines in metrics].index(False)].path
        raise WorkFailed(f"{lost / METRICS} is missing, so the chains cannot be compared", "Train the chains again.")
    config = runs[0].config
    values = [evaluations(lines, config["evaluate_every"], config["iterations"] // 2) for lines in metrics]
    r_hat = split_r_hat(np.array(values))
    field = convergence_metric(metrics[0])
    best = max(range(len(runs)), key=lambda chain: metrics[chain][-1][field])
    return {"r_hat": r_hat if math.isfinite(r_hat) else None, "best": runs[best].path.name}


def best_chain(path: Path) -> Path:
    """Return the run directory of the chain with the highest final likelihood.

    Raises RequestError unless all chains are finished.
    """
    config = read_chains(path)
    if not config["best"]:
        raise RequestError(
            f"{path}: not all of its {config['chains']} chains are finished", f"Finish them with: ooc resume {path}"
        )
    return path / config["best"]
