"""What a release consists of: wheel, sdist, and the files that name its version."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"blocks", "ooc", "samplers"}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_all_files_name_the_same_version() -> None:
    assert re.search(rf"^version: {re.escape(VERSION)}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] in ("Unreleased", VERSION)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with both, made from the files that git has."""
    place = tmp_path_factory.mktemp("release")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("the sources are not a git repository")
    for name in filter(None, listed.stdout.split("\0")):
        copy = place / "sources" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--outdir", str(place), str(place / "sources")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.mark.long
def test_the_wheel_has_the_packages_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"ooc-{VERSION}-py3-none-any.whl"
    assert wheel.stat().st_size < 1_000_000
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == PACKAGES | {f"ooc-{VERSION}.dist-info"}
    sources = built / "sources"
    files = [path for package in PACKAGES for path in (sources / package).rglob("*") if path.is_file()]
    assert {name for name in names if ".dist-info/" not in name} == {str(path.relative_to(sources)) for path in files}
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)


@pytest.mark.long
def test_the_wheel_of_the_sdist_is_that_of_the_sources(built: Path) -> None:
    """As pip makes it where there is no wheel: `build` has made the wheel from the sdist."""
    (sdist,) = built.glob("*.tar.gz")
    assert sdist.stat().st_size < 2_000_000
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "blocks/corpus/stop_words_english.txt", "ooc/py.typed"} <= names
    beside = {"tests/conftest.py", "examples/nmf.py", "docs/index.md", "benchmarks/lda.py", "Makefile", "cli.py"}
    assert beside <= names, "its own tests cannot be run"


@pytest.mark.long
def test_the_wheel_works_where_it_is_installed(built: Path, tmp_path: Path) -> None:
    """Without the sources beside it: from text to topics. What it depends on is that of this environment."""
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "there")]
    subprocess.run([*pip, str(wheel)], check=True)
    (tmp_path / "texts").write_text("apple pear plum\ngoal team ball\n" * 20)
    for words in ("ingest text texts corpus --lines", "train lda corpus run --topics 2 --iterations 5", "topics run"):
        command = [sys.executable, "-m", "ooc", *words.split()]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={"PYTHONPATH": "there", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert "apple" in done.stdout
