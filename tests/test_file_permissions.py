"""Who may read and write what ooc makes: as the umask and the directory around say, for every file and directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from containers import Container, container_with_kernels

GROUP, FIRST, SECOND = 5000, 1001, 1002
TEXTS = "apple pear plum apple pear plum\nball goal team ball goal team\n" * 20
MAKE = [
    "ingest text ../texts.txt corpus --lines",
    "train lda corpus run --topics 2 --iterations 4 --sampler two-phase --workers 1",
    "train lda corpus scratched --topics 2 --iterations 4 --sampler two-phase --workers 1 --scratch scratch",
    "shard corpus shards --shards 2",
    "export run model.npz --format npz",
    "export run mallet --format mallet",
    "infer run corpus mixtures.csv",
    "report run -o page.html",
    "curves run -o curves.svg",
]
GO_ON = [
    "resume run --iterations 8",
    "resume scratched --iterations 6",
    "verify run",
    "ingest text ../more.txt corpus --lines --append",
    "export run model.npz --format npz --overwrite",
    "report run -o page.html --overwrite",
    "clean run --state",
    "clean .",
    "train lda corpus run --topics 3 --iterations 2 --sampler two-phase --workers 1 --overwrite",
]


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory, ooc_in) -> Container:  # type: ignore[no-untyped-def]
    """A container with the kernels that the commands need."""
    texts = {"texts.txt": TEXTS, "more.txt": f"{TEXTS}fruit\n"}
    return container_with_kernels(tmp_path_factory, ooc_in, texts, MAKE + GO_ON, "team")


def make(container: Container, name: str, mode: int, commands: list[str], user: int, umask: str) -> Path:
    """Run commands as a user in a directory of the group, which is made if it is not there."""
    place = container.root / "data" / name
    if not place.exists():
        place.mkdir()
        os.chown(place, FIRST, GROUP)
        place.chmod(mode)
    for command in commands:
        # Their own first group is not that of the directory.
        done = container.ooc(command, place=f"/data/{name}", user=user, group=user, groups=GROUP, umask=umask)
        assert done.returncode == 0, (command, done.stderr)
    return place


@pytest.mark.long
def test_a_member_of_a_group_goes_on_with_what_another_has_made(container: Container) -> None:
    """In a directory with the setgid bit, with a umask of 002: all belongs to the group, which may write."""
    place = make(container, "team", 0o2775, MAKE, FIRST, "002")
    require(place, GROUP, 0o664, 0o2775)
    assert {"lock", "options.toml", "metrics.jsonl", "log.txt", "model"} <= {
        path.name for path in tree_of(place / "run")
    }
    assert [path for path in tree_of(place) if path.suffix == ".cells"]
    make(container, "team", 0o2775, GO_ON, SECOND, "002")
    require(place, GROUP, 0o664, 0o2775)
    make(container, "team", 0o2775, ["resume run --iterations 4"], FIRST, "002")


@pytest.mark.long
def test_what_is_made_with_a_umask_of_077_is_nobody_elses(container: Container) -> None:
    place = make(container, "alone", 0o700, MAKE, FIRST, "077")
    require(place, FIRST, 0o600, 0o700)


def tree_of(place: Path) -> list[Path]:
    """All files and directories in one."""
    return [path for path in place.rglob("*") if not path.is_symlink()]


def require(place: Path, group: int, file: int, directory: int) -> None:
    """Check the group and the mode of all that is in a directory."""
    found = {path: path.stat() for path in tree_of(place)}
    assert len(found) > 40
    for path, status in found.items():
        expected = directory if path.is_dir() else file
        assert (oct(stat.S_IMODE(status.st_mode)), status.st_gid) == (oct(expected), group), path
