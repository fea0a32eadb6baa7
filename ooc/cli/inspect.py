"""`ooc info` and `ooc verify`: describe a dataset or a run, and check its files for damage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from blocks import stderr
from blocks.errors import RequestError, WorkFailed
from blocks.plurals import count_of, size_text
from ooc.cli.console import Json, print_json, print_line, progress_bar

DataOrRun = Annotated[Path, typer.Argument(help="Directory of a dataset or a run.")]


def info(path: DataOrRun, json: Json = False) -> None:
    """Describe a dataset or a run, and how it was created.

    Example: ooc info run --json
    """
    from blocks.dataset_description import describe
    from blocks.dataset_description import description_lines as dataset_told
    from blocks.kinds import open_any
    from blocks.shards.whole_dataset import shard_paths
    from ooc.runs.chains import CHAINS, chain_paths, read_chains
    from ooc.runs.run import CONFIG, Run
    from ooc.runs.status import describe_run
    from ooc.runs.status import status_lines as run_told

    if (path / CHAINS).exists():
        runs = [describe_run(Run(run)) for run in chain_paths(path)]
        facts = {"path": str(path), "kind": "chains", **read_chains(path), "runs": runs}
        lines: Iterator[str] = chain.from_iterable(map(run_told, runs))
    elif (path / CONFIG).exists():
        facts = describe_run(Run(path))
        lines = run_told(facts)
    elif shards := [describe(open_any(shard)) for shard in shard_paths(path)]:
        facts = {"path": str(path), "kind": "shards", "shards": shards}
        lines = chain.from_iterable(map(dataset_told, shards))
    else:
        facts = describe(open_any(path))
        lines = dataset_told(facts)
    print_json(facts) if json else print("\n".join(lines))


def verify(
    path: DataOrRun,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Rewrite damaged slices of a dataset from its blocks."),
    ] = False,
    json: Json = False,
) -> None:
    """Check the files of a dataset or a run for damage.

    Reads all files and checks them against their checksums and against each other.

    Example: ooc verify corpus --repair
    """
    from blocks.kinds import open_any
    from blocks.shards.whole_dataset import shard_paths
    from blocks.stored_dataset import MANIFEST
    from blocks.verify import repair_dataset, verify_dataset, verify_shards
    from ooc.runs.chains import CHAINS
    from ooc.runs.progress import training_started
    from ooc.runs.run import CONFIG, Run
    from samplers.model_verification import verify_chains, verify_run

    if repair and not (path / MANIFEST).exists():
        raise RequestError(f"--repair: {path} is not a dataset", "Rewrite the model of a run with `ooc resume`.")
    if (path / CHAINS).exists():
        report = verify_chains(path)
    elif (path / CONFIG).exists():
        if training_started(path):
            stderr.print_note(f"{path} is being trained; verifying its last saved state")
        report = verify_run(Run(path))
    elif shard_paths(path):
        report = verify_shards(path, bar=progress_bar)
    else:
        report = verify_dataset(open_any(path), bar=progress_bar)
        if repair and repair_dataset(path, report):
            stderr.print_note(f"{path}: wrote {', '.join(report.damaged)} again")
            report = verify_dataset(open_any(path), bar=progress_bar)
    if json:
        print_json(report._asdict())
        sys.exit(1 if report.problems else 0)
    for line in report.unchecked:
        stderr.print_warning(f"not checked: {line}")
    if report.problems:
        raise WorkFailed("\n".join(report.problems), "\n".join(report.remedies))
    whole = "no damage in the files that could be checked" if report.unchecked else "no damage found"
    print_line(f"{path}: {count_of(report.files, 'file')}, {size_text(report.bytes)}, {whole}")
