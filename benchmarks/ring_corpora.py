"""Data of the ring benchmark: a dataset, its shards, and held-out documents with the same vocabulary."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks import corpus as corpora
from benchmarks.measure import ROOT
from blocks import write_corpus

LENGTH = 100  # mean tokens of a synthetic document
OOC = [sys.executable, "-m", "ooc"]


class CorporaDirectory(NamedTuple):
    """A directory of datasets."""

    folder: Path

    @property
    def whole(self) -> Path:
        return self.folder / "whole"

    @property
    def held_out(self) -> Path:
        return self.folder / "held-out"

    def shards(self, ranks: int) -> str:
        """Return the path of the shards for a number of ranks, with {rank} in it; create them unless they exist."""
        together = self.folder / f"{ranks}-shards"
        if not together.exists():
            _ooc("shard", self.whole, together, "--shards", ranks)
        return f"{together}/shard-{{rank}}"


def synthetic(folder: Path, tokens: int, words: int, topics: int, held_out: int) -> CorporaDirectory:
    """Create simulated training and held-out documents from the same planted topics, unless they exist."""
    data = _in(folder / f"synthetic-{tokens}-{words}-{topics}")
    common = ["--vocabulary", words, "--topics", topics, "--length", LENGTH]
    if not data.whole.exists():
        _ooc("ingest", "synthetic", data.whole, "--documents", tokens // LENGTH, *common)
    if not data.held_out.exists():
        more = ["--documents", held_out, "--seed", 1, "--topics-seed", 0]
        _ooc("ingest", "synthetic", data.held_out, *common, *more)
    return data


def real(folder: Path, source: Path, held_out: int) -> CorporaDirectory:
    """Create a dataset from a UCI file, holding out its last documents, unless it exists."""
    data = _in(folder / f"{source.name.partition('.txt')[0]}-{held_out}")
    if not (data.whole.exists() and data.held_out.exists()):
        corpus, vocabulary = corpora.load_any(source, None)
        parts = {data.whole: corpus.head(corpus.documents - held_out), data.held_out: corpus.tail(held_out)}
        for path, part in parts.items():
            write_corpus(path, part.offsets, part.words, vocabulary, overwrite=True)
    return data


def _in(folder: Path) -> CorporaDirectory:
    folder.mkdir(parents=True, exist_ok=True)
    return CorporaDirectory(folder)


def _ooc(*arguments: object) -> None:
    subprocess.run([*OOC, *map(str, arguments)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
