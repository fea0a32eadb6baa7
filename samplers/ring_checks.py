"""Whether what ranks have fits together: asked over the ring, so that all of them are told alike."""

from __future__ import annotations

import json
import platform
from pathlib import Path

from blocks.errors import RequestError
from blocks.kinds import open_any
from blocks.store import Store
from ooc.launch.roll_call import check_order
from ooc.ring.ring import Ring
from ooc.run import Run


def check_same(ring: Ring, run: Run) -> None:
    """Raise RequestError, at all ranks, unless they have parts of one and the same training, each its own."""
    check_shards(ring, run.dataset(open_any))
    told = {name: run.config[name] for name in ("program", "options", "evaluate_every", "settings", "iterations")}
    told["settings"] = told["settings"] | {"held_out": bool(told["settings"].get("held_out"))}  # each has its own
    for rank, other in enumerate(ring.all_gather(json.dumps(told, sort_keys=True).encode())):
        theirs = json.loads(other)
        if different := [name for name, mine in told.items() if theirs[name] != mine]:
            raise RequestError(
                f"{run.path} and the run of rank {rank} differ in {', '.join(different)}",
                "Give --iterations, or each rank the run that it trained."
                if different == ["iterations"]
                else "Give each rank the run that it trained.",
            )


def check_shards(ring: Ring, dataset: Store) -> None:
    """Raise RequestError, at all ranks, unless they have the shards of one dataset, each that of its number."""
    told = [json.loads(each) for each in ring.all_gather(json.dumps(dataset.manifest.get("shard")).encode())]
    check_order([f"the dataset of rank {rank}" for rank in range(ring.ranks)], told)


def check_apart(ring: Ring, path: Path) -> None:
    """Raise RequestError, at all ranks, if two would make the same path: on one machine, or on a shared disk."""
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    rest, status = path.absolute().relative_to(there.absolute()), there.stat()
    mine = [f"{_machine()} {status.st_dev} {status.st_ino} {rest}", f"{status.st_ctime_ns} {status.st_ino} {rest}"]
    owners: dict[str, int] = {}
    for rank, told in enumerate(ring.all_gather(json.dumps(mine).encode())):
        for place in json.loads(told):
            if (other := owners.setdefault(place, rank)) != rank:
                raise RequestError(
                    f"what is made by ranks {other} and {rank} would be in the same directory",
                    f"Put the number of the rank into its name, as in: {path.name}-{{rank}}",
                )


def _machine() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()
