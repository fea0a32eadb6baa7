"""Files from a stranger are data: nothing in them runs, deletes or overwrites anything."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from commands import Ooc
from corpora import tree
from long_mark import long_but

from blocks.corpus.from_memory import write_corpus

OWN = """
from samplers.lda.programs import TwoPhase


class Own(TwoPhase):
    {body}
"""


@pytest.fixture
def run(tmp_path: Path, ooc: Ooc) -> Path:
    """A finished run of 4 iterations."""
    (tmp_path / "texts.txt").write_text("apple pear plum\nball goal team\n" * 20)
    assert ooc("ingest", "text", "texts.txt", "corpus", "--lines").returncode == 0
    size = ["--topics", 2, "--iterations", 4, "--workers", 1, "--sampler", "two-phase"]
    assert ooc("train", "lda", "corpus", "run", *size).returncode == 0
    return tmp_path / "run"


def change(file: Path, **changes: object) -> None:
    """Change a published JSON file as somebody who means harm would: there is no checksum that does not fit."""
    content = json.loads(file.read_text()) | changes
    content.pop("checksum", None)
    file.write_text(json.dumps(content))


@pytest.mark.few(1)
@pytest.mark.parametrize("program", ["pydoc:pipepager", "samplers.programs:import_module", "stranger:Evil"])
def test_no_program_of_a_configuration_is_imported(run: Path, ooc: Ooc, program: str) -> None:
    (run.parent / "stranger.py").write_text("open('PWNED', 'w')\nEvil = dict\n")
    change(run / "config.json", program=program, options={"cmd": "id > PWNED", "text": ""})
    before = tree(run.parent)
    assert ooc("verify", "run").returncode == 0
    refused = ooc("resume", "run", "--iterations", 6)
    assert refused.returncode == 2
    assert f"run needs the program {program}, which is not part of ooc" in refused.stderr
    assert tree(run.parent) == before


@pytest.mark.long
def test_a_program_of_ones_own_goes_on_where_it_is_named(run: Path, ooc: Ooc, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was changed since is told of, on standard error and in the log."""
    monkeypatch.setenv("PYTHONPATH", str(run.parent))
    (run.parent / "mine.py").write_text(OWN.format(body="pass"))
    script = (
        "from blocks import Dataset; from ooc import ProgramSpec, create_run\n"
        "spec = ProgramSpec('mine:Own', {'topics': 2, 'alpha': 0.1, 'beta': 0.1, 'seed': 0})\n"
        "settings = {'held_out': None, 'average': 1, 'stop_when_converged': False}\n"
        "create_run('own', Dataset('corpus'), spec, iterations=2, evaluate_every=1, settings=settings)\n"
    )
    made = subprocess.run([sys.executable, "-c", script], cwd=run.parent, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert ooc("resume", "own").returncode == 2
    done = ooc("resume", "own", "--program", "mine:Own")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    (run.parent / "mine.py").write_text(OWN.format(body="changed = True"))
    done = ooc("resume", "own", "--program", "mine:Own", "--iterations", 4)
    assert done.returncode == 0, done.stderr
    assert "warning: the source files of mine:Own have changed since own was started" in done.stderr
    assert "the source files of mine:Own have changed since" in (run.parent / "own" / "log.txt").read_text()
    (run.parent / "mine.py").unlink()
    gone = ooc("resume", "own", "--program", "mine:Own", "--iterations", 6)
    assert gone.returncode == 2
    assert "program mine:Own cannot be imported: there is no module 'mine'" in gone.stderr


def test_only_what_a_run_owns_is_deleted(run: Path, ooc: Ooc) -> None:
    """A configuration that names somebody's directory as its --scratch, with names that a state has."""
    victim = run.parent / "victim"
    for name in ("state/000001.cells", "state/thesis.txt", "slices/arrays", "photo"):
        (victim / name).parent.mkdir(parents=True, exist_ok=True)
        (victim / name).write_text("mine")
    change(run / "config.json", scratch=str(victim))
    before = tree(victim)
    for command in (
        "verify run",
        "info run",
        "resume run --iterations 6",
        "clean run --state",
        "clean .",
        "train lda corpus run --topics 2 --iterations 2 --workers 1 --overwrite",
    ):
        assert "Traceback" not in ooc(*command.split()).stderr
        assert tree(victim) == before


@pytest.mark.long
def test_a_copied_run_leaves_the_state_of_the_first_alone(run: Path, ooc: Ooc) -> None:
    """`cp -r` of a run with --scratch; a moved one takes its state along."""
    place, size = run.parent, "--topics 2 --iterations 4 --workers 1 --sampler two-phase --scratch fast --overwrite"
    assert ooc("train", "lda", "corpus", "run", *size.split()).returncode == 0
    shutil.copytree(run, place / "copy")
    before = tree(place / "fast")
    for command, code in (("resume copy --iterations 6", 2), ("verify copy", 0)):  # the state cannot be checked
        done = ooc(*command.split())
        assert done.returncode == code
        assert f"copy is a copy of {run.resolve()}, which owns the state in" in done.stderr
    assert ooc("topics", "copy").returncode == 0
    assert ooc("info", "copy").returncode == 0
    assert ooc("clean", "copy", "--state").returncode == 0
    assert tree(place / "fast") == before
    run.rename(place / "moved")
    assert ooc("verify", "moved").returncode == 0
    assert ooc("resume", "moved", "--iterations", 6).returncode == 0
    shutil.copytree(place / "moved", place / "again")
    assert f"again is a copy of {place.resolve()}/moved" in ooc("verify", "again").stderr


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["lock", "log.txt", "metrics.jsonl", "state", "model", "config.json"])
def test_no_link_is_followed_out_of_a_run(run: Path, ooc: Ooc, name: str) -> None:
    place = run.parent
    shutil.move(run / name, place / "outside")
    (run / name).symlink_to(place / "outside")
    before = tree(place)
    for command in ("resume run --iterations 6", "verify run", "clean run --state"):
        refused = ooc(*command.split())
        assert refused.returncode == 2
        assert f"run/{name} is a symbolic link" in refused.stderr
    assert tree(place) == before


