"""ooc in containers: a user without passwd entry, home and variables, a cache that can only be read, and process 1."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from containers import KERNELS, ROOT, SHIMS, USER, Container, container_with_kernels, new_container
from corpora import tree

TEXTS = "apple pear plum apple pear plum\nball goal team ball goal team\n" * 20
COMMANDS = [
    "ingest text texts.txt corpus --lines",
    "info corpus",
    "train lda corpus run --topics 2 --iterations 4",
    "resume run --iterations 6",
    "topics run",
    "infer run corpus mixtures.csv",
    "evaluate run corpus",
    "plan corpus --topics 5",
    "export run model.npz --format npz",
    "report run -o page.html",
    "curves run -o curves.svg",
    "verify run",
    "verify corpus",
    "shard corpus shards --shards 2",
    "clean run --state",
    "watch run",
    "doctor .",
]
DOCKERFILE = ROOT / "examples" / "pipelines" / "Dockerfile"


@pytest.fixture(scope="module")
def with_kernels(tmp_path_factory: pytest.TempPathFactory, ooc_in) -> Container:  # type: ignore[no-untyped-def]
    """A container with the kernels that `COMMANDS` need."""
    return container_with_kernels(tmp_path_factory, ooc_in, {"texts.txt": TEXTS}, COMMANDS)


@pytest.fixture
def container(with_kernels: Container) -> Iterator[Container]:
    """With nothing in /data but the texts; what the test adds there, and in /tmp, is removed."""
    before = entries(with_kernels)
    yield with_kernels
    for entry in entries(with_kernels) - before:
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def entries(container: Container, *names: str) -> set[Path]:
    """What is in /data and /tmp, or in other directories."""
    return {entry for name in names or ("data", "tmp") for entry in (container.root / name).iterdir()}


@pytest.mark.long
def test_every_command_works_without_passwd_home_and_variables(container: Container) -> None:
    """Nothing is compiled where a cache that can only be read has all; nothing is left in /tmp."""
    before, temporary = tree(container.root / "opt"), entries(container, "tmp")
    for command in COMMANDS:
        done = container.ooc(command)
        assert done.returncode == 0, (command, done.stderr)
        assert not {"compiling", "Matplotlib", "Traceback"} & set(done.stderr.split()), (command, done.stderr)
    assert tree(container.root / "opt") == before
    assert entries(container, "tmp") == temporary
    assert {path.stat().st_uid for path in (container.root / "data").rglob("*") if path.name != "texts.txt"} == {USER}


@pytest.mark.long
def test_all_but_the_data_may_be_read_only(container: Container) -> None:
    """Neither /tmp nor /dev/shm can be written to, nor can the working directory."""
    here: dict[str, Any] = {"place": "/", "read_only": True}
    for command in (
        "ingest text /data/texts.txt /data/corpus --lines",
        "train lda /data/corpus /data/run --topics 2 --iterations 2",
        "infer /data/run /data/corpus /data/mixtures.csv",
    ):
        done = container.ooc(command, **here)
        assert done.returncode == 0, (command, done.stderr)
        assert "ernels" not in done.stderr


@pytest.mark.long
def test_it_is_told_where_memory_cannot_be_shared(container: Container, preloaded: Callable[[str], Path]) -> None:
    """Where memfd_create is denied, and no directory is there for a file without a name instead."""
    shutil.copy(preloaded("denied_memfd"), container.root / "data")
    assert container.ooc("ingest text texts.txt corpus --lines").returncode == 0
    denied: dict[str, Any] = {"LD_PRELOAD": "/data/denied_memfd.so", "DENIED_ERROR": str(errno.EPERM)}
    train = "train lda /data/corpus /data/run --topics 2 --iterations 2"
    done = container.ooc(train, place="/", read_only=True, **denied)
    *_, what, remedy = done.stderr.splitlines()
    assert done.returncode == 1, done.stderr
    assert what.startswith("ooc: processes cannot share memory:"), done.stderr
    assert "--shm-size" in remedy
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_without_home_kernels_are_kept_in_a_private_temporary_directory(container: Container) -> None:
    """One that somebody else has put there is not used."""
    facts = json.loads(container.ooc("doctor --json", OOC_CACHE_DIR="").stdout)
    place = container.root / "tmp" / f"ooc-{USER}"
    assert facts["kernel_cache"]["path"].startswith(f"/tmp/ooc-{USER}/kernels-")
    assert (place.stat().st_mode & 0o777, place.stat().st_uid) == (0o700, USER)
    os.chown(place, USER + 1, USER + 1)
    other = json.loads(container.ooc("doctor --json", OOC_CACHE_DIR="").stdout)["kernel_cache"]["path"]
    assert other
    assert not other.startswith(f"/tmp/ooc-{USER}/")


@pytest.mark.long
def test_a_chosen_cache_that_cannot_be_used_is_told_of(container: Container) -> None:
    """By `ooc doctor`, and by `ooc compile`, which would fill another."""
    unsafe = container.root / "data" / "kernels"
    unsafe.mkdir()
    unsafe.chmod(0o777)
    advice = json.loads(container.ooc("doctor --json", OOC_CACHE_DIR="/data/kernels").stdout)["advice"]
    assert [one["what"] for one in advice if "OOC_CACHE_DIR" in one["what"]] == [
        "OOC_CACHE_DIR is /data/kernels, but kernels are not cached there"
    ]
    for chosen in ("/data/kernels", f"/{KERNELS}"):
        done = container.ooc("compile lda", OOC_CACHE_DIR=chosen)
        assert (done.returncode, done.stderr.splitlines()[0]) == (
            2,
            f"ooc: OOC_CACHE_DIR {chosen} is not writable, or others can write to it",
        )


@pytest.mark.long
def test_process_1_commits_when_it_is_told_to_end(container: Container) -> None:
    """By SIGTERM, as `docker stop` does it; `ooc resume` goes on."""
    assert container.ooc("ingest text texts.txt corpus --lines").returncode == 0
    command = "ooc train lda corpus run --topics 2 --iterations 1000000 --workers 1"
    words = container.words(*command.split(), process_1=True, OOC_CACHE_DIR=f"/{KERNELS}")
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as outside:
        metrics = container.root / "data" / "run" / "metrics.jsonl"
        while outside.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") > 2):
            time.sleep(0.02)
        (inside,) = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
        assert "NSpid:\t" in (status := Path(f"/proc/{inside}/status").read_text())
        assert status.partition("NSpid:")[2].splitlines()[0].split()[-1] == "1"
        os.kill(int(inside), signal.SIGTERM)
        said = outside.communicate(timeout=60)[1]
    assert outside.returncode == 130, said
    assert "ooc resume run" in said
    reached = json.loads(metrics.read_bytes().splitlines()[-1])["iteration"]
    resumed = container.ooc(f"resume run --iterations {reached + 2}")
    assert resumed.returncode == 0, resumed.stderr
    assert [json.loads(line)["iteration"] for line in metrics.read_bytes().splitlines()][-1] == reached + 2


@pytest.mark.long
def test_what_the_dockerfile_says_is_built_and_used(tmp_path: Path) -> None:
    """Line by line in a root of its own, without a daemon. The packages are those of this environment, and `pip` only
    looks for what it is to install."""
    container = new_container(tmp_path)
    pip = container.root / SHIMS / "pip"
    pip.write_text('#!/bin/sh\nfor last; do :; done\ntest "$1" = install && test -f "$last/pyproject.toml"\n')
    pip.chmod(0o755)
    image = build(container, DOCKERFILE.read_text(encoding="utf-8"))
    assert image.said["USER"] == f"{USER}:{USER}"
    (container.root / "data" / "texts.txt").write_text(TEXTS)
    filled = tree(container.root / "opt")
    for command in COMMANDS:
        words = [*json.loads(image.said["ENTRYPOINT"]), *command.split()]
        done = container.run(*words, place=image.said["WORKDIR"], **image.variables)
        assert done.returncode == 0, (command, done.stderr)
        assert "compiling" not in done.stderr, command
    assert tree(container.root / "opt") == filled


class DockerfileImage(NamedTuple):
    """What a Dockerfile has said: the last argument of each instruction, and all variables."""

    said: dict[str, str]
    variables: dict[str, str]


def build(container: Container, dockerfile: str) -> DockerfileImage:
    """Do in a container what each line of a Dockerfile says."""
    image = DockerfileImage({}, {})
    lines = [line for line in dockerfile.splitlines() if line and not line.startswith("#")]
    for instruction, _, argument in (line.partition(" ") for line in lines):
        image.said[instruction] = argument
        if instruction == "COPY":
            source, target = argument.split()
            left_out = shutil.ignore_patterns(".*", "build", "tests", "__pycache__")
            shutil.copytree(ROOT / source, container.root / target.lstrip("/"), ignore=left_out)
        elif instruction == "RUN":
            done = container.run("sh", "-c", argument, place="/", user=0, group=0, **image.variables)
            assert done.returncode == 0, (argument, done.stderr)
        elif instruction == "ENV":
            image.variables.update(pair.split("=", 1) for pair in shlex.split(argument))
        else:
            assert instruction in {"FROM", "VOLUME", "WORKDIR", "USER", "ENTRYPOINT"}, instruction
    return image
