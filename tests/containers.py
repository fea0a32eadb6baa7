"""Containers for tests: a root directory with only the system, Python and this checkout, all read-only, and no passwd,
home or variables except PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import Ooc, run_all

from blocks.kernel_cache import CACHE

ROOT = Path(__file__).resolve().parents[1]
USER = 54321
KERNELS = "opt/kernels"  # in a container
SHIMS = "shims"  # likewise, for programs that are found before all others
_SYSTEM = ["/usr", "/bin", "/lib", "/lib64", sys.base_prefix, sys.prefix, str(ROOT)]
# For "sh -c", before the root, user and group, other groups, the umask, the number of directories to bind, these, and
# the command.
_ENTER = """
root=$1 owner=$2 groups=$3 mask=$4 count=$5
shift 5
mount --bind "$root" "$root" || exit 99
while [ $count -gt 0 ]; do
    mkdir -p "$root$1" && mount --rbind "$1" "$root$1" && mount -o remount,ro,bind "$root$1" || exit 99
    count=$((count - 1))
    shift
done
for place in /proc /dev; do mkdir -p $root$place && mount --rbind $place $root$place || exit 99; done
[ -z "$PROCESS_1" ] || mount -t proc proc $root/proc || exit 99
if [ "$READ_ONLY" ]; then
    mount --bind "$root/data" "$root/data" || exit 99
    for place in $root $root/dev/shm; do mount -o remount,ro,bind $place || exit 99; done
fi
umask $mask
exec chroot --userspec=$owner --groups=$groups "$root" env -i "$@"
"""


class Container(NamedTuple):
    """A container.

    root: root directory of its processes.
    """

    root: Path

    def words(
        self,
        *command: str,
        place: str = "/data",
        user: int = USER,
        group: int = USER,
        groups: int | str = "",
        umask: str = "022",
        process_1: bool = False,
        read_only: bool = False,
        **variables: str,
    ) -> list[str]:
        """Return the command line that runs a command in the container.

        place: working directory.
        groups: supplementary groups of the user.
        process_1: whether the command is process 1.
        read_only: whether everything except /data is read-only.
        variables: environment variables.
        """
        there = [directory for directory in dict.fromkeys(_SYSTEM) if Path(directory).exists()]
        bound = [each for each in there if not any(each.startswith(f"{other}/") for other in there)]
        path = f"PATH=/{SHIMS}:{Path(sys.executable).parent}:/usr/bin:/bin"
        chosen = [path, *(f"{name}={value}" for name, value in variables.items())]
        enter = [
            "sh",
            "-c",
            _ENTER,
            "sh",
            str(self.root),
            f"{user}:{group}",
            str(groups),
            umask,
            str(len(bound)),
            *bound,
        ]
        switches = f"PROCESS_1={'1' * process_1}", f"READ_ONLY={'1' * read_only}"
        alone = ["--pid", "--fork"] if process_1 else []
        return [
            "env",
            *switches,
            "unshare",
            *alone,
            "--mount",
            *enter,
            *chosen,
            "sh",
            "-c",
            'cd "$0" && exec "$@"',
            place,
            *command,
        ]

    def run(self, *command: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Run a command in the container.

        options: see `words`.
        """
        words = self.words(*command, **options)  # type: ignore[arg-type]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)

    def ooc(self, command: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Run `ooc` in the container, with the kernels of `add_kernels` unless `OOC_CACHE_DIR` says otherwise."""
        return self.run("ooc", *command.split(), **{"OOC_CACHE_DIR": f"/{KERNELS}", **options})

    def add_kernels(self) -> None:
        """Give the container the kernels compiled so far on this machine, readable by all users."""
        assert CACHE is not None
        target = self.root / KERNELS / CACHE.name
        shutil.copytree(CACHE, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.tmp.*"))
        for place in (target, *target.rglob("*")):
            place.chmod(0o755 if place.is_dir() else 0o644)

    def make_data(self) -> Path:
        """Create the directory /data, owned by the user."""
        data = self.root / "data"
        data.mkdir()
        os.chown(data, USER, USER)
        return data


def container_with_kernels(
    factory: pytest.TempPathFactory,
    ooc_in: Callable[[Path], Ooc],
    texts: dict[str, str],
    commands: list[str],
    place: str = ".",
) -> Container:
    """Create a container with files in /data and the kernels of some commands, which run on this machine first.

    place: directory of the commands, relative to that of the files.
    """
    container, outside = new_container(factory.mktemp("root")), factory.mktemp("outside")
    for directory in (outside, container.make_data()):
        for name, text in texts.items():
            (directory / name).write_text(text)
    (outside / place).mkdir(exist_ok=True)
    run_all(ooc_in(outside / place), commands)
    container.add_kernels()
    return container


def new_container(directory: Path) -> Container:
    """Create a container with /tmp but without /data; skips the test if the user may not."""
    container = Container(directory)
    for name, mode in (("", 0o755), ("tmp", 0o1777), ("opt", 0o755), (SHIMS, 0o755)):
        (directory / name).mkdir(exist_ok=True)
        (directory / name).chmod(mode)
    if os.getuid() != 0 or container.run("true", place="/").returncode != 0:
        pytest.skip("NOTHING RUNS IN A CONTAINER: this user may not change the root here")
    return container
