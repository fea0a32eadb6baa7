"""A corpus with three themes, and a short training on it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
from commands import Ooc

THEMES = ["apple pear plum fruit cherry tree", "goal team ball match player score", "star planet orbit moon sun comet"]


def ingest_themes(ooc: Ooc, path: Path) -> Path:
    """Ingest documents of three themes, and one that is empty, from JSON Lines. Returns the dataset's path."""
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(THEMES[d % 3].split(), 30)) for d in range(150)]
    lines = [json.dumps({"id": f"doc{d}", "text": text}) for d, text in enumerate([*texts, ""])]
    (path / "texts.jsonl").write_text("\n".join(lines) + "\n")
    assert ooc("ingest", "jsonl", "texts.jsonl", "corpus").returncode == 0
    return path / "corpus"


def train(ooc: Ooc, *more: object) -> subprocess.CompletedProcess[str]:
    return ooc("train", "lda", "corpus", "run", "--topics", 3, "--iterations", 30, "--workers", 1, *more)
