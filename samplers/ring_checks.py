"""Check over the ring that the ranks are consistent, so that all ranks raise the same error."""

from __future__ import annotations

import json
import platform
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numba
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

from blocks.errors import RequestError
from blocks.kinds import open_any
from blocks.stored_dataset import StoredDataset
from ooc.launch.preflight import check_order
from ooc.ring.message_relay import gather_values
from ooc.ring.ring import Ring
from ooc.runs.run import Run
from ooc.workers.worker import ProgramSpec
from samplers.programs import computes_alike

_SOURCES = "source files of the program"


def check_same(ring: Ring, run: Run, options: dict[str, Any] | None = None) -> None:
    """Raise RequestError on all ranks unless each has its part of the same run.

    options: the program's options that must be equal on all ranks; None if all must be.
    """
    check_alike(ring, {_SOURCES: run.spec.source_checksum()})
    dataset = run.dataset(open_any)
    if any(gather_values(ring, dataset.shards > 1)):
        check_shards(ring, dataset)
    else:
        check_alike(ring, {"dataset": dataset.identity})
    told = {name: run.config[name] for name in ("program", "options", "evaluate_every", "settings", "iterations")}
    told["options"] = told["options"] if options is None else options
    # every rank has its own value
    told["settings"] = told["settings"] | {"held_out": bool(told["settings"].get("held_out"))}
    if found := _different(ring, told):
        rank, names = found
        raise RequestError(
            f"{run.path} and the run of rank {rank} differ in {', '.join(names)}",
            "Set --iterations, or use the run that each rank trained."
            if names == ["iterations"]
            else "Use the run that each rank trained.",
        )


def check_alike(ring: Ring, options: dict[str, Any]) -> None:
    """Raise RequestError on all ranks unless they have the same options, by name."""
    if found := _different(ring, options):
        rank, names = found
        raise RequestError(
            f"rank {ring.rank} and rank {rank} have different {', '.join(names)}",
            "Use the same options on all ranks, and files with the same content.",
        )


def _different(ring: Ring, told: dict[str, Any]) -> tuple[int, list[str]] | None:
    """Return the first rank whose values differ, and the names of these values."""
    mine = json.loads(json.dumps(told))
    for rank, theirs in enumerate(gather_values(ring, told)):
        if names := [name for name, value in mine.items() if theirs[name] != value]:
            return rank, names
    return None


def check_processors(ring: Ring, spec: ProgramSpec) -> None:
    """Raise RequestError on all ranks unless their processors compute replicated data bit-identically."""
    if not computes_alike(spec.target, spec.options):
        return
    told = gather_values(ring, [platform.node(), _processor()])
    (first_host, first), *_ = told
    for rank, (host, (kind, features)) in enumerate(told):
        names = f"the processor of rank {rank} ({host})", f"that of rank 0 ({first_host})"
        remedy = "Use machines with the same kind of processor: all ranks must compute the same numbers."
        if kind != first[0]:
            raise RequestError(f"{names[0]} is a {kind}, but {names[1]} is a {first[0]}", remedy)
        if unlike := sorted({*features} ^ {*first[1]}):
            raise RequestError(
                f"{names[0]} and {names[1]} have different instruction sets: {', '.join(unlike)}", remedy
            )


def _processor() -> tuple[str, list[str]]:
    """Return the processor type and its instruction sets, for which kernels are compiled."""
    config: Any = numba.config
    features = config.CPU_FEATURES or get_host_cpu_features().flatten()
    kind = f"{platform.machine()} {config.CPU_NAME or get_host_cpu_name()}"
    return kind, [name[1:] for name in features.split(",") if name.startswith("+")]


def check_shards(ring: Ring, dataset: StoredDataset) -> None:
    """Raise RequestError on all ranks unless they have the shards of one dataset in order."""
    told = [json.loads(each) for each in ring.all_gather(json.dumps(dataset.manifest.get("shard")).encode())]
    check_order([f"the dataset of rank {rank}" for rank in range(ring.ranks)], told)


def check_ranks_share(ring: Ring, dataset: StoredDataset, spec: ProgramSpec) -> None:
    """Raise RequestError on all ranks unless they can train a user's program together.

    Either each rank has its shard of one dataset, in order, or each has the whole dataset; options must be equal.
    """
    options = {"program": spec.target, _SOURCES: spec.source_checksum(), **spec.options}
    if any(gather_values(ring, dataset.shards > 1)):
        check_shards(ring, dataset)
        check_alike(ring, options)
    else:
        check_alike(ring, {"dataset": dataset.identity, **options})
    check_processors(ring, spec)


def check_paths_differ(ring: Ring, path: Path) -> None:
    """Raise RequestError on all ranks if two of them would write to the same path, on one machine or a shared disk."""
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    owners: dict[str, int] = {}
    pairs = []
    for rank, places in enumerate(gather_values(ring, _signs(there, path))):
        pairs += [(other, rank) for place in places if (other := owners.setdefault(place, rank)) != rank]
    if not pairs:
        return
    seen = _seen(ring, there)
    for other, rank in pairs:
        if other in seen[rank]:
            raise RequestError(
                f"ranks {other} and {rank} would write to the same directory",
                f"Put {{rank}} into the path, as in: {path.name}-{{rank}}",
            )


def _signs(there: Path, path: Path) -> list[str]:
    """Return facts that are equal for two ranks that would write to the same path; they may also be equal for two
    containers of one image.

    there: parent of the path.
    """
    rest, status = path.absolute().relative_to(there.absolute()), there.stat()
    return [f"{_machine()} {status.st_dev} {status.st_ino} {rest}", f"{status.st_ctime_ns} {status.st_ino} {rest}"]


def _seen(ring: Ring, there: Path) -> list[list[int]]:
    """Return, for each rank, the other ranks whose temporary marker files it sees in its directory."""
    with ExitStack() as stack:
        mine = ""
        with suppress(OSError):  # if no file can be created, a later step reports the error
            mine = stack.enter_context(tempfile.NamedTemporaryFile(dir=there, prefix=".ooc-rank-")).name
        names = gather_values(ring, Path(mine).name)
        return gather_values(ring, [rank for rank, name in enumerate(names) if name and (there / name).exists()])


def _machine() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()
