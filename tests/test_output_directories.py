"""Where results may be put: in empty directories, which schedulers make beforehand, and in mount points."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Ooc
from corpora import tree
from long_mark import long_but

TEXTS = "".join(f"plum pear{number % 7} fig apple{number % 3}\n" for number in range(90))
OTHERS = "".join(f"goal team{number % 5} ball\n" for number in range(50))
MAKING = {  # what makes a directory, and where
    "ingest text texts.txt {0} --lines": "corpus",
    "ingest csv table.csv {0} --target y": "design",
    "shard made-corpus {0} --shards 2": "shards",
    "train lda made-corpus {0} --topics 2 --iterations 3 --workers 1": "run",
    "train lda made-corpus {0} --topics 2 --iterations 8 --evaluate-every 1 --chains 2 --workers 1": "chains",
    "train lasso made-design {0} --path 3 --workers 1": "lasso",
    "export made-run {0} --format mallet": "mallet",
    "import mallet made-mallet/state.gz {0}": "model",
}
DIFFER = {"config.json", "options.toml", "metrics.jsonl", "log.txt", "lock"}  # of runs: ids, paths and times


def contents(directory: Path) -> dict[str, bytes]:
    """Of the files that are the same whenever and wherever they are made, by their names."""
    files = (file for file in directory.rglob("*") if file.is_file() and not {"state", "runs"} & set(file.parts))
    return {str(file.relative_to(directory)): file.read_bytes() for file in files if file.name not in DIFFER}


@pytest.fixture(scope="module")
def made(made_once: Callable[[str, Callable[[Path], None]], Path], ooc_in: Callable[[Path], Ooc]) -> Path:
    def make(directory: Path) -> None:
        (directory / "texts.txt").write_text(TEXTS)
        (directory / "others.txt").write_text(OTHERS)
        (directory / "table.csv").write_text("a,b,y\n" + "".join(f"{n % 5},{n % 3},{n % 7}\n" for n in range(40)))
        for command, name in MAKING.items():
            done = ooc_in(directory)(*command.format(f"made-{name}").split())
            assert done.returncode == 0, done.stderr

    return made_once("places", make)


@pytest.mark.few(2)
@pytest.mark.parametrize("command", MAKING)
def test_an_empty_directory_is_filled(command: str, made: Path, tmp_path: Path, ooc_in: Callable[[Path], Ooc]) -> None:
    """It may be a link to one; its mode stays."""
    place, link = tmp_path / "there", tmp_path / "link"
    for out in (place, link):
        place.mkdir()
        place.chmod(0o2770)
        link.unlink(missing_ok=True)
        link.symlink_to(place)
        done = ooc_in(made)(*command.format(out).split())
        assert done.returncode == 0, done.stderr
        assert contents(place) == contents(made / f"made-{MAKING[command]}")
        assert place.stat().st_mode & 0o7777 == 0o2770
        assert sorted(tmp_path.iterdir()) == [link, place]
        shutil.rmtree(place)


@pytest.mark.few(3)
@pytest.mark.parametrize("command", MAKING)
def test_a_directory_with_anything_in_it_is_left(command: str, made: Path, tmp_path: Path, ooc_in: Callable) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "thesis.txt").write_text("mine")
    before = tree(tmp_path)
    done = ooc_in(made)(*command.format(tmp_path / "there").split())
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert tree(tmp_path) == before


@pytest.mark.parametrize("more", [[], ["--overwrite"]])
def test_a_file_does_not_replace_a_directory(more: list[str], made: Path, tmp_path: Path, ooc: Ooc) -> None:
    (tmp_path / "empty").mkdir()
    shutil.copytree(made / "made-corpus", tmp_path / "corpus.csv")
    before = tree(tmp_path)
    for out in ("empty", "corpus.csv"):
        done = ooc("export", made / "made-run", out, "--format", "npz", *more)
        assert done.returncode == 2
        assert f"{out} is a directory" in done.stderr or f"{out} already exists" in done.stderr
    assert tree(tmp_path) == before


def test_what_is_put_into_an_empty_directory_meanwhile_stays(made: Path, tmp_path: Path, ooc: Ooc) -> None:
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "texts")
    command = [sys.executable, "-m", "ooc", "ingest", "text", "texts", "out", "--lines"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as ingesting:
        with (tmp_path / "texts").open("w") as texts:
            texts.write(TEXTS)
            texts.flush()
            (tmp_path / "out" / "thesis.txt").write_text("mine")
        told = ingesting.communicate()[1]
    assert (
        ingesting.returncode,
        "out was created by another program in the meantime, and is left as it is" in told,
    ) == (2, True), told
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["thesis.txt"]


IN_MOUNT = 'mount -t tmpfs tmpfs "$0" && mkdir "$0/lost+found" && { %s; }; code=$?; cp -a "$0" "$1"; exit $code'
OOC = f"{sys.executable} -m ooc"
DYING = """
import os, pathlib, sys
calls, die_at, rename = 0, int(os.environ["DIE_AT"]), pathlib.Path.rename
def counted(self, target):
    global calls
    if ".partial-" in str(self) + str(target) and "mount" in str(self):
        calls += 1
        if calls == die_at:
            os._exit(9)
    return rename(self, target)
