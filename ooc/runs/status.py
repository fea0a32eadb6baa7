"""Describe a run and its progress, and verify its committed state."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from blocks.errors import OocError, RequestError
from blocks.kinds import open_any
from blocks.stored_dataset import StoredDataset
from ooc.runs.run import METRICS, Run
from ooc.runs.scratch import ScratchMissing
from ooc.runs.start_command import start_command_problem
from ooc.state.cell_layout import CellLayout
from ooc.state.generations import StateGenerations, committed, committed_local_state

_MOST_VALUES = 8  # values shown of a long list
_MOST_LETTERS, _SHOWN_LETTERS = 60, 16  # of a string; more letters than the former are not all shown


def describe_run(run: Run) -> dict[str, Any]:
    """Return facts about a run as JSON types."""
    metrics, state_removed = run.metrics(), run.config["state_removed"]
    places = [run.path]
    if run.config["scratch"] and not state_removed:
        with suppress(OocError):  # `verify` reports a scratch directory that is missing or belongs to another run
            places.append(run.scratch)
    return {
        "path": str(run.path),
        "kind": "run",
        **{name: run.config[name] for name in ("version", "program", "options")},
        "dataset": {"path": str(run.dataset_path), "identity": run.config["dataset"]["identity"]},
        "iterations": {"planned": run.config["iterations"], "done": metrics[-1]["iteration"] if metrics else 0},
        "finished": (run.path / "model").exists(),
        "state_removed": state_removed,
        "bytes": sum(chain.from_iterable(map(file_sizes, places))),
        "last": metrics[-1] if metrics else {},
    }


def status_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the facts about a run as lines of text."""
    iterations = facts["iterations"]
    yield f"run         {facts['path']}"
    yield f"program     {facts['program'].rpartition(':')[2]}, by ooc {facts['version']}"
    options = {name: value_text(value) for name, value in facts["options"].items()}
    yield f"options     {', '.join(f'{name} {text}' for name, text in options.items() if text)}"
    yield f"dataset     {facts['dataset']['path']} ({facts['dataset']['identity']})"
    yield f"iterations  {iterations['done']} of {iterations['planned']}" + (
        (", state removed" if facts["state_removed"] else "") if facts["finished"] else ", no model yet"
    )
    yield f"bytes       {facts['bytes']:,}"
    if facts["last"]:
        yield "metrics     after the last iteration:"
    for name, value in facts["last"].items():
        shown = value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
        yield f"            {name} {shown}"


def value_text(value: Any) -> str:
    """Return the value of an option as text, "" if it is None or empty. Only the beginning of a long list or string is
    shown."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {value_text(part)}" for name, part in value.items())
    if isinstance(value, list) and len(value) > _MOST_VALUES:
        return f"{', '.join(map(str, value[:_MOST_VALUES]))}, ... ({len(value):,} in all)"
    if isinstance(value, str) and len(value) > _MOST_LETTERS:
        return f"{value[:_SHOWN_LETTERS]}... ({len(value):,} letters)"
    return "" if value is None else json.dumps(value, ensure_ascii=False).strip('"[]')


def run_problems(run: Run) -> Iterator[tuple[str, str]]:
    """Yield each problem with the files of a run, except its model, and the remedy ("" if a file cannot be checked).

    Files are only read; no program is built.
    """
    goes_on = f"Continue from the newest undamaged state, if there is one, with: ooc resume {run.path}"
    yield from ((f"{run.path / METRICS}, line {number}: damaged", goes_on) for number in run.read_metrics()[1])
    if problem := start_command_problem(run.path):
        yield problem, goes_on
    if run.config["state_removed"]:
        return
    try:
        dataset, state = run.dataset(open_any), run.scratch / "state"
    except (RequestError, ScratchMissing) as error:
        yield f"the state of {run.path}: {error.what}", ""
        return
    except OocError as error:  # the dataset is damaged
        yield error.what, error.remedy or goes_on
        return
    try:
        yield from ((problem, goes_on) for problem in _state_problems(run.path, state, dataset))
    except OocError as error:
        yield error.what, error.remedy or goes_on


def _state_problems(run: Path, state: Path, dataset: StoredDataset) -> list[str]:
    """Return the problems of the committed state. If a run replaces the state meanwhile, the new state is
    checked."""
    found, entries = [f"{run}: no state was saved yet"], None
    while (newest := committed(state)) != entries:
        entries = newest
        try:
            if local := committed_local_state(state):
                found = list(StateGenerations(state, dataset, CellLayout(dataset.cells, local)).problems())
        except OocError as error:
            found = [error.what]
        if not found:
            break
    return found


def file_sizes(path: Path) -> Iterator[int]:
    """Yield the size in bytes of each file in a directory, from which training may delete files at any time."""
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):
            if stat.S_ISREG((found := file.lstat()).st_mode):
                yield found.st_size
