"""Files of datasets and runs with anything in them: each is opened truly, or refused in a line; nothing else happens.

A flipped bit has a checksum that does not fit. Somebody who means harm writes one that does, or none: so values of
manifests are changed, too, and numbers in files, with a checksum that fits.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from commands import Ooc, run_all
from corpora import tree
from long_mark import long_but
from make_old_files import write_inputs

ONE = "--workers 1"
MADE = {
    "corpus": f"ingest jsonl texts.jsonl corpus {ONE}",
    "ratings": f"ingest ratings ratings.tsv ratings {ONE}",
    "design": "ingest svmlight numbers.svm design",
    "samples": "ingest svmlight numbers.svm samples --by-rows",
    "lda": f"train lda corpus lda --sampler two-phase --topics 3 --iterations 4 {ONE}",
    "ccd": f"train mf ratings ccd --method ccd --rank 2 --iterations 2 {ONE}",
    "lasso": f"train lasso design lasso --path 4 {ONE}",
    "softmax": f"train softmax samples softmax --passes 2 --parallelism 1 {ONE}",
}
DATASET = {"lda": "corpus", "ccd": "ratings", "lasso": "design", "softmax": "samples"}
MORE = {"lda": "--iterations 6", "ccd": "--iterations 3", "lasso": "", "softmax": "--iterations 3"}
WRONG: list[Any] = [None, "x", "", -1, 0, 1, 7, 2**31, 10**18, 10**30, 1.5, float("nan"), True, [], [[]], {}, "../x"]
NOT_COVERED = {"lock", "log.txt"}  # change no result and stop no run


@pytest.fixture(scope="module")
def made(made_once, ooc_in) -> Path:
    """One tiny dataset of each kind, and a run on it."""

    def make(directory: Path) -> None:
        write_inputs(directory)
        run_all(ooc_in(directory), MADE.values())

    return made_once("damaged", make)


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    for run, dataset in DATASET.items():
        seal(tmp_path / run / "config.json", dataset={"path": str(tmp_path / dataset), **identity(tmp_path / dataset)})
    return tmp_path


def identity(dataset: Path) -> dict[str, str]:
    return {"identity": json.loads((dataset / "manifest.json").read_text())["identity"]}


def seal(file: Path, **changes: Any) -> None:
    """Change a JSON file, and write the checksum that fits."""
    content = json.loads(file.read_text()) | changes
    content.pop("checksum", None)
    content["checksum"] = xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())
    file.write_text(json.dumps(content))


def readers(name: str) -> list[str]:
    """Commands that only read."""
    own = {"lda": [f"topics {name} --documents 2"], "ccd": [f"recommend {name} --user u1 --top 2"]}
    return [f"verify {name}", f"info {name}", *own.get(name, [])]


def writers(name: str) -> list[str]:
    if name in MORE:
        return [f"resume {name} {MORE[name]}"]
    run = next(run for run, dataset in DATASET.items() if dataset == name)
    return [f"{MADE[run]} --overwrite"]


def require_explained(done: subprocess.CompletedProcess[str], what: object) -> None:
    assert done.returncode in (0, 1, 2), (what, done)
    assert "Traceback" not in done.stderr, (what, done.stderr)
    assert "bug in ooc" not in done.stderr, (what, done.stderr)


def open_all(ooc: Ooc, place: Path, name: str, what: object) -> list[int]:
    """What all commands on a dataset or a run return."""
    before, codes = tree(place), []
    for command in readers(name):
        done = ooc(*command.split())
        require_explained(done, (what, command))
        assert tree(place) == before, (what, command)
        codes.append(done.returncode)
    for command in writers(name):
        done = ooc(*command.split())
        require_explained(done, (what, command))
        codes.append(done.returncode)
    return codes


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value is in JSON content: keys and numbers, from outside."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def with_value(content: Any, where: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value there; without any, if it is `places`."""
    content = json.loads(json.dumps(content))
    inner = content
    for key in where[:-1]:
        inner = inner[key]
    if value is places:
        del inner[where[-1]]
    else:
        inner[where[-1]] = value
    return content


def restored(made: Path, place: Path, *names: str) -> None:
    """Put back what a round may have changed."""
    for name in names:
        shutil.rmtree(place / name, ignore_errors=True)
        shutil.copytree(made / name, place / name)
        if name in DATASET:
            dataset = place / DATASET[name]
            seal(place / name / "config.json", dataset={"path": str(dataset), **identity(dataset)})


def manifests(place: Path, name: str) -> list[Path]:
    return sorted(file for file in (place / name).rglob("*.json"))


QUICK = long_but([*DATASET.values(), "ccd"], [*DATASET, *DATASET.values()])


@pytest.mark.few(1)
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("times", [12, pytest.param(600, marks=pytest.mark.long)])
def test_whatever_a_manifest_says_is_refused_or_true(made: Path, place: Path, ooc: Ooc, name: str, times: int) -> None:
    """Every value of each JSON file may be another, of any type, or be missing."""
    draw = random.Random(f"{name} {times}")
    run = next((run for run, dataset in DATASET.items() if dataset == name), name)
    for _ in range(times):
        file = draw.choice(manifests(place, name))
        content = json.loads(file.read_text())
        where, value = draw.choice(list(places(content))), draw.choice([*WRONG, places])
        file.write_text(json.dumps(with_value(content, where, value)))
        if draw.random() < 0.7 and where != ("checksum",):
            seal(file)
        open_all(ooc, place, name, (str(file), where, value))
        restored(made, place, name, run)


