"""Nothing is lost when the power goes: real cuts, of a file system in a file, at random moments of each command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("power_cuts.py")
TOOLS = ("unshare", "mkfs.ext4", "losetup", "mount")


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="NO POWER IS CUT: that needs root")
@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"NO POWER IS CUT: that needs {', '.join(TOOLS)}")
@pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="NO POWER IS CUT: there are no loop devices")
def test_what_was_done_is_there_and_the_rest_can_be_done_again(tmp_path: Path) -> None:
    command = ["unshare", "--mount", sys.executable, str(SCRIPT), str(tmp_path), "13", "4"]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert sum(told["cuts"].values()) >= 100
    assert told["lost"] == []