def files_of(content: object) -> Iterator[dict]:
    """Every entry of a manifest that names a file."""
    if isinstance(content, dict):
        if "file" in content:
            yield content
        content = list(content.values())
    if isinstance(content, list):
        for each in content:
            yield from files_of(each)


NAMES = ["/etc/hostname", "../victim", "blocks/../../victim", "linked/victim", "", 7, ["x"]]


@pytest.mark.parametrize("name", long_but(["../victim", "linked/victim", 7], NAMES))
def test_no_file_outside_is_read_or_written_over(run: Path, ooc: Ooc, name: object) -> None:
    """Whatever entry of a dataset's, a model's or a state's manifest has the name."""
    place = run.parent
    (place / "victim").write_text("mine")
    for manifest in (place / "corpus" / "manifest.json", run / "model" / "model.json"):
        (manifest.parent / "linked").symlink_to(place)
        whole = json.loads(manifest.read_text())
        for number in range(len(list(files_of(whole)))):
            content = json.loads(manifest.read_text())
            list(files_of(content))[number]["file"] = name
            change(manifest, **content)
            before = tree(place)
            for command in ("verify corpus --repair", "verify run", "topics run", "resume run --iterations 6"):
                if (manifest.parent.name == "model") == (command in ("verify run", "topics run")):
                    refused = ooc(*command.split())
                    assert refused.returncode == 1, (number, command, refused.stderr)
                    assert f"lists the file {name!r}, which is outside it" in refused.stderr
            assert tree(place) == before
            manifest.write_text(json.dumps(whole))


@pytest.mark.few(1)
@pytest.mark.parametrize("made", ["directory", "file", "dataset"])
def test_what_was_made_meanwhile_is_not_replaced(tmp_path: Path, ooc: Ooc, made: str) -> None:
    """Somebody makes OUT while an ingestion waits for its standard input: theirs stays, and it fails."""
    command = [sys.executable, "-m", "ooc", "ingest", "text", "-", "out", "--lines"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={"PYTHONPATH": ":".join(sys.path)}
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"apple pear\n")
        process.stdin.flush()
        while not list(tmp_path.glob(".out.partial-*")):
            assert process.poll() is None
        if made == "directory":
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "thesis.txt").write_text("mine")
        elif made == "file":
            (tmp_path / "out").write_text("mine")
        else:
            (tmp_path / "other.txt").write_text("plum\n")
            assert ooc("ingest", "text", "other.txt", "out", "--lines").returncode == 0
        before = tree(tmp_path / "out") if made != "file" else {}
        message = process.communicate(b"plum\n")[1].decode()
    assert process.returncode == 2, message
    assert "out was created by another program in the meantime, and is left as it is" in message
    assert (tree(tmp_path / "out") == before) if made != "file" else (tmp_path / "out").read_text() == "mine"
    assert not list(tmp_path.glob(".out.partial-*"))


