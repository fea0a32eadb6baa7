"""Verify runs: their state, metrics and models."""

from __future__ import annotations

from pathlib import Path

from blocks.verify import VerificationReport, combine_reports, unreadable_files
from ooc.runs.chains import chain_paths
from ooc.runs.replaced_run import MODEL, PREVIOUS
from ooc.runs.run import Run
from ooc.runs.status import file_sizes, run_problems
from ooc.workers.worker import ProgramSpec
from samplers.models import open_any_model


def verify_chains(path: Path) -> VerificationReport:
    """Verify the run of each chain."""
    return combine_reports([verify_run(Run(chain)) for chain in chain_paths(path)])


def verify_run(run: Run) -> VerificationReport:
    """Read back a run's generations and its model, or the kept model of the run that it replaced. Writes nothing."""
    unchecked = unreadable_files(run.path.rglob("*"))
    found = list(run_problems(run)) if not unchecked else []
    problems = [problem for problem, remedy in found if remedy]
    unchecked += [problem for problem, remedy in found if not remedy]
    remedies = list(dict.fromkeys(remedy for _, remedy in found if remedy))
    models = [run.path / name for name in (MODEL, PREVIOUS) if (run.path / name).exists()]
    for model in models[:1]:
        if unreadable_files(model.rglob("*")):
            continue
        if not ProgramSpec(program := run.config["program"], {}).is_known:
            unchecked.append(f"{model}: written without checksums by {program}, which is not part of ooc")
            continue
        of_model = list(open_any_model(model).problems())
        problems += of_model
        remedies += [f"Write the model again with: ooc resume {run.path}"] if of_model else []
    sizes = list(file_sizes(run.path))
    return VerificationReport(len(sizes), sum(sizes), problems, remedies, unchecked=unchecked)
