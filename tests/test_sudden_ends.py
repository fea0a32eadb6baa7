"""Nothing is lost when the power goes or a command is killed: real cuts of a file system in a file, real SIGKILLs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from fork_server import will_do

SCRIPT = Path(__file__).with_name("sudden_ends.py")
TOOLS = ("unshare", "mkfs.ext4", "losetup", "mount")
pytestmark = pytest.mark.skipif(not will_do(), reason="nothing is forked here")


def ended(arguments: Sequence[object], before: Sequence[str] = (), **environment: str) -> dict[str, dict]:
    """What the script finds; its table of commands is printed."""
    command = [*before, sys.executable, str(SCRIPT), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    return json.loads(done.stdout)


def lost(found: dict[str, dict]) -> list[str]:
    return [each for trial in found.values() for each in trial["lost"]]


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="NO POWER IS CUT: that needs root")
@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"NO POWER IS CUT: that needs {', '.join(TOOLS)}")
@pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="NO POWER IS CUT: there are no loop devices")
def test_what_was_done_outlives_a_power_cut_and_the_rest_can_be_done_again(tmp_path: Path) -> None:
    found = ended(["power", tmp_path, 6, 4], ["unshare", "--mount"])
    assert sum(trial["tried"] for trial in found.values()) >= 100
    assert lost(found) == []


@pytest.fixture
def kill(preloaded: Callable[[str], Path], tmp_path: Path) -> Callable[..., dict[str, dict]]:
    """Kill commands: so many times each, from a seed, those of the names given."""
    libraries = ":".join(str(preloaded(name)) for name in ("failing_disk", "hurrying_clock"))
    return lambda *arguments: ended(["kill", tmp_path, *arguments], LD_PRELOAD=libraries)


@pytest.mark.long
def test_commands_that_are_killed_lose_nothing(kill: Callable[..., dict[str, dict]]) -> None:
    found = kill(12, 4)
    assert sum(trial["tried"] for trial in found.values()) >= 200
    assert lost(found) == []


def test_a_command_that_is_killed_loses_nothing(kill: Callable[..., dict[str, dict]]) -> None:
    """Some kills of all that the long test does; another seed."""
    found = kill(5, 5, "append", "train")
    assert sum(trial["before it was done"] for trial in found.values()) >= 7
    assert lost(found) == []
