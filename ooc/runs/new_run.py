"""Create a run directory, or open an existing one to resume the run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from blocks.errors import RequestError
from blocks.files import is_free, publish_directory
from blocks.json_files import write_json
from blocks.stored_dataset import StoredDataset
from ooc.runs.chains import CHAINS
from ooc.runs.dataset_entries import dataset_entry, entry_relative_to_run
from ooc.runs.earlier_run import keeps_earlier, mark, place_to_keep, put_back, remove_stray
from ooc.runs.replaced_run import keep_model
from ooc.runs.resumption import require_same
from ooc.runs.run import CONFIG, SCHEMA, Run, run_lock, scratch_directories
from ooc.runs.scratch import new_scratch, remove_scratch
from ooc.runs.start_command import may_resume, write_start_command
from ooc.workers.worker import ProgramSpec


def create_run(
    path: str | Path,
    dataset: StoredDataset,
    spec: ProgramSpec,
    *,
    iterations: int,
    evaluate_every: int,
    settings: dict[str, Any] | None = None,
    scratch: Path | None = None,
    overwrite: bool = False,
    files: Mapping[str, dict[str, Any]] | None = None,
) -> Run:
    """Create a run directory with its configuration.

    With `--resume`, an existing run that was started in the same way is returned instead.

    Parameters
    ----------
    path : str or Path
        Run directory.
    dataset, spec : dataset and ProgramSpec
        Dataset to train on, and the program with its options.
    iterations, evaluate_every : int
        Number of iterations, and of iterations between two evaluations.
    settings : dict, optional
        JSON values that the observer needs after a resume.
    scratch : Path, optional
        Directory on another disk in which the state gets its own directory; None for the run directory.
    overwrite : bool
        Whether to replace an existing run.
    files : mapping of str to dict, optional
        Contents of additional JSON files by name, written before the run is published.

    Raises
    ------
    RequestError
        If the path exists, or if iterations or evaluate_every is below 1.
    """
    path, identity = Path(path), uuid.uuid4().hex
    length = {"iterations": iterations, "evaluate_every": evaluate_every}
    for name, count in length.items():
        if count < 1:
            raise RequestError(f"{name} must be at least 1, got {count}")
    config = run_config(path, dataset, spec, identity, **length, settings=settings or {}, scratch=None)
    if may_resume() and (path / CONFIG).exists():
        return resumed_run(path, dataset, spec, config)
    keep = None if spec.is_known else place_to_keep(path)
    with (
        replacing(path, overwrite=overwrite),
        new_scratch(scratch, path, identity) as place,
        publish_directory(path, overwrite=overwrite, keep=keep) as directory,
    ):
        _write_files(directory, {CONFIG: config | {"scratch": place}, **(files or {})})
        keep_model(path, directory)
        if keep:
            mark(directory)
    run = Run(path, spec.target)
    run.is_new = True
    return run


def _write_files(directory: Path, files: Mapping[str, dict[str, Any]]) -> None:
    """Write JSON files by name into a new run directory, and the command that started the run."""
    for name, content in files.items():
        write_json(directory / name, content)
    write_start_command(directory)


def resumed_run(path: Path, dataset: StoredDataset, spec: ProgramSpec, config: dict[str, Any]) -> Run:
    """Return the existing run.

    Raises RequestError with the differences if it was not started like the new run.
    """
    run = Run(path, spec.target)
    require_same(path, run.config, config, dataset)
    held_out = config["settings"].get("held_out")
    run.move_datasets(dataset.path, held_out and Path(held_out["path"]))
    return run


def run_config(
    path: Path,
    dataset: StoredDataset,
    spec: ProgramSpec,
    identity: str,
    *,
    iterations: int,
    evaluate_every: int,
    settings: dict[str, Any],
    scratch: str | None,
) -> dict[str, Any]:
    """Return the configuration of a new run at `path`.

    identity: unique id of this run and its copies.
    """
    held_out = settings.get("held_out")
    return {
        "schema": SCHEMA,
        "id": identity,
        "version": version("ooc"),
        "program": spec.target,
        "program_source": spec.source_checksum(),
        "options": spec.options,
        "dataset": entry_relative_to_run(dataset_entry(dataset), path),
        "iterations": iterations,
        "evaluate_every": evaluate_every,
        "extended_at": 0,
        "settings": settings | ({"held_out": entry_relative_to_run(held_out, path)} if held_out else {}),
        "scratch": scratch,
        "finished": False,
        "state_removed": False,
    }


@contextmanager
def replacing(path: Path, *, overwrite: bool) -> Iterator[None]:
    """Hold the lock of the run that a new run replaces, if any, and delete its scratch directories unless it is kept.

    Raises RequestError if no run may be created at `path`.
    """
    if not path.exists() or is_free(path):
        yield
        return
    if not any((path / name).exists() for name in (CONFIG, CHAINS)):
        raise RequestError(f"{path} exists and is not a run", "Choose another name, or remove it yourself.")
    if not overwrite:
        raise RequestError(
            f"the run {path} already exists",
            f"Continue it with --resume or `ooc resume {path}`, replace it with --overwrite, or choose another name.",
        )
    with run_lock(path):
        if keeps_earlier(path):  # training of the run at `path` never did its first step
            put_back(path)
        remove_stray(path)
    with run_lock(path):
        old = scratch_directories(path)
        yield
        for place in old if not keeps_earlier(path) else []:
            remove_scratch(place)
