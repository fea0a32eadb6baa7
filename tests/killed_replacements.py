"""Kill a program that replaces a run, at each call that changes files: python killed_replacements.py DIRECTORY STEP

DIRECTORY has `before/`, with a dataset, a run of `earlier:Means` and its scratch directory, and modules next to it: the
program `invalid` raises an error in its first step, and `valid` does not. Each program is killed at its first call that
changes a file in a copy of `before/`, at every STEP-th call after that, until a program is done. Run with
`failing_disk.c` loaded (LD_PRELOAD). Prints a JSON object: how often each program was killed, and what was lost.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np

import ooc
from blocks.errors import OocError
from ooc.runs.cleanup import clean


def contents(place: Path) -> dict[str, bytes]:
    """Return all files except locks."""
    files = {str(path.relative_to(place)): path for path in sorted(place.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if path.name != "lock"}


def forked(action: Callable[[], None]) -> int:
    """Run an action in a forked process with a process group of its own; returns the exit status."""
    if child := os.fork():
        return os.waitpid(child, 0)[1]
    os.setpgid(0, 0)
    try:
        action()
        os._exit(0)
    except BaseException:  # the process must not return
        traceback.print_exc()
    os._exit(1)


def replace(place: Path, program: str) -> None:
    """Replace the run by a run of a program, which fails if it is `invalid`."""
    resources = {"iterations": 2, "quiet": True, "workers": 1, "scratch": place / "disk", "overwrite": True}
    try:
        ooc.fit(f"{program}:Means", place / "matrix", place / "run", **resources)
    except OocError as error:
        assert program == "invalid", error
        assert "is back" in error.remedy, error.remedy


def killed(place: Path, program: str, call: int) -> None:
    counter = place.parent / "calls"
    counter.write_bytes(b"")
    os.environ.update(FAILING_BELOW=str(place), FAILING_COUNTER=str(counter), FAILING_KILL="1", FAILING_FROM=str(call))
    replace(place, program)


def compare(place: Path, earlier: dict[str, bytes]) -> None:
    """Assert that all earlier files are there, and no others, except the scratch directory of a run that was not yet
    published."""
    found = contents(place)
    differing = {name for name in found | earlier if found.get(name) != earlier.get(name)}
    assert all(name.startswith("disk/") and name not in earlier for name in differing), differing


def check(place: Path, earlier: dict[str, bytes]) -> None:
    """Assert that nothing is lost: the earlier run is back after the invalid program, or the new run is resumed."""
    for path in place.rglob("*.unlocked"):
        os.utime(path, (0, 0))  # a file without a lock counts as a leftover only after a minute
    config = json.loads((place / "run" / "config.json").read_text())
    if config["program"] == "valid:Means" and not (place / "run" / "replaces").exists():
        run = ooc.ProgramRun(place / "run", "valid:Means")
        np.testing.assert_array_equal(run.resume(quiet=True)["users"], np.full(10, -2 * 3.5))
        clean(place)
        assert {path.name for path in place.iterdir()} == {"matrix", "run", "disk"}
        return
    if config["program"] == "earlier:Means":
        clean(place)
        compare(place, earlier)
    replace(place, "invalid")
    clean(place)
    compare(place, earlier)
    assert {path.name for path in place.iterdir()} == {"matrix", "run", "disk"}


def main(directory: Path, step: int) -> None:
    place, found, number = directory / "place", [], {}
    sys.path.insert(0, str(directory))
    os.environ["PYTHONPATH"] = f"{directory}:{os.environ.get('PYTHONPATH', '')}"
    (directory / "before").rename(place)  # runs record where they are
    earlier = contents(place)
    shutil.copytree(place, directory / "before")
    for program in ("invalid", "valid"):
        for call in count(1, step):
            shutil.rmtree(place)
            shutil.copytree(directory / "before", place)
            done = forked(lambda: killed(place, program, call)) == 0  # noqa: B023
            if forked(lambda: check(place, earlier)) != 0:
                found.append(f"{program}, call {call}")
            if done:
                number[program] = call
                break
    print(json.dumps({"calls": number, "lost": found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]))
