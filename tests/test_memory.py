"""How many cores and how much memory there are, by what control groups allow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from commands import Ooc

from blocks import control_groups, memory

MOUNTED = Path("/sys/fs/cgroup")


@pytest.fixture
def root(tmp_path: Path) -> Callable[[str, dict[str, str]], Path]:
    """Makes a root with /proc/self/cgroup and the files of groups, by their names below /sys/fs/cgroup."""

    def make(told: str, files: dict[str, str]) -> Path:
        content = {"proc/self/cgroup": told, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}
        for name, text in content.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return make


HYBRID = "4:memory:/a\n1:cpu,cpuacct:/a/b\n0::/user.slice\n"
UNLIMITED = "9223372036854771712\n"


@pytest.mark.parametrize(("told", "files", "expected"), [
    ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n", "cpu.max": "400000 100000\n"}, 1.5),
    ("0::/a/b\n", {"a/b/cpu.max": "50000 100000\n", "a/cpu.max": "150000 100000\n"}, 0.5),
    ("0::/a\n", {"a/cpu.max": "max 100000\n"}, None),
    ("0::/docker/1a2b\n", {"cpu.max": "20000 10000\n"}, 2),  # a container, in which its own group is the top
    ("0::/../../job\n", {"cpu.max": "20000 10000\n"}, 2),
    (HYBRID, {"cpu,cpuacct/a/b/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/a/b/cpu.cfs_period_us": "100000\n",
              "cpu,cpuacct/a/cpu.cfs_quota_us": "250000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"}, 2.5),
    (HYBRID, {"cpu/a/b/cpu.cfs_quota_us": "10000\n", "cpu/a/b/cpu.cfs_period_us": "50000\n"}, 0.2),
    (HYBRID, {"unified/user.slice/cpu.max": "300000 100000\n"}, 3),
    ("3:cpuset:/a\n", {"cpuset/a/cpu.cfs_quota_us": "1\n", "cpuset/a/cpu.cfs_period_us": "9\n"}, None),
    ("0::/a\n", {"a/cpu.max": "\n", "a/cgroup.type": "threaded\n"}, None),
    ("0::/\n", {}, None),
])  # fmt: skip
def test_the_least_time_of_processors_around_counts(told, files, expected, root):
    found = control_groups.cpu_limit(root(told, files))
    assert (found and found.amount) == expected
    assert found is None or found.source.exists()


STAT = "anon 100\nfile 900\ninactive_file 300\nactive_file 200\n"
STAT_1 = "cache 900\ninactive_file 1\nactive_file 1\ntotal_inactive_file 40\ntotal_active_file 30\n"


@pytest.mark.parametrize(("told", "files", "expected"), [
    ("0::/a/b\n", {"a/b/memory.max": "500\n", "a/memory.max": "max\n", "memory.max": "900\n"}, (500, 500)),
    ("0::/a/b\n", {"a/b/memory.max": "2000\n", "a/b/memory.current": "700\n", "a/b/memory.stat": STAT}, (1800, 2000)),
    ("0::/a/b\n", {"a/b/memory.max": "2000\n", "a/memory.max": "3000\n", "a/memory.current": "2900\n",
                   "a/memory.stat": STAT}, (600, 3000)),  # others in the group around hold most of that
    ("0::/a\n", {"a/memory.max": "2000\n", "a/memory.high": "1500\n", "a/memory.current": "100\n",
                 "a/memory.stat": ""}, (1400, 1500)),
    ("0::/a\n", {"a/memory.max": "500\n", "a/memory.current": "900\n", "a/memory.stat": ""}, (0, 500)),
    ("0::/a/b\n", {"memory.max": "900\n"}, (900, 900)),  # a container, in which its own group is the top
    ("3:cpu:/a\n2:memory:/slurm/job\n0::/\n",
     {"memory/slurm/job/memory.limit_in_bytes": "300\n", "memory/slurm/job/memory.usage_in_bytes": "200\n",
      "memory/slurm/job/memory.stat": STAT_1, "memory/memory.limit_in_bytes": UNLIMITED}, (170, 300)),
    (HYBRID, {"memory/memory.limit_in_bytes": UNLIMITED}, None),
    ("0::/\n", {}, None),
])  # fmt: skip
def test_the_least_memory_that_is_left_around_counts(told, files, expected, root):
    found = control_groups.memory_limit(root(told, files))
    assert (found and found[:2]) == expected


def test_a_system_without_control_groups_has_no_limits(tmp_path):
    assert control_groups.cpu_limit(tmp_path) is control_groups.memory_limit(tmp_path) is None
    assert memory.available_memory() > 0


@pytest.fixture
def group() -> Iterator[Callable[[str], Path]]:
    """Makes a real group of a controller, of version 1 or 2."""
    made = []

    def make(controller: str) -> Path:
        top = MOUNTED / controller if (MOUNTED / controller).is_dir() else MOUNTED
        place = top / f"ooc-test-{os.getpid()}"
        try:
            place.mkdir()
        except OSError:
            pytest.skip("NOTHING IS LIMITED: this user may not make control groups here")
        made.append(place)
        if not list(place.glob(f"{controller}.*")):
            pytest.skip(f"NOTHING IS LIMITED: there is no controller {controller}")
        return place

    yield make
    for place in made:
        place.rmdir()


def facts_in(place: Path, directory: Path) -> dict:
    """What `ooc doctor` says in a control group."""
    enter = ["sh", "-c", f'echo $$ > {place}/cgroup.procs && exec "$@"', "sh"]
    words = [*enter, sys.executable, "-m", "ooc", "doctor", str(directory), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "OOC_CACHE_DIR": ""})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_workers_are_as_many_as_a_quota_has_the_time_of(group, tmp_path):
    place = group("cpu")
    if (place / "cpu.max").exists():
        source = place / "cpu.max"
        source.write_text("70000 100000")
    else:
        source = place / "cpu.cfs_quota_us"
        (place / "cpu.cfs_period_us").write_text("100000")
        source.write_text("70000")
    found = facts_in(place, tmp_path)["processor"]
    assert (found["quota"], found["quota_source"], found["workers"]) == (0.7, str(source), 1)
    assert found["usable"] == len(os.sched_getaffinity(0))


def test_available_memory_is_what_a_limit_leaves(group, tmp_path):
    place = group("memory")
    source = next(path for name in ("memory.max", "memory.limit_in_bytes") if (path := place / name).exists())
    source.write_text(str(1 << 30))
    found = facts_in(place, tmp_path)["memory"]
    assert (found["limit"], found["limit_source"]) == (1 << 30, str(source))
    assert 0.5 * (1 << 30) < found["available"] < (1 << 30)  # less the interpreter, but not what was read of files
    assert found["total"] == psutil.virtual_memory().total


@pytest.mark.long
def test_workers_are_no_more_than_the_cores_that_may_be_used(tmp_path, ooc: Ooc):
    (tmp_path / "texts.txt").write_text("apple pear plum\nball goal team\n" * 20)
    assert ooc("ingest", "text", "texts.txt", "corpus", "--lines").returncode == 0
    core = str(min(os.sched_getaffinity(0)))
    words = ["taskset", "-c", core, sys.executable, "-m", "ooc", *["plan", "corpus", "--topics", "3", "--json"]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["workers"] == 1, done.stderr


@pytest.mark.long
def test_too_little_address_space_is_told_in_a_line(tmp_path, ooc: Ooc):
    """A limit that keeps libraries from being loaded is found beforehand; one that a training exceeds is named, too."""
    (tmp_path / "texts.txt").write_text("apple pear plum\nball goal team\n" * 20)
    for command in (
        "ingest text texts.txt corpus --lines",
        "train lda corpus run --topics 2 --iterations 2 --workers 1",
    ):
        assert ooc(*command.split()).returncode == 0
        for kilobytes in (200_000, 400_000):
            done = limited(kilobytes, f"{command} --overwrite", tmp_path)
            assert done.returncode == 2, done.stderr
            what, remedy = done.stderr.splitlines()
            assert what.startswith(
                f"ooc: the address space of a process is limited to {kilobytes * 1024 / 1e6:.0f} MB (ulimit -v)"
            )
            assert "ulimit -v unlimited" in remedy
    many = limited(
        420_000, "train lda corpus other --topics 900000 --iterations 1 --sampler gibbs --workers 1", tmp_path
    )
    assert many.returncode == 1, many.stderr
    *_, what, remedy = many.stderr.splitlines()
    assert what == "ooc: memory ran out: the address space of a process is limited to 430 MB (ulimit -v)", many.stderr
    assert "ulimit -v unlimited" in remedy
    assert "Traceback" not in many.stderr


def limited(kilobytes: int, command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run `ooc` where each process may have so much address space."""
    words = ["sh", "-c", f'ulimit -v {kilobytes} && exec "$@"', "sh", sys.executable, "-m", "ooc", *command.split()]
    return subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
