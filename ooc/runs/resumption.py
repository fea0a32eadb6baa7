"""Resume training (`--resume`): continue an existing run if it was started with the same options."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from blocks import stderr
from blocks.dataset_generations import has_generation
from blocks.errors import RequestError
from blocks.stored_dataset import StoredDataset
from ooc.workers.worker import ProgramSpec

_MOST_LETTERS = 200  # longer values are not shown


def require_same(path: Path, old: dict[str, Any], new: dict[str, Any], dataset: StoredDataset) -> None:
    """Raise RequestError with the differences unless two configurations describe the same run.

    path: path of the existing run.
    old: its configuration.
    new: configuration of the requested run.
    dataset: dataset of the requested run; if data has been appended to it since, a finished run stays as it is, and a
        warning is issued.
    """
    began = old["dataset"]["identity"]
    grew = began != dataset.identity and has_generation(dataset.path, began)
    if began != dataset.identity and not (grew and old["finished"]):
        raise RequestError(
            f"documents were appended to {dataset.path} after {path} was started"
            if grew
            else f"{path} was started on another dataset, {old['dataset']['path']}",
            f"Continue on the dataset of the run with `ooc resume {path}`, or train again with --overwrite.",
        )
    if different := list(_differences(old, new)):
        raise RequestError(
            f"{path} was started with other options: {'; '.join(different)}",
            f"Use the same options, continue the run with `ooc resume {path}`, or replace it with --overwrite.",
        )
    if grew:
        stderr.print_warning(
            f"{path} has finished, but data has since been appended to {dataset.path}; to train again, use --overwrite"
        )


def _differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    old = old | dict(zip(("program", "options"), ProgramSpec(old["program"], old["options"]).current, strict=True))
    if old["program"] != new["program"]:
        yield f"it trains {_name(old['program'])}, not {_name(new['program'])}"
        return
    before, now = (json.loads(json.dumps(_told(config))) for config in (old, new))
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            was, wanted = _value(before.get(name)), _value(now.get(name))
            is_long = max(len(was), len(wanted)) > _MOST_LETTERS
            yield f"{name.replace('_', '-')} {'differs' if is_long else f'is {was}, not {wanted}'}"


def _told(config: dict[str, Any]) -> dict[str, Any]:
    """Return the values that two runs must have in common, by name. Datasets are compared by identity."""
    lengths = {"evaluate_every": config["evaluate_every"]}
    if "rounds" not in config["settings"]:  # the number of rounds needed is only known at the end
        lengths["iterations"] = config["iterations"]
    held_out = config["settings"].get("held_out")
    settings = config["settings"] | {"held_out": held_out and held_out["identity"]}
    return {**config["options"], **lengths, **settings}


def _name(program: str) -> str:
    return program.rpartition(":")[2]


def _value(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)