def test_only_what_ooc_made_is_replaced(tmp_path: Path, ooc: Ooc) -> None:
    (tmp_path / "texts.txt").write_text("apple pear\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    (tmp_path / "out" / "manifest.json").write_text('{"name": "an app"}')
    for command in ("text texts.txt out --lines", "synthetic out --documents 9 --vocabulary 5 --topics 2"):
        refused = ooc("ingest", *command.split(), "--overwrite")
        assert refused.returncode == 2
        assert "out was not made by ooc, so it is not replaced" in refused.stderr
        assert (tmp_path / "out" / "thesis.txt").read_text() == "mine"


class MaliciousPickle:
    """What a pickle can do."""

    def __reduce__(self) -> tuple:
        return os.system, ("touch PWNED",)


def test_no_pickle_is_read_unless_it_is_trusted(tmp_path: Path, ooc: Ooc) -> None:
    (tmp_path / "lda.model").write_bytes(pickle.dumps(MaliciousPickle()))
    refused = ooc("import", "gensim", "lda.model", "model")
    assert refused.returncode == 2
    assert "add --trust-pickle" in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lda.model"]


@pytest.mark.few(1)
@pytest.mark.parametrize("line", ["{", '"x"', '{"iteration": "one"}', "\xff", "[" * 100_000])
def test_a_damaged_line_of_the_metrics_is_left_out_and_told(run: Path, ooc: Ooc, line: str) -> None:
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    lines[1] = line
    metrics.write_text("\n".join(lines) + "\n", encoding="latin-1")
    for command in ("info run", "resume run --iterations 6"):
        done = ooc(*command.split())
        assert done.returncode == 0, done.stderr
        assert "run/metrics.jsonl, line 2 is damaged and ignored" in done.stderr
    assert len(metrics.read_text().splitlines()) == 5


def on_a_terminal(place: Path, *command: object, code: int = 0) -> str:
    """What a command shows on a terminal, on standard output and standard error."""
    outer, inner = os.openpty()
    words = [sys.executable, "-m", "ooc", *map(str, command)]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(words, cwd=place, stdout=inner, stderr=inner, env=environment) as done:
        os.close(inner)
        shown = b""
        with suppress(OSError):  # as the last of a terminal is read
            while some := os.read(outer, 1 << 16):
                shown += some
    os.close(outer)
    assert done.returncode == code, shown
    return shown.decode().replace("\r\n", "\n")


def test_words_of_a_stranger_do_nothing_to_a_terminal(tmp_path: Path, ooc: Ooc) -> None:
    words = ["\x1b[2Jgone", "\x1b]0;title\x07", "over\rwritten", "\x9b31mred", "\u202eturned", "plain", "grün"]
    offsets, tokens = np.arange(0, 71, 7), np.tile(np.arange(7, dtype=np.uint32), 10)
    write_corpus(tmp_path / "corpus", offsets, tokens, words, names=[f"doc\x1b[3{number}m" for number in range(10)])
    assert ooc("train", "lda", "corpus", "run", "--topics", 2, "--iterations", 2, "--workers", 1).returncode == 0
    shown = on_a_terminal(tmp_path, "topics", "run", "--top", 7, "--documents", 5)
    assert "\\x1b[2Jgone" in shown
    assert "doc\\x1b[3" in shown
    assert "plain" in shown and "grün" in shown
    assert not obeyed(shown)
    assert "\x1b[2Jgone" in ooc("topics", "run", "--top", 7).stdout  # which another program reads: as they are
    shown = on_a_terminal(tmp_path, "info", "none\x1b[2J\rhere", code=2)
    assert "none\\x1b[2J\\rhere" in shown
    assert not obeyed(shown)


def test_names_in_a_warning_do_nothing_to_a_terminal(tmp_path: Path, ooc: Ooc) -> None:
    rows = "".join(f"{row % 5},1,{row % 5 + row % 3}\n" for row in range(30))
    (tmp_path / "table.csv").write_text(f"a,constant\x1b[2J,y\n{rows}")
    assert ooc("ingest", "csv", "table.csv", "design", "--target", "y").returncode == 0
    shown = on_a_terminal(tmp_path, "train", "lasso", "design", "run", "--path", 3)
    assert "constant\\x1b[2J" in shown
    assert set(obeyed(shown)) <= {"\r"}  # of the progress bar


def obeyed(shown: str) -> list[str]:
    """The characters that a terminal does not show."""
    return [each for each in shown if each in "\x1b\x07\r\x9b\u202e"]


@pytest.mark.long
def test_a_run_notes_itself_nowhere_but_in_its_dataset(run: Path, ooc: Ooc) -> None:
    """An id that leads elsewhere; a dataset that the run was not begun on; a link in the place of the notes."""
    place = run.parent
    (place / "other.txt").write_text("apple plum\n" * 9)
    assert ooc("ingest", "text", "other.txt", "other", "--lines").returncode == 0
    shutil.rmtree(place / "corpus" / "runs")
    (place / "outside").mkdir()
    (place / "corpus" / "runs").symlink_to(place / "outside")
    before, config = tree(place), (run / "config.json").read_bytes()
    elsewhere = {"path": str(place / "other"), "identity": json.loads(config)["dataset"]["identity"]}
    for changes in ({"id": "../../victim"}, {"id": str(place / "victim")}, {"dataset": elsewhere}):
        change(run / "config.json", **changes)
        assert ooc("resume", "run", "--iterations", 6).returncode in (1, 2)
        (run / "config.json").write_bytes(config)
        assert {name: tree(place)[name] for name in before if not name.startswith("run/")} == {
            name: content for name, content in before.items() if not name.startswith("run/")
        }
        assert not (place / "victim.json").exists()
    assert ooc("resume", "run", "--iterations", 6).returncode == 0
    assert list((place / "outside").iterdir()) == []