pathlib.Path.rename = counted
sys.argv[0] = "ooc"
from ooc.cli import main
main()
"""


@pytest.fixture
def in_mount(made: Path, tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs a shell script in the directory of `made`, where $0 is a mount point; what is there is copied to `found`."""
    place = tmp_path / "mount"
    place.mkdir()

    def run(script: str) -> subprocess.CompletedProcess[str]:
        shutil.rmtree(tmp_path / "found", ignore_errors=True)
        words = [
            "unshare",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            IN_MOUNT % script,
            str(place),
            str(tmp_path / "found"),
        ]
        environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
        return subprocess.run(words, cwd=made, capture_output=True, text=True, check=False, env=environment)

    if not shutil.which("unshare") or run("true").returncode != 0:
        pytest.skip("NOTHING IS MOUNTED: this user may not mount here")
    return run


@pytest.mark.few(1)
@pytest.mark.parametrize("command", long_but(list(MAKING)[::3], MAKING))
def test_a_mount_point_is_filled(command: str, made: Path, tmp_path: Path, in_mount: Callable) -> None:
    done = in_mount(f"{OOC} {command.format('$0')}")
    assert done.returncode == 0, done.stderr
    (tmp_path / "found" / "lost+found").rmdir()
    assert contents(tmp_path / "found") == contents(made / f"made-{MAKING[command]}")
    assert not list((tmp_path / "found").glob(".*"))


@pytest.mark.long
def test_a_run_in_a_mount_point_goes_on(tmp_path: Path, in_mount: Callable) -> None:
    train = f"{OOC} train lda made-corpus $0 --topics 2 --workers 1 --sampler gibbs --iterations"
    done = in_mount(f"{train} 2 && {OOC} resume $0 --iterations 5 --workers 1 && {OOC} verify $0")
    assert done.returncode == 0, done.stderr
    model = contents(tmp_path / "found" / "model")
    assert in_mount(f"{train} 3 && {train} 5 --overwrite").returncode == 0
    assert contents(tmp_path / "found" / "model") == model


@pytest.mark.long
def test_a_mount_point_that_is_filled_is_told(in_mount: Callable) -> None:
    done = in_mount(f"{OOC} ingest text texts.txt $0 --lines && {OOC} ingest text texts.txt $0 --lines")
    assert (done.returncode, "already exists" in done.stderr) == (2, True)
    done = in_mount(f"touch $0/thesis.txt; {OOC} ingest text texts.txt $0 --lines --overwrite; test -e $0/thesis.txt")
    assert (done.returncode, "is not a dataset, so it is not replaced" in done.stderr) == (0, True)


RENAMES = 12  # of six names that are moved away, and six that are moved up
FAST = (3,)


@pytest.mark.long
@pytest.mark.parametrize(
    "rest",
    [
        "ingest text others.txt $0 --lines --overwrite",
        pytest.param("clean $0; test -e $0/manifest.json", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize(
    "die_at", [pytest.param(at, marks=() if at in FAST else pytest.mark.long) for at in range(1, RENAMES + 1)]
)
def test_a_kill_while_a_mount_point_is_filled_costs_nothing(
    die_at: int, rest: str, made: Path, tmp_path: Path, in_mount: Callable
) -> None:
    """Of the dataset before or of the one after there is all, or none is known, until a command looks after it."""
    (tmp_path / "dying.py").write_text(DYING)
    assert in_mount(f"{OOC} ingest text others.txt $0 --lines").returncode == 0
    new, old = (contents(place) for place in (tmp_path / "found", made / "made-corpus"))
    dying = f"DIE_AT={die_at} {sys.executable} {tmp_path / 'dying.py'} ingest text others.txt $0 --lines --overwrite"
    dying = f"{OOC} ingest text texts.txt $0 --lines && {dying}"
    assert in_mount(dying).returncode == 9
    found = {name: content for name, content in contents(tmp_path / "found").items() if ".partial-" not in name}
    assert "manifest.json" not in found or found in (old, new)
    assert in_mount(f"{dying}; {OOC} {rest} && {OOC} verify $0").returncode == 0
    assert contents(tmp_path / "found") in ([old, new] if "clean" in rest else [new])
    assert not list((tmp_path / "found").glob(".*"))