def test_a_state_of_fewer_values_of_lambda_than_are_solved_ends(place: Path, ooc: Ooc) -> None:
    """Such a path was followed for ever."""
    for file in (place / "lasso" / "state").glob("*.json"):
        content = json.loads(file.read_text())
        for where in list(places(content)):
            if where[-2:] == ("levels", 2):
                content = with_value(content, where, 1)
        file.write_text(json.dumps(content))
        seal(file)
    done = ooc("resume", "lasso")
    require_explained(done, "levels")
    assert (done.returncode, "its arrays do not fit together (4 solutions for 1 values" in done.stderr) == (1, True)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", [*DATASET, *DATASET.values()])
def test_a_checksum_whose_key_is_damaged_is_missed(place: Path, ooc: Ooc, name: str) -> None:
    """Of all JSON files: else they would be taken for those of earlier versions, which have none."""
    for file in [*manifests(place, name), *(place / name).glob("metrics.jsonl")]:
        whole = file.read_bytes()
        file.write_bytes(
            whole.replace(b'"checksum": "', b'"chdcksum": "')
            if file.suffix == ".jsonl"
            else (b'"chdcksum"'.join(whole.rsplit(b'"checksum"', 1)))
        )
        assert ooc("verify", name).returncode != 0, file
        file.write_bytes(whole)
    assert ooc("verify", name).returncode == 0


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("times", [12, pytest.param(600, marks=pytest.mark.long)])
def test_every_byte_is_covered(made: Path, place: Path, ooc: Ooc, name: str, times: int) -> None:
    """A flipped bit, a cut, more bytes, or no file: `verify` sees it, and what goes on comes to the true result."""
    draw = random.Random(f"{name} {times} bytes")
    run = next((run for run, dataset in DATASET.items() if dataset == name), name)
    expected = result_of(ooc, place, name)
    restored(made, place, name, run)
    files = sorted(file for file in (place / name).rglob("*") if file.is_file() and file.name not in NOT_COVERED)
    for _ in range(times):
        file, kind = draw.choice(files), draw.choice(["flip", "flip", "flip", "cut", "more", "gone"])
        content = bytearray(file.read_bytes())
        at = draw.randrange(max(len(content), 1))
        if kind == "flip" and content:
            content[at] ^= 1 << draw.randrange(8)
        elif kind == "cut":
            del content[at:]
        else:
            content += b"x"
        if kind == "gone":
            file.unlink()
        else:
            file.write_bytes(content)
        what = (str(file), kind, at)
        seen, *_ = open_all(ooc, place, name, what)
        assert seen != 0 or may_go_unseen(file, kind), what
        restored(made, place, name, run)
    assert result_of(ooc, place, name) == expected


def may_go_unseen(file: Path, kind: str) -> bool:
    """What a crash may do to the metrics, files that are there a second time, and those that are the user's to take."""
    if kind == "gone":
        written_again = file.parent.name == "runs"  # by any command that goes on with the run
        return file.name in ("options.toml", "metrics.jsonl") or file.stem.isdecimal() or written_again
    return file.name == "metrics.jsonl" and kind in ("cut", "more")


def result_of(ooc: Ooc, place: Path, name: str) -> dict[str, bytes]:
    """The files of the model that going on, or a training, comes to."""
    run = next((run for run, dataset in DATASET.items() if dataset == name), name)
    run_all(ooc, writers(name))
    return tree(place / run / "model")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", DATASET.values())
def test_numbers_that_kernels_index_with_stay_inside(made: Path, place: Path, ooc: Ooc, name: str) -> None:
    """Arrays of each file are set to numbers that are too large, with a checksum that fits."""
    manifest = place / name / "manifest.json"
    whole = json.loads(manifest.read_text())
    entries = [whole["index"], *whole["blocks"], *whole["slices"]]
    for number, entry in enumerate(entries):
        for array, (offset, dtype, size) in entry["arrays"].items():
            if not size or np.dtype(dtype).kind == "f":
                continue
            content = json.loads(manifest.read_text())
            changed = [content["index"], *content["blocks"], *content["slices"]][number]
            file = place / name / entry["file"]
            data = bytearray(file.read_bytes())
            numbers = np.frombuffer(data, dtype, size, offset)
            numbers[size // 2] = min(np.iinfo(dtype).max, 2**40)
            file.write_bytes(data)
            changed["checksum"] = xxhash.xxh3_128_hexdigest(data)
            manifest.write_text(json.dumps(content))
            seal(manifest)
            open_all(ooc, place, name, (entry["file"], array))
            restored(made, place, name)


@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
def test_a_manifest_that_is_no_manifest_is_refused(made: Path, place: Path, ooc: Ooc, name: str) -> None:
    for file in manifests(place, name):
        whole = file.read_bytes()
        for content in (b"", b"[]", b"{}", b"null", b"[" * 200_000, b'{"schema": 1, "a": ' + b"[" * 5000, b"\xff" * 9):
            file.write_bytes(content)
            open_all(ooc, place, name, (file, content[:20]))
            restored(made, place, name)
        file.write_bytes(whole)


def test_a_manifest_without_end_is_not_read(place: Path, ooc: Ooc) -> None:
    manifest = place / "corpus" / "manifest.json"
    with manifest.open("ab") as file:
        file.truncate(300_000_000)
    done = ooc("info", "corpus")
    assert done.returncode == 1
    assert "it has 300000000 bytes, too many for a file of ooc" in done.stderr
    manifest.unlink()
    manifest.symlink_to("/dev/zero")
    done = ooc("info", "corpus")
    assert done.returncode == 1
    assert "it is not a regular file" in done.stderr
