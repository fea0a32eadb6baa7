"""Files from a stranger are data: nothing in them runs, deletes or overwrites anything."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from corpora import tree

Ooc = Callable[..., subprocess.CompletedProcess[str]]
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


@pytest.mark.parametrize("program", ["pydoc:pipepager", "samplers.programs:import_module", "stranger:Evil"])
def test_no_program_of_a_configuration_is_imported(run: Path, ooc: Ooc, program: str) -> None:
    (run.parent / "stranger.py").write_text("open('PWNED', 'w')\nEvil = dict\n")
    change(run / "config.json", program=program, options={"cmd": "id > PWNED", "text": ""})
    before = tree(run.parent)
    assert ooc("verify", "run").returncode == 0
    refused = ooc("resume", "run", "--iterations", 6)
    assert refused.returncode == 2
    assert f"run names {program}, a program that is not part of ooc" in refused.stderr
    assert tree(run.parent) == before


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
    assert "warning: the file of mine:Own is not the one that own was started with" in done.stderr
    assert "the file of mine:Own is not the one" in (run.parent / "own" / "log.txt").read_text()
    (run.parent / "mine.py").unlink()
    gone = ooc("resume", "own", "--program", "mine:Own", "--iterations", 6)
    assert gone.returncode == 2
    assert "program mine:Own cannot be imported: No module named 'mine'" in gone.stderr
